package config

import "testing"

// TestWarmFrom checks that the entry with the former servers is not a pool of its own, and that a table begins with
// its servers.
func TestWarmFrom(t *testing.T) {
	f := parse(t, `listen: 127.0.0.1:1
pools:
  main:
    distribution: ketama-points
    servers: [10.0.0.1, 10.0.0.2, 10.0.0.3]
    resize: {mode: warm}
    warm_from: former
  former: {distribution: ketama, servers: [10.0.0.3, 10.0.0.4]}
`)
	if len(f.Pools) != 1 || f.Pools[0].Name != "main" || f.Pools[0].From == nil || len(f.Routes) != 1 || f.Routes[0].Pool != "main" {
		t.Fatalf("%+v and routes %+v", f.Pools, f.Routes)
	}
	table, err := f.Build()
	if err != nil {
		t.Fatal(err)
	}
	p := table.Pools[0]
	if len(table.Pools) != 1 || len(p.Servers) != 3 || p.Next != nil || p.Former != "former" || p.From.Servers[0].Name != "10.0.0.3:11211" {
		t.Fatalf("%+v", p)
	}
	plain := parse(t, `listen: 127.0.0.1:1
pools:
  main: {distribution: ketama, servers: [10.0.0.3, 10.0.0.4]}
`)
	before, err := plain.Build()
	if err != nil {
		t.Fatal(err)
	}
	wish := p.List().Print()
	table.Begin()
	mine, next := p.Prints()
	if want := before.Pools[0].List().Print(); mine != want || next != wish || len(p.Servers) != 2 || len(p.Next.Servers) != 3 {
		t.Errorf("it begins with %x and changes to %x, want %x and %x", mine, next, want, wish)
	}
	table.Begin()
	if again, _ := p.Prints(); again != mine {
		t.Errorf("a second call of Begin changes the list to %x", again)
	}
}
