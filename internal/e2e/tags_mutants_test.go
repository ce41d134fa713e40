package e2e

// This file tests the purpose of the rules for stamping values with tag versions: without
// one of them, an outdated value is read.

import (
	"strings"
	"testing"

	"ringside/proxy/ablation"
)

// lateRebuilds has a client set values that it read from the database before an
// invalidation. It returns the keys that a get then finds.
func lateRebuilds(t testing.TB, without ablation.Set) (read string) {
	t.Helper()
	address := serveInside(t, tagRoute(startMemcacheds(t, 1), `tags: {patterns: [{match: "p{n}", tags: ["t{n}"]}]}`), without)
	c, other := dial(t, address), dial(t, address)
	other.ask("delete tag:t1", "DELETED") // creates the buckets; earlier invalidations are unknown
	other.ask("delete tag:u1", "DELETED")
	c.misses("in-time")
	c.store("in-time;tags=u1", "fresh")
	for _, late := range []struct{ key, named, tag string }{{"p1", "", "t1"}, {"n1", ";tags=u1", "u1"}} {
		c.misses(late.key)
		other.ask("delete tag:"+late.tag, "DELETED")
		c.set(late.key+late.named, "old")
	}
	c.misses("in-time") // u1 was invalidated since it was stored
	c.misses("now")
	c.store("now;tags=u1", "fresh")
	for _, key := range []string{"p1", "n1", "now"} {
		if got, _ := c.get(key); got[key] != "" {
			read += " " + key
		}
	}
	return strings.TrimSpace(read)
}

// TestTagsMutants switches off the rules that keep outdated values from being read.
func TestTagsMutants(t *testing.T) {
	t.Parallel()
	for _, m := range []struct {
		name, read string
		without    ablation.Set
	}{
		{"all rules", "now", ablation.Set{}},
		{"the set stamps with what it reads", "p1 n1 now", ablation.Set{Stamp: true, Order: true}},
		{"the order of tag and miss is not looked at", "n1 now", ablation.Set{Order: true}},
	} {
		t.Run(m.name, func(t *testing.T) {
			if read := lateRebuilds(t, m.without); read != m.read {
				t.Errorf("%q are read, want %q", read, m.read)
			}
		})
	}
}
