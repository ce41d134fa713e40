package memnode

// store.go: the items, what bounds them, and the rules of expiry, flush and cas.

import (
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

const (
	maxKey = 250

	// clockStart is the first second of a store's clock. It leaves room below for the
	// times that mean "always past" (1) and "the second before this one" (flush_all).
	clockStart = 62

	// maxRelative is the longest exptime, in seconds, that counts from now: 30 days.
	maxRelative = 60 * 60 * 24 * 30

	// itemHeader is what memcached adds to key, flags and value: its header, the key's
	// NUL, the value's CRLF and the cas number.
	itemHeader = 48 + 1 + 2 + 8

	// itemOverhead is about what Go needs for an item beyond what memcached counts: map slot,
	// list entry, item, and the rounding of two allocations. Measured with values of 1 byte.
	itemOverhead = 160
)

// An item is what one key holds. Only value is safe to read without the store's
// lock: it is replaced, never written to.
type item struct {
	value   []byte
	cas     uint64
	flags   uint32
	expires uint32 // the second it is gone; 0: never
	used    uint32 // the second it was last stored, or read more than once
	marks   marks
}

type marks uint8

const (
	fetched marks = 1 << iota // has been read
	stale                     // md I has marked it
	won                       // one client has been told to refill it
	encoded                   // its key came in base64, and answers spell it so
)

// read notes a read, as memcached's segmented LRU does: the first only leaves a mark.
func (it *item) read(now uint32) {
	if it.marks&fetched == 0 {
		it.marks |= fetched
		return
	}
	it.used = now
}

// size is the item's size as memcached counts it.
func size(key int, flags uint32, value int) int {
	n := itemHeader + key + value
	if flags != 0 {
		n += 4
	}
	return n
}

// A store is the memory of a node. Commands on one key are atomic because each is
// carried out between lock and unlock; every method but deadline and second needs the lock.
// One lock is enough: it is never held while a value comes from or goes to a client.
type store struct {
	mu      sync.Mutex
	clock   func() time.Time
	start   time.Time
	limit   int // of bytes
	maxItem int

	now   uint32 // the second of the command that holds the lock
	items *simplelru.LRU[string, *item]
	bytes int    // what all items weigh
	cas   uint64 // the last one given
	flush struct {
		second uint32 // items last used at or before it are gone, once it has come; 0: none
		cas    uint64 // and so are items with a lower cas number; 0: none
	}
	counters
}

func newStore(o Options) *store {
	items, err := simplelru.NewLRU[string, *item](math.MaxInt, nil) // bounded by bytes, in put
	if err != nil {
		panic(err) // only for a size that is not positive
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

// deadline turns an exptime of the protocol into a second of this store; 0 is never.
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

// find returns what key holds now, or nil.
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

// put makes key hold it, with a new cas number, and evicts what no longer fits.
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

// discard removes what key holds, if anything.
func (s *store) discard(key []byte) {
	if it := s.find(key); it != nil {
		s.remove(key, it)
	}
}

// flushAll makes everything stored up to now vanish; with a delay in seconds (or a Unix
// time, by the rule of exptime), everything last used before that moment, once it comes.
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
	addMode          // only where nothing is
	replaceMode      // only where something is
	appendMode
	prependMode
	casMode // only over the cas number that was asked for
)

// An outcome is the end of a storing or arithmetic command.
type outcome uint8

const (
	stored outcome = iota
	notStored
	exists
	notFound
	notNumber
)

// write stores it under key by mode and returns its new cas number. cas is what the client
// asked for (0: nothing). With late, a cas number that is too low is accepted,
// and what it stores is stale (ms I): the lease guard.
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

// add adds delta to the number that key holds, or subtracts it down to 0. The new number
// is in the value of the item returned, padded with spaces to its old length.
//
// A number that grew longer becomes a new item in memcached 1.6.18, and ma goes on with
// the old one: what it changes then (T) is lost. So the item returned is a copy in that case.
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

// maxNumberItem is where memcached begins to store an item in chunks, which it
// does not do arithmetic on.
const maxNumberItem = 512 << 10
