package watch

// A request that is looked at, between the connection that brings its answer and the
// receiver.

import (
	"bytes"

	"ringside/proxy/stats"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// Sight is the receiver of an attempt that is looked at. It hands everything on to
// the receiver proper.
type Sight struct {
	upstream.Receiver
	w    *Watch
	next *Sight // in the list of free ones

	keys   []byte        // that are looked at, one behind the other, as clients know them
	marks  []mark        // one for each of them
	from   int           // marks before it have had their answer, or are misses
	goesOn bool          // what is no plain hit becomes a task, whose end is seen then
	since  int64         // the first of them was asked for, on the loop's clock
	out    stats.Outcome // of what is no read
}

// mark is one key of a Sight.
type mark struct {
	end   int // of the key in Sight.keys; it begins where the one before ends
	strip int // bytes of it that servers don't see
	seen
	traced     bool // somebody follows it
	stale, won bool // what was found is old; and the client is to make it anew
}

// Look looks at what becomes of a, a request on key or, of a read of many, one of its keys.
// Servers don't see the first strip bytes of the key. size is what the request brings.
// goesOn says that what is no plain hit becomes a task.
func (w *Watch) Look(now int64, a *upstream.Attempt, key []byte, strip, size int, goesOn bool) {
	weight, traced := w.draws(now), w.patterns != nil && w.traces(key)
	if weight == 0 && !traced {
		return
	}
	s, ok := a.To.(*Sight)
	if !ok {
		if s = w.free; s == nil {
			s = &Sight{w: w}
		} else {
			w.free = s.next
		}
		s.Receiver, s.keys, s.marks, s.from, s.goesOn, s.since, s.out = a.To, s.keys[:0], s.marks[:0], 0, goesOn, now, stats.Okay
		a.To = s
	}
	s.keys = append(s.keys, key...)
	m := mark{end: len(s.keys), strip: strip, seen: seen{weight: weight, read: isRead(a.Op)}, traced: traced}
	if !m.read {
		m.bytes = size
	}
	s.marks = append(s.marks, m)
}

func isRead(op wire.Op) bool { return op >= wire.Get && op <= wire.Gats }

// end counts what was heard, and keeps s for reuse. It returns the receiver, who is
// to be told yet.
func (s *Sight) end(c *upstream.Conn, a *upstream.Attempt) upstream.Receiver {
	now := c.Server.Loop().Now
	for i := range s.marks {
		m := &s.marks[i]
		if !m.hit && s.goesOn {
			continue
		}
		if m.weight > 0 {
			s.w.note(now, s.key(i), m.seen)
		}
		if m.traced {
			out := s.out
			switch {
			case m.hit:
				out = stats.Hit
			case m.read && out == stats.Okay:
				out = stats.Miss
			}
			s.w.tell(Event{At: now, Took: now - s.since, Letter: Letter(a.Op, out, s.key(i), m.stale, m.won), Op: a.Op, Out: out,
				Client: s.Client() &^ upstream.Bulky, Server: c.Server.Target.Name, Bytes: m.bytes}, s.key(i), m.strip)
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
	case !isRead(a.Op) || r.Kind.Failed():
		s.out = stats.OutcomeOf(r.Kind)
	case s.goesOn && string(r.ClientFlags.Of(b)) == wire.MarkFlags: // of a copy that is being written
	case s.goesOn && (r.Letters.Has('W') || r.Letters.Has('Z') || r.Letters.Has('X')):
	case a.Dialect == wire.Meta && (r.Kind == wire.Value || r.Kind == wire.Header):
		m := &s.marks[0]
		m.hit, m.bytes, m.stale, m.won = true, r.Body.Len(), r.Letters.Has('X'), r.Letters.Has('W')
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
	s.end(c, a).Done(c, a)
}

// Failed counts what was heard before there was no more: a read that has found nothing.
func (s *Sight) Failed(c *upstream.Conn, a *upstream.Attempt, f upstream.Failure) {
	s.out = f.Outcome
	s.end(c, a).Failed(c, a, f)
}

// RouteOf is what counts the keys of that share; nil: nobody does.
func (s *Sight) RouteOf(share int32) *stats.RouteCounters {
	if to, ok := s.Receiver.(interface {
		RouteOf(share int32) *stats.RouteCounters
	}); ok {
		return to.RouteOf(share)
	}
	return nil
}

// Streams asks the receiver, if it takes values piece by piece.
func (s *Sight) Streams(r *wire.Reply, b []byte) bool {
	to, ok := s.Receiver.(upstream.Streamer)
	return ok && to.Streams(r, b)
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

// TakeBack hands back an attempt that will be asked again, and seen then. Of whom it
// is asked, reads in text, all receivers that are looked at can take them back.
func (s *Sight) TakeBack(a *upstream.Attempt) { s.release().(upstream.Taker).TakeBack(a) }
