package client

// How much a client may ask for that does not take what it gets.

import (
	"bytes"
	"time"

	"ringside/proxy/link"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// A client falls behind when its socket takes no more and limits.output is reached.
// From then on it is paced: it has window keys in flight at most. A read of more
// keys is asked in pieces; the next follows when the one before is answered and half
// of limits.output is free. The window begins at one key, because nobody knows how
// large the values are before they come, and grows as their size allows, to the
// double each time. At freeWindow the client is as any other again.
//
//	get k1 … k20 ► k1 ► k2 ► … each time the client has taken enough
//
// A client that falls behind, or whose values are large while it is paced, is bulky: as
// soon as it has nothing in flight, what it asks goes by connections that only bulky
// clients use. So others wait behind one large value of it, and not behind all.
//
// While there has been such a client within paceTime, others are paced from their
// first request on: two hundred of them would each have asked for all they want
// before the first is known to read none of it.
const (
	freeWindow = 128
	paceTime   = 10 * time.Second
)

// pacing is whether a client may ask for more now, and for how much.
type pacing struct {
	Stalled bool // parsing stopped at a bound, or at a flush_all
	waking  bool // it is in Clients.Wake

	turn   turn   // what the client may still have handled in this wakeup
	round  uint64 // the wakeup that turn is of
	more   int    // keys in flight beyond the first of each command: see Exchange.AddWork
	window int    // keys that it may have in flight; 0: as many as limits.in_flight allows
	before uint64 // bytes that were made for it when the window was last set
	rests  int    // exchanges in its list of which keys are still to be asked for
	bulky  bool   // it is to use the connections of bulky clients
}

// behind says that the client does not take what has come for it, of which more
// bytes wait to be the first.
func (s *Session) behind(more int) bool { return s.Full && s.Out.Size+more >= s.e.Limits.Output }

// fallBehind paces a client that does not take what comes, and those that connect
// within paceTime.
func (s *Session) fallBehind() {
	s.e.pacedUntil = s.e.Now + int64(paceTime)
	s.setWindow(1)
	s.bulky = true
}

// pace paces a client that was not.
func (s *Session) pace() {
	if s.window == 0 {
		s.setWindow(1)
	}
}

func (s *Session) setWindow(keys int) {
	s.window, s.before = min(keys, freeWindow), s.made()
	if keys >= freeWindow && s.ID&upstream.Bulky == 0 {
		s.window = 0
	}
}

// made is how many bytes have been made for the client.
func (s *Session) made() uint64 { return s.BytesOut + uint64(s.Out.Size) }

// widen sets the window by the values that came of late.
func (s *Session) widen() {
	if s.window > 0 {
		mean := max(1, int(s.made()-s.before)/s.window)
		s.bulky = mean >= link.BigSpan
		s.setWindow(min(max(1, s.e.Limits.Output/mean), 2*s.window))
	}
}

// MayGoOn says whether a stalled client may: it has taken enough, and what it waits
// for has come.
func (s *Session) MayGoOn() bool {
	l := s.e.Limits
	switch {
	case s.Out.Size > l.Output/2, s.answerAt > 0:
		return false
	case s.rests > 0:
		return len(s.Head.Rest) > 0 && s.Head.Waiting == 0
	case s.window > 0 && s.InFlight > min(s.window, l.InFlight)/2:
		return false
	}
	return s.InFlight+s.more <= s.e.inFlight()/2
}

// mustWait says whether a paced client must wait for what it has asked.
func (s *Session) mustWait() bool {
	if s.Head == nil {
		s.chooseConns()
	}
	return s.InFlight >= s.window || s.rests > 0
}

// chooseConns chooses the connections for what a client asks that has nothing in
// flight.
func (s *Session) chooseConns() {
	s.ID &^= upstream.Bulky
	if s.bulky {
		s.ID |= upstream.Bulky
	}
}

// askRest asks for more of the keys that are left of the first exchange.
func (s *Session) askRest() {
	x, e := s.Head, s.e
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
	e.Wire.Next(e.restLine, &e.Req)
	s.Handler.AskRest(x, e.restLine)
	if s.rests > 0 {
		s.stall()
		s.unstall()
	}
}

// keysEnd returns where the first n keys end in keys, each of which follows a space.
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

// Window is how many of n keys the client may be asked for now.
func (s *Session) Window(n int) int { return min(n, s.mayAsk()) }

// mayAsk is for how many keys one read may ask at once; at least one.
func (s *Session) mayAsk() int {
	switch {
	case s.window > 0:
		return s.window
	case s.e.busy():
		return max(1, s.e.Share-s.InFlight-s.more)
	}
	return TurnKeys
}

// KeepRest keeps keys that x is to ask for, by the command, when the client has taken
// more, or when its next turn has come: each has a space before it.
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

// dropRest forgets the keys that are still to be asked for.
func (x *Exchange) dropRest() {
	if len(x.Rest) > 0 {
		x.Session.rests--
		x.e.Buffers.Hold(-cap(x.Rest))
		x.Rest = nil
	}
}
