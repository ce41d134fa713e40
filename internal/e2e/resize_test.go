package e2e

// This file tests `resize: {mode: flush}` with real servers and two instances.

import (
	"fmt"
	"strconv"
	"testing"

	"ringside/internal/testenv"
)

// TestResizeFlush adds a server to a pool and removes it again, while two instances are reloaded one
// after the other. No read may return a value that was replaced or deleted meanwhile.
func TestResizeFlush(t *testing.T) {
	testenv.OnlyFull(t, "the simulation tests the changes of servers; this test needs seconds of pings")
	t.Parallel()
	const keys = 200
	servers := startMemcacheds(t, 4)
	pool := func(n int) string {
		return front(servers[:n], "resize: {mode: flush}", "failover: {mode: rehash, ping: 100ms, lease: 10s, eject_after: {refused: 10s, silent: 1m}}")
	}
	one, two := startRingside(t, "auto", pool(3)), startRingside(t, "auto", pool(3))
	c, d := dial(t, one.address), dial(t, two.address)
	value := map[string]string{}
	check := func(when string) (found int) {
		t.Helper()
		for _, x := range []*conn{c, d} {
			for i := range keys {
				key := fmt.Sprintf("k%d", i)
				got, end := x.get(key)
				if v, hit := got[key]; end != "END" || hit && v != value[key] {
					t.Fatalf("%s: get %s: %q and %s, want %q or a miss", when, key, v, end, value[key])
				} else if hit {
					found++
				}
			}
		}
		return found
	}
	write := func(generation string) {
		t.Helper()
		for i := range keys {
			key := fmt.Sprintf("k%d", i)
			if i%4 == 3 {
				c.ask("delete "+key, "DELETED")
				delete(value, key)
				continue
			}
			value[key] = generation
			eventually(t, "the set is stored", func() bool { return d.set(key, generation) == "STORED" })
		}
		check(generation)
	}
	fill := func(generation string) {
		t.Helper()
		for i := range keys {
			key := fmt.Sprintf("k%d", i)
			value[key] = generation
			eventually(t, "the set is stored", func() bool { return c.set(key, generation) == "STORED" })
		}
		if found := check(generation); found != 2*keys {
			t.Fatalf("%s: %d of %d values are found", generation, found, 2*keys)
		}
	}
	fourth := dial(t, servers[3].address)
	items := func() int {
		n, _ := strconv.Atoi(fourth.stats("")["curr_items"])
		return n
	}

	fill("first")
	before := one.metric(t, reloadsDone)
	one.reload(t, pool(4))
	one.reloaded(t, reloadsDone, before)
	fill("one instance has the new list") // it still serves by the old one
	two.reload(t, pool(4))
	// A key that moves misses at the fourth server until it is set again.
	eventually(t, "the fourth server has keys", func() bool {
		for i := range keys {
			c.set(fmt.Sprintf("k%d", i), "moving")
		}
		return items() > keys/10
	})
	for i := range keys {
		value[fmt.Sprintf("k%d", i)] = "moving"
	}
	fill("second")
	write("third")

	two.reload(t, pool(3))
	one.reload(t, pool(3))
	eventually(t, "keys miss because the servers that gain them were flushed", func() bool { return check("back") < keys })
	fill("fourth")
	write("fifth")
}
