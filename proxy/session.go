package proxy

// One client connection: its input, its ordered exchanges, its output.

import (
	"bytes"

	"ringside/proxy/wire"
)

// binaryMagic is the first byte of a client that speaks the binary protocol;
// memcached too decides by that byte alone.
const binaryMagic = 0x80

// longLine is how long a line without an end may be before memcached takes it
// for junk, unless it is a read.
const longLine = 2048

// Session is one client. Its exchanges form a list in the order of the
// client's requests; only the first writes to the client, the others keep
// their answers until it is their turn.
type Session struct {
	Link
	e       *Clients
	handler Handler
	id      uint64 // over all loops: what it asks may be led on another

	head, tail *Exchange
	inFlight   int
	tasks      int // parts of them that tasks answer

	since, last int64 // connected, last read: for people and idle limits
	tryAt       int   // a line without an end is looked at again when it is this long
	swallow     int64 // bytes of a refused data block still to come

	spoken    bool  // it has sent something
	stalled   bool  // parsing stopped at a bound
	waking    bool  // in Engine.wake
	ended     bool  // the client sends no more; what it has sent is served
	quitting  bool  // no more input; close when all is answered and sent
	reset     bool  // close by a reset: the client must not take what it has for whole
	ready     bool  // what is in out may be sent now
	whole     bool  // out has the end of an answer
	holdUntil int64 // when it must be sent in any case; 0: not held
}

// newSession is the client of this number that has just connected.
func (e *Clients) newSession(id uint64, h Handler, sock Sock) *Session {
	s := &Session{e: e, handler: h, id: id, since: e.now, last: e.now}
	s.end, s.Sock = s, sock
	e.sessions[s] = struct{}{}
	return s
}

func (s *Session) peer() string {
	if s.Sock == nil {
		return "-"
	}
	return s.Sock.Peer()
}

// Parse serves the requests in the engine's current input.
func (s *Session) Parse() {
	e := s.e
	if !s.spoken {
		s.spoken = true
		if e.cur.bytes()[0] == binaryMagic {
			e.log.Info("closed a client of the binary protocol, which Ringside does not speak: let it use text or meta", "client", s.peer())
			s.quit()
		}
	}
	before := s.tail
	for e.cur.len() > 0 && !s.closed && !s.quitting {
		if s.swallow > 0 {
			n := int(min(s.swallow, int64(e.cur.len())))
			s.swallow -= int64(n)
			e.cur.r += n
			continue
		}
		if s.inFlight >= e.limits.InFlight || s.out.size >= e.limits.Output {
			s.stall()
			break
		}
		buf := e.cur.bytes()
		if s.tryAt > 0 && len(buf) < s.tryAt && bytes.IndexByte(buf, '\n') < 0 {
			break
		}
		n, err := e.wire.Next(buf, &e.req)
		if err == wire.ErrShort {
			s.short(len(buf))
			break
		}
		s.tryAt = 0
		if s.tail != nil && (e.req.Op == wire.FlushAll || s.tail.op == wire.FlushAll) && s.handler.NeedsFence() {
			s.stall()
			break
		}
		if !s.handler.Serve(s, buf[:n]) {
			e.cur.r += n // else the bytes were handed over
		}
	}
	if s.quitting || s.closed {
		e.cur.r = e.cur.w
	}
	if s.tail != nil && s.tail != before {
		s.tail.endsGroup = true
	}
	if s.out.size > 0 {
		s.ready = s.ready || s.head == nil
		e.mark(&s.Link)
	}
}

// short waits for the rest of a request of which have bytes are here.
func (s *Session) short(have int) {
	s.need = s.e.req.Need
	if s.need == 0 {
		// No line end yet. Look again when one comes or the line has grown by
		// half: a client that sends byte by byte then costs no more than one
		// that doesn't.
		s.tryAt = have + have/2 + 1
		for _, most := range [...]int{longLine, s.e.limits.Line} { // what is longer is junk
			if have <= most {
				s.tryAt = min(s.tryAt, most+1)
			}
		}
		return
	}
	if e := s.e; e.scarce(s.need) {
		rest := s.need - have
		s.need = 0
		s.handler.NoMemory(s, e.cur.bytes(), rest)
		e.cur.r = e.cur.w
	}
}

// stall stops reading at a bound; resume goes on when there is room.
func (s *Session) stall() {
	s.stalled = true
	s.e.mark(&s.Link)
}

// unstall lets a stalled session go on when half of what stopped it is gone.
func (s *Session) unstall() {
	l := s.e.limits
	if s.stalled && !s.waking && s.inFlight <= l.InFlight/2 && s.out.size <= l.Output/2 {
		s.waking = true
		s.e.wake = append(s.e.wake, s)
	}
}

func (s *Session) resume() {
	s.waking, s.stalled = false, false
	if s.closed {
		return
	}
	if s.in != nil {
		s.e.enter(&s.Link)
		s.Parse()
		s.e.leave(&s.Link)
	}
	if s.ended {
		s.endInput()
	}
	s.e.mark(&s.Link)
}

// endInput is the end of the client's input.
func (s *Session) endInput() {
	s.ended = true
	if !s.stalled { // else resume finds the end
		s.quit()
	}
}

// quit stops input; the client is closed when it has all its answers.
func (s *Session) quit() {
	s.quitting = true
	s.ready = true
	s.e.mark(&s.Link)
}

// abort closes the client in the next End, whatever it still waits for.
func (s *Session) abort() {
	s.drop()
	s.reset, s.quitting = true, true
	s.e.mark(&s.Link)
}

// cut closes a client in the middle of a value whose server went away: what
// it has must not pass for a whole value.
func (s *Session) cut(srv *Server, why string) {
	s.e.count.CutOff++
	s.e.log.Warn("closed a client in the middle of a value", "client", s.peer(), "server", srv.target.Name, "why", why)
	s.abort()
}

// gone forgets a client whose socket is closed or about to be.
func (s *Session) gone() {
	if _, ok := s.e.sessions[s]; !ok {
		return
	}
	s.drop()
	s.closed = true
	delete(s.e.sessions, s)
	if s.e.debug {
		s.e.log.Debug("client gone", "client", s.peer(), "received", s.bytesIn, "sent", s.bytesOut)
	}
	s.e.closed()
}

// drop lets go of everything the client waits for. Requests already with a
// server stay there: their answers are swallowed.
func (s *Session) drop() {
	e := s.e
	if s.head != nil {
		e.waiting--
	}
	for x := s.head; x != nil; {
		next := x.next
		x.orphan()
		x = next
	}
	s.head, s.tail, s.inFlight = nil, nil, 0
	s.out.drop(&e.pool)
	if s.in != nil {
		e.pool.put(s.in)
		s.in = nil
	}
}

// Came notes that n bytes have come from the client.
func (s *Session) Came(n int) {
	s.e.count.ClientIn += uint64(n)
	s.last = s.e.now
}

// Lost is told that the client has ended its input (err is nil), or is gone.
func (s *Session) Lost(err error) {
	if err == nil && !s.closed {
		s.endInput()
		return
	}
	s.gone()
}

// Sent goes on after the socket took n bytes.
func (s *Session) Sent(n int) {
	s.e.count.ClientOut += uint64(n)
	s.whole = s.whole && s.out.size > 0
	s.unstall()
	if s.quitting && s.out.size == 0 && s.head == nil {
		s.e.mark(&s.Link)
	}
}

// Flush decides in End what happens to the output.
func (s *Session) Flush() {
	e := s.e
	if s.closed {
		return
	}
	if s.out.size > e.limits.OutputHard {
		e.count.OutputClosed++
		e.log.Warn("closed a client that does not read its answers: limits.output_hard reached", "client", s.peer(), "unsent", s.out.size)
		s.abort()
	}
	if s.quitting && s.out.size == 0 && s.head == nil && (s.reset || !s.full) {
		s.gone()
		if s.reset {
			e.effect(Abort, &s.Link)
		} else {
			e.effect(Close, &s.Link)
		}
		return
	}
	if pause := s.stalled || s.ended || s.quitting; pause != s.paused {
		s.paused = pause
		if pause {
			e.effect(Pause, &s.Link)
		} else {
			e.effect(Resume, &s.Link)
		}
	}
	if s.out.size == 0 {
		s.ready, s.whole = false, false // what was to be sent had no bytes
		return
	}
	if s.full {
		return
	}
	if !s.ready && s.head != nil && e.Tune.GroupWait > 0 && s.out.size < e.Tune.GroupSize {
		// A part of an answer can wait: its client goes on when it has the end.
		if s.whole && s.holdUntil == 0 {
			s.holdUntil = e.now + int64(e.Tune.GroupWait)
			e.held.add(s, s.holdUntil)
		}
		return
	}
	s.ready, s.holdUntil = false, 0
	e.effect(Write, &s.Link)
}

// state is the memcached word for what s is at.
func (s *Session) state(asking *Session) string {
	switch {
	case s == asking:
		return "conn_parse_cmd"
	case s.quitting || s.closed:
		return "conn_closing"
	case s.head != nil:
		return "conn_io_queue" // waits for servers
	case s.out.size > 0:
		return "conn_mwrite"
	case s.in != nil || s.swallow > 0:
		return "conn_nread" // in the middle of a request
	}
	return "conn_read"
}
