package config

// Tests that fingerprints differ if keys have different servers, and are equal for equivalent
// settings.

import (
	"fmt"
	"slices"
	"testing"

	"ringside/ring/ringtest"
)

// placed holds the arguments of one placement of a preset.
type placed struct {
	what    string
	servers []PlacementServer
	options PlacementOptions
}

// placements returns a base placement of p, and variants with one change each.
func placements(p Preset) []placed {
	servers, _ := poolOf(p, 4)
	base := needed(p)
	list := []placed{{"base", servers, base}}
	option := func(what string, change func(o *PlacementOptions)) {
		o := base
		change(&o)
		list = append(list, placed{what, servers, o})
	}
	server := func(what string, change func(s []PlacementServer)) {
		changed := slices.Clone(servers)
		change(changed)
		list = append(list, placed{what, changed, base})
	}
	for _, hash := range p.Hashes {
		option("hash "+hash, func(o *PlacementOptions) { o.Hash = hash })
		option("hash "+hash+" unsigned", func(o *PlacementOptions) { o.Hash, o.UnsignedChars = hash, true })
	}
	for _, hash := range p.PointHashes {
		option("point_hash "+hash, func(o *PlacementOptions) { o.PointHash = hash })
	}
	for _, order := range p.Orders {
		option("order "+order, func(o *PlacementOptions) { o.Order = order })
	}
	for _, n := range []int{p.MinPoints, p.Points, p.MaxPoints} {
		option(fmt.Sprint("points ", n), func(o *PlacementOptions) { o.Points = n })
	}
	option("unsigned", func(o *PlacementOptions) { o.UnsignedChars = true })
	for _, text := range []string{"a", "b"} {
		option("seed "+text, func(o *PlacementOptions) { o.Seed = text })
		option("salt "+text, func(o *PlacementOptions) { o.Salt = text })
	}
	for _, tag := range []string{"{}", "[]", "{{"} {
		option("tag "+tag, func(o *PlacementOptions) { o.HashTag = tag })
	}
	for _, stop := range []string{"|#|", "#", noStop} {
		option("stop "+stop, func(o *PlacementOptions) { o.HashStop = stop })
	}
	for _, strip := range [][]string{{"app:"}, {"app:x"}, {"app:", "app:x"}, {"app:x", "app:"}} {
		option(fmt.Sprint("strip ", strip), func(o *PlacementOptions) { o.HashStripPrefix = strip })
	}
	server("weight", func(s []PlacementServer) { s[1].Weight += 4 })
	server("host", func(s []PlacementServer) { s[1].Host = "10.2.0.1" })
	server("port", func(s []PlacementServer) { s[1].Port++ })
	server("name", func(s []PlacementServer) { s[1].Name = "b" })
	server("another name", func(s []PlacementServer) { s[2].Name = "b" })
	server("path", func(s []PlacementServer) { s[1] = PlacementServer{Path: "/run/b", Weight: s[1].Weight} })
	server("swapped", func(s []PlacementServer) { s[0], s[1] = s[1], s[0] })
	list = append(list, placed{"one more", append(slices.Clone(servers), PlacementServer{Host: "10.9.0.9", Port: 11211}), base},
		placed{"one less", servers[:3], base})
	return list
}

// telling returns keys of which every change of a placement moves some.
func telling() [][]byte {
	keys := ringtest.Keys(1000)
	for i := range 200 {
		for _, form := range []string{"ü%d", "{%d}x", "x[%d]", "y{%d{", "%d|#|x", "%d#y", "app:%d", "app:x%d"} {
			keys = append(keys, fmt.Appendf(nil, form, i))
		}
	}
	return keys
}

// TestFingerprintTellsPlacementsApart builds every preset in many ways. If two of them place a
// key on different servers, their fingerprints must differ.
func TestFingerprintTellsPlacementsApart(t *testing.T) {
	keys := telling()
	for _, p := range Presets() {
		first := map[string]string{} // by fingerprint: the first placement with it; owners has the owners of the keys in it
		owners := map[string][]int{}
		built := 0
		for _, c := range placements(p) {
			place, err := BuildPlacement(p.Name, c.servers, c.options)
			if err != nil {
				continue // the preset does not have this option
			}
			built++
			var own []int
			for _, key := range keys {
				_, _, owner := place.Locate(key)
				own = append(own, owner)
			}
			print := place.Fingerprint
			if before, ok := first[print]; !ok {
				first[print], owners[print] = c.what, own
			} else if !slices.Equal(owners[print], own) {
				t.Errorf("%s: %q and %q have one fingerprint and give keys to different servers", p.Name, before, c.what)
			}
		}
		if built < 15 {
			t.Errorf("%s: only %d ways to build it", p.Name, built)
		}
	}
}

// TestFingerprintIsOfTheRule checks that equivalent settings, and settings that do not affect
// placement, have the same fingerprint. It also checks that it is the same in every process.
func TestFingerprintIsOfTheRule(t *testing.T) {
	prints := func(pool string) string {
		t.Helper()
		f, err := Parse("x.yaml", []byte("listen: :1\npools:\n  main: {"+pool+"}\n"))
		if err != nil {
			t.Fatal(err)
		}
		table, err := f.Build()
		if err != nil {
			t.Fatal(err)
		}
		return table.Pools[0].Place.Fingerprint
	}
	const servers = `servers: ["10.0.0.1:11211", {address: "10.0.0.2:11211", weight: 2}]`
	for _, c := range [][]string{
		{"distribution: ketama, " + servers,
			"distribution: libmemcached-ketama, " + servers,
			"distribution: ketama, hash: md5, char: signed, " + servers,
			"distribution: ketama, servers: [10.0.0.1, {address: 10.0.0.2, weight: 2, zone: a, host: h}]",
			"distribution: ketama, queue: 7, connections: 3, get_errors: error, timeouts: {request: 90ms}, failover: {mode: rehash, lease: 7s}, " + servers},
		{"distribution: ketama-points, " + servers, "distribution: ketama-points, points: 160, hash: md5, " + servers},
		{"distribution: jump, servers: [a, b]", "distribution: jump, order: listed, servers: [{address: a, weight: 1}, b]"},
		{"distribution: consistent, servers: [a, b]", "distribution: consistent, hash: one_at_a_time, point_hash: one_at_a_time, servers: [{address: a, weight: 3}, b]"},
		{"distribution: ch3, servers: [a, b]", `distribution: mcrouter, hash_stop: "|#|", servers: [a, b]`},
		{"distribution: jump-dskit, servers: [a, b]", "distribution: grafana, hash_stop: none, servers: [a, b]"},
	} {
		want := prints(c[0])
		for _, same := range c[1:] {
			if got := prints(same); got != want {
				t.Errorf("%s: %s, and %s: %s", c[0], want, same, got)
			}
		}
	}
	if got, want := prints("distribution: ketama, "+servers), "2pmakzlx9y1yn"; got != want {
		t.Errorf("the fingerprint is %s, want %s as always: instances of two builds would take each other's lists for different ones", got, want)
	}
}
