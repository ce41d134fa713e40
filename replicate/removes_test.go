package replicate

// Commands that remove a key, with a policy that acknowledges other writes before all replicas
// have them.

import (
	"fmt"
	"testing"
)

// removals are the commands after which the key is gone.
var removals = []Command{
	{Op: Delete}, {Op: Delete, Conditional: true}, {Op: Delete, If: true}, {Op: Delete, Stale: true}, {Op: Delete, If: true, Stale: true},
	{Op: Set, Expires: true}, {Op: Set, Expires: true, Conditional: true}, {Op: Set, If: true, Expires: true},
	{Op: Replace, Expires: true}, {Op: Cas, Expires: true}, {Op: Incr, Expires: true},
	{Op: Touch, Expires: true}, {Op: Gat, Expires: true}, {Op: Gats, Expires: true},
}

// removing returns a scene in which c runs at n replicas, one request has no reply, and a get
// begins after c has been answered. The item that a delete with the flag I leaves at the primary
// may expire. With early, c is answered as soon as one replica has run it.
func removing(c Command, p Policy, n int, early bool) (s scene) {
	replicas := states(In, In, In)[:n]
	for m := range n {
		s.w.put(m, old)
	}
	read := Policy{ReadThrough: true}
	s.play(client{rule: begin(p, c, replicas, 0), own: own{value: fresh, token: s.w.items[0].cas}}, client{rule: begin(read, Command{Op: Get}, replicas, 0), own: own{waits: true}})
	if s.w.brief = c.Stale; c.Stale {
		s.expires = 1
	}
	if early {
		s.clients[0].rule.need = 1
	}
	s.faults = 1
	return s
}

// exploreRemoval returns the first error: the get returns what c removed before. A delete with the
// flag I leaves an item at the primary, which is no error. exploreRemoval also returns in how many
// ends c was acknowledged.
func exploreRemoval(t *testing.T, c Command, p Policy, n int, early bool) (what string, visited, acknowledged int) {
	x := newChecker(t)
	x.quiet = true
	x.always = func(s *scene) string {
		get := &s.clients[1]
		settled, ok := get.rule.Settled()
		if !ok || !s.acked[0] || settled.Verdict != Answered {
			return ""
		}
		if e := get.rule.asks[settled.Answer]; e.kind == Hit && get.read == old && !(c.Stale && e.replica == 0) {
			return fmt.Sprintf("a get returns what was removed before, from replica %d", e.replica)
		}
		return ""
	}
	x.end = func(s *scene) string {
		if s.acked[0] {
			acknowledged++
		}
		return ""
	}
	x.run(fmt.Sprintf("%+v %s", c, p.Ack), removing(c, p, n, early))
	return x.what, x.visited, acknowledged
}

// TestARemovalReachesAllReplicas shows that no get finds a removed value at a follower, whatever
// the policy acknowledges. Without the rule, a get finds it after each of the commands.
func TestARemovalReachesAllReplicas(t *testing.T) {
	for _, c := range removals {
		for n := 2; n <= 3; n++ {
			for _, ack := range []Ack{AckAll, AckQuorum, AckOne} {
				p := Policy{Ack: ack, ReadThrough: true}
				what, visited, acknowledged := exploreRemoval(t, c, p, n, false)
				switch {
				case what != "":
					t.Errorf("%+v, %d replicas, ack %s: %s", c, n, ack, what)
				case acknowledged == 0:
					t.Errorf("%+v, %d replicas, ack %s: never acknowledged in %d states", c, n, ack, visited)
				}
			}
		}
		what, visited, _ := exploreRemoval(t, c, Policy{Ack: AckOne, ReadThrough: true}, 2, true)
		if what == "" {
			t.Errorf("%+v, acknowledged by one replica: nothing is found in %d states", c, visited)
		} else {
			t.Logf("%+v, acknowledged by one replica, after %d states: %s", c, visited, what)
		}
	}
}

// TestARemovalWaitsForAllReplicas shows that a command that removes the key is not sent while a
// replica that counts can't be asked, and that a replica of a pool which this instance does not
// reach becomes dirty.
func TestARemovalWaitsForAllReplicas(t *testing.T) {
	for _, c := range removals {
		for _, away := range []State{Leaving, Suspect} {
			for i := range 2 {
				replicas := states(In, In)
				replicas[i].State = away
				r := begin(Policy{Ack: AckOne, ReadThrough: true}, c, replicas, 0)
				if s, ok := r.Settled(); !ok || s.Verdict != Held {
					t.Errorf("%+v %v: %v %+v, not held", c, replicas, ok, s)
				}
			}
		}
		s := removing(c, Policy{Ack: AckOne, ReadThrough: true}, 2, false)
		s.clients[0].rule = begin(Policy{Ack: AckOne, ReadThrough: true}, c, states(In, Gone), 0)
		for r := &s.clients[0].rule; !r.IsDone(); {
			var room [maxAsks]Ask
			for _, a := range r.Next(room[:0]) {
				s.tell(0, a.Number, s.w.run(&s.clients[0], a.Number))
			}
		}
		if settled, _ := s.clients[0].rule.Settled(); !s.acked[0] || settled.Dirty != 2 {
			t.Errorf("%+v, a replica is gone: acknowledged %v, %+v", c, s.acked[0], settled)
		}
	}
}

// TestAFailedDeleteLeavesNoTombstone shows that a delete does not start again, and removes its
// tombstones, if one replica refuses the fresh tombstone and another one has lost its own.
func TestAFailedDeleteLeavesNoTombstone(t *testing.T) {
	for _, conditional := range []bool{false, true} {
		x := newExplorer(t)
		x.c, x.replicas = Command{Op: Delete, Conditional: conditional}, states(In, In)
		r := begin(Policy{}, x.c, x.replicas, 0)
		for !r.IsDone() {
			var room [maxAsks]Ask
			for _, a := range r.Next(room[:0]) {
				o := outcomes(x.c, a.Step, true)[0]
				switch {
				case r.stage == verifying && a.Replica == 0:
					o.Kind = Exists
				case r.stage == verifying:
					o.Kind = ServerError
				}
				r.HandleOutcome(a.Number, o)
			}
		}
		x.checkOwnTombstones(&r)
		last := r.asks[r.n-1]
		if s, _ := r.Settled(); r.rounds != 1 || last.step != Drop || last.replica != 1 || s.Verdict != Unmet {
			t.Errorf("conditional %v: %s %+v", conditional, history(&r), s)
		}
	}
}
