package failover_test

// Tests of the keepers that reloads create while a server is out.

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"ringside/proxy/ablation"
	"ringside/proxy/failover"
	"ringside/proxy/health"
	"ringside/proxy/table"
	"ringside/ring"
)

// pools returns a table. Each pool is described as "name mode server…". A server is
// described as "address", "name@address" or "address*weight".
func pools(all ...string) *table.Table {
	t := &table.Table{}
	for _, text := range all {
		f := strings.Fields(text)
		p := &table.Pool{Name: f[0], Place: ring.Placement{Fingerprint: strings.Join(f[2:], " ")}}
		p.Failover.Strict = f[1] != "fail_fast"
		switch f[1] {
		case "rehash":
			p.Failover.Mode = table.Rehash
		case "gutter":
			p.Failover.Mode = table.Gutter
			p.Failover.Gutter = &table.Pool{Name: "spare", Servers: []table.Target{{Name: "g", Network: "tcp", Address: "g"}}}
		}
		for _, m := range f[2:] {
			m, weight, _ := strings.Cut(m, "*")
			name, address, named := strings.Cut(m, "@")
			if !named {
				address = name
			}
			p.Servers = append(p.Servers, table.Target{Name: name, Network: "tcp", Address: address, Weight: 1 + len(weight)})
		}
		t.Pools = append(t.Pools, p)
		t.Listeners = append(t.Listeners, table.Listener{Routes: []table.Route{{Pool: p}}})
	}
	return t
}

// phases returns the phase of each server in each pool with a keeper, unless it is IN.
func phases(l *failover.Published) string {
	var all []string
	for _, p := range l.Pools {
		w := l.Agents[p]
		if w == nil {
			continue
		}
		text := p.Name
		for i, m := range w.Servers {
			if n := w.View.N(i); health.PhaseOf(n) != health.In {
				text += fmt.Sprintf(" %s=%d", m.Name, n)
			}
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

// TestReloadInOutage reloads while servers have numbers other than 0. A server that is out
// must stay out, whatever the reloads change, and have a keeper until it is flushed.
func TestReloadInOutage(t *testing.T) {
	const main = "main rehash a b c"
	for _, c := range []struct {
		name   string
		before string            // the pools, separated by commas
		out    map[string]uint32 // numbers by address
		after  []string          // the pools after each reload
		want   string
	}{
		{"nothing changes", main, map[string]uint32{"a": 2}, []string{main}, "main a=2"},
		{"weights", main, map[string]uint32{"a": 2}, []string{"main rehash a b c*2"}, "main a=2"},
		{"all is in", main, nil, []string{"main fail_fast a b c*2"}, ""},
		{"mode", main, map[string]uint32{"a": 2}, []string{"main fail_fast a b c"}, "main a=2"},
		{"mode and weights", main, map[string]uint32{"a": 2}, []string{"main fail_fast a b c*2"}, "main a=2"},
		{"mode, then weights", main, map[string]uint32{"a": 2}, []string{"main fail_fast a b c", "main fail_fast a b c*2"}, "main a=2"},
		{"mode and another server", main, map[string]uint32{"a": 2}, []string{"main fail_fast a b"}, "main a=2"},
		{"no gutter any more", "main gutter a b c", map[string]uint32{"a": 2}, []string{"main fail_fast a b c"}, "main a=2"},
		{"a gutter server joins", "main gutter a b c", map[string]uint32{"g": 2}, []string{"main fail_fast a b c g"}, "main g=2"},
		{"every phase", main, map[string]uint32{"a": 7, "b": 9, "c": 10}, []string{"main fail_fast a b c*2"}, "main a=7 b=9 c=10"},
		{"name", main, map[string]uint32{"a": 2}, []string{"cache rehash a b c"}, "cache a=2"},
		{"name and mode", main, map[string]uint32{"a": 2}, []string{"cache fail_fast a b c"}, "cache a=2"},
		{"name, every phase", main, map[string]uint32{"a": 7, "b": 9, "c": 10}, []string{"cache rehash a b c"}, "cache a=7 b=9 c=14"},
		{"name, all is in", main, map[string]uint32{"a": 6}, []string{"cache fail_fast a b c"}, ""},
		{"name of the server", main, map[string]uint32{"a": 2}, []string{"main rehash x@a b c"}, "main x=2"},
		{"name of the server and mode", main, map[string]uint32{"a": 2}, []string{"main fail_fast x@a b c"}, "main x=2"},
		{"addresses are exchanged", main, map[string]uint32{"a": 2, "b": 6}, []string{"main rehash a@b b@a c"}, "main a=2 b=8"},
		{"another host", main, map[string]uint32{"a": 2}, []string{"main rehash a@x b c"}, "main a=2"},
		{"two pools from one", main, map[string]uint32{"a": 2}, []string{"left fail_fast a b, right fail_fast c"}, "left a=2"},
		{"another pool shares its servers", main, map[string]uint32{"a": 2}, []string{"main fail_fast a b c, two fail_fast a b"}, "main a=2, two a=2"},
		{"another pool takes the name", main, map[string]uint32{"a": 2}, []string{"main rehash x y, cache rehash a b c"}, "main, cache a=2"},
		{"to another pool", main + ", two rehash x y", map[string]uint32{"a": 2}, []string{"main rehash b c, two rehash x y a"}, "main, two a=2"},
		{"removed and added", main, map[string]uint32{"a": 2}, []string{"main rehash b c", "main fail_fast a b c"}, "main a=2"},
		{"removed and added, flushed but not in", main, map[string]uint32{"a": 4}, []string{"main rehash b c", "main fail_fast a b c"}, "main a=8"},
		{"pool removed and added", main, map[string]uint32{"a": 2}, []string{"two fail_fast x", "two fail_fast x y", "main fail_fast a b c"}, "main a=2"},
		{"pool removed and added by another name", main, map[string]uint32{"a": 2}, []string{"two fail_fast x", "cache rehash a b c"}, "cache a=2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := failover.Publish(pools(strings.Split(c.before, ", ")...), nil, 1, ablation.Set{})
			for _, w := range l.Agents {
				for i, m := range w.Servers {
					w.View.Set(i, c.out[m.Address], false, 0, 0)
				}
				w.View.Done(1, true)
			}
			if c.out == nil && phases(l) != "main" {
				t.Fatal(phases(l))
			}
			for _, after := range c.after {
				l = failover.Publish(pools(strings.Split(after, ", ")...), l, 1, ablation.Set{})
			}
			if got := phases(l); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// TestReloadOfRenamedServer renames a pool with a server that rejects flush_all. Its keys
// have other names, so it must be out until they have new ones.
func TestReloadOfRenamedServer(t *testing.T) {
	l := failover.Publish(pools("main rehash a b c"), nil, 1, ablation.Set{})
	view := l.Agent("main").View
	view.Set(0, 6, false, 3, 0)
	view.Done(1, true)
	if l = failover.Publish(pools("main fail_fast a b c*2"), l, 1, ablation.Set{}); l.Agent("main").View.Renamed(0) != 3 || l.Agent("main").View.N(0) != 6 {
		t.Errorf("%d %d", l.Agent("main").View.N(0), l.Agent("main").View.Renamed(0))
	}
	if l = failover.Publish(pools("cache fail_fast a b c"), l, 1, ablation.Set{}); phases(l) != "cache a=8" || l.Agent("cache").View.Renamed(0) != 3 {
		t.Errorf("%s %v", phases(l), slices.Collect(maps.Values(l.Agents)))
	}
}

// TestReloadOfServingPool removes a pool in which a server is out while another pool serves the
// server without a keeper. The server has what that pool has stored, so a later keeper of the
// pool must not take it for one that is out.
func TestReloadOfServingPool(t *testing.T) {
	l := failover.Publish(pools("main rehash a b c"), nil, 1, ablation.Set{})
	l.Agent("main").View.Set(0, 2, false, 0, 0)
	l.Agent("main").View.Done(1, true)
	l = failover.Publish(pools("main fail_fast a b c", "other fail_fast a b"), l, 1, ablation.Set{})
	if got := phases(l); got != "main a=2, other a=2" {
		t.Fatal(got)
	}
	l.Agent("main").View.Set(0, 6, false, 0, 0)
	l.Agent("main").View.Done(1, true)
	l = failover.Publish(pools("main fail_fast a b c"), l, 1, ablation.Set{})
	if l = failover.Publish(pools("renamed fail_fast a b c"), l, 1, ablation.Set{}); phases(l) != "" {
		t.Errorf("%q", phases(l))
	}
}

// TestReloadOfSharedServer reloads while one of two pools waits for a server that the other
// one uses again. That one must go on.
func TestReloadOfSharedServer(t *testing.T) {
	put := func(w *failover.Agent, n uint32) {
		w.View.Set(0, n, false, 0, 0)
		w.View.Done(1, true)
	}
	l := failover.Publish(pools("main rehash a b c"), nil, 1, ablation.Set{})
	put(l.Agent("main"), 2)
	shared := pools("main fail_fast a b c*2", "two fail_fast a b")
	l = failover.Publish(shared, l, 1, ablation.Set{})
	if phases(l) != "main a=2, two a=2" {
		t.Fatal(phases(l))
	}
	put(l.Agent("main"), 6)
	for range 2 {
		if l = failover.Publish(shared, l, 1, ablation.Set{}); phases(l) != "two a=2" {
			t.Error(phases(l))
		}
	}
	put(l.Agent("two"), 6)
	if l = failover.Publish(shared, l, 1, ablation.Set{}); phases(l) != "" {
		t.Error(phases(l))
	}
}
