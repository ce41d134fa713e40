package e2e

// This file tests `resize: {mode: flush}` with real servers and two instances.

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
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

// TestResizeWarm adds a server to a pool and removes it again, while two instances are reloaded one after
// the other, and clients read and write. No read may return a value that was replaced or deleted, and
// nearly all find theirs. At the end no server has a key of another one.
func TestResizeWarm(t *testing.T) {
	testenv.OnlyFull(t, "the simulation tests the changes of servers; this test needs seconds of pings")
	t.Parallel()
	const keys = 1000
	servers := startMemcacheds(t, 4)
	pool := func(n int) string {
		return front(servers[:n], "resize: {mode: warm, rate: 200}", "failover: {mode: rehash, ping: 100ms, lease: 10s, eject_after: {refused: 10s, silent: 1m}}")
	}
	both := [2]*ringside{startRingside(t, "auto", pool(3)), startRingside(t, "auto", pool(3))}
	clients := [2]*conn{dial(t, both[0].address), dial(t, both[1].address)}
	value := map[string]string{}
	reads, misses, n := 0, 0, 0
	step := func() {
		t.Helper()
		key, c, d := fmt.Sprintf("k%d", n*7%keys), clients[n%2], clients[(n/2+1)%2]
		n++
		got, end := c.get(key)
		v, hit := got[key]
		if want, has := value[key]; end != "END" || hit && v != want {
			t.Fatalf("step %d: get %s: %q and %s, want %q or a miss", n, key, v, end, want)
		} else if has {
			if reads++; !hit {
				misses++
			}
		}
		switch n % 10 {
		case 1, 2:
			value[key] = strconv.Itoa(n)
			eventually(t, "the set is stored", func() bool { return d.set(key, value[key]) == "STORED" })
		case 3:
			eventually(t, "the delete is done", func() bool { return !strings.HasPrefix(d.question("delete "+key), "SERVER_ERROR") })
			delete(value, key)
		case 4:
			stored := d.question("add " + key + " 0 0 1\r\na")
			if _, has := value[key]; has && stored == "STORED" && hit || !has && stored == "NOT_STORED" {
				t.Fatalf("step %d: add %s: %s", n, key, stored)
			} else if stored == "STORED" {
				value[key] = "a"
			}
		case 5:
			if _, has := value[key]; has && d.question("append "+key+" 0 0 1\r\nx") == "STORED" {
				value[key] += "x"
			}
		}
	}
	for i := range keys {
		key := fmt.Sprintf("k%d", i)
		value[key] = "first"
		clients[0].store(key, "first")
	}
	resized := func(r *ringside) int { return strings.Count(r.Output(), "to=resized") }
	for round, size := range []int{4, 3} {
		reads, misses = 0, 0
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
		moved := 0.0
		for _, r := range both {
			moved += r.metric(t, `ringside_resize_keys_total{pool="main",result="moved"}`)
			if stage := r.metric(t, `ringside_resize_stage{pool="main"}`); stage != 0 {
				t.Errorf("round %d: the stage is %v", round, stage)
			}
		}
		if logged := strings.Count(both[0].Output()+both[1].Output(), "keys have moved to other servers"); moved == 0 || logged <= round {
			t.Errorf("round %d: %v keys have moved, and %d moves are logged", round, moved, logged)
		}
		if misses*20 > reads {
			t.Errorf("round %d: %d of %d reads missed", round, misses, reads)
		}
		t.Logf("round %d: %d of %d reads missed", round, misses, reads)
		for range 3 * keys {
			step()
		}
		items := 0
		for i, s := range servers {
			at := dial(t, s.address)
			for key := range value {
				if got, _ := at.get(key); len(got) > 0 {
					items++
					if i >= size {
						t.Errorf("round %d: server %d still has %s", round, i, key)
					}
				}
			}
		}
		if items > len(value) {
			t.Errorf("round %d: %d items for %d keys", round, items, len(value))
		}
	}
}

// TestResizeThird changes the servers of a pool with `resize: {mode: warm}`. While the keys move, two of three
// instances are replaced by new ones with a third list, and the other one is reloaded with it. At the end all
// values are there. Another change, which is taken back while the keys move, ends with the former list by itself.
func TestResizeThird(t *testing.T) {
	testenv.OnlyFull(t, "the simulation tests the changes of servers; this test needs seconds of pings")
	t.Parallel()
	const keys = 2000
	servers := startMemcacheds(t, 5)
	pool := func(n int) string {
		return front(servers[:n], "resize: {mode: warm, rate: 100}", "get_errors: error", "failover: {mode: rehash, ping: 100ms, lease: 10s, eject_after: {refused: 10s, silent: 1m}}")
	}
	one, others := startRingside(t, "auto", pool(3)), []*ringside{startRingside(t, "auto", pool(3)), startRingside(t, "auto", pool(3))}
	c := dial(t, one.address)
	for i := range keys {
		c.store(fmt.Sprintf("k%d", i), "first")
	}
	said := func(r *ringside, what string) int { return strings.Count(r.Output(), what) }
	check := func(when string, clients ...*conn) {
		t.Helper()
		for _, x := range clients {
			missed := 0
			for i := range keys {
				key := fmt.Sprintf("k%d", i)
				if got, _ := x.get(key); got[key] != "first" {
					missed++
				}
			}
			if missed > 0 {
				t.Errorf("%s: %d of %d values are missing", when, missed, keys)
			}
		}
	}
	moving := func() {
		t.Helper()
		began := said(one, "to=resizing")
		eventually(t, "the change begins", func() bool { return said(one, "to=resizing") > began })
	}
	for _, r := range others {
		r.reload(t, pool(4))
	}
	one.reload(t, pool(4))
	moving()
	for i, r := range others {
		r.signal(t, syscall.SIGKILL)
		others[i] = startRingside(t, "auto", pool(5))
	}
	one.reload(t, pool(5))
	eventually(t, "the second change has ended", func() bool { return said(one, "to=resized") >= 2 })
	clients := []*conn{c}
	for _, r := range others {
		x := dial(t, r.address)
		clients = append(clients, x)
		eventually(t, "a new instance serves keys", func() bool { _, end := x.get("k1"); return end == "END" })
	}
	check("third list", clients...)

	done := said(one, "to=resized")
	for _, r := range append(others, one) {
		r.reload(t, pool(3))
	}
	moving()
	for _, r := range append(others, one) {
		r.reload(t, pool(5))
	}
	eventually(t, "the change back has ended", func() bool { return said(one, "to=resized") >= done+2 })
	check("taken back", clients...)
	for i, s := range servers[3:] {
		if n := dial(t, s.address).stats("")["curr_items"]; n == "0" || n == "1" {
			t.Errorf("server %d has no values", 3+i)
		}
	}
}
