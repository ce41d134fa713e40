package client

// All clients of one loop.

import (
	"unsafe"

	"ringside/proxy/link"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// Clients are the clients of one loop, and what they have asked for.
type Clients struct {
	*link.IO
	Servers *upstream.Servers
	Limits  *table.Limits
	OnGone  func() // called when a client is gone

	Sessions map[*Session]struct{}
	Wake     []*Session // had to stop parsing and may go on
	Held     HoldList   // clients whose answers wait for the rest of their group
	Awaiting int        // clients that wait for an answer

	Req           wire.Request // the one being served
	FreeExchanges *Exchange
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

// Resume lets the clients go on that had to stop.
func (e *Clients) Resume() {
	for i := 0; i < len(e.Wake); i++ { // may grow: a parsed request can be answered at once
		e.Wake[i].resume()
	}
	e.Wake = e.Wake[:0]
}

func (e *Clients) SweepIdle() {
	idle := int64(e.Limits.Idle)
	if idle == 0 {
		return
	}
	for s := range e.Sessions {
		if t := s.Last + idle; s.Head != nil || s.Out.Size > 0 || s.Stalled {
			e.At(link.IdleTimer, e.Now+idle)
		} else if t <= e.Now {
			e.Count.IdleClosed++
			s.Quit()
		} else {
			e.At(link.IdleTimer, t)
		}
	}
}

// HoldList remembers clients whose answers wait for the rest of their group.
// The wait is the same for all, so the order of arrival is the order of
// release.
type HoldList struct {
	List  []HeldClient
	First int
}

type HeldClient struct {
	Session *Session
	Until   int64
}

func (h *HoldList) Add(s *Session, until int64) {
	if h.First > 64 && h.First > len(h.List)/2 { // somebody always waits: due never empties it
		n := copy(h.List, h.List[h.First:])
		clear(h.List[n:])
		h.List, h.First = h.List[:n], 0
	}
	h.List = append(h.List, HeldClient{s, until})
}

func (h *HoldList) Due() int64 {
	for h.First < len(h.List) {
		if c := &h.List[h.First]; c.Session.HoldUntil == c.Until {
			return c.Until
		}
		h.First++ // it was flushed meanwhile
	}
	h.List, h.First = h.List[:0], 0
	return link.Never
}

// Release lets go of the clients that have waited long enough.
func (e *Clients) Release() {
	for e.Held.Due() <= e.Now {
		s := e.Held.List[e.Held.First].Session
		e.Held.First++
		s.ready = true
		e.Mark(&s.Link)
	}
}

// AddTo adds the clients to what is told of all loops.
func (e *Clients) AddTo(into *stats.Snapshot) {
	into.Clients += len(e.Sessions)
	for x := e.FreeExchanges; x != nil; x = x.Next {
		into.Kept += ExchangeSize
	}
	for s := range e.Sessions {
		into.InFlight += s.InFlight
	}
}

// Held is what closing s gives back.
func (s *Session) Buffered() int64 {
	n := s.Out.Room() + s.Handed + s.InFlight*int(ExchangeSize)
	if s.In != nil {
		n += len(s.In.Data)
	}
	for x := s.Head; x != nil; x = x.Next {
		n += x.kept()
	}
	return int64(n)
}

// ExchangeSize is what an exchange takes, with the lines that it may keep.
const ExchangeSize = int64(unsafe.Sizeof(Exchange{})) + 128

// valueSize is what a value takes that waits for its place, beside its block.
const valueSize = 160

// TrimExchanges gives up the exchanges that are kept for reuse.
func (e *Clients) TrimExchanges() {
	for x := e.FreeExchanges; x != nil; x = x.Next {
		e.Buffers.Held -= ExchangeSize
	}
	e.FreeExchanges = nil
}
