package table

// Tests of which changes of a table move replicas to other servers, and of the hash of a table while its servers change.

import (
	"testing"
	"time"

	"ringside/replicate"
	"ringside/ring"
)

func TestPrintCopies(t *testing.T) {
	print := func(change func(t *Table, main, other *Pool)) uint64 {
		main, other := &Pool{Name: "main", Place: ring.Placement{Fingerprint: "f"}}, &Pool{Name: "other", Place: ring.Placement{Fingerprint: "o"}}
		for _, p := range []*Pool{main, other} {
			p.Servers = []Target{{Name: "a", Network: "tcp", Address: "a:1", Weight: 1, Host: "a"}, {Name: "b", Network: "tcp", Address: "b:1", Weight: 1, Host: "b"}}
		}
		routes := []Route{{Prefix: "s:", Pool: main, Copies: replicate.Policy{Copies: 2}}, {Pool: main}, {Prefix: "o:", Pool: other}}
		is := &Table{Pools: []*Pool{main, other}, Listeners: []Listener{{Address: "one", Routes: routes}}}
		change(is, main, other)
		return is.PrintCopies(main)
	}
	routes := func(t *Table) []Route { return t.Listeners[0].Routes }
	usual := print(func(*Table, *Pool, *Pool) {})
	for what, change := range map[string]func(t *Table, main, other *Pool){
		"another listener, and one more": func(t *Table, _, _ *Pool) {
			t.Listeners = []Listener{{Address: "two", Routes: routes(t)}, {Address: "three", Routes: routes(t)}}
		},
		"the order of routes": func(t *Table, _, _ *Pool) { r := routes(t); r[0], r[1] = r[1], r[0] },
		"a route without copies": func(t *Table, main, _ *Pool) {
			t.Listeners[0].Routes = append(routes(t), Route{Prefix: "x:", Pool: main})
		},
		"another pool": func(_ *Table, _, other *Pool) { other.Servers[0].Address = "c:1" },
		"timeouts":     func(_ *Table, main, _ *Pool) { main.Timeouts.Deadline = time.Second },
		"zones":        func(_ *Table, main, _ *Pool) { main.Servers[0].Zone = "z" },
		"what is read": func(t *Table, _, _ *Pool) { routes(t)[0].Copies.Read = replicate.Nearest },
		"repair_rate":  func(t *Table, _, _ *Pool) { routes(t)[0].Copies.RepairRate = 7 },
		"the class":    func(t *Table, _, _ *Pool) { routes(t)[0].Class = "sessions" },
	} {
		if print(change) != usual {
			t.Errorf("%s moves copies", what)
		}
	}
	seen := map[uint64]string{usual: "the usual", 0: "no copies"}
	for what, change := range map[string]func(t *Table, main, other *Pool){
		"another server":      func(_ *Table, main, _ *Pool) { main.Servers[1].Address = "c:1" },
		"a server more":       func(_ *Table, main, _ *Pool) { main.Servers = append(main.Servers, Target{Name: "c", Address: "c:1"}) },
		"a weight":            func(_ *Table, main, _ *Pool) { main.Servers[1].Weight = 2 },
		"the rule":            func(_ *Table, main, _ *Pool) { main.Place.Fingerprint = "g" },
		"the order":           func(_ *Table, main, _ *Pool) { main.Servers[0], main.Servers[1] = main.Servers[1], main.Servers[0] },
		"a host":              func(_ *Table, main, _ *Pool) { main.Servers[1].Host = "a" },
		"replicas_on":         func(t *Table, _, _ *Pool) { routes(t)[0].Copies.Apart = replicate.Servers },
		"replicas":            func(t *Table, _, _ *Pool) { routes(t)[0].Copies.Copies = 3 },
		"replicas: all":       func(t *Table, _, _ *Pool) { routes(t)[0].Copies.Copies = replicate.All },
		"another prefix":      func(t *Table, _, _ *Pool) { routes(t)[0].Prefix = "t:" },
		"a prefix taken away": func(t *Table, _, _ *Pool) { routes(t)[0].Strip = true },
		"a route more":        func(t *Table, _, _ *Pool) { routes(t)[1].Copies.Copies = 2 },
		"copies in two pools": func(t *Table, _, other *Pool) { routes(t)[1].Also = []*Pool{other} },
	} {
		is := print(change)
		if before, ok := seen[is]; ok {
			t.Errorf("%s is as %s", what, before)
		}
		seen[is] = what
	}
	if is := print(func(t *Table, _, _ *Pool) { routes(t)[0].Copies.Copies = 1 }); is != 0 {
		t.Errorf("a table without copies has the print %d", is)
	}
}

// TestPrintOfChange checks that instances with the same configuration have the same hash, whatever list is in use:
// instances that change to it, one that was started with it, and one that knows the former list from warm_from.
func TestPrintOfChange(t *testing.T) {
	build := func(mode ResizeMode, servers ...string) *Table {
		p := &Pool{Name: "main", Resize: mode}
		for _, name := range servers {
			p.Place.Fingerprint += name
			p.Servers = append(p.Servers, Target{Name: name, Network: "tcp", Address: name})
		}
		return &Table{Pools: []*Pool{p}, Listeners: []Listener{{Routes: []Route{{Pool: p}}}}}
	}
	after := func(is *Table, moving bool, old *Table) *Table {
		is.Hold(old, func(*Pool) (bool, bool, bool) { return true, moving, false })
		return is
	}
	for _, mode := range []ResizeMode{ResizeFlush, ResizeWarm} {
		old := func() *Table { return build(mode, "a", "b") }
		wish := func() *Table { return build(mode, "a", "b", "c") }
		changes := after(wish(), false, old())
		restarted := wish()
		restarted.Pools[0].From = old().Pools[0].List()
		restarted.Begin()
		for what, is := range map[string]struct{ got, want *Table }{
			"waits":                      {changes, wish()},
			"moves keys":                 {after(wish(), true, changes), wish()},
			"has ended":                  {changes.Advance(func(*Pool) (bool, bool) { return true, false }), wish()},
			"was started with warm_from": {restarted, wish()},
			"has a third list":           {after(build(mode, "a"), true, changes), build(mode, "a")},
			"is taken back":              {after(old(), true, changes), old()},
			"changes to mode plain":      {after(build(ResizePlain, "a"), true, changes), build(ResizePlain, "a")},
		} {
			if mode == ResizeFlush && what == "was started with warm_from" {
				continue
			}
			if is.got.Print() != is.want.Print() {
				t.Errorf("%v: an instance whose change %s has another hash than its configuration", mode, what)
			}
		}
		if changes.Print() == old().Print() {
			t.Errorf("%v: an instance with the new configuration has the hash of the old one", mode)
		}
	}
}
