package client

// One client connection: its input, its ordered exchanges, its output.

import (
	"bytes"
	"log/slog"

	"ringside/proxy/link"
	"ringside/proxy/wire"
	"ringside/proxy/wire/frame"
)

// longLine is how long a line without an end may be before memcached takes it
// for junk, unless it is a read.
const longLine = 2048

// Session is one client. Its exchanges form a list in the order of the
// client's requests; only the first writes to the client, the others keep
// their answers until it is their turn.
type Session struct {
	link.Link
	e       *Clients
	Handler Handler // of its listener: serves what it asks for
	ID      uint64  // its number over all loops, for what it asks may be led on another; and upstream.Bulky

	identity

	Head, Tail *Exchange // its commands, in the order of asking; only Head writes to Out
	InFlight   int       // exchanges in that list
	Tasks      int       // parts of these that tasks answer
	Reads      []uint64  // hashes of the keys of those that need no task, where others on the key do: see package task
	Companion  Companion // what wants to know what it does besides; nil: nothing does

	activity
	TryAt   int   // how long a line without an end must be before another look at it pays; 0: any length
	Swallow int64 // bytes of a refused data block that are still to come

	pacing

	spoken    bool  // it has sent something
	binary    bool  // what it has sent began with a frame of the binary protocol
	ended     bool  // the client sends no more; what it has sent is served
	Quitting  bool  // no more input is served; it is closed when all is answered and sent
	reset     bool  // it is closed by a reset: the client must not take what it has for whole
	ready     bool  // what is in Out may be sent now
	Whole     bool  // Out has the end of an answer
	HoldUntil int64 // when Out must be sent, though its group is not whole; 0: it is not held
}

// Companion is told what a client does beside its requests.
type Companion interface {
	// Followed is told that one more request has come before all others are answered.
	Followed(s *Session, x *Exchange)

	// Gone is told that the client is gone.
	Gone()
}

// NewSession is the client of this number that has just connected.
func (e *Clients) NewSession(id uint64, h Handler, sock link.Sock) *Session {
	s := &Session{e: e, Handler: h, ID: id, activity: activity{since: e.Now, Last: e.Now}}
	s.End, s.Sock = s, sock
	if e.Now < e.pacedUntil {
		s.pace()
	}
	e.Sessions[s] = struct{}{}
	return s
}

// Peer names the client, for people.
func (s *Session) Peer() string {
	if s.Sock == nil {
		return "-"
	}
	return s.Sock.Peer()
}

// Parse serves the requests in IO.Input, until a bound is reached.
func (s *Session) Parse() {
	e := s.e
	if !s.spoken {
		s.spoken = true
		s.binary = e.Input.Bytes()[0] == frame.Magic
	}
	before := s.Tail
	s.beginTurn()
	keys, bytes := s.turn.keys, s.turn.bytes
	switch {
	case s.binary:
		s.parseFrames()
		s.endBatch()
	case s.unknown:
		s.parseLogin()
	default:
		s.parseLines()
	}
	e.spend(keys-s.turn.keys, bytes-s.turn.bytes)
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

// parseLines serves the text and meta requests in the engine's current input.
func (s *Session) parseLines() {
	e := s.e
	for e.Input.Len() > 0 && !s.Closed && !s.Quitting {
		// What hasInput says of nearly all is asked here: a call costs each request more.
		if (s.Swallow > 0 || s.InFlight+s.more >= e.Share || s.Out.Size >= e.Limits.Output || s.window|s.rests > 0 || s.turn.over()) && !s.hasInput() {
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
		if s.Tail != nil && s.fenced(e.Req.Op) {
			s.stall()
			break
		}
		s.turn.keys--
		s.turn.bytes -= n
		if !s.Handler.Serve(s, buf[:n]) {
			e.Input.Start += n // else the bytes were handed over
		}
		if n >= keyBytes && s.Tail != nil {
			s.Tail.AddWork(n / keyBytes)
		}
	}
}

// hasInput says whether there is input to be served now, behind what is here of a
// refused data block. It stalls s if a bound is reached.
func (s *Session) hasInput() bool {
	e := s.e
	if s.Swallow > 0 {
		n := min(s.Swallow, int64(e.Input.Len()))
		s.Swallow -= n
		e.Input.Start += int(n)
	}
	if e.Input.Len() == 0 || s.Closed || s.Quitting {
		return false
	}
	switch {
	case s.answerAt > 0, s.InFlight+s.more >= e.inFlight(), s.Out.Size >= e.Limits.Output, s.rests > 0, s.window > 0 && s.mustWait():
		s.stall()
		return false
	case s.turn.over():
		s.yield()
		return false
	}
	return true
}

// fenced says that op waits until all before it, of which there is some, is answered.
func (s *Session) fenced(op wire.Op) bool {
	return (op == wire.FlushAll || s.Tail.Op == wire.FlushAll) && s.Handler.NeedsFence()
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

// stall stops parsing, and then reading. resume goes on.
func (s *Session) stall() {
	s.Stalled = true
	s.e.Mark(&s.Link)
}

// unstall wakes a stalled session when half of what stopped it is gone.
func (s *Session) unstall() {
	if s.Stalled {
		s.wake()
	}
}

// wake lets a stalled session that may go on have its turn in Clients.Resume. The
// rest of an answer may wait for what is in Out, which then must not wait for it.
func (s *Session) wake() {
	switch {
	case s.waking:
	case s.MayGoOn():
		s.waking = true
		s.e.Wake = append(s.e.Wake, s)
	case s.rests > 0 && s.Out.Size > 0:
		s.ready = true
		s.e.Mark(&s.Link)
	}
}

// resume goes on with what a stalled session has sent.
func (s *Session) resume() {
	s.waking, s.Stalled = false, false
	s.Last = s.e.Now // it could say nothing meanwhile
	if s.Closed {
		return
	}
	if s.rests > 0 && !s.MayGoOn() { // a piece was taken back meanwhile
		s.stall()
		return
	}
	if s.rests > 0 {
		keys := s.turn.keys
		s.askRest()
		s.e.spend(keys-s.turn.keys, 0)
	} else {
		s.widen()
	}
	if s.In != nil && !s.Stalled {
		s.e.Enter(&s.Link)
		s.Parse()
		s.e.Leave(&s.Link)
	}
	if s.ended {
		s.EndInput()
	}
	s.e.Mark(&s.Link)
}

// idleUntil is when s is closed if it says nothing until then, or has not said who
// it is, and what counts that.
func (s *Session) idleUntil() (at int64, count *uint64) {
	l, c := s.e.Limits, &s.e.Count
	at = link.Never
	switch {
	case s.Quitting && s.Head == nil && l.Unfinished > 0: // it takes nothing of what it gets
		return s.Last + int64(l.Unfinished), &c.UnfinishedClosed
	case s.Quitting:
		return at, nil
	case s.unknown:
		return s.loginBy, &c.LoginsLate
	case s.Stalled:
		return at, nil
	}
	if l.Idle > 0 && s.Head == nil && s.Out.Size == 0 {
		at, count = s.Last+int64(l.Idle), &c.IdleClosed
	}
	if t := s.Last + int64(l.Unfinished); l.Unfinished > 0 && (s.In != nil || s.Swallow > 0) && t < at {
		at, count = t, &c.UnfinishedClosed
	}
	return at, count
}

// EndInput is told that the client sends no more.
func (s *Session) EndInput() {
	s.ended = true
	if !s.Stalled { // else resume finds the end
		s.Quit()
	}
}

// Quit serves no more input, and closes the client when it has all its answers.
func (s *Session) Quit() {
	s.Quitting = true
	s.ready = true
	s.Last = s.e.Now
	s.e.WatchIdle()
	s.e.Mark(&s.Link)
}

// Abort closes the client when the wakeup ends, whatever it still waits for.
func (s *Session) Abort() {
	s.drop()
	s.reset, s.Quitting = true, true
	s.e.Mark(&s.Link)
}

// cut closes a client in the middle of a value of x that will never be whole, when
// it has what it asked for before x. The beginning of the value says how long it
// would have been, so that it can't pass for a whole one.
func (s *Session) cut(x *Exchange) {
	if s.Head != x {
		return
	}
	s.e.Count.CutOff++
	s.e.LogLimited(slog.LevelWarn, x.trouble, "closed a client in the middle of a value", "client", s.Peer(), "why", x.trouble)
	s.abandon()
	s.Quit()
}

// gone forgets a client whose socket is closed or about to be.
func (s *Session) gone() {
	if _, ok := s.e.Sessions[s]; !ok {
		return
	}
	s.drop()
	s.Closed = true
	if s.Companion != nil {
		s.Companion.Gone()
	}
	delete(s.e.Sessions, s)
	if s.e.Debug {
		s.e.Log.Debug("client gone", "client", s.Peer(), "received", s.BytesIn, "sent", s.BytesOut)
	}
	s.e.OnGone(s)
}

// abandon lets go of everything that the client waits for. Requests that are in the
// queue of a server stay there; their exchanges swallow the answers.
func (s *Session) abandon() {
	if s.Head != nil {
		s.e.Awaiting--
	}
	for x := s.Head; x != nil; {
		next := x.Next
		x.Next = nil // it may live on for long, and would keep from the collector what became of the next
		x.orphan()
		x = next
	}
	s.Head, s.Tail, s.InFlight, s.more = nil, nil, 0, 0
}

// drop lets go of what the client waits for, has sent and was to get.
func (s *Session) drop() {
	e := s.e
	s.abandon()
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

// Sent is told that the socket took n bytes: a stalled client may go on.
func (s *Session) Sent(n int) {
	s.e.Count.ClientOut += uint64(n)
	s.Whole = s.Whole && s.Out.Size > 0
	s.unstall()
	if s.Quitting && n > 0 {
		s.Last = s.e.Now
	}
	if s.Quitting && s.Out.Size == 0 && s.Head == nil {
		s.e.Mark(&s.Link)
	}
}

// boundOutput paces a client that does not take what comes, or closes it.
func (s *Session) boundOutput() {
	e := s.e
	if s.behind(0) {
		s.fallBehind()
	}
	if s.Out.Size > e.Limits.OutputHard {
		e.Count.OutputClosed++
		e.Log.Debug("closed a client that does not read its answers: limits.output_hard reached", "client", s.Peer(), "unsent", s.Out.Size)
		s.Abort()
	}
}

// Flush decides, when the wakeup ends, what happens to the output: whether it is
// sent or waits for the rest of its group, and whether the client is closed.
func (s *Session) Flush() {
	e := s.e
	if s.Closed {
		return
	}
	if s.Out.Size >= e.Limits.Output {
		s.boundOutput()
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
		// While there is no end of an answer it can wait: the client goes on at the end.
		if s.Whole && s.HoldUntil == 0 {
			s.HoldUntil = e.Now + int64(e.Tune.GroupWait)
			e.Held.Add(s, s.HoldUntil)
		}
		return
	}
	s.ready, s.HoldUntil = false, 0
	e.Effect(link.Write, &s.Link)
}

// State is what s is at, in the words of memcached's stats conns.
func (s *Session) State() string {
	switch {
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
