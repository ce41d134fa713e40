package watch

// A request that is looked at, between the connection that brings its answer and the
// receiver.

import (
	"bytes"

	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// Sight is the receiver of an attempt that is looked at. It hands everything on to
// the receiver proper.
type Sight struct {
	upstream.Receiver
	w    *Watch
	next *Sight // in the list of free ones

	keys   []byte // that are looked at, one behind the other, as clients know them
	marks  []mark // one for each of them
	from   int    // marks before it have had their answer, or are misses
	goesOn bool   // what is no plain hit becomes a task, whose end is seen then
}

// mark is one key of a Sight.
type mark struct {
	end   int // of the key in Sight.keys; it begins where the one before ends
	strip int // bytes of it that servers don't see
	seen
}

// Look looks at what becomes of a, a request on key or, of a read of many, one of its keys.
// Servers don't see the first strip bytes of the key. size is what the request brings. goesOn says that what is no plain hit becomes a task.
func (w *Watch) Look(now int64, a *upstream.Attempt, key []byte, strip, size int, goesOn bool) {
	s, ok := a.To.(*Sight)
	if !ok {
		if s = w.free; s == nil {
			s = &Sight{w: w}
		} else {
			w.free = s.next
		}
		s.Receiver, s.keys, s.marks, s.from, s.goesOn = a.To, s.keys[:0], s.marks[:0], 0, goesOn
		a.To = s
	}
	s.keys = append(s.keys, key...)
	m := mark{len(s.keys), strip, seen{weight: w.draw(now), read: isRead(a.Op)}}
	if !m.read {
		m.bytes = size
	}
	s.marks = append(s.marks, m)
}

func isRead(op wire.Op) bool { return op >= wire.Get && op <= wire.Gats }

// end counts what was heard, and keeps s for reuse. It returns the receiver, who is
// to be told yet.
func (s *Sight) end(now int64) upstream.Receiver {
	for i := range s.marks {
		if m := &s.marks[i]; m.hit || !s.goesOn {
			s.w.note(now, s.key(i), m.seen)
		}
	}
	return s.release()
}

func (s *Sight) release() upstream.Receiver {
	to := s.Receiver
	s.Receiver = nil
	if cap(s.keys) > mostKept {
		s.keys, s.marks = nil, nil
	}
	s.next, s.w.free = s.w.free, s
	return to
}

// mostKept is how many bytes of keys a Sight keeps room for when it is not used.
const mostKept = 4096

// key is that of the i-th mark.
func (s *Sight) key(i int) []byte {
	if i == 0 {
		return s.keys[:s.marks[0].end]
	}
	return s.keys[s.marks[i-1].end:s.marks[i].end]
}

// hear notes what r, whose bytes are b, says of the keys.
func (s *Sight) hear(a *upstream.Attempt, r *wire.Reply, b []byte) {
	switch {
	case !isRead(a.Op) || s.goesOn && (r.Letters.Has('W') || r.Letters.Has('Z') || r.Letters.Has('X')):
	case a.Dialect == wire.Meta && (r.Kind == wire.Value || r.Kind == wire.Header):
		s.marks[0].hit, s.marks[0].bytes = true, r.Body.Len()
	case r.Kind == wire.Value:
		named := r.Key.Of(b)
		for i := s.from; i < len(s.marks); i++ { // servers answer in the order of asking
			if m := &s.marks[i]; bytes.Equal(s.key(i)[m.strip:], named) {
				m.hit, m.bytes = true, r.Body.Len()
				s.from = i + 1
				return
			}
		}
	}
}

// Reply hears what is said, and hands it on.
func (s *Sight) Reply(c *upstream.Conn, a *upstream.Attempt, r *wire.Reply, b []byte) (taken int) {
	s.hear(a, r, b)
	return s.Receiver.Reply(c, a, r, b)
}

// Done counts what was heard.
func (s *Sight) Done(c *upstream.Conn, a *upstream.Attempt) {
	s.end(c.Server.Loop().Now).Done(c, a)
}

// Failed counts what was heard before there was no more: a read that has found nothing.
func (s *Sight) Failed(c *upstream.Conn, a *upstream.Attempt, f upstream.Failure) {
	s.end(c.Server.Loop().Now).Failed(c, a, f)
}

// Streams asks the receiver, if it takes values piece by piece.
func (s *Sight) Streams(r *wire.Reply) bool {
	to, ok := s.Receiver.(upstream.Streamer)
	return ok && to.Streams(r)
}

// Begin hears of a value that comes in pieces, as More and the others only after
// Streams said yes.
func (s *Sight) Begin(c *upstream.Conn, a *upstream.Attempt, r *wire.Reply, b []byte) (taken int) {
	s.hear(a, r, b)
	return s.Receiver.(upstream.Streamer).Begin(c, a, r, b)
}

// More hands on more of a value.
func (s *Sight) More(c *upstream.Conn, a *upstream.Attempt, b []byte, last bool) (taken int) {
	return s.Receiver.(upstream.Streamer).More(c, a, b, last)
}

// Behind asks the receiver, if it takes values piece by piece.
func (s *Sight) Behind() bool {
	to, ok := s.Receiver.(upstream.Streamer)
	return ok && to.Behind()
}

// TakeBack hands back an attempt that will be asked again, and seen then.
func (s *Sight) TakeBack(a *upstream.Attempt) { s.release().(upstream.Streamer).TakeBack(a) }
