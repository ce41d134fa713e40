package client

// This file limits what a client can request while it does not read its replies.

import (
	"bytes"
	"time"

	"ringside/proxy/link"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// A client falls behind when its socket accepts no more data and limits.output is reached. From
// then on it is paced: it may have at most window keys in flight. A read of more keys is sent
// in pieces. The next piece follows when the one before is answered and half of limits.output
// is free. The window starts at one key, because the size of the values is not known before
// they arrive. It grows as far as their size allows, at most to the double each time. At
// freeWindow the client is a normal one again.
//
//	get k1 … k20 ► k1 ► k2 ► … each time the client has read enough
//
// A client with very large values is paced, too: see Session.measure and noteLarge.
//
// A client is bulky if it has fallen behind, or if its values are large while it is paced. As
// soon as it has nothing in flight, its requests use connections that only bulky clients use.
// Other clients then wait for at most one of its large values.
//
// For paceTime after a client has fallen behind, or had very large values, new clients are paced from their first request
// on. Without this, two hundred of them could each request everything before the first is known
// not to read. If values are very large, they are also bulky until the size of their own values is known. So
// clients that connect, request such a value and disconnect do not delay others.
const (
	freeWindow = 128
	paceTime   = 10 * time.Second
)

// pacing decides whether a client may send more requests now, and for how many keys.
type pacing struct {
	waking bool // the client is in Clients.ToWake

	turn      turn   // the work that the client may still use in this wakeup
	round     uint64 // number of the wakeup in which turn was set
	more      int    // keys in flight beyond the first of each command: see Exchange.AddWork
	window    int    // keys that the client may have in flight; 0: not paced, so limits.in_flight applies
	before    uint64 // result of Session.made when window was last set
	beforeAt  int    // number of answered keys at that time
	moreKeys  int    // keys that the client has requested, beyond the first of each command
	sizedAt   int    // number of answered keys when size was computed from sizeReplies of them
	sizedFrom uint64 // result of Session.made at that time
	rests     int    // number of the client's exchanges with keys that were not requested yet
	tasks     int    // number of keys of multi-key reads that needed tasks since the last piece
	small     bool   // a piece of a multi-key read has at most TaskKeys keys, because an eighth of the keys of the last one, or more, needed tasks
	piece     int    // number of keys that the last piece could have
	size      int    // mean size of the replies for the last keys of the client, in bytes; 0: there was none
	bulky     bool   // the client should use the connections of bulky clients
}

// behind reports whether the client does not read its replies. The parameter `more` is the size
// of its replies that are not in Out yet.
func (s *Session) behind(more int) bool { return s.Full && s.Out.Size+more >= s.e.Limits.Output }

// fallBehind paces a client that does not read its replies, and all clients that connect within
// paceTime.
func (s *Session) fallBehind() {
	s.e.pacedUntil = s.e.Now + int64(paceTime)
	s.setWindow(1)
	s.bulky = true
}

// noteLarge records that a very large reply to s, of n bytes, begins to arrive. Clients with few requests in flight are not
// measured otherwise.
func (s *Session) noteLarge(n int) {
	s.pace()
	s.bulky = true
	s.e.NoteSize(n)
}

// pace limits a client to one key in flight at first, unless it is already limited.
func (s *Session) pace() {
	if s.window == 0 {
		s.setWindow(1)
	}
}

func (s *Session) setWindow(keys int) {
	s.window, s.before, s.beforeAt = min(keys, freeWindow), s.made(), s.answered()
	if keys >= freeWindow && s.ID&upstream.Bulky == 0 {
		s.window = 0
	}
}

// made returns how many bytes of replies were produced for the client.
func (s *Session) made() uint64 { return s.BytesOut + uint64(s.Out.Size) }

// widen sets s.window, the number of keys that a paced client may have in flight, according to
// the size of the values for its last keys, of which there are as many as the parameter says.
func (s *Session) widen(keys int) {
	if s.window > 0 {
		mean := max(1, int(s.made()-s.before)/keys)
		if s.made() > s.before || s.rests == 0 && s.answered() > s.beforeAt { // commands with noreply have no replies
			s.bulky = mean >= link.BigSpan
		}
		s.setWindow(min(max(1, s.e.Limits.Output/mean), 2*s.window))
	}
}

// MayGoOn reports whether a stalled client may continue: it has read enough, and the replies
// that it waits for have arrived.
func (s *Session) MayGoOn() bool {
	l := s.e.Limits
	switch {
	case s.Out.Size > l.Output/2, s.answerAt > 0, s.room.waits:
		return false
	case s.rests > 0:
		return len(s.Head.Rest) > 0 && s.Head.Waiting == 0
	case s.window > 0 && s.InFlight > min(s.window, l.InFlight)/2:
		return false
	case s.Tail != nil && s.Tail.Op == wire.Stats: // after stats nothing is parsed until its reply is complete: see Session.fenced
		return false
	}
	keys, tasks := s.inFlight()
	return s.InFlight+s.more <= keys/2 && s.Tasks <= tasks/2
}

// mustWait reports whether a paced client, which may have at most window keys in flight, must
// wait for replies before its next request.
func (s *Session) mustWait() bool {
	if s.Head == nil {
		if keys := s.answered() - s.beforeAt; keys > 0 { // with one request at a time, it never stalls, so resume does not call widen
			s.widen(keys)
		}
		s.chooseConns()
	}
	return s.window > 0 && s.InFlight >= s.window || s.rests > 0
}

// chooseConns selects which connections to servers the client uses: those of bulky clients, or
// the others. The client has nothing in flight.
func (s *Session) chooseConns() {
	s.ID &^= upstream.Bulky
	if s.bulky {
		s.ID |= upstream.Bulky
	}
}

// askRest requests the next of the remaining keys of the first exchange.
func (s *Session) askRest() {
	x, e := s.Head, s.e
	s.turn.keys--
	x.endWork()
	e.restLine = append(e.restLine[:0], x.Rest[:x.restHead]...)
	keys := x.Rest[x.restAt:]
	if n := keysEnd(keys, s.mayAsk()); n < len(keys) {
		keys = keys[:n]
	}
	e.restLine = append(append(e.restLine, keys...), wire.CRLF...)
	if x.restAt += len(keys); x.restAt == len(x.Rest) {
		x.dropRest()
	}
	if s.InFlight == 1 {
		s.chooseConns()
	}
	x.Waiting = 1
	e.Wire.One(e.restLine, &e.Req)
	s.Handler.AskRest(x, e.restLine)
	if s.rests > 0 {
		s.stall()
		s.unstall()
	}
}

// keysEnd returns the end of the first n keys in keys. Each key has a space before it.
func keysEnd(keys []byte, n int) int {
	at := 0
	for ; n > 0 && at < len(keys); n-- {
		next := bytes.IndexByte(keys[at+1:], ' ')
		if next < 0 {
			return len(keys)
		}
		at += 1 + next
	}
	return at
}

// Window returns how many of n keys may be requested for the client now.
func (s *Session) Window(n int) int { return min(n, s.mayAsk()) }

// mayAsk returns how many keys one read may request at once; at least one.
func (s *Session) mayAsk() int {
	most := max(1, s.turn.keys+2) // the first key is already subtracted, and the turn is over at -1
	if s.small = s.tasks >= TaskKeys || s.small && 8*s.tasks >= s.piece; s.small {
		most = TaskKeys
		s.e.smallUntil = s.e.Now + smallPieces
	}
	s.tasks = 0
	if s.measure() == 0 {
		most = min(most, ShareKeys)
	}
	most = min(most, s.sized())
	switch {
	case s.window > 0:
		most = s.window
	case s.e.busy() && s.small:
		most = max(1, ShareTasks-s.Tasks)
	case s.e.busy():
		most = min(most, max(1, s.e.Share-s.InFlight-s.more))
	}
	s.piece = most
	return most
}

// NeedsTask records that a key of x needs a task, and subtracts its work from the client's turn.
func (s *Session) NeedsTask(x *Exchange) {
	if s.turn.keys -= taskWork - 1; x.Keys > 1 {
		s.tasks++
	}
}

// PieceStart returns the time from which the deadline of a task of x counts: when x was parsed or, if
// x is sent in pieces, when a later piece needs the task.
func (x *Exchange) PieceStart() int64 {
	if x.restAt > x.restHead {
		return x.e.Now
	}
	return x.Start
}

// KeepRest stores keys that x will request with command, after the client has read more or in
// its next turn. Each key has a space before it.
func (x *Exchange) KeepRest(command, keys []byte) {
	before := cap(x.Rest)
	if len(x.Rest) == 0 {
		x.Session.rests++
		x.Rest = append(x.Rest, command...)
		x.restHead, x.restAt = len(command), len(command)
	}
	x.Rest = append(x.Rest, keys...)
	x.e.Buffers.Hold(cap(x.Rest) - before)
	x.Session.stall()
}

// dropRest removes the keys that were not requested yet.
func (x *Exchange) dropRest() {
	if len(x.Rest) > 0 {
		x.Session.rests--
		x.e.Buffers.Hold(-cap(x.Rest))
		x.Rest = nil
	}
}
