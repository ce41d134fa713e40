package config

import (
	"fmt"
	"strings"
	"testing"

	"ringside/proxy/serverlist"
)

// manyPools is a number of pools for which work per pair of pools, times the routes, would not end in the time that a test
// has.
const manyPools = 3000

// filePools returns a file with manyPools pools. The function pool returns the text of pool i.
func filePools(pool func(i int) string) string {
	var b strings.Builder
	b.WriteString("listen: 127.0.0.1:1\npools:\n")
	for i := range manyPools {
		fmt.Fprintf(&b, "  p%d: {distribution: ketama, %s}\n", i, pool(i))
	}
	b.WriteString("routes:\n")
	for i := range manyPools {
		fmt.Fprintf(&b, "  - {prefix: \"p%d:\", pool: p%d}\n", i, i)
	}
	return b.String()
}

func TestManyPools(t *testing.T) {
	one := func(i int) string {
		return fmt.Sprintf("servers: [10.0.%d.%d]", i/250, i%250)
	}
	three := func(i int) string {
		return fmt.Sprintf("servers: [10.0.%d.%d, 10.1.%d.%d, 10.2.%d.%d]", i/250, i%250, i/250, i%250, i/250, i%250)
	}
	for _, c := range []struct {
		name string
		pool func(i int) string
		last string // what happens to a server of the last pool that returns
	}{
		{"own servers", one, "nothing of it is flushed"},
		{"one server for all", func(int) string { return "servers: [10.0.0.1]" }, "nothing of it is flushed"},
		{"rehash", func(i int) string { return three(i) + ", failover: {mode: rehash}" }, flushedAtReturn},
		{"warm", func(i int) string { return three(i) + ", failover: {mode: rehash}, resize: {mode: warm}" }, flushedAtReturn},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := Parse("f", []byte(filePools(c.pool)))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.Build(); err != nil {
				t.Fatal(err)
			}
			for i := range f.Pools {
				if says := f.AtReturn(f.Pools[i].Name); !strings.Contains(says, c.last) {
					t.Fatalf("pool %d: %s", i, says)
				}
			}
			if list := Changes(f, f); len(list) != 0 {
				t.Errorf("%q", list)
			}
		})
	}
}

func TestManyPoolsMove(t *testing.T) {
	f, err := Parse("f", []byte(filePools(func(i int) string {
		return fmt.Sprintf("servers: [file+/s%d], failover: {mode: rehash}", i)
	})))
	if err != nil {
		t.Fatal(err)
	}
	at := func(network int) *File {
		g, err := f.With(func(pool, _ string) ([]serverlist.Server, bool) {
			var i int
			fmt.Sscanf(pool, "p%d", &i)
			return []serverlist.Server{
				{Name: "a", Address: fmt.Sprintf("10.%d.%d.%d:1", network, i/250, i%250)},
				{Name: "b", Address: fmt.Sprintf("10.%d.%d.%d:2", network, i/250, i%250)},
			}, true
		})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	before, now := at(1), at(2)
	moved := before.At(now)
	if moved.Pools[manyPools-1].Servers[1].at != now.Pools[manyPools-1].Servers[1].at || moved == before {
		t.Error("the servers have not moved")
	}
}

func TestManyListeners(t *testing.T) {
	var b strings.Builder
	for i := range manyPools {
		fmt.Fprintf(&b, "p%d:\n  listen: 127.0.0.1:%d\n  distribution: ketama\n  hash: md5\n  servers: [\"127.0.0.2:%d:1\"]\n", i, i+1, i%7+1)
	}
	out, _, err := ImportNutcracker("f", []byte(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(out), "routes: "); n != manyPools {
		t.Errorf("%d listeners", n)
	}
}

func TestManyRoutes(t *testing.T) {
	var b strings.Builder
	b.WriteString("listen: 127.0.0.1:1\npools: {main: {distribution: ketama, servers: [a]}}\nroutes:\n  - {pool: main}\n")
	for i := range 5 * manyPools {
		fmt.Fprintf(&b, "  - {prefix: \"p%d:\", pool: main, guard: on}\n", i)
	}
	if _, err := Parse("f", []byte(b.String())); err != nil {
		t.Fatal(err)
	}
}

// TestErrorOnce checks that an error is reported once, also if another one is at the same position.
func TestErrorOnce(t *testing.T) {
	a, b := Error{Line: 1, Column: 1, Message: "a"}, Error{Line: 1, Column: 1, Message: "b"}
	x, y, z := a, b, a
	if got := (Errors{&x, &y, &z}).sorted(); len(got) != 2 || *got[0] != a || *got[1] != b {
		t.Errorf("%v", got)
	}
}
