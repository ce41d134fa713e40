package near

// This file defines Store: the values that one loop keeps for one route.

import (
	"container/list"
	"strconv"
	"time"

	"ringside/proxy/link"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/wire"
)

// Store contains the values of one route that one loop keeps, in the order in which they were
// stored. All have the same ttl. So they expire in nearly this order: the replies took
// different times.
type Store struct {
	table.NearSettings
	Learned *stats.Near

	io     *link.IO
	marks  *Marks
	strip  string // prefix of clients' keys that servers do not see
	most   int    // maximum of the field held, in bytes
	held   int
	values map[uint64]*Value // the values by the hash of the key, as servers know the key
	order  list.List         // the values in the order in which they were stored
	used   bool              // the current table has the route
}

// Value is one kept value. Its exported fields never change.
type Value struct {
	Block []byte // VALUE line and data, with the key as clients know it
	Flags []byte // the client flags: a slice of Block; the field Data is another
	Data  []byte
	Asked int64 // when the value was requested, in nanoseconds of the loop's clock
	Known bool  // the value came from a meta reply without a stale or win flag, so its state is complete

	key   []byte // the key as servers know it: a slice of Block
	hash  uint64
	mark  mark
	asked bool          // a read is refreshing the value
	by    *Lookup       // the command that refreshes the value, if other reads may wait for its reply; else nil
	wait  []func()      // functions to call when the new value is stored, or when there will be none
	held  int           // bytes that the value counts against limits.memory
	at    *list.Element // place in Store.order
}

const (
	// valueSize is how many bytes a value counts against limits.memory in addition to its data:
	// the struct and its map entry.
	valueSize = 256

	// biggest is the size of the largest value that is kept, in bytes. Larger values arrive in
	// pieces.
	biggest = 64 << 10
)

// early returns the age at which a value is refreshed, so that the reply arrives before the value
// expires.
func (s *Store) early() int64 { return int64(s.TTL / 4 * 3) }

// life returns how long a value is served. Times are those of the start of a wakeup, and requests
// read in that wakeup may have been sent a moment later. So life is a little less than the ttl.
func (s *Store) life() int64 { return int64(s.TTL - min(s.TTL/10, 250*time.Millisecond)) }

// Result tells a read how to use the near cache.
type Result uint8

const (
	Ask  Result = iota // send the read to the server: there is no usable value, or this read must refresh it
	Give               // answer the read with the value
	Wait               // the value has expired and is being refreshed: call Await, or ask the server too
)

// Find returns the kept value of key, as servers know it, and how to use it. brings means that the
// reply to the caller's read could be kept, so Find may choose that read to refresh the value.
func (s *Store) Find(hash uint64, key []byte, brings bool) (*Value, Result) {
	v := s.values[hash]
	switch {
	case v == nil || string(v.key) != string(key):
		return nil, Ask
	case s.marks.of(hash) != v.mark:
	case brings && s.io.Now-v.Asked >= s.early() && !v.asked:
		v.asked = true
		return nil, Ask
	case !s.over(v):
		return v, Give
	case v.by != nil && len(v.wait) < mostWaiting:
		return v, Wait
	case v.by != nil:
		return nil, Ask
	}
	s.drop(v)
	return nil, Ask
}

// Await makes the near cache call f when v has been refreshed, or when it is known that v will
// not be. Find must have returned Wait for v.
func (s *Store) Await(v *Value, f func()) { v.wait = append(v.wait, f) }

func (s *Store) over(v *Value) bool { return s.io.Now-v.Asked >= s.life() }

// mostWaiting is how many reads may wait for a value. Further reads ask the server.
const mostWaiting = 10_000

// keep stores a value. The parameter `was` is the copy of the key's write counters from the time
// when the value was requested.
func (s *Store) keep(hash uint64, was mark, asked int64, key, flags, data []byte, known bool) {
	old := s.values[hash]
	switch {
	case !s.used || len(data) > biggest || asked+s.life() <= s.io.Now:
		return
	case s.marks.of(hash) != was:
		return
	case old != nil && string(old.key) == string(key) && old.mark == was && !(known && !old.Known) && old.Asked >= asked:
		return
	}
	size := len("VALUE   4294967295 1048576\r\n\r\n") + len(s.strip) + len(key) + len(data)
	held := size + valueSize
	if held > s.most {
		return
	}
	if old != nil {
		s.drop(old)
	}
	for s.held+held > s.most {
		s.drop(s.first())
	}
	if s.io.Scarce(held) {
		return
	}
	b := append(make([]byte, 0, size), "VALUE "...)
	b = append(append(b, s.strip...), key...)
	v := &Value{Asked: asked, Known: known, key: b[len(b)-len(key):], hash: hash, mark: was, held: held}
	b = append(append(b, ' '), flags...)
	v.Flags = b[len(b)-len(flags):]
	b = append(strconv.AppendInt(append(b, ' '), int64(len(data)), 10), wire.CRLF...)
	b = append(b, data...)
	v.Data = b[len(b)-len(data):]
	v.Block = append(b, wire.CRLF...)
	s.values[hash] = v
	if v.at = s.order.PushBack(v); s.order.Len() == 1 {
		s.io.At(link.NearTimer, s.io.Now+int64(s.TTL))
	}
	s.count(held, 1)
}

// first returns the value that was stored first; nil: there is none.
func (s *Store) first() *Value {
	if e := s.order.Front(); e != nil {
		return e.Value.(*Value)
	}
	return nil
}

func (s *Store) drop(v *Value) {
	delete(s.values, v.hash)
	s.order.Remove(v.at)
	v.by = nil
	s.count(-v.held, -1)
	for _, f := range v.wait {
		f()
	}
	v.wait = nil
}

func (s *Store) count(bytes, values int) {
	s.held += bytes
	s.io.Buffers.Hold(bytes)
	s.Learned.Bytes.Add(int64(bytes))
	s.Learned.Values.Add(int64(values))
}

// clear drops all values.
func (s *Store) clear() {
	for v := s.first(); v != nil; v = s.first() {
		s.drop(v)
	}
}

// sweep drops expired values, the oldest first. It stops at the first value that has not expired, or
// that a command refreshes, because reads may wait for that value. If values are left, it schedules
// the next sweep.
func (s *Store) sweep() {
	v := s.first()
	for ; v != nil && s.over(v) && v.by == nil; v = s.first() {
		s.drop(v)
	}
	if v != nil {
		s.io.At(link.NearTimer, s.io.Now+int64(s.TTL))
	}
}
