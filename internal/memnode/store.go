package memnode

// store.go: the items, their limits, and the rules of expiry, flush and cas.

import (
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

const (
	maxKey = 250

	// clockStart is the first second of a store's clock. The seconds below it are
	// used for "always in the past" (1) and for "the second before this one"
	// (flush_all).
	clockStart = 62

	// maxRelative is the longest relative exptime in seconds: 30 days.
	maxRelative = 60 * 60 * 24 * 30

	// itemHeader is what memcached adds to key, flags and value: its header, the
	// key's NUL, the value's CRLF and the cas number.
	itemHeader = 48 + 1 + 2 + 8

	// itemOverhead is roughly what Go needs for an item beyond what memcached
	// counts: map slot, list entry, item, and the rounding of two allocations.
	// Measured with values of 1 byte.
	itemOverhead = 160
)

// An item is the entry of one key. Only value can be read without the store's
// lock, because it is replaced and never modified.
type item struct {
	value   []byte
	cas     uint64
	flags   uint32
	expires uint32 // time of expiry, in seconds; 0: never
	used    uint32 // time, in seconds, of the last store or read; the first read of the item does not count
	marks   marks
}

type marks uint8

const (
	fetched marks = 1 << iota // the item has been read
	stale                     // md I has marked the item as stale
	won                       // one client has got the flag W, so it should store a new value
	encoded                   // the key was sent in base64, so replies encode it
)

// read records a read like memcached's segmented LRU: the first one only sets a
// mark.
func (it *item) read(now uint32) {
	if it.marks&fetched == 0 {
		it.marks |= fetched
		return
	}
	it.used = now
}

// size returns the item's size as memcached counts it.
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
	limit   int // in bytes
	maxItem int

	now   uint32 // current second, set by lock
	items *simplelru.LRU[string, *item]
	bytes int    // weight of all items
	cas   uint64 // the last cas number assigned
	flush struct {
		second uint32 // once this second has come, items last used at or before it are flushed; 0: no flush is due
		cas    uint64 // items with a lower cas number are flushed too; 0: no items
	}
	counters
}

func newStore(o Options) *store {
	items, err := simplelru.NewLRU[string, *item](math.MaxInt, nil) // unlimited count; put limits the bytes
	if err != nil {
		panic(err) // only if the size is not positive
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

// deadline converts an exptime of the protocol to a second of this store; 0 is
// never.
func (s *store) deadline(exptime int32) uint32 {
	if exptime < 0 {
		exptime = maxRelative + 1 // a Unix time in 1970
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

// find returns the item of key, or nil. It removes an expired or flushed item.
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

// put stores it under key with a new cas number, and evicts the oldest items above
// the limit.
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

// flushAll hides everything stored until now. With a delay (in seconds, or a Unix
// time as in exptime), it hides everything last used before that time, once that
// time has come.
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

// A mode is how a value is stored.
type mode uint8

const (
	setMode     mode = iota
	addMode          // only if there is no item
	replaceMode      // only if there is an item
	appendMode
	prependMode
	casMode // only if the item has the given cas number
)

// An outcome is the result of a store or arithmetic command.
type outcome uint8

const (
	stored outcome = iota
	notStored
	exists
	notFound
	notNumber
)

// write stores it under key by mode m, and returns its new cas number. cas is the
// number in the request; 0 is none. If late is set, a cas number that is too low
// is accepted too, and the stored item is stale (ms I).
func (s *store) write(m mode, key string, it *item, cas uint64, late bool) (outcome, uint64) {
	old := s.find([]byte(key))
	if old == nil {
		switch m {
		case setMode, addMode:
			s.put(key, it)
			return stored, it.cas
		case casMode:
			s.casMisses++
			return notFound, 0
		}
		return notStored, 0
	}
	switch m {
	case addMode:
		old.used = s.now
		return notStored, 0
	case casMode:
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
	case appendMode, prependMode:
		if cas != 0 && cas != old.cas {
			return exists, 0
		}
		n := len(old.value) + len(it.value)
		if size(len(key), old.flags, n) > s.maxItem {
			return notStored, 0
		}
		head, tail := old.value, it.value
		if m == prependMode {
			head, tail = tail, head
		}
		value := append(append(make([]byte, 0, n), head...), tail...)
		it = &item{value: value, flags: old.flags, expires: old.expires}
	}
	s.put(key, it)
	return stored, it.cas
}

// add adds delta to the number of key, or subtracts it, but not below 0. It
// returns the item with the new number. A shorter number is padded with spaces to
// the old length.
//
// A longer number becomes a new item in memcached 1.6.18, but ma continues with
// the old one, so its later changes (T) are lost. In this case the returned item
// is therefore a copy.
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
	n, ok := parseUint64(it.value)
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
	s.countNumberHit(decr)
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

// maxNumberItem is the size above which memcached stores an item in chunks. It
// does no arithmetic on such items.
const maxNumberItem = 512 << 10
