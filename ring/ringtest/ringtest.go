// Package ringtest tests that an implementation of ring.Ring fulfills the contract
// of the interface.
package ringtest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"ringside/ring"
)

// Bound is the range in which the load of a server must be. 1 is the server's fair
// share by weight.
type Bound struct{ Min, Max float64 }

// keys is the number of test keys that Contract looks up.
const keys = 20000

// Keys returns n keys of different lengths and alphabets. Each call returns the same
// keys. Each key contains a random number, because the hashes of some clients are
// uneven for similar keys, and the tests are about the rings.
func Keys(n int) [][]byte {
	forms := []string{"%016x", "user:%d:cart", "session/%032x", "ключ-%d", "k💾%d", "a-rather-long-key-that-names-many-things-and-then-one-of-them:%020d"}
	random := rand.New(rand.NewPCG(1, 2))
	list := make([][]byte, n)
	for i := range list {
		list[i] = fmt.Appendf(nil, forms[i%len(forms)], random.Uint64())
	}
	return list
}

// Contract checks these properties of a placement:
//
//   - Every index is -1 or the index of a server.
//   - The same key always has the same owner.
//   - The load is balanced within bound, by weights (nil: all equal).
//   - The order of fallbacks ends.
//   - ring.Distinct returns an order in which each server is named exactly once.
//   - The shares that the ring reports add up to 1, and match the number of test keys of each server.
//   - No lookup allocates.
func Contract(t *testing.T, p ring.Placement, weights []int, bound Bound) {
	t.Helper()
	n := p.Ring.Len()
	total := 0
	fair := make([]float64, n)
	for i := range fair {
		w := 1
		if weights != nil {
			w = weights[i]
		}
		fair[i] = float64(w)
		total += w
	}
	list := Keys(keys)
	counts := make([]int, n)
	for _, key := range list {
		part, h, owner := p.Locate(key)
		if owner < 0 || owner >= n {
			t.Fatalf("key %q: owner %d of %d servers", key, owner, n)
		}
		if again := p.Ring.At(part, h, 0); again != owner {
			t.Fatalf("key %q: owner %d, then %d", key, owner, again)
		}
		counts[owner]++
	}
	for i, count := range counts {
		fair[i] /= float64(total)
		if load := float64(count) / keys / fair[i]; load < bound.Min || load > bound.Max {
			t.Errorf("server %d has %.3f of its fair share, not within %.2f to %.2f", i, load, bound.Min, bound.Max)
		}
	}
	fallbacks(t, p, list[:500])
	distinct(t, p, list[:500])
	shares(t, p, counts)
	allocations(t, p, list[:50])
}

// endOfWalk is the limit for the length of a fallback order, in tries per server. No
// client makes that many tries, so a longer order has no end.
const endOfWalk = 100

func fallbacks(t *testing.T, p ring.Placement, list [][]byte) {
	t.Helper()
	n := p.Ring.Len()
	for _, key := range list {
		part, h, _ := p.Locate(key)
		for i := 1; ; i++ {
			next := p.Ring.At(part, h, i)
			if next < -1 || next >= n {
				t.Fatalf("key %q: try %d goes to %d of %d servers", key, i, next, n)
			}
			if next < 0 {
				break
			}
			if i > n*endOfWalk {
				t.Fatalf("key %q: the order has no end after %d tries", key, i)
			}
		}
	}
}

func distinct(t *testing.T, p ring.Placement, list [][]byte) {
	t.Helper()
	n := p.Ring.Len()
	once := ring.Distinct(p.Ring)
	for _, key := range list {
		part, h, owner := p.Locate(key)
		seen := make([]bool, n)
		for i := range n {
			at := once.At(part, h, i)
			if i == 0 && at != owner {
				t.Fatalf("key %q: Distinct gives it to %d, the ring to %d", key, at, owner)
			}
			if at < 0 || at >= n || seen[at] {
				t.Fatalf("key %q: Distinct names %d at place %d of %d", key, at, i, n)
			}
			seen[at] = true
		}
		if at := once.At(part, h, n); at >= 0 {
			t.Fatalf("key %q: Distinct names %d after all %d servers", key, at, n)
		}
	}
}

func shares(t *testing.T, p ring.Placement, counts []int) {
	t.Helper()
	s, ok := p.Ring.(ring.Sharer)
	if !ok {
		return
	}
	sum := 0.0
	for i, share := range s.Shares() {
		sum += share
		// noise is six standard deviations of the share in a sample of this size.
		noise := 6 * math.Sqrt(share*(1-share)/keys)
		if got := float64(counts[i]) / keys; math.Abs(got-share) > noise+1e-9 {
			t.Errorf("server %d: says its share is %.4f, got %.4f of the keys", i, share, got)
		}
	}
	if math.Abs(sum-1) > 1e-6 {
		t.Errorf("shares add up to %v", sum)
	}
}

func allocations(t *testing.T, p ring.Placement, list [][]byte) {
	t.Helper()
	once := ring.Distinct(p.Ring)
	per := testing.AllocsPerRun(5, func() {
		for _, key := range list {
			part, h, _ := p.Locate(key)
			for i := 1; i < 4; i++ {
				p.Ring.At(part, h, i)
			}
			once.At(part, h, 2)
		}
	})
	if per != 0 {
		t.Errorf("%v allocations for %d keys", per, len(list))
	}
}
