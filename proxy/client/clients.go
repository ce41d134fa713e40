package client

// All clients of one loop.

import (
	"cmp"
	"maps"
	"slices"
	"time"
	"unsafe"

	"ringside/proxy/link"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
	"ringside/proxy/wire/frame"
)

// Clients are the clients of one loop, and what they have asked for.
type Clients struct {
	*link.IO
	Servers *upstream.Servers // of the same loop
	Limits  *table.Limits     // of the table in force
	OnGone  func(s *Session)  // called when a client is gone; set by the engine

	// OnReplyFault is called when a command would end without a reply or with two, which
	// is a bug: see reply.go. If it is nil a test binary panics.
	OnReplyFault func(what string)
	faultLogAt   int64 // on the loop's clock: not before this is the next one logged

	Sessions   map[*Session]struct{} // that are connected
	Wake       []*Session            // sessions that had to stop parsing and may go on
	Held       HoldList              // sessions whose answers wait for the rest of their group
	slow       slowLog
	pacedUntil int64  // clients that connect before are paced: see pace.go
	Awaiting   int    // how many sessions wait for an answer
	More       int    // keys in flight beyond the first of each command, of all clients
	Share      int    // keys that a client may have in flight however busy the loop is: see SetLimits
	left       turn   // what is left of this round of the loop, for all clients
	restLine   []byte // scratch: the piece of a read that is asked for next

	Req           wire.Request // scratch: the request being served
	Frame         frame.Frame  // scratch: the frame that it was, of a binary client
	frameKey      []byte       // scratch: the key of that, in the input
	spelled       []byte       // scratch: the request that the frame is to servers
	framed        []byte       // scratch: the frame that an answer is
	framedReply   wire.Reply   // scratch: the answer that becomes a frame
	batch         *Exchange    // the quiet gets that are being gathered; nil: none are
	FreeExchanges *Exchange    // kept for reuse, linked by Next
	freeShares    free[shares] // of reads whose keys have several routes
	freeBatches   free[batch]  // of quiet gets
}

// free are values that are kept for reuse.
type free[T any] []*T

// take gives one as it was when it was kept, or a new one.
func (f *free[T]) take() *T {
	n := len(*f)
	if n == 0 {
		return new(T)
	}
	v := (*f)[n-1]
	*f = (*f)[:n-1]
	return v
}

// Handler serves what clients of one listener ask for.
type Handler interface {
	// Serve answers the request in Clients.Req, whose bytes are raw, or asks those
	// who can. It reports whether it has taken the bytes out of the input.
	Serve(s *Session, raw []byte) (taken bool)

	// ServeQuiet asks for the key of a quiet get in a batch: see Session.Batch. It
	// reports false, and has done nothing, if the key takes more than a get.
	ServeQuiet(s *Session, key []byte) bool

	// EndBatch sends what was gathered in x.
	EndBatch(x *Exchange)

	// AskRest asks for the keys of the request in Clients.Req, whose bytes are raw, as a part of x.
	AskRest(x *Exchange, raw []byte)

	// NeedsFence says whether commands may take several requests, of which the last
	// could come to a server on the wrong side of a flush_all. Then flush_all, and
	// what comes behind it, waits until what its client asked before is answered.
	NeedsFence() bool

	// NoMemory refuses a storage command for whose data block there is no memory.
	// rest bytes of it are still to come.
	NoMemory(s *Session, raw []byte, rest int)
}

// ByAge returns the sessions, the oldest first, so that what is done to several of them
// does not depend on the order of a map. It is for rare events.
func (e *Clients) ByAge() []*Session {
	return slices.SortedFunc(maps.Keys(e.Sessions), func(a, b *Session) int { return cmp.Compare(a.ID&^upstream.Bulky, b.ID&^upstream.Bulky) })
}

// SweepIdle closes the clients that have said nothing for too long, or have not said in time who they are.
func (e *Clients) SweepIdle() {
	e.WatchIdle()
	for s := range e.Sessions {
		if s.answerAt > e.Now {
			e.At(link.IdleTimer, s.answerAt)
		} else if s.answerAt > 0 && !s.Closed {
			s.endDelay()
		}
		switch at, count := s.idleUntil(); {
		case at > e.Now:
			e.At(link.IdleTimer, max(at, e.Now+int64(sweepWait)))
		case s.Quitting:
			e.Log.Debug("closed a client that takes nothing of its last answers: limits.unfinished reached", "client", s.Peer(), "held", s.Buffered())
			*count++
			s.Abort()
		case count == &e.Count.UnfinishedClosed:
			e.Log.Debug("closed a client in the middle of a command: limits.unfinished reached", "client", s.Peer(), "held", s.Buffered())
			fallthrough
		default:
			*count++
			s.Quit()
		}
	}
}

// WatchIdle makes sure that a client is looked at that begins to say nothing now.
func (e *Clients) WatchIdle() {
	for _, d := range [...]time.Duration{e.Limits.Idle, e.Limits.Unfinished} {
		if d > 0 {
			e.At(link.IdleTimer, e.Now+int64(d))
		}
	}
}

// sweepWait is between two looks at all clients: one at each when its time comes would cost more.
const sweepWait = 10 * time.Millisecond

// HoldList remembers clients whose answers wait for the rest of their group.
// The wait is the same for all, so the order of arrival is the order of release.
type HoldList struct {
	List  []HeldClient // in order of arrival; what is before First has been released
	First int
}

// HeldClient is one of a HoldList.
type HeldClient struct {
	Session *Session
	Until   int64 // the Session.HoldUntil that it had then: another one says that it was flushed meanwhile
}

// Add puts s at the end.
func (h *HoldList) Add(s *Session, until int64) {
	if h.First > 64 && h.First > len(h.List)/2 { // where somebody always waits Due never empties it
		n := copy(h.List, h.List[h.First:])
		clear(h.List[n:])
		h.List, h.First = h.List[:n], 0
	}
	h.List = append(h.List, HeldClient{s, until})
}

// Due is when the first is to be released; link.Never: nobody waits.
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

// Release sends the answers of clients that have waited long enough for a group.
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

// Buffered is how many bytes closing s gives back.
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

// ExchangeSize is what an exchange counts against limits.memory: itself, and the lines that it may keep.
const ExchangeSize = int64(unsafe.Sizeof(Exchange{})) + 128

// valueSize is what a value that waits for its place counts, beside its bytes.
const valueSize = 160

// TrimExchanges gives up the exchanges that are kept for reuse.
func (e *Clients) TrimExchanges() {
	for x := e.FreeExchanges; x != nil; x = x.Next {
		e.Buffers.Held -= ExchangeSize
	}
	e.FreeExchanges = nil
}
