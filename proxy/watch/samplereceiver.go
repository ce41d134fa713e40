package watch

// This file has the receiver of a sampled request. It records the reply, and forwards it to the
// actual receiver.

import (
	"bytes"

	"ringside/proxy/stats"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// SampleReceiver receives the reply to a sampled request. It records the outcome, and forwards each
// call to the actual receiver.
type SampleReceiver struct {
	upstream.Receiver
	w    *Watch
	next *SampleReceiver // next element of the list of SampleReceivers that are free for reuse

	keys   []byte        // the sampled keys of the request, one after the other, in the form that clients know
	marks  []mark        // what is recorded about each sampled key, in the order of the request
	from   int           // index in marks of the first key without a reply
	goesOn bool          // true if a task continues the request after a reply that is not a plain hit; such a request is sampled when the task ends
	since  int64         // time at which the request was sampled, on the loop's clock
	out    stats.Outcome // outcome of the request, if it is not a read
}

// mark is what a SampleReceiver records about one key of a sampled request.
type mark struct {
	end   int // end of the key in SampleReceiver.keys; the key begins where the key of the mark before ends
	strip int // number of bytes at the beginning of the key that servers do not see
	seen
	traced     bool // true if the key matches a traced pattern
	stale, won bool // stale: the value that was found is stale; won: the client must rebuild the value
}

// Sample samples the attempt a if it is the turn of this request or if the key is traced. key is
// the key of a, or one of the keys of a multi-key read. Servers do not see the first `strip` bytes
// of the key. size is the size of the request. goesOn means that a task continues the request if
// the reply is not a plain hit.
func (w *Watch) Sample(now int64, a *upstream.Attempt, key []byte, strip, size int, goesOn bool) {
	weight, traced := w.draws(now), w.patterns != nil && w.traces(key)
	if weight == 0 && !traced {
		return
	}
	s, ok := a.To.(*SampleReceiver)
	if !ok {
		if s = w.free; s == nil {
			s = &SampleReceiver{w: w}
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

// end records the outcome of the sampled request, and keeps s for reuse. It returns the actual
// receiver, which end does not call.
func (s *SampleReceiver) end(c *upstream.Conn, a *upstream.Attempt) upstream.Receiver {
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
			s.w.record(Event{At: now, Took: now - s.since, Letter: letter(a.Op, out, s.key(i), m.stale, m.won), Op: a.Op, Out: out,
				Client: s.Client() &^ upstream.Bulky, Server: c.Server.Target.Name, Bytes: m.bytes}, s.key(i), m.strip)
		}
	}
	return s.release()
}

func (s *SampleReceiver) release() upstream.Receiver {
	to := s.Receiver
	s.Receiver = nil
	if cap(s.keys) > mostKept {
		s.keys, s.marks = nil, nil
	}
	s.next, s.w.free = s.w.free, s
	return to
}

// mostKept is the maximum size of the buffer for keys in a SampleReceiver that is kept for reuse,
// in bytes. A larger buffer is released.
const mostKept = 4096

// key returns the sampled key that belongs to s.marks[i].
func (s *SampleReceiver) key(i int) []byte {
	if i == 0 {
		return s.keys[:s.marks[0].end]
	}
	return s.keys[s.marks[i-1].end:s.marks[i].end]
}

// hear records what a reply says about the sampled keys. r is the parsed reply, and b has its
// bytes.
func (s *SampleReceiver) hear(a *upstream.Attempt, r *wire.Reply, b []byte) {
	switch {
	case !isRead(a.Op) || r.Kind.Failed():
		s.out = stats.OutcomeOf(r.Kind)
	case s.goesOn && string(r.ClientFlags.Of(b)) == wire.TombstoneFlags: // the value is a tombstone or placeholder, so the task continues the request
	case s.goesOn && (r.Letters.Has('W') || r.Letters.Has('Z') || r.Letters.Has('X')):
	case a.Dialect == wire.Meta && (r.Kind == wire.Value || r.Kind == wire.Header):
		m := &s.marks[0]
		m.hit, m.bytes, m.stale, m.won = true, r.Body.Len(), r.Letters.Has('X'), r.Letters.Has('W')
	case r.Kind == wire.Value:
		named := r.Key.Of(b)
		for i := s.from; i < len(s.marks); i++ { // the reply is for this key or a later one, because servers reply in the order of the request
			if m := &s.marks[i]; bytes.Equal(s.key(i)[m.strip:], named) {
				m.hit, m.bytes = true, r.Body.Len()
				s.from = i + 1
				return
			}
		}
	}
}

// Reply records a reply and forwards it to the actual receiver.
func (s *SampleReceiver) Reply(c *upstream.Conn, a *upstream.Attempt, r *wire.Reply, b []byte) (taken int) {
	s.hear(a, r, b)
	return s.Receiver.Reply(c, a, r, b)
}

// Done records the outcome of the request, and forwards the call to the actual receiver.
func (s *SampleReceiver) Done(c *upstream.Conn, a *upstream.Attempt) {
	s.end(c, a).Done(c, a)
}

// Failed records that the request failed, and forwards the call to the actual receiver. For a read,
// the failure counts for the keys whose value has not arrived.
func (s *SampleReceiver) Failed(c *upstream.Conn, a *upstream.Attempt, f upstream.Failure) {
	s.out = f.Outcome
	s.end(c, a).Failed(c, a, f)
}

// RouteOf returns the route counters for the keys of one share of a read; nil: there are none.
func (s *SampleReceiver) RouteOf(share int32) *stats.RouteCounters {
	if to, ok := s.Receiver.(interface {
		RouteOf(share int32) *stats.RouteCounters
	}); ok {
		return to.RouteOf(share)
	}
	return nil
}

// Streams returns what the actual receiver's method Streams returns. It returns false if that
// receiver is not a Streamer.
func (s *SampleReceiver) Streams(r *wire.Reply, b []byte) bool {
	to, ok := s.Receiver.(upstream.Streamer)
	return ok && to.Streams(r, b)
}

// Begin records the first part of a value that arrives in pieces, and forwards it. Begin and More
// are called only after Streams has returned true.
func (s *SampleReceiver) Begin(c *upstream.Conn, a *upstream.Attempt, r *wire.Reply, b []byte) (taken int) {
	s.hear(a, r, b)
	return s.Receiver.(upstream.Streamer).Begin(c, a, r, b)
}

// More forwards the next bytes of a value to the actual receiver.
func (s *SampleReceiver) More(c *upstream.Conn, a *upstream.Attempt, b []byte, last bool) (taken int) {
	return s.Receiver.(upstream.Streamer).More(c, a, b, last)
}

// IsSlow returns what the actual receiver's method IsSlow returns. It returns false if that
// receiver is not a Streamer.
func (s *SampleReceiver) IsSlow() bool {
	to, ok := s.Receiver.(upstream.Streamer)
	return ok && to.IsSlow()
}

// TakesBack returns what the actual receiver's method TakesBack returns. It returns false if that
// receiver is not a Taker, such as that of a read that is sent to one replica.
func (s *SampleReceiver) TakesBack() bool {
	to, ok := s.Receiver.(upstream.Taker)
	return ok && to.TakesBack()
}

// TakeBack forgets the sample of an attempt that will be sent and sampled again, and forwards the
// call.
func (s *SampleReceiver) TakeBack(a *upstream.Attempt) { s.release().(upstream.Taker).TakeBack(a) }
