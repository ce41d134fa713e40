package memnode

// This file has the items, their limits, and the rules of expiry, flush and cas.

import (
	"bytes"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"ringside/proxy/wire"
)

const (
	maxKey = 250

	// clockStart is the second at which the clock of a store starts. Smaller numbers are needed for
	// two purposes: 1 means "always in the past", and flush_all uses the second before the current
	// one.
	clockStart = 62

	// maxRelative is the longest relative exptime in seconds: 30 days.
	maxRelative = 60 * 60 * 24 * 30

	// itemHeader is the number of bytes that memcached adds to key, flags and value: its header,
	// the NUL after the key, the line end after the value, and the cas number.
	itemHeader = 48 + 1 + 2 + 8

	// itemOverhead is about the number of bytes that Go needs for an item in addition to those that
	// memcached counts. It covers a map slot, a list entry, the item, and the rounding of two
	// allocations. It was measured with values of 1 byte.
	itemOverhead = 160
)

// An item is the entry of one key. Its value can be read without the lock of the store, because the
// bytes of a value never change; a new value replaces the slice.
type item struct {
	value   []byte
	cas     uint64
	flags   uint32
	expires uint32 // second of the store's clock at which the item expires; 0: never
	used    uint32 // second of the store's clock at which the item was last stored or read; the first read does not count
	marks   marks
}

type marks uint8

const (
	fetched marks = 1 << iota // the item has been read at least once
	stale                     // an md with the flag I has marked the item as stale
	won                       // one client has got the flag W, which asks it to store a new value
	encoded                   // the key was sent in base64, so replies have it in base64, too
)

// read records that the item was read. As in memcached's segmented LRU, the first read only sets a
// flag, and later reads set the time of use.
func (it *item) read(now uint32) {
	if it.marks&fetched == 0 {
		it.marks |= fetched
		return
	}
	it.used = now
}

// size returns the size of an item in bytes, as memcached counts it. key and value are lengths.
func size(key int, flags uint32, value int) int {
	n := itemHeader + key + value
	if flags != 0 {
		n += 4
	}
	return n
}

// A store is the memory of a node. Each command runs between lock and unlock, so
// commands on one key are atomic. All methods except deadline and second need the
// lock. One lock is enough, because it is never held during a read from or a write
// to a client.
type store struct {
	mu      sync.Mutex
	clock   func() time.Time
	start   time.Time
	limit   int // limit of the weight of all items, in bytes
	maxItem int

	now   uint32 // current second of the store's clock; the method lock sets it
	items *simplelru.LRU[string, *item]
	bytes int    // weight of all items together
	cas   uint64 // cas number that was assigned last
	flush struct {
		second uint32 // items that were last used in this second or before are flushed as soon as this second is reached; 0: no flush
		cas    uint64 // items with a lower cas number are flushed in addition; 0: no such items
	}
	counters
}

func newStore(o Options) *store {
	items, err := simplelru.NewLRU[string, *item](math.MaxInt, nil) // the number of items is not limited, but put limits their bytes
	if err != nil {
		panic(err) // NewLRU fails only if the given size is not positive
	}
	return &store{clock: o.Now, start: o.Now(), limit: o.MemoryLimit, maxItem: o.MaxItem, items: items}
}

func (s *store) lock() {
	s.mu.Lock()
	s.now = s.second()
}

func (s *store) unlock() { s.mu.Unlock() }

func (s *store) second() uint32 {
	return clockStart + uint32(s.clock().Sub(s.start)/time.Second)
}

// deadline converts the exptime of a request to a second of the store's clock. The result 0 means
// that the item never expires.
func (s *store) deadline(exptime int32) uint32 {
	if exptime < 0 {
		exptime = maxRelative + 1 // any Unix time in the past has the same effect; this one is in 1970
	}
	switch {
	case exptime == 0:
		return 0
	case exptime <= maxRelative:
		return uint32(exptime) + s.second()
	}
	if origin := s.start.Unix() - clockStart; int64(exptime) > origin {
		return uint32(int64(exptime) - origin)
	}
	return 1
}

func (s *store) nextCAS() uint64 {
	s.cas++
	return s.cas
}

// find returns the item of key, or nil if there is none. An item that is expired or flushed is
// removed and not returned.
func (s *store) find(key []byte) *item {
	it, ok := s.items.Get(string(key))
	switch {
	case !ok:
		return nil
	case s.flushed(it):
		s.getFlushed++
	case it.expires != 0 && it.expires <= s.now:
		s.getExpired++
	default:
		return it
	}
	s.remove(key, it)
	return nil
}

func (s *store) flushed(it *item) bool {
	if s.flush.second == 0 || s.flush.second > s.now {
		return false
	}
	return it.used <= s.flush.second || it.cas < s.flush.cas
}

// put stores the item `it` under key with a new cas number. While the items are larger than the
// limit, it evicts the least recently used one.
func (s *store) put(key string, it *item) {
	it.cas = s.nextCAS()
	it.used = s.now
	if old, ok := s.items.Peek(key); ok {
		s.bytes -= weight(len(key), old)
	}
	s.items.Add(key, it)
	s.bytes += weight(len(key), it)
	for s.bytes > s.limit {
		oldest, old, _ := s.items.RemoveOldest()
		s.bytes -= weight(len(oldest), old)
		s.evictions++
	}
	s.totalItems++
}

func (s *store) remove(key []byte, it *item) {
	s.items.Remove(string(key))
	s.bytes -= weight(len(key), it)
}

func weight(key int, it *item) int {
	return size(key, it.flags, len(it.value)) + itemOverhead
}

// discard removes the item of key, if there is one.
func (s *store) discard(key []byte) {
	if it := s.find(key); it != nil {
		s.remove(key, it)
	}
}

// flushAll hides all items that are stored now. delay is in seconds, or a Unix time if it is large,
// like an exptime. With a delay, flushAll hides at that later time all items that were last used
// before it.
func (s *store) flushAll(delay int32) {
	second := s.now
	if delay > 0 {
		second = s.deadline(delay)
	}
	s.flush.second = second - 1
	if s.flush.second <= s.now {
		s.flush.cas = s.nextCAS()
	}
}

// An outcome is the result of a store or arithmetic command.
type outcome uint8

const (
	stored outcome = iota
	notStored
	exists
	notFound
	notNumber
)

// write stores the item `it` under key as op does, and returns its new cas number. cas is the number
// in the request; 0: none. If late is set, a cas number that is too low is accepted, too, and the
// new item is marked as stale (flag I of ms).
func (s *store) write(op wire.Op, key string, it *item, cas uint64, late bool) (outcome, uint64) {
	old := s.find([]byte(key))
	if old == nil {
		switch op {
		case wire.Set, wire.Add:
			s.put(key, it)
			return stored, it.cas
		case wire.Cas:
			s.casMisses++
			return notFound, 0
		}
		return notStored, 0
	}
	switch op {
	case wire.Add:
		old.used = s.now
		return notStored, 0
	case wire.Cas:
		switch {
		case cas != 0 && cas == old.cas:
		case cas != 0 && late && cas < old.cas:
			it.expires = old.expires
			it.marks |= stale | old.marks&won
		default:
			s.casBadval++
			return exists, 0
		}
		s.casHits++
	case wire.Append, wire.Prepend:
		if cas != 0 && cas != old.cas {
			return exists, 0
		}
		n := len(old.value) + len(it.value)
		if size(len(key), old.flags, n) > s.maxItem {
			return notStored, 0
		}
		head, tail := old.value, it.value
		if op == wire.Prepend {
			head, tail = tail, head
		}
		value := append(append(make([]byte, 0, n), head...), tail...)
		it = &item{value: value, flags: old.flags, expires: old.expires}
	}
	s.put(key, it)
	return stored, it.cas
}

// add adds delta to the number that is stored under key, or subtracts delta if decr is set. The
// result of a subtraction is at least 0. add returns the changed item and the new number. A number
// with fewer digits is padded with spaces to the old length.
//
// For a number with more digits, memcached 1.6.18 creates a new item. Its ma then changes the
// expiry of the old item, so the change is lost. To behave alike, add returns a copy of the old
// item in this case.
func (s *store) add(key []byte, decr bool, delta, cas uint64) (outcome, *item, uint64) {
	it := s.find(key)
	if it == nil {
		return notFound, nil, 0
	}
	if len(it.value) == 0 || size(len(key), it.flags, len(it.value)) > maxNumberItem {
		return notNumber, nil, 0
	}
	if cas != 0 && cas != it.cas {
		return exists, nil, 0
	}
	n, ok := numberIn(it.value)
	switch {
	case !ok:
		return notNumber, nil, 0
	case !decr:
		n += delta
	case delta > n:
		n = 0
	default:
		n -= delta
	}
	s.numbers(decr).hits++
	value := strconv.AppendUint(make([]byte, 0, max(20, len(it.value))), n, 10)
	if len(value) > len(it.value) {
		longer := &item{value: value, flags: it.flags, expires: it.expires}
		s.put(string(key), longer)
		before := *it
		before.cas = longer.cas
		return stored, &before, n
	}
	for len(value) < len(it.value) {
		value = append(value, ' ')
	}
	it.value = value
	it.cas = s.nextCAS()
	it.used = s.now
	return stored, it, n
}

// numberIn returns the number in a value. memcached reads it up to a NUL.
func numberIn(value []byte) (uint64, bool) {
	value, _, _ = bytes.Cut(value, []byte{0})
	return wire.ParseUnsigned(value)
}

// maxNumberItem is the greatest size of an item for incr and decr. memcached stores larger items in
// chunks and does no arithmetic on them.
const maxNumberItem = 512 << 10
