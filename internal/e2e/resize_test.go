package e2e

// This file tests `resize: {mode: flush}` with real servers and two instances.

import (
	"fmt"
	"slices"
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
	o := &resizeOracle{T: t, clients: []*conn{dial(t, both[0].address), dial(t, both[1].address)}}
	o.fill(keys)
	resized := func(r *ringside) int { return strings.Count(r.Output(), "to=resized") }
	for round, size := range []int{4, 3} {
		o.reads, o.misses = 0, 0
		before := [2]int{resized(both[0]), resized(both[1])}
		for i, r := range both {
			done := r.metric(t, reloadsDone)
			r.reload(t, pool(size))
			r.reloaded(t, reloadsDone, done)
			for range 200 * (i + 1) {
				o.step()
			}
		}
		eventually(t, "the keys have moved", func() bool {
			for range 100 {
				o.step()
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
		if o.misses*20 > o.reads {
			t.Errorf("round %d: %d of %d reads missed", round, o.misses, o.reads)
		}
		t.Logf("round %d: %d of %d reads missed", round, o.misses, o.reads)
		for range 3 * keys {
			o.step()
		}
		items := 0
		for i, s := range servers {
			at := dial(t, s.address)
			for key := range o.value {
				if got, _ := at.get(key); len(got) > 0 {
					items++
					if i >= size {
						t.Errorf("round %d: server %d still has %s", round, i, key)
					}
				}
			}
		}
		if items > len(o.value) {
			t.Errorf("round %d: %d items for %d keys", round, items, len(o.value))
		}
	}
}

// TestResizeFailFast changes the servers of a pool with failover.mode fail_fast, through two instances under load. A server
// that hangs before serves its values again after that. Then a server is added, and dies. A list without it must follow.
// Ringside flushes no server.
func TestResizeFailFast(t *testing.T) {
	testenv.OnlyFull(t, "the simulation tests the changes of servers; this test needs seconds of pings")
	t.Parallel()
	const keys = 500
	servers := startMemcacheds(t, 4)
	pool := func(n int) string {
		return front(servers[:n], "resize: {mode: warm, rate: 200}", "failover: {mode: fail_fast, ping: 100ms, lease: 10s}")
	}
	both := [2]*ringside{startRingside(t, "auto", pool(3)), startRingside(t, "auto", pool(3))}
	o := &resizeOracle{T: t, clients: []*conn{dial(t, both[0].address), dial(t, both[1].address)}}
	o.fill(keys)
	found := func() (n int) {
		for i := range keys {
			key := fmt.Sprintf("k%d", i)
			got, end := o.clients[i%2].get(key)
			v, hit := got[key]
			if end != "END" || hit && v != o.value[key] {
				t.Fatalf("get %s: %q and %s, want %q or a miss", key, v, end, o.value[key])
			} else if hit {
				n++
			}
		}
		return n
	}
	servers[1].pause(t)
	eventually(t, "the keys of a server that hangs miss", func() bool { return found() < keys })
	servers[1].signal(t, syscall.SIGCONT)
	eventually(t, "the server has its values again", func() bool { return found() == keys })

	resized := func(r *ringside) int { return strings.Count(r.Output(), "to=resized") }
	change := func(size int, alive bool) {
		t.Helper()
		before := [2]int{resized(both[0]), resized(both[1])}
		for _, r := range both {
			done := r.metric(t, reloadsDone)
			r.reload(t, pool(size))
			r.reloaded(t, reloadsDone, done)
			for n := 0; alive && n < 200; n++ {
				o.step()
			}
		}
		eventually(t, "the keys have moved", func() bool {
			for n := 0; alive && n < 100; n++ {
				o.step()
			}
			return resized(both[0]) > before[0] && resized(both[1]) > before[1]
		})
	}
	change(4, true)
	if o.misses*20 > o.reads {
		t.Errorf("%d of %d reads missed", o.misses, o.reads)
	}
	t.Logf("%d of %d reads missed", o.misses, o.reads)
	before := found()
	servers[3].Kill()
	change(3, false)
	if after := found(); after == 0 || after >= before {
		t.Errorf("%d values are found without a server, %d with it", after, before)
	}
	for range 3 * keys {
		o.step()
	}
	for i, s := range servers[:3] {
		if n := dial(t, s.address).stats("")["cmd_flush"]; n != "0" {
			t.Errorf("server %d was flushed: %s", i, n)
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
	eventually(t, "the change is reversed", func() bool { return said(one, "the change is reversed") > 0 })
	eventually(t, "the keys have moved back", func() bool { return said(one, "to=resized") > done })
	check("taken back", clients...)
	for i, s := range servers[3:] {
		if n := dial(t, s.address).stats("")["curr_items"]; n == "0" || n == "1" {
			t.Errorf("server %d has no values", 3+i)
		}
	}
}

// resizeOracle reads and writes through several instances, one command after the other, and knows the value
// that each key must have.
type resizeOracle struct {
	*testing.T
	clients       []*conn // connections to the instances
	value         map[string]string
	keys, n       int
	reads, misses int // reads of keys that have a value, and those of them that missed
}

// fill stores a value for each of so many keys.
func (o *resizeOracle) fill(keys int) {
	o.Helper()
	o.keys, o.value = keys, map[string]string{}
	for i := range keys {
		key := fmt.Sprintf("k%d", i)
		o.value[key] = "first"
		o.clients[0].store(key, "first")
	}
}

// step reads a key through one instance, and mostly changes it through the next one.
func (o *resizeOracle) step() {
	o.Helper()
	key, c, d := fmt.Sprintf("k%d", o.n*7%o.keys), o.clients[o.n%len(o.clients)], o.clients[(o.n/2+1)%len(o.clients)]
	o.n++
	got, end := c.get(key)
	v, hit := got[key]
	if want, has := o.value[key]; end != "END" || hit && v != want {
		o.Fatalf("step %d: get %s: %q and %s, want %q or a miss", o.n, key, v, end, want)
	} else if has {
		if o.reads++; !hit {
			o.misses++
		}
	}
	switch o.n % 10 {
	case 1, 2:
		o.value[key] = strconv.Itoa(o.n)
		eventually(o, "the set is stored", func() bool { return d.set(key, o.value[key]) == "STORED" })
	case 3:
		eventually(o, "the delete is done", func() bool { return !strings.HasPrefix(d.question("delete "+key), "SERVER_ERROR") })
		delete(o.value, key)
	case 4:
		stored := d.question("add " + key + " 0 0 1\r\na")
		if _, has := o.value[key]; has && stored == "STORED" && hit || !has && stored == "NOT_STORED" {
			o.Fatalf("step %d: add %s: %s", o.n, key, stored)
		} else if stored == "STORED" {
			o.value[key] = "a"
		}
	case 5:
		if _, has := o.value[key]; has && d.question("append "+key+" 0 0 1\r\nx") == "STORED" {
			o.value[key] += "x"
		}
	}
}

// TestResizeRolling changes the servers of a pool by a rolling update: instances with the new file start, while those with the
// former one still run and then stop. Each of them must serve by the former servers until all have the new file: no read
// misses, and none returns an old value. Then the keys move.
func TestResizeRolling(t *testing.T) {
	testenv.OnlyFull(t, "the simulation tests the changes of servers; this test needs seconds of pings")
	t.Parallel()
	for _, mode := range []string{"", "resize: {mode: warm, rate: 200}"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			const keys = 500
			servers := startMemcacheds(t, 4)
			pool := func(servers []*memcached) string {
				return strings.Replace(front(servers, mode, "failover: {mode: rehash, ping: 100ms, lease: 10s, eject_after: {refused: 10s, silent: 1m}}"), "distribution: ketama", "distribution: ketama-points", 1)
			}
			instances := []*ringside{}
			o := &resizeOracle{T: t}
			steps := func(n int) {
				t.Helper()
				for range n {
					o.step()
				}
			}
			start := func(config string) {
				t.Helper()
				instances = append(instances, startRingside(t, "auto", config))
				o.clients = append(o.clients, dial(t, instances[len(instances)-1].address))
			}
			for range 3 {
				start(pool(servers[:3]))
			}
			o.fill(keys)
			steps(2 * keys)
			for range 3 {
				start(pool(servers[1:]))
				steps(keys)
				stopped := instances[0]
				if instances, o.clients = instances[1:], o.clients[1:]; len(o.clients) == 3 && !strings.Contains(instances[2].Output(), "learned") {
					t.Error("the log of an instance does not say that it has learned the server list of its peers")
				}
				if stopped.Kill(); o.misses > 0 {
					t.Fatalf("%d of %d reads missed", o.misses, o.reads)
				}
				steps(keys)
			}
			early := o.reads
			eventually(t, "the keys have moved", func() bool {
				steps(100)
				return !slices.ContainsFunc(instances, func(r *ringside) bool { return !strings.Contains(r.Output(), "from=resizing to=resized") })
			})
			if o.misses*20 > o.reads-early {
				t.Errorf("%d of %d reads missed while the keys moved", o.misses, o.reads-early)
			}
			t.Logf("%d of %d reads missed", o.misses, o.reads)
			servers[0].Kill()
			o.misses = 0
			steps(3 * keys)
			if o.misses > 0 {
				t.Errorf("%d reads missed without the former server", o.misses)
			}
		})
	}
}

// TestWarmFrom replaces all servers of a pool, and its distribution, by a rolling update: new instances start with
// a file that has only the new servers and names the former ones in warm_from, while the old instances still
// run; then these stop. No read may return an old value, and nearly all find theirs. At the end the former
// servers are not needed.
func TestWarmFrom(t *testing.T) {
	testenv.OnlyFull(t, "the simulation tests the changes of servers; this test needs seconds of pings")
	t.Parallel()
	const keys = 500
	servers := startMemcacheds(t, 5)
	settings := []string{"resize: {mode: warm, rate: 200}", "failover: {mode: rehash, ping: 100ms, lease: 10s, eject_after: {refused: 10s, silent: 1m}}"}
	old := front(servers[:2], settings...)
	former := strings.Replace(strings.TrimPrefix(front(servers[:2]), "pools:\n"), "main:", "former:", 1)
	replaced := strings.Replace(front(servers[2:], settings...), "distribution: ketama", "distribution: ketama-points", 1)
	next := strings.Replace(replaced, "    servers:", "    warm_from: former\n    servers:", 1) + former
	instances := []*ringside{startRingside(t, "auto", old), startRingside(t, "auto", old)}
	o := &resizeOracle{T: t}
	connect := func() {
		o.clients = nil
		for _, r := range instances {
			o.clients = append(o.clients, dial(t, r.address))
		}
	}
	steps := func(n int) {
		t.Helper()
		for range n {
			o.step()
		}
	}
	connect()
	o.fill(keys)
	steps(200)
	for range 2 {
		instances = append(instances, startRingside(t, "auto", next))
		eventually(t, "the new instance serves", func() bool {
			got, _ := dial(t, instances[len(instances)-1].address).get("k1")
			_, has := o.value["k1"]
			return !has || len(got) > 0
		})
		connect()
		steps(300)
		stopped := instances[0]
		instances = instances[1:]
		connect()
		stopped.Kill()
		steps(300)
	}
	stage := func() (sum float64) {
		for _, r := range instances {
			sum += r.metric(t, `ringside_resize_stage{pool="main"}`)
		}
		return sum
	}
	eventually(t, "the keys have moved", func() bool { steps(100); return stage() == 0 })
	if o.misses*20 > o.reads {
		t.Errorf("%d of %d reads missed", o.misses, o.reads)
	}
	t.Logf("%d of %d reads missed", o.misses, o.reads)
	for i, r := range instances {
		before := r.metric(t, reloadsDone)
		r.reload(t, replaced)
		r.reloaded(t, reloadsDone, before)
		if steps(100); i == 0 {
			for _, s := range servers[:2] {
				for key := range o.value {
					if got, _ := dial(t, s.address).get(key); len(got) > 0 {
						t.Errorf("a former server still has %s", key)
					}
				}
			}
		}
	}
	for _, s := range servers[:2] {
		s.Kill()
	}
	o.misses = 0
	steps(3 * keys)
	if o.misses > 0 {
		t.Errorf("without the former servers, %d reads missed", o.misses)
	}
}
