package replicate

// Counters whose TTL has nearly passed, and increments that set an exptime in the past.

import (
	"fmt"
	"testing"
)

// TestExpiringCountersCount shows that the replicas count together although the item expires soon.
// A follower with another number gets the primary's. A follower without an item gets no copy.
func TestExpiringCountersCount(t *testing.T) {
	defer func(n uint8) { countRounds = n }(countRounds)
	countRounds = 4
	x := newChecker(t)
	agreeing(2, 5, func(name string, replicas []Replica, w world) {
		lead := Authority(replicas)
		if !w.items[lead].has || replicas[lead].State != In {
			return
		}
		for i := range w.items {
			w.items[i].expiring = w.items[i].has
		}
		two := pair(Policy{}, replicas, replicas, Command{Op: Incr}, Command{Op: Incr})
		two.w = w
		check := func(s *scene) string {
			for c := range 2 {
				for i, m := range replicas {
					it := s.w.items[i]
					if m.State == In && s.w.items[lead].has && it.has && !it.mark && it.value > s.w.items[lead].value {
						return fmt.Sprintf("replica %d has %d, and the primary %d", i, it.value, s.w.items[lead].value)
					}
					if m.State != Out && s.acknowledged(c) && it.has && !it.mark && it.value < s.clients[c].number {
						return fmt.Sprintf("replica %d has %d after %d was acknowledged", i, it.value, s.clients[c].number)
					}
				}
			}
			return ""
		}
		x.always = check
		x.end = func(s *scene) string {
			switch {
			case !s.acknowledged(0) || !s.acknowledged(1) || s.clients[0].number == s.clients[1].number:
				return "both should have counted"
			case s.w.items[lead].value != 8:
				return fmt.Sprintf("the primary has %+v and not 8", s.w.items[lead])
			}
			for i, m := range replicas {
				if had, it := w.items[i], s.w.items[i]; m.State != Out && (it.has != had.has || it.has && it.value != 8) {
					return fmt.Sprintf("replica %d has %+v and not 8", i, it)
				}
			}
			return check(s)
		}
		x.run(name, two)
		if replicas[1-lead].State != In {
			return
		}
		two.expires = 1
		x.end = func(s *scene) string {
			for c := range 2 {
				if settled, _ := s.clients[c].rule.Settled(); settled.Verdict == Unmet {
					return "an increment has failed because an item has expired"
				}
			}
			return check(s)
		}
		x.run(name+", one expires", two)
	})
	t.Log(x.visited, "states")
}

// TestExpiringIncrEndsTheCounter shows that an increment which lets the item expire at once
// succeeds, and that no replica has a value then. It leaves out replicas from which a command of
// another client would restore the value.
func TestExpiringIncrEndsTheCounter(t *testing.T) {
	x := newChecker(t)
	agreeing(2, 5, func(name string, replicas []Replica, w world) {
		lead := Authority(replicas)
		if !w.items[lead].has || replicas[lead].State != In || replicas[1-lead].State == Warming {
			return
		}
		x.end = func(s *scene) string {
			if !s.acknowledged(0) {
				return "the last increment should have succeeded"
			}
			for i, m := range replicas {
				if it := s.w.items[i]; m.State != Out && it.has && !it.mark {
					return fmt.Sprintf("replica %d has %d", i, it.value)
				}
			}
			return ""
		}
		x.always = func(s *scene) string {
			if s.acknowledged(0) {
				return x.end(s)
			}
			return ""
		}
		s := pair(Policy{}, replicas, replicas, Command{Op: Incr, Expires: true}, Command{Op: Incr})
		s.w = w
		x.run(name, s)
	})
	t.Log(x.visited, "states")
}
