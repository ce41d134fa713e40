package ring

// Tests that Memo returns the same as Locate, and that it switches itself off and on
// again; benchmarks of its cost.

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"testing"
)

// dearPlacement returns a placement that hashes with MD5, as ketama clients do.
// Keys whose hash ends in nine zero bits have no owner.
func dearPlacement() *Placement {
	var points []Point
	for i := range uint32(1600) {
		points = append(points, Point{At: uint32(XXH64.Sum(binary.LittleEndian.AppendUint32(nil, i))), Server: int(i % 10)})
	}
	return &Placement{Hash: MD5.Sum, Ring: some{NewCircle(10, points, CircleOptions{})}, Dear: true}
}

type some struct{ *Circle }

func (s some) At(key []byte, h uint64, n int) int {
	if h%512 == 0 {
		return -1
	}
	return s.Circle.At(key, h, n)
}

// There are far more keys than slots, and keys recur in random order.
func TestMemoAgreesWithLocate(t *testing.T) {
	p := dearPlacement()
	m := NewMemo(p, nil)
	random := rand.New(rand.NewPCG(1, 2))
	keys := make([][]byte, 4*memoSlots)
	for i := range keys {
		n := 1 + i%250
		if i%2 == 0 {
			n = 1 + i/2%(longestMemo+1)
		}
		keys[i] = make([]byte, n)
		for j := range keys[i] {
			keys[i][j] = byte(random.Uint32())
		}
	}
	hits, nobody := 0, 0
	for range 4 * len(keys) {
		i := random.IntN(len(keys))
		if random.IntN(4) > 0 { // some keys are popular, so trials reach the hit rate that keeps the Memo on
			i %= 1000
		}
		before := m.hits
		got := m.Owner(keys[i])
		if _, _, want := p.Locate(keys[i]); got != want {
			t.Fatalf("key %q: server %d, want %d", keys[i], got, want)
		}
		hits += max(m.hits-before, 0)
		if got < 0 {
			nobody++
		}
	}
	if hits < len(keys) || nobody == 0 {
		t.Errorf("%d of %d keys remembered, %d of nobody", hits, 4*len(keys), nobody)
	}
}

// The keys are zero bytes of every length, so each key is a prefix of all longer
// ones. Some are too long for a slot. Keys that share a slot evict each other.
// Which keys share a slot depends on the seed of the Memo.
func TestMemoTellsKeysApart(t *testing.T) {
	p := dearPlacement()
	m := NewMemo(p, nil)
	m.left = 0
	long := make([]byte, 250)
	sharing := map[uint64]int{} // number of keys by slot
	for n := 1; n <= longestMemo; n++ {
		sharing[maphash.Bytes(m.seed, long[:n])%memoSlots]++
	}
	alone := 0
	for _, keys := range sharing {
		if keys == 1 {
			alone++
		}
	}
	for range 3 {
		for n := range len(long) + 1 {
			if got, want := m.Owner(long[:n]), m.locate(long[:n]); got != want {
				t.Errorf("key of %d bytes: server %d, want %d", n, got, want)
			}
		}
	}
	if want := 2 * alone; m.hits != want {
		t.Errorf("%d hits, want %d: all but the first of each of %d keys", m.hits, want, alone)
	}
}

func TestMemoRests(t *testing.T) {
	m := NewMemo(dearPlacement(), nil)
	ask := func(looks, keys int) {
		for i := range looks {
			m.Owner(fmt.Appendf(nil, "%d", i%keys))
		}
	}
	ask(memoFirst, 10)
	if m.slots != nil {
		t.Error("it has taken memory before there is a need")
	}
	ask(memoTrial+1, 10)
	if !m.on {
		t.Error("it rests although it has known nearly every key")
	}
	ask(memoTrial+2, memoTrial+2)
	if m.on {
		t.Error("it does not rest although it has known hardly a key")
	}
	ask(memoRest+1, 10)
	if !m.on {
		t.Error("it has not tried again")
	}
}

// A Memo of a placement that is not Dear never allocates. Dear is false for a cheap
// hash and for a single server.
func TestMemoOfCheapRules(t *testing.T) {
	p := dearPlacement()
	p.Dear = false
	m := NewMemo(p, nil)
	for range 2 * memoFirst {
		m.Owner([]byte("key"))
	}
	if m.slots != nil {
		t.Error("it remembers what is not dear")
	}
	one, two := NewTable(1, []int{0}, TableOptions{}), NewTable(2, []int{0, 1}, TableOptions{})
	if Dear(MD5, one) || !Dear(MD5, two) || Dear(CRC32, two) {
		t.Error("only a digest that chooses among servers is dear")
	}
}

func TestMemoDoesNotAllocate(t *testing.T) {
	m := NewMemo(dearPlacement(), nil)
	m.left = 0
	key := []byte("key:0000")
	m.Owner(key)
	if n := testing.AllocsPerRun(1000, func() {
		key[7]++
		m.Owner(key)
	}); n != 0 {
		t.Errorf("%v allocations a look-up", n)
	}
}

// BenchmarkMemo compares lookups with and without a Memo. The keys are built on the
// stack. A given share of them is drawn from a thousand keys, and the others are
// always new.
func BenchmarkMemo(b *testing.B) {
	p := dearPlacement()
	key := []byte("user:0000000000:profile")
	next := func(n uint32) []byte {
		for i := 14; i >= 5; i-- {
			key[i] = byte('0' + n%10)
			n /= 10
		}
		return key
	}
	for _, share := range []uint32{100, 50, 0} {
		at, fresh := uint32(1), uint32(1000)
		draw := func() []byte {
			at = at*1664525 + 1013904223
			if at>>16%100 < share {
				return next(at >> 8 % 1000)
			}
			fresh++
			return next(fresh)
		}
		b.Run(fmt.Sprintf("hits=%d%%/with", share), func(b *testing.B) {
			m := NewMemo(p, nil)
			for range memoFirst + memoTrial + 1 {
				m.Owner(draw())
			}
			b.ReportAllocs()
			for b.Loop() {
				m.Owner(draw())
			}
		})
		b.Run(fmt.Sprintf("hits=%d%%/without", share), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p.Locate(draw())
			}
		})
	}
}
