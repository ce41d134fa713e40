package ring

// A cache of key owners, for rules with an expensive hash.

import (
	"hash/maphash"
	"unsafe"
)

// Dear reports whether a lookup with this key hash and this ring is expensive
// enough for a Memo. A Memo answers in about 25 ns. A digest or a hash over UTF-16
// units takes 130 ns or more, and scoring each of ten servers takes 250 ns. All
// other rules take at most 80 ns. A Memo would save little there, and nothing once
// its memory is no longer in the CPU's cache.
func Dear(a Algorithm, r Ring) bool {
	if r.Len() < 2 {
		return false
	}
	switch r.(type) {
	case *Mcrouter:
		return r.Len() >= 8
	case *Pymemcache:
		return true
	}
	switch a {
	case MD5, MD5Wide, MD5Signed, SHA1, Java, Java15, JavaAbs, JavaFNV1x32, JavaFNV1Ax32, JavaFNV1x64, JavaFNV1Ax64:
		return true
	}
	return false
}

const (
	// memoSlots is the number of slots of a Memo. Each key can only use one slot.
	// With 10,000 keys of equal popularity the hit rate is 86 % in 2 MiB. Two
	// possible slots per key would raise it to 95 %, but would be slower overall,
	// because a lookup would often wait for two cache lines.
	memoSlots = 1 << 15

	// longestMemo is the length of the longest key that fits into a slot.
	longestMemo = 59

	// A Memo with a hit rate below one third doesn't pay, so it pauses: it rests
	// for memoRest lookups, then runs another trial of memoTrial lookups. A trial
	// is long enough for 30,000 keys to occur a second time. It is so much shorter
	// than a rest that it costs a stream of new keys very little.
	memoTrial = 2 * memoSlots
	memoRest  = 16 * memoTrial
	memoFirst = 4096 // lookups before the first trial, so that an idle pool uses no memory
)

// Memo finds the owners of keys by a placement, and caches them if the placement is
// Dear. It is exact, because a slot stores the whole key. Only one goroutine at a
// time may use a Memo.
type Memo struct {
	place *Placement
	room  func(bytes int) bool // called before the Memo allocates, and may refuse; nil: always allowed
	seed  maphash.Seed
	slots []memoSlot // nil before the first trial
	on    bool       // whether the slots are in use; false before the first trial and while resting
	left  int        // lookups until the next call of decide
	hits  int        // hits since the current trial began
}

// memoSlot has the size of a cache line.
type memoSlot struct {
	server int32
	size   uint8 // length of the key; 0: the slot is empty
	key    [longestMemo]byte
}

// NewMemo returns a Memo of p, which must not change afterwards. Before it
// allocates its slots the Memo calls room with their size, unless room is nil. If
// room refuses, the Memo rests.
func NewMemo(p *Placement, room func(bytes int) bool) *Memo {
	return &Memo{place: p, room: room, seed: maphash.MakeSeed(), left: memoFirst}
}

// Size returns the size of the slots in bytes; 0 before the first trial.
func (m *Memo) Size() int { return len(m.slots) * int(unsafe.Sizeof(memoSlot{})) }

// Owner returns the index of the key's owner as Locate finds it, or -1.
func (m *Memo) Owner(key []byte) int {
	if !m.place.Dear {
		return m.locate(key)
	}
	if m.left--; m.left < 0 {
		m.decide()
	}
	if !m.on || uint(len(key)-1) >= longestMemo {
		return m.locate(key)
	}
	s := &m.slots[maphash.Bytes(m.seed, key)%memoSlots]
	if int(s.size) == len(key) && string(s.key[:len(key)]) == string(key) {
		m.hits++
		return int(s.server)
	}
	server := m.locate(key)
	s.server, s.size = int32(server), uint8(len(key))
	copy(s.key[:], key)
	return server
}

func (m *Memo) locate(key []byte) int {
	_, _, server := m.place.Locate(key)
	return server
}

// decide ends a trial or a rest. It starts a rest if the hit rate was too low or
// there is no memory, else a new trial.
func (m *Memo) decide() {
	size := memoSlots * int(unsafe.Sizeof(memoSlot{}))
	if m.on && m.hits < memoTrial/3 || m.slots == nil && m.room != nil && !m.room(size) {
		m.on, m.left = false, memoRest
		return
	}
	if m.slots == nil {
		m.slots = make([]memoSlot, memoSlots)
	}
	m.on, m.left, m.hits = true, memoTrial, 0
}
