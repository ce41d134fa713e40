package health

// Tests of the phases, and of every path of up to four servers.

import (
	"slices"
	"testing"
)

func TestPhases(t *testing.T) {
	want := []string{"IN", "LEAVING", "OUT", "RETURN", "WARM", "SETTLE", "IN", "LEAVING"}
	for n, name := range want {
		if got := PhaseOf(uint32(n)).String(); got != name {
			t.Errorf("phase of %d is %s, want %s", n, got, name)
		}
	}
}

func TestLeaving(t *testing.T) {
	for n := range uint32(60) {
		next := leaving(n)
		if PhaseOf(next) != Leaving || next <= n || next > n+6 {
			t.Errorf("from %d (%v) to %d (%v)", n, PhaseOf(n), next, PhaseOf(next))
		}
	}
}

func TestGenerationTellsOutagesApart(t *testing.T) {
	for n := range uint32(60) {
		base := n - n%6
		if got := Generation(n); got != uint64(base+2) {
			t.Errorf("Generation(%d) = %d, want %d", n, got, base+2)
		}
		if Generation(n, 8) != Generation(n)+8 {
			t.Errorf("Generation(%d, 8) is no sum", n)
		}
		if Generation(n+6) <= Generation(n) {
			t.Errorf("a later outage than %d has no higher generation", n)
		}
	}
	if Generation() != 0 {
		t.Error("at home there is a generation")
	}
}

// walk computes the result of Path in another way. The first server that is not OUT
// serves. If it is rejoining, the next server that is not OUT must be IN.
func walk(ns []uint32) Route {
	var here []int
	for i, n := range ns {
		if PhaseOf(n) != Out {
			here = append(here, i)
		}
	}
	place := func(i int) Place {
		return Place{Server: i, Number: Generation(ns[:i]...) + uint64(i)*100, Diverted: i > 0}
	}
	if len(here) == 0 {
		return Route{Role: Leaving}
	}
	switch first := PhaseOf(ns[here[0]]); {
	case first == In:
		return Route{Role: In, First: place(here[0])}
	case first != Leaving && len(here) > 1 && PhaseOf(ns[here[1]]) == In:
		return Route{Role: first, First: place(here[0]), Interim: place(here[1])}
	}
	return Route{Role: Leaving}
}

func TestEveryPath(t *testing.T) {
	for length := range 5 {
		ns := make([]uint32, length)
		for {
			var p Path
			done := false
			for i, n := range ns {
				if done {
					break
				}
				done = p.Add(i, n, uint32(i)*100)
			}
			if got, want := p.Route(), walk(ns); got != want {
				t.Fatalf("%v: %+v, want %+v", ns, got, want)
			}
			i := slices.IndexFunc(ns, func(n uint32) bool { return n < 11 })
			if i < 0 {
				break
			}
			ns[i]++
			clear(ns[:i])
		}
	}
}

func TestPathAllocatesNothing(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() {
		var p Path
		p.Add(0, 2, 0)
		p.Add(1, 4, 0)
		p.Add(2, 0, 0)
		if p.Route().Role != Warming {
			t.Fatal("wrong role")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
