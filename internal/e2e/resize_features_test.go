package e2e

import (
	"fmt"
	"strings"
	"testing"

	"ringside/internal/testenv"
)

// TestResizeWarmFeatures adds a server to a pool with guarded and tagged routes and removes it again, while clients
// read, write, count and invalidate through two instances. Guarded values move: nearly all reads find theirs. No read
// returns a guarded value that was replaced or deleted, or a tagged value from before the last invalidation of its tag. No
// increment is lost.
func TestResizeWarmFeatures(t *testing.T) {
	testenv.OnlyFull(t, "the simulation tests the changes of servers; this test needs seconds of pings")
	t.Parallel()
	const keys, tagged = 600, 40
	servers := startMemcacheds(t, 4)
	pool := func(n int) string {
		return front(servers[:n], "resize: {mode: warm, rate: 200}", "failover: {mode: rehash, ping: 100ms, lease: 10s, eject_after: {refused: 10s, silent: 1m}}") +
			"routes:\n" +
			"  - {prefix: \"t\", pool: main, tags: true, guard: {wait: 5ms}}\n" +
			"  - {prefix: \"n\", pool: main, autocreate: {}}\n" +
			"  - {pool: main, guard: {wait: 5ms}}\n"
	}
	both := [2]*ringside{startRingside(t, "auto", pool(3)), startRingside(t, "auto", pool(3))}
	o := &resizeOracle{T: t, clients: []*conn{dial(t, both[0].address), dial(t, both[1].address)}}
	o.fill(keys)
	counted, generation := [8]int{}, 0
	step := func() {
		t.Helper()
		o.step()
		c, d := o.clients[o.n%2], o.clients[(o.n/2+1)%2]
		if i := o.n % len(counted); o.n%3 == 0 {
			eventually(t, "the increment is done", func() bool { return !strings.HasPrefix(c.question(fmt.Sprintf("incr n%d 1", i)), "SERVER_ERROR") })
			counted[i]++
		}
		if o.n%50 == 0 {
			generation++
			eventually(t, "the tag is invalidated", func() bool { return d.question("delete tag:x") == "DELETED" })
		}
		key, now := fmt.Sprintf("t%d", o.n%tagged), fmt.Sprint("generation ", generation)
		got, _ := c.get(key)
		if v, hit := got[key]; hit && v != now {
			t.Fatalf("step %d: get %s: %q, want %q or a miss", o.n, key, v, now)
		} else if !hit {
			c.set(key+";tags=x", now)
		}
	}
	resized := func(r *ringside) int { return strings.Count(r.Output(), "to=resized") }
	for round, size := range []int{4, 3} {
		o.reads, o.misses = 0, 0
		before := [2]int{resized(both[0]), resized(both[1])}
		for i, r := range both {
			done := r.metric(t, reloadsDone)
			r.reload(t, pool(size))
			r.reloaded(t, reloadsDone, done)
			for range 200 * (i + 1) {
				step()
			}
		}
		eventually(t, "the keys have moved", func() bool {
			for range 100 {
				step()
			}
			return resized(both[0]) > before[0] && resized(both[1]) > before[1]
		})
		if o.misses*20 > o.reads {
			t.Errorf("round %d: %d of %d reads missed", round, o.misses, o.reads)
		}
		t.Logf("round %d: %d of %d reads missed", round, o.misses, o.reads)
		for i, n := range counted {
			if got, _ := o.clients[0].get(fmt.Sprintf("n%d", i)); got[fmt.Sprintf("n%d", i)] != fmt.Sprint(n) {
				t.Errorf("round %d: counter %d is %q after %d increments", round, i, got, n)
			}
		}
	}
}
