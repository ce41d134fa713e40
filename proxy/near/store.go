package near

// The values of one route that one loop keeps.

import (
	"strconv"
	"time"

	"ringside/proxy/link"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/wire"
)

// Store is the values of one route that one loop keeps, in the order in which they were
// kept: the ttl is one for all, so the first is over first, give or take the time that
// its answer took.
type Store struct {
	table.Near
	Learned *stats.Near

	io     *link.IO
	marks  *Marks
	strip  string // what servers don't see of the clients' keys
	most   int    // bytes
	held   int
	values map[uint64]*Value // by hash of the key as servers know it
	first  *Value
	last   *Value
	used   bool // by the table in force
}

// Value is a value that is kept. Nothing of what is told of it ever changes.
type Value struct {
	Block []byte // VALUE line and data, with the key as clients know it
	Flags []byte // the client's, in Block, as Data
	Data  []byte
	Asked int64 // when it was asked for, on the loop's clock
	Known bool  // the server has said all that it has to say of it: it was asked in meta

	key    []byte // as servers know it, in Block
	hash   uint64
	mark   mark
	asked  bool     // it is being asked for anew
	by     *Stake   // whose answer others can wait for, when this is over; nil: nobody's
	wait   []func() // told when it is there, or when it will not come
	held   int      // bytes that it counts
	next   *Value
	before *Value
}

const (
	// valueSize is what a value counts beside its bytes: itself, and its place in a map.
	valueSize = 256

	// biggest is the largest value that is kept. Larger ones are not here at once.
	biggest = 64 << 10
)

// early is when a value is asked for anew, so that the answer is there when it is over.
func (s *Store) early() int64 { return int64(s.TTL / 4 * 3) }

// life is how long a value is given out. A wakeup goes by the time at which it began,
// and what it reads may have been asked a moment later: that is taken off the ttl.
func (s *Store) life() int64 { return int64(s.TTL - min(s.TTL/10, 250*time.Millisecond)) }

// How is what can be done with what is kept of a key.
type How uint8

const (
	Ask  How = iota // nothing: ask the server, also if the caller is the one to ask for it anew
	Give            // give it out
	Wait            // it is over, and asked for anew: Await it, or ask the server too
)

// Find is what is kept of a key, as servers know it, and what can be done with it. brings
// says that the caller brings what it finds.
func (s *Store) Find(hash uint64, key []byte, brings bool) (*Value, How) {
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

// Await calls f when v, for which Find has said Wait, is there anew, or will not be.
func (s *Store) Await(v *Value, f func()) { v.wait = append(v.wait, f) }

func (s *Store) over(v *Value) bool { return s.io.Now-v.Asked >= s.life() }

// mostWaiting is how many reads may wait for a value. More of them ask the server.
const mostWaiting = 10_000

// keep keeps a value that was asked for when the key had that mark.
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
		s.drop(s.first)
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
	s.add(v)
}

func (s *Store) add(v *Value) {
	s.values[v.hash] = v
	if v.before = s.last; v.before == nil {
		s.first = v
		s.io.At(link.NearTimer, s.io.Now+int64(s.TTL))
	} else {
		v.before.next = v
	}
	s.last = v
	s.count(v.held, 1)
}

func (s *Store) drop(v *Value) {
	delete(s.values, v.hash)
	if v.before == nil {
		s.first = v.next
	} else {
		v.before.next = v.next
	}
	if v.next == nil {
		s.last = v.before
	} else {
		v.next.before = v.before
	}
	v.next, v.before, v.by = nil, nil, nil
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
	for s.first != nil {
		s.drop(s.first)
	}
}

// sweep drops the values that are over and that nobody may wait for, and comes back if
// there are more.
func (s *Store) sweep() {
	for s.first != nil && s.over(s.first) && s.first.by == nil {
		s.drop(s.first)
	}
	if s.first != nil {
		s.io.At(link.NearTimer, s.io.Now+int64(s.TTL))
	}
}
