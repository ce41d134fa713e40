package e2e

// This file tests `fill_from` with real servers and two instances.

import (
	"fmt"
	"strings"
	"testing"
)

// TestFillFrom lets an empty pool fill from another one, which stays in use. All reads must hit, no read may return
// a value of the source that was replaced or deleted through the new pool, and the source must not change.
func TestFillFrom(t *testing.T) {
	t.Parallel()
	const keys = 300
	servers := startMemcacheds(t, 5)
	region := startRingside(t, "auto", front(servers[:2]))
	source := strings.Replace(strings.TrimPrefix(front(servers[:2], "timeouts: {request: 400ms}"), "pools:\n"), "main:", "region-a:", 1)
	pool := func(fill string) string {
		own := strings.Replace(front(servers[2:], "failover: {mode: fail_fast}", "get_errors: error"), "distribution: ketama", "distribution: ketama-points", 1)
		if fill == "" {
			return own
		}
		return strings.Replace(own, "    servers:", "    fill_from: "+fill+"\n    servers:", 1) + source
	}
	filling := pool("{pool: region-a, rate: 1000000, remember: 1h}")
	one, two := startRingside(t, "auto", filling), startRingside(t, "auto", filling)
	there := dial(t, region.address)
	o := &resizeOracle{T: t, clients: []*conn{there}}
	o.fill(keys)
	sets := func() (n string) {
		for _, s := range servers[:2] {
			is := dial(t, s.address).stats("")
			n += fmt.Sprint(is["cmd_set"], " ", is["delete_hits"], " ", is["cmd_touch"], " ", is["curr_items"], " ", is["incr_hits"], " ")
		}
		return n
	}
	before := sets()
	o.clients = []*conn{dial(t, one.address), dial(t, two.address)}
	for range 6 * keys {
		o.step()
	}
	t.Logf("%d of %d reads missed", o.misses, o.reads)
	if o.misses > 0 {
		t.Errorf("%d of %d reads missed", o.misses, o.reads)
	}
	if after := sets(); after != before {
		t.Errorf("the source has changed: %s, now %s", before, after)
	}
	for i := range keys {
		if got, _ := there.get(fmt.Sprintf("k%d", i)); got[fmt.Sprintf("k%d", i)] != "first" {
			t.Fatalf("k%d at the source is %q", i, got)
		}
	}
	c, d := o.clients[0], o.clients[1]
	hits, copies := 0.0, 0.0
	for _, r := range []*ringside{one, two} {
		hits += r.metric(t, `ringside_fill_reads_total{pool="main",result="hit"}`)
		copies += r.metric(t, `ringside_fill_copies_total{pool="main"}`)
	}
	if hits < keys/2 || copies < keys/4 || hits > 2*keys {
		t.Errorf("%v keys were found at the source, and %v of them copied after a get", hits, copies)
	}

	// A value that was set through the pool expires. The older value of the source does not come back.
	there.store("expires", "first")
	c.ask("set expires 0 1 1\r\nx", "STORED")
	eventually(t, "the value expires", func() bool {
		got, _ := d.get("expires")
		if got["expires"] == "first" {
			t.Fatal("the value of the source is back")
		}
		return len(got) == 0
	})

	// Client flags and the remaining lifetime are copied.
	there.ask("set lives 7 100 1\r\ny", "STORED")
	if got, _ := c.get("lives"); got["lives"] != "y" {
		t.Errorf("get lives: %v", got)
	}
	eventually(t, "the value is copied", func() bool { return c.question("me lives") != "EN" })
	left, flags, said := 0, 0, c.question("mg lives t f")
	if fmt.Sscanf(said, "HD t%d f%d", &left, &flags); left < 1 || left > 100 || flags != 7 {
		t.Errorf("mg lives: %s", said)
	}

	// Without the source, values that were copied are still there, and other reads miss.
	there.store("only-there", "first")
	for _, s := range servers[:2] {
		s.Kill()
	}
	o.misses = 0
	for range keys {
		o.step()
	}
	if o.misses > 0 {
		t.Errorf("without the source, %d reads missed", o.misses)
	}
	c.ask("get only-there", "END")
	if s := d.question("incr only-there 1"); !strings.HasPrefix(s, "SERVER_ERROR server ") {
		t.Errorf("incr without the source: %s", s)
	}

	// Filling ends: first no instance asks the source, then no instance leaves marks.
	for _, file := range []string{pool("{pool: region-a, rate: 0, remember: 1h}"), pool("")} {
		for _, r := range []*ringside{one, two} {
			done := r.metric(t, reloadsDone)
			r.reload(t, file)
			r.reloaded(t, reloadsDone, done)
			for range keys {
				o.step()
			}
		}
	}
	if o.misses > 0 {
		t.Errorf("at the end, %d reads missed", o.misses)
	}
}

// TestFillFromWhileOut sets `fill_from` while a server is out that the pool has ejected before. Every delete that
// succeeds after that must hide the value of the source, also when the server is back.
func TestFillFromWhileOut(t *testing.T) {
	t.Parallel()
	const keys = 60
	servers := startMemcacheds(t, 4)
	own := func(more ...string) string {
		return strings.Replace(front(servers[1:], append(more, "get_errors: error", "resize: {mode: plain}")...), "distribution: ketama", "distribution: ketama-points", 1)
	}
	r := startRingside(t, "auto", own("failover: {mode: rehash}"))
	source := dial(t, servers[0].address)
	key := func(i int) string { return fmt.Sprint("k", i) }
	for i := range keys {
		source.store(key(i), "source")
	}
	out := servers[1].address
	servers[1].Kill()
	eventually(t, "the server is out", func() bool { return r.phase(out) == "OUT" })
	done := r.metric(t, reloadsDone)
	r.reload(t, own("failover: {mode: fail_fast}", "fill_from: {pool: region-a, rate: 1000000, remember: 1h}")+
		strings.Replace(strings.TrimPrefix(front(servers[:1]), "pools:\n"), "main:", "region-a:", 1))
	r.reloaded(t, reloadsDone, done)
	c := dial(t, r.address)
	var deleted []string
	for i := range keys {
		switch said := c.question("delete " + key(i)); {
		case said == "DELETED":
			deleted = append(deleted, key(i))
		case said != "SERVER_ERROR server "+out+" is not in use: OUT":
			t.Fatalf("delete %s: %s", key(i), said)
		}
	}
	if n := len(deleted); n < keys/3 || n == keys {
		t.Fatalf("%d of %d keys were deleted", n, keys)
	}
	gone := func() {
		for _, key := range deleted {
			if got, _ := c.get(key); len(got) > 0 {
				t.Fatalf("%s was deleted, and is %v", key, got)
			}
		}
	}
	gone()
	servers[1].restart(t)
	eventually(t, "the server is back", func() bool { return r.phase(out) == "IN" })
	gone()
	for i := range keys {
		if said := c.question("delete " + key(i)); said != "DELETED" && said != "NOT_FOUND" {
			t.Fatalf("delete %s: %s", key(i), said)
		}
	}
}
