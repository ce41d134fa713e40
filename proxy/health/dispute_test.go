package health

// Tests of proxies that use different processes as the same server.

import (
	"fmt"
	"strings"
	"testing"

	"ringside/proxy/ablation"
)

// uses reports whether proxy p uses a server: reads and writes of its keys are sent there.
func (w *world) uses(p, server int) bool {
	v := w.proxies[p].k.Verdict(server)
	phase := PhaseOf(v.N)
	return !v.Suspect && (phase == In || phase == Warming || phase == Settling) && v.ValidUntil > w.now
}

// TestDispute gives some proxies another process as server 0, while the former process still runs for the others. After a few
// pings, no proxy uses the server, until all proxies have the same process for it. Then it is flushed and returns.
func TestDispute(t *testing.T) {
	for _, proxies := range []int{2, 3, 12} {
		for _, moved := range []int{1, proxies - 1} {
			for _, strict := range []bool{false, true} {
				for _, change := range []string{"older", "younger", "restart", "unnoticed"} {
					for _, copies := range []bool{false, true} {
						t.Run(fmt.Sprintf("%d of %d, strict %t, %s, copies %t", moved, proxies, strict, change, copies), func(t *testing.T) {
							w := newWorld(t, scenario{proxies: proxies, pool: 3, set: Settings{Strict: strict}, seed: uint64(moved)})
							for _, n := range w.nodes {
								n.began = w.now - 100*sec
							}
							w.settle(20 * sec)
							w.run(w.now + 2*sec)
							w.move(moved, change)
							for _, p := range w.proxies {
								p.k.copies = copies
							}
							first, last := w.now, w.now // times at which different processes were in use
							for end := w.now + 60*sec; w.now < end; w.run(w.now + 10*ms) {
								if w.uses(0, 0) && w.uses(proxies-1, 0) {
									last = w.now
								}
							}
							limit := 4 * sec
							if strict && change != "unnoticed" {
								limit = 0
							}
							if last-first > limit {
								w.fail("different processes are in use after %d ms", (last-first)/ms)
							}
							if !w.logged(otherProcess) {
								w.fail("not logged")
							}
							flushes := w.flushes
							for p := moved; p < proxies; p++ {
								w.redirect(p, w.other[[2]int{0, 0}])
								w.input(w.proxies[p], func() { w.proxies[p].k.Moved(0, w.now) })
							}
							w.settle(60 * sec)
							if w.flushes == flushes {
								w.fail("not flushed")
							}
							w.run(w.now + 30*sec)
							if err := w.whole(); err != nil {
								w.fail("later: %v", err)
							}
						})
					}
				}
			}
		}
	}
}

// redirect makes proxy p use n as server 0.
func (w *world) redirect(p int, n *node) {
	w.other[[2]int{p, 0}] = n
	for id := range w.proxies[p].conns {
		if id[0] == 0 {
			delete(w.proxies[p].conns, id)
		}
	}
}

// move gives the first proxies another process as server 0. With the change "restart", they start again. With "unnoticed", their
// keepers do not know that the address has changed, and the process is young.
func (w *world) move(moved int, change string) {
	n := w.newNode()
	n.began = w.now - 50*sec
	if change == "younger" || change == "unnoticed" {
		n.began = w.now - sec
	}
	n.put("old", "x")
	w.other = map[[2]int]*node{}
	for p := range moved {
		w.redirect(p, n)
		switch p := w.proxies[p]; change {
		case "restart":
			w.start(p)
		case "older", "younger":
			w.input(p, func() { p.k.Moved(0, w.now) })
		}
	}
}

// TestDisputeAblation checks that the test above would notice if proxies did not compare their processes. It also checks that a
// proxy of an older release keeps what others have written, and that it does not stop the use of a server.
func TestDisputeAblation(t *testing.T) {
	for _, off := range []int{1, 2} {
		w := newWorld(t, scenario{proxies: 2, pool: 3})
		for p := range off {
			w.proxies[p].k.Ablate(ablation.Set{Dispute: true})
		}
		w.settle(20 * sec)
		w.run(w.now + 2*sec)
		w.move(1, "unnoticed")
		w.run(w.now + 30*sec)
		if !w.uses(0, 0) || !w.uses(1, 0) {
			t.Errorf("%d ablated: %v", off, w.log)
		}
	}
}

// TestRecordHasIncarnations checks the entries with the incarnations of other records. Those of unknown servers are removed, so that they
// do not accumulate while servers change.
func TestRecordHasIncarnations(t *testing.T) {
	members, index := testServers("c0", "c1")
	value := "rs1 1 1 c0=3 %20at%20c1=z gone=8"
	r, err := parseRecord([]byte(strings.Replace(value, " gone", " %20at%20gone=7 gone", 1)), by(index), 2)
	if err != nil || r.seen[0] != 0 || r.seen[1] != 35 || string(r.others) != " gone=8" {
		t.Fatalf("%+v, %v", r, err)
	}
	if got := appendRecord(nil, r, plainly(members)); string(got) != value {
		t.Errorf("%q", got)
	}
	if n := incarnationHash(1<<64 - 1); n == 0 || n > mostSteps || incarnationHash(mostSteps-1) > mostSteps {
		t.Error(n)
	}
}
