package client

// This file serves clients of the binary protocol. Their frames are converted to text or meta
// requests, and the replies back to frames.

import (
	"ringside/proxy/link"
	"ringside/proxy/stats"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
	"ringside/proxy/wire/binary"
)

// parseFrames handles the frames in the current input. Quiet gets are only collected: see
// endBatch.
func (s *Session) parseFrames() {
	e := s.e
	for s.hasInput() {
		buf := e.Input.Bytes()
		if e.batch != nil && s.batchOn(buf) {
			continue
		}
		limits := &e.Accepts
		if s.unknown {
			limits = &loginLimits
		}
		n, err := binary.Next(limits, buf, &e.Frame)
		if err == wire.ErrShort {
			s.shortFrame(buf)
			return
		}
		if s.Tail != nil && s.fenced(e.Frame.Op) {
			s.stall()
			return
		}
		login := s.unknown || e.Frame.Op == wire.Auth
		if login && s.Tail != nil { // Ringside answers a login at once, so the earlier commands must have their replies
			s.stall()
			return
		}
		s.Swallow = e.Frame.Swallow // the bytes of a rejected value that are still to come, and are skipped
		s.turn.keys--
		s.turn.bytes -= n
		if login {
			e.Input.Start += n
			s.loginFrame(buf)
			continue
		}
		e.frameKey = e.Frame.Key.Of(buf)
		if n+maxSpelled >= link.BigSpan { // a large request: serveLarge builds it in a chunk of its own, which can be passed on without another copy
			s.endBatch()
			if !s.serveLarge(buf, n) {
				return
			}
			if s.Tail != nil {
				s.Tail.AddWork(n / keyBytes)
			}
			continue
		}
		e.Input.Start += n // Serve gets a converted copy of these bytes, so it does not move them out of the input
		if e.Frame.IsQuietGet() && s.joins(buf, n) && s.Front.ServeQuiet(s, e.frameKey) {
			continue
		}
		s.endBatch()
		e.spelled = binary.Spell(e.spelled[:0], buf, &e.Frame, &e.Req)
		s.Front.Serve(s, e.spelled)
	}
}

// serveLarge handles a frame of n bytes with a large value. It builds the request in a chunk of
// its own, which can be passed on without another copy. If the request must wait for its server, the frame stays in the input, and
// serveLarge returns false.
func (s *Session) serveLarge(buf []byte, n int) bool {
	e := s.e
	in := e.Input
	c := e.Buffers.Get(n + maxSpelled)
	line := binary.Spell(c.Data[:0], buf, &e.Frame, &e.Req)
	c.End = len(line)
	if s.waitsForServer(line) {
		e.Buffers.Put(c)
		return false
	}
	in.Start += n
	e.Input = c
	s.Front.Serve(s, line)
	e.Buffers.Put(e.Input) // frees the chunk c, or the chunk with which Serve has replaced it
	e.Input = in
	return true
}

// maxSpelled is an upper bound of how much longer a request is than its frame.
const maxSpelled = 512

// shortFrame waits for the rest of a frame. It rejects the frame if there is no memory for its
// value.
func (s *Session) shortFrame(buf []byte) {
	e := s.e
	s.begin(len(buf))
	s.Need = e.Frame.Need
	if !e.Frame.Op.Stores() || e.Frame.Value.End == 0 {
		return
	}
	if s.receives(len(buf)) {
		return
	}
	s.endBatch() // the quiet gets that were collected before are sent first
	rest := s.room.whole - len(buf)
	s.Need, s.room.goes = 0, false
	e.spelled = binary.Spell(e.spelled[:0], buf, &e.Frame, &e.Req)
	s.Front.NoMemory(s, e.spelled, rest)
	e.Input.Start = e.Input.End
}

// beginFrame stores what the reply must repeat of the current frame.
func (x *Exchange) beginFrame() {
	x.frames = framed{x, x.e.Frame.Head}
	if x.frames.head.ReturnsKey() {
		x.Miss = append(x.Miss, x.e.frameKey...)
	}
}

// framed is an exchange of a binary client in its role as the receiver of attempts.
type framed struct {
	*Exchange
	head binary.Head // what the reply repeats of the request frame
}

// Reply handles one reply to the attempt a: a line or value with the bytes b.
func (f *framed) Reply(c *upstream.Conn, a *upstream.Attempt, r *wire.Reply, b []byte) (taken int) {
	x := f.Exchange
	switch {
	case r.Kind == wire.Value && x.Op <= wire.Gats:
		x.Hit(a.Share)
		x.Lookup.FoundText(a.Share, r, b)
		x.Outcome = stats.Hit
		return x.forwardValue(a, r, b)
	case r.Kind == wire.End: // no reply yet: whether the get is a miss is known after all replies
	case r.Kind == wire.ServerError && x.Op <= wire.Gats:
		x.FailByServer(a.Share, c.Server.Label(), string(r.Line.Of(b)))
	case r.Kind.Failed() && x.Op <= wire.Gats && a.Dialect == wire.Text:
		x.ErrLine = append(x.ErrLine[:0], b...)
		x.Outcome = stats.ClientFault
	default:
		x.Outcome = stats.OutcomeOf(r.Kind)
		if r.Kind == wire.Header && x.Op <= wire.Gats {
			x.Outcome = stats.Hit
		}
		x.emitFrame(a, r, b)
	}
	return 0
}

// emitFrame sends the reply r, which has the bytes b, as a frame.
func (x *Exchange) emitFrame(a *upstream.Attempt, r *wire.Reply, b []byte) {
	if q := x.dest(a); q != nil {
		e := x.e
		x.replies++
		e.framed = x.frames.head.AppendFrame(e.framed[:0], x.Op, r, b, x.Miss, statusOf(x.Outcome))
		q.Append(&e.Buffers, e.framed)
	}
}

// emitFrames converts b to frames and sends them towards the client, which uses the binary
// protocol. b is one complete reply in the dialect of the request; of a text read it is a value
// or the end.
func (x *Exchange) emitFrames(b []byte) {
	e, r := x.e, &x.e.framedReply
	q := x.dest(nil)
	if q == nil || len(b) == 0 {
		return
	}
	e.framed = e.framed[:0]
	err := error(nil)
	switch x.Op {
	case wire.Stats:
		x.replies++
		if x.detail.Size > 0 && x.Outcome == stats.Okay {
			q.Append(&e.Buffers, x.frames.head.AppendDetail(e.framed, x.detail.Size+len(b)))
			x.detail.MoveTo(&e.Buffers, q)
			q.Append(&e.Buffers, x.frames.head.AppendHead(append(e.framed, b...), binary.Success, 0, 0, 0, 0))
			return
		}
		e.framed = x.frames.head.AppendStats(e.framed, b, statusOf(x.Outcome))
		q.Append(&e.Buffers, e.framed)
		return
	case wire.Quit: // Ringside itself replies to quit
		*r = wire.Reply{Kind: wire.OK}
	default:
		_, err = wire.NextReply(x.Op, x.dialect, b, r)
	}
	switch {
	case err != nil:
		e.framed = x.frames.head.AppendFailure(e.framed, b, binary.Internal)
	default:
		e.framed = x.frames.head.AppendFrame(e.framed, x.Op, r, b, x.Miss, statusOf(x.Outcome))
	}
	x.replies++
	q.Append(&e.Buffers, e.framed)
}

// statusOf returns the status of a binary reply for a request that failed with a SERVER_ERROR.
func statusOf(o stats.Outcome) binary.Status {
	switch o {
	case stats.QueueFull:
		return binary.Busy
	case stats.Unavailable, stats.TimedOut, stats.Lost:
		return binary.Temporary
	}
	return binary.Internal
}

// forwardValue sends a complete value.
func (x *Exchange) forwardValue(a *upstream.Attempt, r *wire.Reply, b []byte) (taken int) {
	x.replies++
	return x.sendValue(x.dest(a), x.frames.head, x.Miss, a, r, b)
}

// sendValue appends a complete value to q, as a frame. h is the head of the request. key is the
// key in the reply. If q is nil, the client is gone.
func (x *Exchange) sendValue(q *link.Queue, h binary.Head, key []byte, a *upstream.Attempt, r *wire.Reply, b []byte) (taken int) {
	if q == nil {
		return 0
	}
	e := x.e
	e.framed = h.AppendValue(e.framed[:0], r, b, key)
	if r.Size <= smallValue { // to copy a small value twice costs less than to call Append twice
		e.framed = append(e.framed, r.Body.Of(b)...)
		q.Append(&e.Buffers, e.framed)
		return 0
	}
	q.Append(&e.Buffers, e.framed)
	if a.AsText != nil { // b was built here, so it can't be moved out of the input
		q.Append(&e.Buffers, r.Body.Of(b))
		return 0
	}
	return x.give(q, b, int(r.Body.Start), int(r.Body.End))
}

func (f *framed) Streams(r *wire.Reply, _ []byte) bool {
	return r.Body.Len() > wholeValue && f.Op <= wire.Gats
}

// Begin forwards the beginning of a value.
func (f *framed) Begin(_ *upstream.Conn, a *upstream.Attempt, r *wire.Reply, b []byte) (taken int) {
	x := f.Exchange
	x.begin(a, r.Body.Len())
	x.Hit(a.Share)
	x.Outcome = stats.Hit
	x.replies++
	q := x.dest(a)
	if q == nil {
		return 0
	}
	here := b[min(int(r.Body.Start), len(b)):min(int(r.Body.End), len(b))]
	x.Streaming.bodyLeft = r.Body.Len() - len(here)
	x.e.framed = f.head.AppendValue(x.e.framed[:0], r, b, x.Miss)
	q.Append(&x.e.Buffers, x.e.framed)
	q.Append(&x.e.Buffers, here)
	return 0
}

// More forwards the next bytes of a value, without the line end after it.
func (f *framed) More(_ *upstream.Conn, a *upstream.Attempt, b []byte, last bool) (taken int) {
	x := f.Exchange
	taken = x.sendMore(x.dest(a), &x.Streaming.bodyLeft, b)
	if last {
		x.end(a)
	}
	return taken
}

// sendMore appends b to q. b is the next part of a value and its line end; the parameter `left`
// is the number of bytes that are still to come. If q is nil, the client is gone.
func (x *Exchange) sendMore(q *link.Queue, left *int, b []byte) (taken int) {
	n := min(len(b), *left)
	*left -= n
	if q == nil {
		return 0
	}
	return x.give(q, b, 0, n)
}
