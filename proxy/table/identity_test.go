package table

import "testing"

func TestInherit(t *testing.T) {
	pool := func(name string, addresses ...string) *Pool {
		p := &Pool{Name: name}
		for _, a := range addresses {
			p.Servers = append(p.Servers, Target{Network: "tcp", Address: a})
		}
		return p
	}
	var tables []*Table
	for _, c := range []struct {
		pools []*Pool
		ids   []string
	}{
		{[]*Pool{pool("a", "1", "2"), pool("b", "3")}, []string{"a", "b"}},
		{[]*Pool{pool("a", "1", "2", "4"), pool("b", "3")}, []string{"a", "b"}},
		{[]*Pool{pool("b", "3"), pool("c", "2", "4", "1")}, []string{"b", "a"}},                                      // renamed, and the order is another one
		{[]*Pool{pool("a", "5"), pool("b", "3"), pool("c", "1", "2")}, []string{"a\x002", "b", "a"}},                 // a new pool with a former name
		{[]*Pool{pool("a", "3"), pool("b", "5"), pool("c", "1", "2")}, []string{"b", "a\x002", "a"}},                 // two exchange their names
		{[]*Pool{pool("a", "3"), pool("b", "5"), pool("d", "3"), pool("c", "6")}, []string{"b", "a\x002", "b", "a"}}, // two pools for the servers of one
		{[]*Pool{pool("a", "3", "7"), pool("d", "3", "8"), pool("c", "6")}, []string{"b", "d", "a"}},                 // they become different
		{[]*Pool{pool("e", "6"), pool("f", "9")}, []string{"a", "f"}},
		{[]*Pool{pool("g", "6", "1", "8"), pool("h", "9", "2", "3")}, []string{"g", "h"}}, // too few servers are the same
		{[]*Pool{pool("i", "6", "1"), pool("h", "9", "3")}, []string{"g", "h"}},
	} {
		next := &Table{Pools: c.pools}
		if len(tables) == 0 {
			next.Inherit(nil)
		} else {
			next.Inherit(tables[len(tables)-1])
		}
		for i, p := range next.Pools {
			if p.ID != c.ids[i] {
				t.Errorf("table %d: pool %s has the ID %q, want %q", len(tables), p.Name, p.ID, c.ids[i])
			}
		}
		tables = append(tables, next)
	}
}
