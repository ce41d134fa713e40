package replicate

// Counting while the primary changes.

import (
	"fmt"
	"slices"
	"testing"
)

// While a replica leaves or joins and two proxies see it in neighboring phases, no count is
// lost.
func TestNoCountIsLostWhileTheAuthorityChanges(t *testing.T) {
	x := newChecker(t)
	counted := 0
	for _, n := range []int{2, 3} {
		forViews(n, func(a, b []Replica) {
			changing := 0
			for i := range a {
				if a[i].State != b[i].State {
					changing++
				}
			}
			if n == 3 && (changing != 1 || !slices.ContainsFunc(a, func(m Replica) bool { return m.State == Out })) {
				return // two replicas show the rest
			}
			for have := range Mask(1) << n {
				countWhile(x, &counted, a, b, have)
			}
		})
	}
	t.Log(x.visited, "states,", counted, "counts")
	if counted == 0 {
		t.Error("nothing was ever counted")
	}
}

// countWhile runs the counts of two clients. Of the replicas that may be without the value,
// those in have have it.
func countWhile(x *checker, counted *int, a, b []Replica, have Mask) {
	s := pair(Policy{}, a, b, Command{Op: Incr}, Command{Op: Incr})
	readable := func(m Replica) bool {
		return m.State == In || m.State == Filling || m.State == Warming || m.State == Settling
	}
	there := false // a readable replica has the 5
	for i := range a {
		p, q := a[i].State, b[i].State
		may := p == Returning || q == Returning || p == Warming || q == Warming
		switch {
		case p == Dirty || q == Dirty || !may && have.Has(i):
			return
		case p == Out || q == Out || p == Returning && q == Returning:
			s.w.put(i, 99) // an old value
		case !may || have.Has(i):
			s.w.put(i, 5)
			there = there || readable(a[i]) && readable(b[i])
		}
	}
	if !there {
		return
	}
	x.end = func(s *scene) string {
		sum, last := uint32(5), uint32(0)
		for c := range 2 {
			if s.acknowledged(c) {
				*counted++
				sum += s.clients[c].value
				last = max(last, s.clients[c].number)
			} else if settled, _ := s.clients[c].rule.Settled(); settled.Verdict != Held && settled.Verdict != Refused {
				return fmt.Sprintf("client %d was refused", c)
			}
		}
		if last != 0 && last != sum {
			return fmt.Sprintf("the last count is %d, not %d", last, sum)
		}
		for i := range a {
			if it := s.w.items[i]; readable(a[i]) && readable(b[i]) && it.has && it.value != sum {
				return fmt.Sprintf("replica %d has %d, not %d", i, it.value, sum)
			}
		}
		return ""
	}
	x.run(fmt.Sprint(a, b), s)
}
