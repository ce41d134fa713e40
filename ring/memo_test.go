package ring

// A Memo says what Locate says, and what that costs.

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"testing"
)

// dearPlacement hashes with MD5, as ketama clients do. Keys whose hash ends in
// nine zero bits belong to nobody.
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

// All keys are far more than there are slots, and come again in another order.
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
		if random.IntN(4) > 0 { // some are popular, so that trials end well
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

// A key of which another is the beginning, and keys too long for a slot. Keys
// that share a slot push each other out, and which do differs from one Memo to
// the next.
func TestMemoTellsKeysApart(t *testing.T) {
	p := dearPlacement()
	m := NewMemo(p, nil)
	m.left = 0
	long := make([]byte, 250)
	sharing := map[uint64]int{} // by slot: keys that belong there
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

// A rule that is not dear, and a rule of one server, are only looked up.
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

// BenchmarkMemo looks up keys made on the stack, of which a share is one of a
// thousand and the others have never been there, with a Memo and without.
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
