package fleet

// Promises that are known to be broken: each case finds its breach until the
// rule is built that closes it.

import (
	"os"
	"slices"
	"testing"
	"time"

	"ringside/replicate"
)

// breach is a case in which a promise is broken today. It goes over to
// promises when the rule is built that closes it: from then on it must hold.
type breach struct {
	scenario
	finds []harm
	seeds []uint64 // that find it; several, since any change of what engines send makes others of them
}

var (
	readMostly = []ask{(*app).get, (*app).get, (*app).get, (*app).set}
	pruning    = slices.Concat(slices.Repeat([]ask{(*app).get}, 10), slices.Repeat([]ask{(*app).set}, 3), []ask{(*app).remove})
	logging    = []ask{(*app).append, (*app).look}

	// slowly fills a server for some ten seconds.
	slowly = replicate.Policy{Copies: 2, Apart: replicate.Servers, ReadThrough: true, RepairRate: 10}
)

// A tardy server's packets come later than a repair takes, and in time for a
// patient proxy.
const (
	tardy   = 150 * milli
	patient = 500 * time.Millisecond
)

// breaches by what breaks them:
//
//   - D6: keys change members while the one that stays is away.
var breaches = []breach{
	{scenario{name: "D6 weights", sidecars: 2, servers: 4, strict: true, copies: twice, errs: true,
		asks: readMostly, faults: []string{"reweigh"}, count: 1, keeps: true},
		[]harm{lost}, []uint64{0, 1, 2, 3}},
}

// TestFailoverBreaches plays each until a seed has found it, and fails if none
// of those named does: then the rule is built that closes it, or something hides
// it. With RINGSIDE_SEEDS it says which of so many find it, and never fails for
// that; with RINGSIDE_SEED it shows what that one finds.
func TestFailoverBreaches(t *testing.T) {
	from, to := seedRange(t)
	search := os.Getenv("RINGSIDE_SEED")+os.Getenv("RINGSIDE_SEEDS") != ""
	for _, b := range breaches {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			if search {
				b.seeds = nil
				for seed := from; seed < to; seed++ {
					b.seeds = append(b.seeds, seed)
				}
			}
			var found []uint64
			for _, seed := range b.seeds {
				f := simulate(b.scenario, seed, false)
				if f.broken != "" && f.harm == "" {
					t.Fatalf("%s", retrace(b.scenario, seed, f.broken))
				}
				if f.broken != "" {
					t.Logf("seed %d, %s: %s", seed, f.harm, f.broken)
					if to == from+1 {
						t.Log(retrace(b.scenario, seed, f.broken))
					}
				}
				if slices.Contains(b.finds, f.harm) {
					found = append(found, seed)
					if !search {
						return
					}
				}
			}
			switch {
			case search:
				t.Logf("found by %d", found)
			case len(found) == 0:
				t.Errorf("not found by any of %d: if that is because it can't happen any more, the case belongs to those that must hold", b.seeds)
			}
		})
	}
}
