package ring

// This file contains a cache of key owners, for rules with an expensive hash.

import (
	"hash/maphash"
	"unsafe"
)

// Dear reports whether a Memo is faster than lookups with this key hash and this ring.
// A Memo answers in about 25 ns. A digest or a hash over UTF-16 units takes 130 ns or
// more, and scoring each of ten servers takes 250 ns. All other rules take at most 80
// ns. For these, a Memo would save little, and nothing once its memory is no longer in
// the CPU's cache.
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
	// memoSlots is the number of slots of a Memo. Each key can use only one of the
	// slots. With 10,000 keys of equal popularity the hit rate is 86 % in 2 MiB. Two
	// possible slots per key would raise the hit rate to 95 %, but would be slower
	// overall, because a lookup would often wait for two cache lines.
	memoSlots = 1 << 15

	// longestMemo is the length in bytes of the longest key that a slot can store.
	longestMemo = 59

	// memoTrial is the number of lookups of a trial. A Memo is only useful with a hit
	// rate of at least one third. After a trial with a lower hit rate, it does not
	// cache for memoRest lookups, and then runs another trial. A trial is long enough
	// for 30,000 keys to occur twice. It is much shorter than a rest, so it costs very
	// little if all keys are new.
	memoTrial = 2 * memoSlots
	memoRest  = 16 * memoTrial
	memoFirst = 4096 // lookups of a new Memo before its first trial, so that an idle pool uses no memory
)

// Memo finds the owners of keys by a placement. It caches the owners if the placement
// is Dear. The cached owners are exact, because a slot stores the whole key. Only one
// goroutine at a time may use a Memo.
type Memo struct {
	place *Placement
	room  func(bytes int) bool // called before the Memo allocates memory; false forbids it; nil: always allowed
	seed  maphash.Seed
	slots []memoSlot // cached owners by the hash of the key; nil until the Memo first tests whether caching pays (see memoTrial)
	on    bool       // whether lookups use the slots; false before the first trial, and during a rest after a trial with too few hits
	left  int        // number of lookups until the next call of decide
	hits  int        // number of hits since the current trial began
}

// memoSlot is one cached owner. Its size is that of a cache line.
type memoSlot struct {
	server int32
	size   uint8 // length of the key in bytes; 0: the slot is empty
	key    [longestMemo]byte
}

// NewMemo returns a Memo for the placement p, which must not change afterwards. Before
// the Memo allocates its slots, it calls room with their size in bytes. If room returns
// false, the Memo caches nothing for a while. A nil room always allows the memory.
func NewMemo(p *Placement, room func(bytes int) bool) *Memo {
	return &Memo{place: p, room: room, seed: maphash.MakeSeed(), left: memoFirst}
}

// Size returns the size of the allocated slots in bytes. It is 0 until the Memo begins its
// first trial (see memoTrial), which allocates the slots.
func (m *Memo) Size() int { return len(m.slots) * int(unsafe.Sizeof(memoSlot{})) }

// Owner returns the index of the server that owns key, or -1 if none does. The result
// is that of Placement.Locate.
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

// decide ends a trial or a rest. A rest follows if the hit rate was too low, or if
// there is no memory. Otherwise a new trial follows.
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
