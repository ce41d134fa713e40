package ring_test

// Every ring against the contract of ringtest, and where a dead server's keys move.

import (
	"slices"
	"testing"

	"ringside/ring"
	"ringside/ring/ringtest"
)

func points(servers, each int) []ring.Point {
	var points []ring.Point
	for s := range servers {
		for i := range each {
			points = append(points, ring.Point{At: uint32(ring.XXH64.Sum([]byte{byte(s), byte(i), byte(i >> 8)})), Server: s})
		}
	}
	return points
}

func widePoints(servers, each int) []ring.WidePoint {
	var points []ring.WidePoint
	for s := range servers {
		for i := range each {
			points = append(points, ring.WidePoint{Hi: ring.XXH64.Sum([]byte{byte(s), byte(i), byte(i >> 8)}), Server: s})
		}
	}
	return points
}

func upTo(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

func placements() map[string]ring.Placement {
	tags := []string{"a", "b", "c", "d", "e", "f", "g"}
	low := func([]byte) uint64 { return 0 }
	return map[string]ring.Placement{
		"circle":       {Hash: ring.MD5.Sum, Ring: ring.NewCircle(7, points(7, 400), ring.CircleOptions{})},
		"after":        {Hash: ring.MD5.Sum, Ring: ring.NewCircle(7, points(7, 400), ring.CircleOptions{Seek: ring.After})},
		"at or before": {Hash: ring.MD5.Sum, Ring: ring.NewCircle(7, points(7, 400), ring.CircleOptions{Seek: ring.AtOrBefore})},
		"circle and walk": {Hash: ring.CRC32.Sum,
			Ring: ring.NewCircle(7, points(7, 400), ring.CircleOptions{Walk: ring.TryBefore(ring.CRC32, 0, 20)})},
		"wide":  {Hash: ring.MD5Wide.Sum, Ring: ring.NewWide(7, widePoints(7, 400), low)},
		"table": {Hash: ring.CRC32.Sum, Ring: ring.NewTable(7, upTo(7), ring.TableOptions{})},
		"table of 15 bits": {Hash: ring.CRC15.Sum,
			Ring: ring.NewTable(7, upTo(7), ring.TableOptions{SpaceBits: 15, Walk: ring.HashOfHash(ring.CRC15Not0, 10)})},
		"table and next":       {Hash: ring.Java.Sum, Ring: ring.NewTable(7, upTo(7), ring.TableOptions{Next: true})},
		"table and sum":        {Hash: ring.CRC15.Sum, Ring: ring.NewTable(7, upTo(7), ring.TableOptions{Walk: ring.AddTryBefore(ring.CRC15, 1, 20, 63)})},
		"table and try behind": {Hash: ring.CRC32.Sum, Ring: ring.NewTable(7, upTo(7), ring.TableOptions{Walk: ring.TryBehind(ring.CRC32, 21)})},
		"jump":                 {Hash: ring.XXH64.Sum, Ring: ring.NewJump(upTo(7))},
		"ch3":                  {Hash: ring.Murmur64.Sum, Ring: ring.NewCh3(7)},
		"salted ch3":           {Hash: ring.Salted(ring.Murmur64, "salt"), Ring: ring.NewCh3(7)},
		"mcrouter":             {Hash: ring.Murmur64Key.Sum, Ring: ring.NewMcrouter(tags)},
		"pymemcache":           {Hash: ring.PymemcacheHash, Ring: ring.NewPymemcache(tags, false)},
		"pymemcache bytes":     {Hash: ring.PymemcacheHash, Ring: ring.NewPymemcache(tags, true)},
	}
}

func TestContract(t *testing.T) {
	for name, p := range placements() {
		t.Run(name, func(t *testing.T) {
			ringtest.Contract(t, p, nil, ringtest.Bound{Min: 0.85, Max: 1.15})
		})
	}
}

// When a server dies, its keys must spread evenly over the others. (h+1) mod n
// would double the load of one neighbor.
func TestFallbackSpreads(t *testing.T) {
	const dead = 2
	for _, name := range []string{"table", "jump", "ch3", "circle", "mcrouter", "pymemcache"} {
		p := placements()[name]
		taken, all := make([]int, p.Ring.Len()), 0
		for _, key := range ringtest.Keys(20000) {
			part, h, owner := p.Locate(key)
			if owner == dead {
				taken[p.Ring.At(part, h, 1)]++
				all++
			}
		}
		for s, n := range taken {
			if fair := float64(all) / 6; s != dead && (float64(n) < 0.6*fair || float64(n) > 1.4*fair) {
				t.Errorf("%s: server %d takes over %d of %d keys", name, s, n, all)
			}
		}
	}
}

func TestLive(t *testing.T) {
	r := ring.Live(ring.NewTable(2, []int{0, 1}, ring.TableOptions{Next: true}), []int{0, 2}, 3)
	for h, want := range [][]int{{0, 2, -1}, {2, 0, -1}} {
		got := make([]int, len(want))
		for n := range got {
			got[n] = r.At(nil, uint64(h), n)
		}
		if !slices.Equal(got, want) || r.Len() != 3 {
			t.Errorf("hash %d of %d servers: %v, want %v", h, r.Len(), got, want)
		}
	}
}

// Distinct must keep the order of a walk and append the servers that the walk never
// names.
func TestDistinctOfAWalk(t *testing.T) {
	walk := ring.Walk{Tries: 4, Hash: func(_ []byte, _ uint64, n int) uint64 { return []uint64{0, 5, 5, 2}[n] }}
	r := ring.Distinct(ring.NewTable(6, upTo(6), ring.TableOptions{Walk: walk}))
	var got []int
	for n := range 7 {
		got = append(got, r.At(nil, 5, n))
	}
	if got[0] != 5 || got[1] != 2 || got[6] != -1 {
		t.Errorf("order %v, want it to begin with 5 2 and to end with -1", got)
	}
	all := slices.Sorted(slices.Values(got[:6]))
	if !slices.Equal(all, upTo(6)) {
		t.Errorf("order %v doesn't name every server once", got)
	}
}

// Lists with more servers than the bit set on the stack holds must still work.
func TestManyServers(t *testing.T) {
	const n = 5000
	r := ring.NewTable(n, upTo(n), ring.TableOptions{})
	if at := r.At(nil, 7, 3); at < 0 || at == 7 {
		t.Errorf("third fallback of hash 7 is %d", at)
	}
}

func TestOrders(t *testing.T) {
	servers := []ring.Server{
		{Host: "10.0.0.10", Port: 11211}, {Host: "10.0.0.9", Port: 11211}, {Host: "10.0.0.9", Port: 9000},
		{Host: "b", Port: 11211}, {Host: "x", Port: 1, Name: "cc"}, {Path: "/s"},
	}
	for name, c := range map[string]struct {
		order ring.Order
		want  []int
	}{
		"listed":  {ring.Listed, []int{0, 1, 2, 3, 4, 5}},
		"length":  {ring.ByLength, []int{3, 4, 5, 1, 0, 2}},
		"host":    {ring.ByHost, []int{5, 0, 2, 1, 3, 4}},
		"natural": {ring.Natural, []int{5, 2, 1, 0, 3, 4}},
	} {
		if got := c.order(servers); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
