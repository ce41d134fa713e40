package config

// Benchmarks of placing a key, for each preset and for the libraries of Go clients. Run with
// make bench-placement

import (
	"fmt"
	"testing"

	"github.com/bradfitz/gomemcache/memcache"
	"github.com/serialx/hashring"
	"github.com/stathat/consistent"

	"ringside/ring/ringtest"
)

// BenchmarkPlacement hashes keys and finds their servers, for every preset with 10 and with 100
// equal servers. The benchmarks below library/ are those of the clients' own libraries. Before
// each, its results are compared with those of its preset.
func BenchmarkPlacement(b *testing.B) {
	const count = 1024 // a power of two
	keys := ringtest.Keys(count)
	texts := make([]string, count)
	for i, key := range keys {
		texts[i] = string(key)
	}
	for _, n := range []int{10, 100} {
		servers := equalServers(n)
		for _, p := range Presets() {
			placement, err := BuildPlacement(p.Name, servers, needed(p))
			if err != nil {
				b.Fatal(err)
			}
			b.Run(fmt.Sprintf("%s/%d", p.Name, n), func(b *testing.B) {
				b.ReportAllocs()
				for i := range b.N {
					placement.Locate(keys[i&(count-1)])
				}
			})
		}
		for _, l := range libraries(b, servers) {
			placement, err := BuildPlacement(l.preset, servers, PlacementOptions{})
			if err != nil {
				b.Fatal(err)
			}
			for i, key := range keys {
				_, _, at := placement.Locate(key)
				if got, want := l.pick(texts[i]), servers[at].Address(); got != want {
					b.Fatalf("%s gives key %q to %s, preset %s to %s", l.name, key, got, l.preset, want)
				}
			}
			b.Run(fmt.Sprintf("library/%s/%d", l.name, n), func(b *testing.B) {
				b.ReportAllocs()
				for i := range b.N {
					l.pick(texts[i&(count-1)])
				}
			})
		}
	}
}

// library is the placement function of a client library, and the preset for the client.
type library struct {
	name, preset string
	pick         func(key string) (server string)
}

func libraries(b *testing.B, servers []PlacementServer) []library {
	var addrs []string
	for _, s := range servers {
		addrs = append(addrs, s.Address())
	}
	list := new(memcache.ServerList)
	if err := list.SetServers(addrs...); err != nil {
		b.Fatal(err)
	}
	circle := consistent.New()
	circle.Set(addrs)
	hashes := hashring.New(addrs)
	return []library{
		{"gomemcache", "modulo-gomemcache", func(key string) string {
			addr, err := list.PickServer(key)
			if err != nil {
				return err.Error()
			}
			return addr.String()
		}},
		{"stathat-consistent", "stathat", func(key string) string {
			server, err := circle.Get(key)
			if err != nil {
				return err.Error()
			}
			return server
		}},
		{"serialx-hashring", "serialx", func(key string) string {
			server, _ := hashes.GetNode(key)
			return server
		}},
	}
}
