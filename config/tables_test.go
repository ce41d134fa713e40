package config

// Measured tables of how evenly each distribution places keys, and how many keys move when a
// server is added or removed: go test ./config -run TestTables -v

import (
	"fmt"
	"strings"
	"testing"

	"ringside/ring"
	"ringside/ring/ringtest"
)

// measured lists the distributions that differ in balance or in the number of moved keys. Every
// other distribution is one of these with another label or hash.
var measured = []struct {
	name    string
	options PlacementOptions
}{
	{"ketama-points", PlacementOptions{Points: 100}},
	{"ketama-points", PlacementOptions{Points: 160}},
	{"ketama-points", PlacementOptions{Points: 200}},
	{"ketama", PlacementOptions{}},
	{"ketama-hostport", PlacementOptions{}},
	{"consistent", PlacementOptions{}},
	{"dalli", PlacementOptions{}},
	{"pecl-consistent", PlacementOptions{}},
	{"perl-fast-ketama", PlacementOptions{}},
	{"stathat", PlacementOptions{}},
	{"serialx", PlacementOptions{}},
	{"jump", PlacementOptions{}},
	{"ch3", PlacementOptions{}},
	{"rendezvous-pymemcache", PlacementOptions{}},
	{"modulo-crc32", PlacementOptions{}},
}

// movedKeys is the number of keys in the sample of which moved keys are counted.
const movedKeys = 20000

func TestTables(t *testing.T) {
	keys := ringtest.Keys(movedKeys)
	var out strings.Builder
	row := func(cells ...any) { fmt.Fprintf(&out, "%-24s %4v | %6v %6v | %8v %8v %8v | %8v %8v\n", cells...) }
	row("distribution", "n", "min", "max", "add", "rm last", "rm mid", "ideal +", "ideal -")
	for _, m := range measured {
		name := m.name
		if m.options.Points > 0 {
			name += fmt.Sprint(" ", m.options.Points)
		}
		counts := []int{3, 10, 24, 100}
		if testing.Short() {
			counts = counts[:2]
		}
		for _, n := range counts {
			servers := equalServers(n + 1)
			whole := build(t, m.name, servers[:n], m.options)
			least, most := loads(t, whole)
			add := moved(t, keys, whole, build(t, m.name, servers, m.options), nil)
			last := moved(t, keys, whole, build(t, m.name, servers[:n-1], m.options), nil)
			mid := n / 2
			middle := moved(t, keys, whole, build(t, m.name, append(append([]PlacementServer{}, servers[:mid]...), servers[mid+1:n]...), m.options),
				func(s int) int {
					if s >= mid {
						return s + 1
					}
					return s
				})
			ideal := func(x float64) string { return fmt.Sprintf("%.3f", x) }
			row(name, n, fmt.Sprintf("%.2f", least), fmt.Sprintf("%.2f", most), ideal(add), ideal(last), ideal(middle),
				ideal(1/float64(n+1)), ideal(1/float64(n)))
			if (m.name == "ketama-points" || m.name == "jump") && add > 1.6/float64(n+1) {
				t.Errorf("%s: adding a server to %d moves %.3f of the keys", name, n, add)
			}
		}
	}
	t.Logf("shares are factors of the fair one; moved keys are counted over %d\n%s", movedKeys, &out)
}

func equalServers(n int) []PlacementServer {
	var servers []PlacementServer
	for i := range n {
		servers = append(servers, PlacementServer{Host: fmt.Sprintf("10.2.%d.%d", i/250, 1+i%250), Port: 11211})
	}
	return servers
}

func build(t *testing.T, name string, servers []PlacementServer, o PlacementOptions) ring.Placement {
	t.Helper()
	p, err := BuildPlacement(name, servers, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// loads returns the smallest and the largest share, relative to the share of a perfectly even
// distribution.
func loads(t *testing.T, p ring.Placement) (least, most float64) {
	t.Helper()
	n := float64(p.Ring.Len())
	least = n
	for _, share := range p.Ring.(ring.Sharer).Shares() {
		least, most = min(least, share*n), max(most, share*n)
	}
	return least, most
}

// moved returns the fraction of keys whose server differs between a and b. rename maps server
// indices of b to those of a; nil: they are the same.
func moved(t *testing.T, keys [][]byte, a, b ring.Placement, rename func(int) int) float64 {
	t.Helper()
	count := 0
	for _, key := range keys {
		_, _, was := a.Locate(key)
		_, _, is := b.Locate(key)
		if rename != nil {
			is = rename(is)
		}
		if was != is {
			count++
		}
	}
	return float64(count) / float64(len(keys))
}
