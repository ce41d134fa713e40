package client

// This file defines Session: one client connection, with its input, its ordered exchanges and
// its output.

import (
	"bytes"
	"log/slog"
	"sync/atomic"
	"time"

	"ringside/proxy/link"
	"ringside/proxy/wire"
	"ringside/proxy/wire/binary"
)

// longLine is the length from which memcached rejects a line without an end, unless it is a
// read.
const longLine = 2048

// Session is one client. Its exchanges form a list in request order. Only the first writes to
// the client. The others store their replies until it is their turn.
type Session struct {
	link.Link
	e       *Clients
	Handler Handler // handles the client's requests; each listener has one
	Front   Handler // gets new requests: Handler, or one that first checks whether the client may send them
	ID      uint64  // ID of the client, unique over all loops, because another loop may execute its tasks; may have the bit upstream.Bulky

	identity

	Head, Tail *Exchange      // the client's commands without a complete reply, in request order; only the reply to Head is written to Out
	InFlight   int            // number of exchanges from Head to Tail
	Tasks      int            // number of shares of the exchanges from Head to Tail that tasks answer
	Reads      *OpenRead      // the newest read in flight that needs no task, on routes where other commands use tasks: see package task; nil: none
	ReadsByKey map[uint64]int // number of Reads by the hash of the key; nil: package task counts them itself, because they are few or no command has asked
	Companion  Observer       // is notified when the client sends a request before its earlier ones are answered, and when it leaves; nil: nothing is notified

	activity
	TryAt   int   // length from which a line without an end is parsed again; 0: any length
	Swallow int64 // bytes still to come of a rejected data block

	pacing
	room

	abandoned atomic.Bool // the client gets no more replies: see Abandoned

	spoken    bool  // the client has sent something
	binary    bool  // the client's first byte was that of a binary frame
	ended     bool  // the client has closed its sending side; what it sent is still handled
	Quitting  bool  // no more input is handled; the client is closed when all its commands are answered and the replies sent
	reset     bool  // the connection is closed with a reset, so that the client does not consider its data complete
	ready     bool  // Out may be sent now
	Whole     bool  // Out has the end of a reply
	Owes      bool  // Out has the end of a reply that the client does not have yet; a request that arrives now was sent without waiting for that reply
	HoldUntil int64 // time on the loop's clock until which Out may wait, so that further replies are sent with it in one write; 0: Out does not wait
}

// OpenRead is a read in flight that needs no task: an element of the list Session.Reads.
type OpenRead struct {
	Session      *Session  // nil: the read is in no list
	Name         []byte    // its key, as servers know it
	newer, Older *OpenRead // its neighbors in the list
}

// Open adds r to the reads of s.
func (r *OpenRead) Open(s *Session) {
	r.Session = s
	if r.Older = s.Reads; r.Older != nil {
		r.Older.newer = r
	}
	s.Reads = r
}

// Close removes r from the reads of its session.
func (r *OpenRead) Close() {
	if r.newer != nil {
		r.newer.Older = r.Older
	} else {
		r.Session.Reads = r.Older
	}
	if r.Older != nil {
		r.Older.newer = r.newer
	}
	r.Session, r.newer, r.Older = nil, nil, nil
}

// Observer is notified of what a client does beside its current requests.
type Observer interface {
	// Followed reports a further request before all earlier ones are answered, or before the
	// client can have all the replies.
	Followed(s *Session, x *Exchange)

	// Gone is called when the client s is gone.
	Gone(s *Session)
}

// NewSession returns the session of a client that has just connected, with the number id.
func (e *Clients) NewSession(id uint64, h Handler, sock link.Sock) *Session {
	s := &Session{e: e, Handler: h, Front: h, ID: id, activity: activity{since: e.Now, Last: e.Now}}
	if e.HasTasks || e.Now < e.smallUntil {
		s.tasks = TaskKeys // so the first piece of a multi-key read is small
	}
	s.End, s.Sock = s, sock
	if e.Now < e.pacedUntil {
		s.pace()
		s.bulky = s.sized() < ShareTasks // until the size of its values is known
	}
	e.Sessions[s] = struct{}{}
	return s
}

// Peer returns the address of the client, for logs.
func (s *Session) Peer() string {
	if s.Sock == nil {
		return "-"
	}
	return s.Sock.Peer()
}

// Parse handles the requests in IO.Input, until a limit is reached.
func (s *Session) Parse() {
	e := s.e
	if !s.spoken {
		s.spoken = true
		s.binary = e.Input.Bytes()[0] == binary.Magic
		if startsTLS(e.Input.Bytes()) {
			s.refuseTLS()
		}
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
	e.left.keys -= keys - s.turn.keys
	e.left.bytes -= bytes - s.turn.bytes
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

// startsTLS reports whether b, the first bytes of a client, begin a TLS handshake.
func startsTLS(b []byte) bool {
	return len(b) >= 3 && b[0] == 0x16 && b[1] == 3 && b[2] <= 4 // type handshake, and a version from SSL 3.0 to TLS 1.3
}

// refuseTLS closes a client that begins a TLS handshake on a listener without TLS. It gets no reply,
// which it would not understand.
func (s *Session) refuseTLS() {
	s.e.Count.TLSRefused++
	s.e.LogLimited(slog.LevelWarn, "", "client rejected: it speaks TLS to a listener without TLS", "client", s.Peer())
	s.e.Input.Start = s.e.Input.End
	s.Quit()
}

// parseLines handles the text and meta requests in the current input.
func (s *Session) parseLines() {
	e := s.e
	for e.Input.Len() > 0 && !s.Closed && !s.Quitting {
		// This repeats the checks of hasInput that matter for most requests, because a call
		// would cost more.
		if (s.Swallow > 0 || s.InFlight+s.more >= e.few || s.Tasks >= ShareTasks || s.Reads != nil && s.InFlight >= FirstTasks || s.Out.Size >= e.Limits.Output || s.window|s.rests > 0 || s.turn.over()) && !s.hasInput() {
			break
		}
		buf := e.Input.Bytes()
		if s.TryAt > 0 && len(buf) < s.TryAt && bytes.IndexByte(buf, '\n') < 0 {
			break
		}
		n, err := e.Accepts.Next(buf, &e.Req)
		if err == wire.ErrShort {
			s.short(len(buf))
			break
		}
		s.TryAt = 0
		if s.Tail != nil && s.fenced(e.Req.Op) {
			s.stall()
			break
		}
		if n >= keyBytes && s.waitsForServer(buf[:n]) {
			break
		}
		s.turn.keys--
		s.turn.bytes -= n
		if !s.Front.Serve(s, buf[:n]) {
			e.Input.Start += n // if Serve returns true, it has moved the bytes out of the input
		}
		if n >= keyBytes && s.Tail != nil {
			s.Tail.AddWork(n / keyBytes)
		}
	}
}

// hasInput skips the rest of a rejected data block, and reports whether there is input to
// handle now. It stalls s if a limit is reached.
func (s *Session) hasInput() bool {
	e := s.e
	if s.Swallow > 0 {
		n := min(s.Swallow, int64(e.Input.Len()))
		s.Swallow -= n
		s.turn.bytes -= int(n)
		e.Input.Start += int(n)
	}
	if e.Input.Len() == 0 || s.Closed || s.Quitting {
		return false
	}
	switch {
	case s.answerAt > 0, !s.mayAdd(), s.Out.Size >= e.Limits.Output, s.rests > 0, s.window > 0 && s.mustWait():
		s.stall()
		return false
	case s.turn.over():
		s.yield()
		return false
	}
	return true
}

// fenced reports whether the command op must wait until all earlier commands are answered. The
// session must have at least one earlier command. A command after stats waits, because a reply to
// stats costs much more than its request, so a turn cannot bound the work by the requests.
func (s *Session) fenced(op wire.Op) bool {
	return s.Tail.Op == wire.Stats || (op == wire.FlushAll || s.Tail.Op == wire.FlushAll) && s.Handler.NeedsFence()
}

// short waits for the rest of a request, of which have bytes have arrived.
func (s *Session) short(have int) {
	s.begin(have)
	s.Need = s.e.Req.Need
	if s.Need == 0 {
		// No line end yet. Parse again when one arrives, or when the line has grown by half. A
		// client that sends byte by byte then costs no more than another.
		s.TryAt = have + have/2 + 1
		for _, most := range [...]int{longLine, s.e.Limits.Line} { // longer lines are rejected
			if have <= most {
				s.TryAt = min(s.TryAt, most+1)
			}
		}
		return
	}
	if s.receives(have) {
		return
	}
	e, rest := s.e, s.room.whole-have
	s.Need, s.room.goes = 0, false
	s.Front.NoMemory(s, e.Input.Bytes(), rest)
	e.Input.Start = e.Input.End
}

// stall stops parsing, and then reading. resume continues.
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

// wake adds a stalled session that may continue to Clients.ToWake. If the rest of a read waits
// until the client has read Out, Out is sent at once.
func (s *Session) wake() {
	switch {
	case s.waking:
	case s.MayGoOn():
		s.waking = true
		s.e.ToWake = append(s.e.ToWake, s)
	case s.rests > 0 && s.Out.Size > 0:
		s.ready = true
		s.e.Mark(&s.Link)
	}
}

// resume continues with the input of a stalled session.
func (s *Session) resume() {
	s.waking, s.Stalled = false, false
	s.Last, s.onTime = s.e.Now, s.e.Now // the stall does not count as idle time
	if s.Closed {
		return
	}
	if s.rests > 0 && !s.MayGoOn() { // the client may not continue yet, for example because TakeBack has added keys that must be requested again
		s.stall()
		return
	}
	if s.rests > 0 {
		keys := s.turn.keys
		s.askRest()
		s.e.left.keys -= keys - s.turn.keys
	} else {
		s.widen(max(1, s.window))
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

// idleUntil returns when s is closed if it stays idle or does not log in, and the counter for
// that.
func (s *Session) idleUntil() (at int64, count *uint64) {
	l, c := s.e.Limits, &s.e.Count
	at = link.Never
	switch {
	case s.Quitting && s.Head == nil && l.Unfinished > 0: // the client does not read its replies
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

// EndInput is called when the client sends no more.
func (s *Session) EndInput() {
	s.ended = true
	if !s.Stalled { // if the client is stalled, resume calls EndInput again after the rest of its input
		s.Quit()
	}
}

// Ended reports whether the client sends no more, and is only open for replies to earlier commands. While the driver does not
// read from a client, it costs a system call.
func (s *Session) Ended() bool {
	if s.ended || s.reset || s.Closed || !s.Paused {
		return s.ended && !s.reset && !s.Closed
	}
	h, ok := s.Sock.(link.HangUp)
	return ok && h.HungUp()
}

// Quit handles no more input, and closes the client when it has received all its replies.
func (s *Session) Quit() {
	s.Quitting = true
	s.ready = true
	s.Last = s.e.Now
	s.e.WatchIdle()
	s.e.Mark(&s.Link)
}

// Abort closes the client at the end of the wakeup, without waiting for replies.
func (s *Session) Abort() {
	s.drop()
	s.reset, s.Quitting = true, true
	s.e.Mark(&s.Link)
}

// cut closes a client in the middle of a value of x that will never be complete, after it has
// received the replies to earlier commands. The head of the value has its length, so the client
// can detect that it is incomplete.
func (s *Session) cut(x *Exchange) {
	if s.Head != x {
		return
	}
	s.e.Count.CutOff++
	s.e.LogLimited(slog.LevelWarn, x.trouble, "client closed in the middle of a value", "client", s.Peer(), "why", x.trouble)
	s.abandon()
	s.Quit()
}

// gone removes a client after its socket was closed, or just before.
func (s *Session) gone() {
	if _, ok := s.e.Sessions[s]; !ok {
		return
	}
	if s.size == 0 { // the client has sent nothing since its first reply
		s.e.NoteSize(int(s.made()) / max(1, s.answered()))
	}
	s.drop()
	s.Closed = true
	if s.Companion != nil {
		s.Companion.Gone(s)
	}
	delete(s.e.Sessions, s)
	if s.e.Debug {
		s.e.Log.Debug("client disconnected", "client", s.Peer(), "received", s.BytesIn, "sent", s.BytesOut)
	}
	s.e.OnGone(s)
}

// abandon drops everything that the client waits for. Requests in the queue of a server stay
// there; their exchanges discard the replies.
func (s *Session) abandon() {
	s.abandoned.Store(true)
	if s.Head != nil {
		s.e.Awaiting--
	}
	for x := s.Head; x != nil; {
		next := x.Next
		x.Next = nil // x may live on for long, and would keep the later exchanges from being collected
		x.orphan()
		x = next
	}
	s.Head, s.Tail, s.InFlight, s.more = nil, nil, 0, 0
}

// Abandoned reports whether the client does not get the replies to its commands any more. Any loop may call it.
func (s *Session) Abandoned() bool { return s.abandoned.Load() }

// drop frees everything that the client waits for, has sent and was to receive.
func (s *Session) drop() {
	e := s.e
	s.abandon()
	s.Out.Drop(&e.Buffers)
	if s.In != nil {
		e.Buffers.Put(s.In)
		s.In = nil
	}
}

// Came records that n bytes have arrived from the client.
func (s *Session) Came(n int) {
	s.e.Count.ClientIn += uint64(n)
	if s.In != nil {
		if s.Need > 0 {
			s.e.left.bytes -= n
		}
		s.onTime = min(s.e.Now, s.onTime+int64(n)*int64(time.Second)/slowRate)
	}
	s.Last = s.e.Now
}

// Lost is called when the client has ended its input (err is nil), or is gone.
func (s *Session) Lost(err error) {
	if err == nil && !s.Closed {
		s.EndInput()
		return
	}
	s.gone()
}

// Sent is called when the socket has accepted n bytes. A stalled client may then continue.
func (s *Session) Sent(n int) {
	s.e.Count.ClientOut += uint64(n)
	if s.Out.Size == 0 {
		s.Whole, s.Owes, s.readAt = false, false, 0
	} else if n > 0 || s.readAt == 0 {
		s.readAt = s.e.Now
	}
	s.unstall()
	if s.Quitting && n > 0 {
		s.Last = s.e.Now
	}
	if s.Quitting && s.Out.Size == 0 && s.Head == nil {
		s.e.Mark(&s.Link)
	}
}

// boundOutput paces a client that does not read its replies, or closes it.
func (s *Session) boundOutput() {
	e := s.e
	if s.behind(0) {
		s.fallBehind()
	}
	if s.Out.Size > e.Limits.OutputHard {
		e.Count.OutputClosed++
		e.Log.Debug("client closed: it does not read its replies, limits.output_hard reached", "client", s.Peer(), "unsent", s.Out.Size)
		s.Abort()
	}
}

// Flush runs at the end of a wakeup. It decides whether the output is sent or waits for further
// replies, and whether the client is closed.
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
		s.ready, s.Whole, s.Owes = false, false, false // there is nothing to send
		return
	}
	if s.Full {
		return
	}
	if !s.ready && s.Head != nil && e.Tune.GroupWait > 0 && s.Out.Size < e.Tune.GroupSize {
		// Output without the end of a reply can wait, because the client continues only when it
		// has the whole reply.
		if s.Whole && s.HoldUntil == 0 {
			s.HoldUntil = e.Now + int64(e.Tune.GroupWait)
			e.Held.Add(s, s.HoldUntil)
		}
		return
	}
	s.ready, s.HoldUntil = false, 0
	e.Effect(link.Write, &s.Link)
}

// State returns the state of s, with the names of memcached's stats conns.
func (s *Session) State() string {
	switch {
	case s.Quitting || s.Closed:
		return "conn_closing"
	case s.Head != nil:
		return "conn_io_queue" // waits for servers
	case s.Out.Size > 0:
		return "conn_mwrite"
	case s.In != nil || s.Swallow > 0:
		return "conn_nread" // the client has sent the beginning of a request
	}
	return "conn_read"
}
