package client

// One client connection: its input, its ordered exchanges, its output.

import (
	"bytes"

	"ringside/proxy/link"
	"ringside/proxy/upstream"
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
	link.Link
	e       *Clients
	Handler Handler
	ID      uint64 // over all loops: what it asks may be led on another

	Head, Tail *Exchange
	InFlight   int
	Tasks      int // parts of them that tasks answer

	since, Last int64 // connected, last read: for people and idle limits
	TryAt       int   // a line without an end is looked at again when it is this long
	Swallow     int64 // bytes of a refused data block still to come

	spoken    bool  // it has sent something
	Stalled   bool  // parsing stopped at a bound
	waking    bool  // in Engine.wake
	ended     bool  // the client sends no more; what it has sent is served
	Quitting  bool  // no more input; close when all is answered and sent
	reset     bool  // close by a reset: the client must not take what it has for whole
	ready     bool  // what is in out may be sent now
	Whole     bool  // out has the end of an answer
	HoldUntil int64 // when it must be sent in any case; 0: not held
}

// NewSession is the client of this number that has just connected.
func (e *Clients) NewSession(id uint64, h Handler, sock link.Sock) *Session {
	s := &Session{e: e, Handler: h, ID: id, since: e.Now, Last: e.Now}
	s.End, s.Sock = s, sock
	e.Sessions[s] = struct{}{}
	return s
}

func (s *Session) Peer() string {
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
		if e.Input.Bytes()[0] == binaryMagic {
			e.Log.Info("closed a client of the binary protocol, which Ringside does not speak: let it use text or meta", "client", s.Peer())
			s.Quit()
		}
	}
	before := s.Tail
	for e.Input.Len() > 0 && !s.Closed && !s.Quitting {
		if s.Swallow > 0 {
			n := int(min(s.Swallow, int64(e.Input.Len())))
			s.Swallow -= int64(n)
			e.Input.Start += n
			continue
		}
		if s.InFlight >= e.Limits.InFlight || s.Out.Size >= e.Limits.Output {
			s.stall()
			break
		}
		buf := e.Input.Bytes()
		if s.TryAt > 0 && len(buf) < s.TryAt && bytes.IndexByte(buf, '\n') < 0 {
			break
		}
		n, err := e.Wire.Next(buf, &e.Req)
		if err == wire.ErrShort {
			s.short(len(buf))
			break
		}
		s.TryAt = 0
		if s.Tail != nil && (e.Req.Op == wire.FlushAll || s.Tail.Op == wire.FlushAll) && s.Handler.NeedsFence() {
			s.stall()
			break
		}
		if !s.Handler.Serve(s, buf[:n]) {
			e.Input.Start += n // else the bytes were handed over
		}
	}
	if s.Quitting || s.Closed {
		e.Input.Start = e.Input.End
	}
	if s.Tail != nil && s.Tail != before {
		s.Tail.endsGroup = true
	}
	if s.Out.Size > 0 {
		s.ready = s.ready || s.Head == nil
		e.Mark(&s.Link)
	}
}

// short waits for the rest of a request of which have bytes are here.
func (s *Session) short(have int) {
	s.Need = s.e.Req.Need
	if s.Need == 0 {
		// No line end yet. Look again when one comes or the line has grown by
		// half: a client that sends byte by byte then costs no more than one
		// that doesn't.
		s.TryAt = have + have/2 + 1
		for _, most := range [...]int{longLine, s.e.Limits.Line} { // what is longer is junk
			if have <= most {
				s.TryAt = min(s.TryAt, most+1)
			}
		}
		return
	}
	if e := s.e; e.Scarce(s.Need) {
		rest := s.Need - have
		s.Need = 0
		s.Handler.NoMemory(s, e.Input.Bytes(), rest)
		e.Input.Start = e.Input.End
	}
}

// stall stops reading at a bound; resume goes on when there is room.
func (s *Session) stall() {
	s.Stalled = true
	s.e.Mark(&s.Link)
}

// unstall lets a stalled session go on when half of what stopped it is gone.
func (s *Session) unstall() {
	l := s.e.Limits
	if s.Stalled && !s.waking && s.InFlight <= l.InFlight/2 && s.Out.Size <= l.Output/2 {
		s.waking = true
		s.e.Wake = append(s.e.Wake, s)
	}
}

func (s *Session) resume() {
	s.waking, s.Stalled = false, false
	if s.Closed {
		return
	}
	if s.In != nil {
		s.e.Enter(&s.Link)
		s.Parse()
		s.e.Leave(&s.Link)
	}
	if s.ended {
		s.EndInput()
	}
	s.e.Mark(&s.Link)
}

// EndInput is the end of the client's input.
func (s *Session) EndInput() {
	s.ended = true
	if !s.Stalled { // else resume finds the end
		s.Quit()
	}
}

// Quit stops input; the client is closed when it has all its answers.
func (s *Session) Quit() {
	s.Quitting = true
	s.ready = true
	s.e.Mark(&s.Link)
}

// Abort closes the client in the next End, whatever it still waits for.
func (s *Session) Abort() {
	s.drop()
	s.reset, s.Quitting = true, true
	s.e.Mark(&s.Link)
}

// cut closes a client in the middle of a value whose server went away: what
// it has must not pass for a whole value.
func (s *Session) cut(srv *upstream.Server, why string) {
	s.e.Count.CutOff++
	s.e.Log.Warn("closed a client in the middle of a value", "client", s.Peer(), "server", srv.Target.Name, "why", why)
	s.Abort()
}

// gone forgets a client whose socket is closed or about to be.
func (s *Session) gone() {
	if _, ok := s.e.Sessions[s]; !ok {
		return
	}
	s.drop()
	s.Closed = true
	delete(s.e.Sessions, s)
	if s.e.Debug {
		s.e.Log.Debug("client gone", "client", s.Peer(), "received", s.BytesIn, "sent", s.BytesOut)
	}
	s.e.OnGone()
}

// drop lets go of everything the client waits for. Requests already with a
// server stay there: their answers are swallowed.
func (s *Session) drop() {
	e := s.e
	if s.Head != nil {
		e.Awaiting--
	}
	for x := s.Head; x != nil; {
		next := x.Next
		x.orphan()
		x = next
	}
	s.Head, s.Tail, s.InFlight = nil, nil, 0
	s.Out.Drop(&e.Buffers)
	if s.In != nil {
		e.Buffers.Put(s.In)
		s.In = nil
	}
}

// Came notes that n bytes have come from the client.
func (s *Session) Came(n int) {
	s.e.Count.ClientIn += uint64(n)
	s.Last = s.e.Now
}

// Lost is told that the client has ended its input (err is nil), or is gone.
func (s *Session) Lost(err error) {
	if err == nil && !s.Closed {
		s.EndInput()
		return
	}
	s.gone()
}

// Sent goes on after the socket took n bytes.
func (s *Session) Sent(n int) {
	s.e.Count.ClientOut += uint64(n)
	s.Whole = s.Whole && s.Out.Size > 0
	s.unstall()
	if s.Quitting && s.Out.Size == 0 && s.Head == nil {
		s.e.Mark(&s.Link)
	}
}

// Flush decides in End what happens to the output.
func (s *Session) Flush() {
	e := s.e
	if s.Closed {
		return
	}
	if s.Out.Size > e.Limits.OutputHard {
		e.Count.OutputClosed++
		e.Log.Warn("closed a client that does not read its answers: limits.output_hard reached", "client", s.Peer(), "unsent", s.Out.Size)
		s.Abort()
	}
	if s.Quitting && s.Out.Size == 0 && s.Head == nil && (s.reset || !s.Full) {
		s.gone()
		if s.reset {
			e.Effect(link.Abort, &s.Link)
		} else {
			e.Effect(link.Close, &s.Link)
		}
		return
	}
	if pause := s.Stalled || s.ended || s.Quitting; pause != s.Paused {
		s.Paused = pause
		if pause {
			e.Effect(link.Pause, &s.Link)
		} else {
			e.Effect(link.Resume, &s.Link)
		}
	}
	if s.Out.Size == 0 {
		s.ready, s.Whole = false, false // what was to be sent had no bytes
		return
	}
	if s.Full {
		return
	}
	if !s.ready && s.Head != nil && e.Tune.GroupWait > 0 && s.Out.Size < e.Tune.GroupSize {
		// A part of an answer can wait: its client goes on when it has the end.
		if s.Whole && s.HoldUntil == 0 {
			s.HoldUntil = e.Now + int64(e.Tune.GroupWait)
			e.Held.Add(s, s.HoldUntil)
		}
		return
	}
	s.ready, s.HoldUntil = false, 0
	e.Effect(link.Write, &s.Link)
}

// State is the memcached word for what s is at.
func (s *Session) State(asking *Session) string {
	switch {
	case s == asking:
		return "conn_parse_cmd"
	case s.Quitting || s.Closed:
		return "conn_closing"
	case s.Head != nil:
		return "conn_io_queue" // waits for servers
	case s.Out.Size > 0:
		return "conn_mwrite"
	case s.In != nil || s.Swallow > 0:
		return "conn_nread" // in the middle of a request
	}
	return "conn_read"
}
