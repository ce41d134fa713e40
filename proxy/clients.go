package proxy

// All clients of one loop.

import (
	"unsafe"

	"ringside/proxy/wire"
)

// Clients are the clients of one loop, and what they have asked for.
type Clients struct {
	*IO
	servers *Servers
	limits  *Limits
	closed  func() // called when a client is gone

	sessions map[*Session]struct{}
	wake     []*Session // had to stop parsing and may go on
	held     holdList   // clients whose answers wait for the rest of their group
	waiting  int        // clients that wait for an answer

	req           wire.Request // the one being served
	freeExchanges *Exchange
}

// Handler serves what clients of one listener ask for.
type Handler interface {
	// Serve answers the request in Clients.req, whose bytes are raw, or asks who
	// can. It reports whether it has taken the bytes out of the input.
	Serve(s *Session, raw []byte) (taken bool)

	// NeedsFence says that commands may take several asks, of which the last would
	// be on the wrong side of a flush_all: so that, and what comes after it, waits
	// until what its client asked before is answered.
	NeedsFence() bool

	// NoMemory refuses a storage command for whose data block there is no memory.
	// rest bytes of it are still to come.
	NoMemory(s *Session, raw []byte, rest int)
}

// resume lets the clients go on that had to stop.
func (e *Clients) resume() {
	for i := 0; i < len(e.wake); i++ { // may grow: a parsed request can be answered at once
		e.wake[i].resume()
	}
	e.wake = e.wake[:0]
}

func (e *Clients) sweepIdle() {
	idle := int64(e.limits.Idle)
	if idle == 0 {
		return
	}
	for s := range e.sessions {
		if t := s.last + idle; s.head != nil || s.out.size > 0 || s.stalled {
			e.at(idleTimer, e.now+idle)
		} else if t <= e.now {
			e.count.IdleClosed++
			s.quit()
		} else {
			e.at(idleTimer, t)
		}
	}
}

// holdList remembers clients whose answers wait for the rest of their group.
// The wait is the same for all, so the order of arrival is the order of
// release.
type holdList struct {
	list  []heldClient
	first int
}

type heldClient struct {
	s     *Session
	until int64
}

func (h *holdList) add(s *Session, until int64) {
	if h.first > 64 && h.first > len(h.list)/2 { // somebody always waits: due never empties it
		n := copy(h.list, h.list[h.first:])
		clear(h.list[n:])
		h.list, h.first = h.list[:n], 0
	}
	h.list = append(h.list, heldClient{s, until})
}

func (h *holdList) due() int64 {
	for h.first < len(h.list) {
		if c := &h.list[h.first]; c.s.holdUntil == c.until {
			return c.until
		}
		h.first++ // it was flushed meanwhile
	}
	h.list, h.first = h.list[:0], 0
	return never
}

// release lets go of the clients that have waited long enough.
func (e *Clients) release() {
	for e.held.due() <= e.now {
		s := e.held.list[e.held.first].s
		e.held.first++
		s.ready = true
		e.mark(&s.Link)
	}
}

// addTo adds the clients to what is told of all loops.
func (e *Clients) addTo(into *Snapshot) {
	into.Clients += len(e.sessions)
	for x := e.freeExchanges; x != nil; x = x.next {
		into.Kept += exchangeSize
	}
	for s := range e.sessions {
		into.InFlight += s.inFlight
	}
}

// held is what closing s gives back.
func (s *Session) held() int64 {
	n := s.out.room() + s.handed + s.inFlight*int(exchangeSize)
	if s.in != nil {
		n += len(s.in.b)
	}
	for x := s.head; x != nil; x = x.next {
		n += x.kept()
	}
	return int64(n)
}

// exchangeSize is what an exchange takes, with the lines that it may keep.
const exchangeSize = int64(unsafe.Sizeof(Exchange{})) + 128

// valueSize is what a value takes that waits for its place, beside its block.
const valueSize = 160

// trimExchanges gives up the exchanges that are kept for reuse.
func (e *Clients) trimExchanges() {
	for x := e.freeExchanges; x != nil; x = x.next {
		e.pool.held -= exchangeSize
	}
	e.freeExchanges = nil
}
