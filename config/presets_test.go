package config

// Tests of every preset against the contract of rings, and of the options that each rejects.

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"ringside/ring"
	"ringside/ring/ringtest"
)

// poolOf returns n servers and their weights. The weights differ if the preset uses weights.
func poolOf(p Preset, n int) (servers []PlacementServer, weights []int) {
	for i := range n {
		s := PlacementServer{Host: fmt.Sprintf("10.1.0.%d", i+1), Port: 11211 + i%2}
		weight := 1
		if p.Weights == WeightsUsed {
			s.Weight = 1 + i%3
			weight = s.Weight
		}
		servers, weights = append(servers, s), append(weights, weight)
	}
	return servers, weights
}

// needed returns the options that a preset requires.
func needed(p Preset) PlacementOptions {
	if p.Name == "modulo" {
		return PlacementOptions{Hash: "md5"}
	}
	return PlacementOptions{}
}

// uneven has the bounds of presets whose clients distribute keys less evenly than the rest.
var uneven = map[string]ringtest.Bound{
	"serialx":         {Min: 0, Max: 7},     // one point for each unit of weight
	"stathat":         {Min: 0.4, Max: 2.5}, // 20 points
	"pecl-consistent": {Min: 0.5, Max: 1.5}, // 1024 buckets
}

func TestPresetsKeepTheContract(t *testing.T) {
	for _, p := range Presets() {
		t.Run(p.Name, func(t *testing.T) {
			bound, ok := uneven[p.Name]
			if !ok {
				bound = ringtest.Bound{Min: 0.7, Max: 1.35}
			}
			servers, weights := poolOf(p, 7)
			placement, err := BuildPlacement(p.Name, servers, needed(p))
			if err != nil {
				t.Fatal(err)
			}
			ringtest.Contract(t, placement, weights, bound)
			if _, ok := placement.Ring.(ring.Sharer); !ok {
				t.Error("doesn't know its shares")
			}
			part, h, _ := placement.Locate([]byte("key"))
			if e, ok := placement.Ring.(ring.Explainer); !ok || e.Explain(part, h) == (ring.Hit{}) {
				t.Error("doesn't say what a hash hits")
			}
		})
	}
}

// TestPresetsHonourTheirOptions builds each preset with every hash, order and point count that
// it lists, and with unsigned characters if it has that option.
func TestPresetsHonourTheirOptions(t *testing.T) {
	for _, p := range Presets() {
		servers, _ := poolOf(p, 4)
		base := needed(p)
		build := func(what string, o PlacementOptions) {
			if _, err := BuildPlacement(p.Name, servers, o); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		for _, hash := range p.Hashes {
			build("hash", PlacementOptions{Hash: hash})
		}
		for _, hash := range p.PointHashes {
			build("point_hash", PlacementOptions{PointHash: hash})
		}
		for _, order := range p.Orders {
			o := base
			o.Order = order
			build("order", o)
		}
		if p.MaxPoints > 0 {
			build("points", PlacementOptions{Points: p.MinPoints})
			build("points", PlacementOptions{Points: p.MaxPoints})
		}
		if slices.Contains(p.Options, "seed") {
			build("seed", PlacementOptions{Seed: "mc1.6"})
		}
		if slices.Contains(p.Options, "salt") {
			build("salt", PlacementOptions{Salt: "foo"})
		}
		o := base
		o.HashTag, o.HashStop, o.HashStripPrefix = "{}", "|#|", []string{"app:", "memc.sess.key."}
		build("part of the key", o)
		placement, err := BuildPlacement(p.Name, servers, o)
		if err != nil {
			continue // build has reported it
		}
		key := []byte("app:user:{8659}:cart|#|more")
		if n := testing.AllocsPerRun(10, func() { placement.Locate(key) }); n != 0 {
			t.Errorf("%s: %v allocations to locate a key with a part", p.Name, n)
		}
	}
}

func TestPresetsRefuse(t *testing.T) {
	two := []PlacementServer{{Host: "10.0.0.1", Port: 11211}, {Host: "10.0.0.2", Port: 11211}}
	weighted := []PlacementServer{{Host: "10.0.0.1", Port: 11211, Weight: 2}}
	named := []PlacementServer{{Host: "cache1", Port: 11211}}
	socket := []PlacementServer{{Path: "/run/mc.sock"}}
	for _, c := range []struct {
		distribution string
		servers      []PlacementServer
		options      PlacementOptions
		want         string // in the error
	}{
		{"ketma", two, PlacementOptions{}, `did you mean "ketama"?`},
		{"ketama", nil, PlacementOptions{}, "no servers"},
		{"ketama", two, PlacementOptions{Points: 100}, "option points is not allowed: their number is the client's own; ketama-points lets one choose (allowed: hash, char, hash_tag, hash_stop, hash_strip_prefix)"},
		{"ketama", two, PlacementOptions{Hash: "xxh64"}, `hash: "xxh64" must be one of md5, one_at_a_time, crc`},
		{"ketama", two, PlacementOptions{Order: "natural"}, "option order is not allowed"},
		{"ketama", two, PlacementOptions{Seed: "x"}, "option seed is not allowed"},
		{"ketama", two, PlacementOptions{Salt: "x"}, "option salt is not allowed"},
		{"ketama", two, PlacementOptions{PointHash: "md5"}, "option point_hash is not allowed"},
		{"ketama", two, PlacementOptions{UnsignedChars: true}, "char: unsigned makes no difference"},
		{"ketama", two, PlacementOptions{HashTag: "{"}, "hash_tag"},
		{"ketama", two, PlacementOptions{HashStripPrefix: []string{""}}, "hash_strip_prefix"},
		{"ketama-points", two, PlacementOptions{Points: 99}, "points: 99 must be 100 to 200"},
		{"ketama-points", two, PlacementOptions{Points: 201}, "points: 201 must be 100 to 200"},
		{"memcached-proxy-ketama", two, PlacementOptions{Points: 30}, "points: 30 must be a multiple of 4"},
		{"dalli", two, PlacementOptions{Hash: "md5"}, "option hash is not allowed: the hash is part of the rule"},
		{"jump", weighted, PlacementOptions{}, "server 10.0.0.1:11211: weight 2: this client knows no weights"},
		{"ketama", []PlacementServer{{Host: "a", Port: 1, Weight: -1}}, PlacementOptions{}, "server a:1: weight -1 is negative"},
		{"spymemcached", named, PlacementOptions{}, `give the server the name "cache1/<its ip>:11211"`},
		{"spymemcached", socket, PlacementOptions{}, "server /run/mc.sock: this client has no rule for unix sockets"},
		{"modulo-gomemcache", []PlacementServer{{Host: "a", Port: 1, Weight: 5_000_000}}, PlacementOptions{}, "divide them by a common factor"},
		{"modulo", two, PlacementOptions{}, "modulo-gomemcache: bradfitz/gomemcache"},
		{"jump", two, PlacementOptions{Order: "host"}, `order: "host" must be one of listed, natural, length`},
	} {
		_, err := BuildPlacement(c.distribution, c.servers, c.options)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %+v: %v, want %q", c.distribution, c.options, err, c.want)
		}
	}
}

func TestPresetNames(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range Presets() {
		for _, name := range append([]string{p.Name}, p.Aliases...) {
			if seen[name] {
				t.Errorf("%q names two presets", name)
			}
			seen[name] = true
			if found, ok := FindPreset(name); !ok || found.Name != p.Name {
				t.Errorf("%q finds %q", name, found.Name)
			}
		}
		if p.For == "" {
			t.Errorf("%s doesn't say who uses it", p.Name)
		}
	}
}

// TestDeadServers checks that no key is placed on a dead server, whatever the rule of
// the client.
func TestDeadServers(t *testing.T) {
	for _, p := range Presets() {
		servers, _ := poolOf(p, 5)
		dead := []bool{false, true, false, true, false}
		whole, err := BuildPlacement(p.Name, servers, needed(p))
		if err != nil {
			t.Fatal(err)
		}
		left, err := withoutDead(p.Name, servers, needed(p), dead)
		if err != nil {
			t.Fatal(err)
		}
		nowhere := 0
		for _, key := range ringtest.Keys(2000) {
			_, _, owner := whole.Locate(key)
			_, _, now := left.Locate(key)
			switch {
			case now >= 0 && dead[now]:
				t.Fatalf("%s: key %q goes to a dead server", p.Name, key)
			case now < 0:
				nowhere++
			}
			if p.Dead != DeadRebuilds && !dead[owner] && now != owner {
				t.Fatalf("%s: key %q moved from a live server to %d", p.Name, key, now)
			}
		}
		if (nowhere > 100) != (p.Dead == DeadStays) {
			t.Errorf("%s: its client has rule %d, and %d of 2000 keys have no server", p.Name, p.Dead, nowhere)
		}
		none, err := withoutDead(p.Name, servers, needed(p), []bool{true, true, true, true, true})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, owner := none.Locate([]byte("key")); owner != -1 {
			t.Errorf("%s: all servers are dead, and a key goes to %d", p.Name, owner)
		}
	}
}

// TestNamesReplaceAddresses checks that every rule that hashes text uses the name of a server
// instead of its address.
func TestNamesReplaceAddresses(t *testing.T) {
	for _, name := range []string{"ketama", "ketama-points", "twemproxy", "dalli", "pecl-consistent", "uhashring",
		"spymemcached", "perl-fast-ketama", "rendezvous-pymemcache", "rendezvous-mcrouter", "stathat"} {
		byName, err := BuildPlacement(name, []PlacementServer{{Host: "a", Port: 1, Name: "x"}, {Host: "b", Port: 2, Name: "y"}, {Path: "/c", Name: "z"}}, PlacementOptions{})
		if err != nil {
			t.Fatal(err)
		}
		moved, err := BuildPlacement(name, []PlacementServer{{Host: "c", Port: 3, Name: "x"}, {Path: "/d", Name: "y"}, {Host: "e", Port: 5, Name: "z"}}, PlacementOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range ringtest.Keys(500) {
			_, _, a := byName.Locate(key)
			_, _, b := moved.Locate(key)
			if a != b {
				t.Fatalf("%s: key %q moved with the address of a named server", name, key)
			}
		}
	}
}
