package client

// This file defines Clients: the sessions and commands of all clients of one loop.

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
	"ringside/proxy/wire/binary"
)

// Clients has the clients of one loop and their commands in flight.
type Clients struct {
	*link.IO
	Servers *upstream.Servers // the servers of the same loop
	Limits  *table.Limits     // the limits of the current table
	OnGone  func(s *Session)  // called when a client is gone; set by the engine

	// FreeForLarge frees memory of clients of all loops that do not read, or send slowly, because other clients wait for n bytes
	// with large requests. It is called once per slowCheck; set by the engine.
	FreeForLarge func(n int64)

	// OnReplyFault is called when a command would end with no reply or with two, which is a
	// bug: see reply.go. If it is nil, a test binary panics.
	OnReplyFault func(what string)

	Sessions   map[*Session]struct{} // the sessions of all connected clients
	ToWake     []*Session            // sessions that stopped parsing and may continue
	Held       HoldList              // sessions with replies that wait so that further replies are sent with them in one write
	large      waitingRoom
	slow       slowLog
	pacedUntil int64  // clients that connect earlier than this are paced: see pace.go
	Awaiting   int    // number of sessions that wait for a reply
	More       int    // keys in flight of all clients, without the first key of each command
	Share      int    // keys that a client may have in flight however busy the loop is: see SetShare
	HasTasks   bool   // a route has features whose commands often need tasks, so the first piece of a client's multi-key read is small
	ReadyTasks int    // number of tasks that wait for their start: see task.Tasks.Runnable, which owns it
	TaskAsks   int    // number of requests of tasks in flight, and of tasks that wait for room in the queue of a server; package task owns it
	size       int    // the largest Session.size that was computed lately, if it is large: see Session.sized
	few        int    // keys that a client may have in flight before its limit is computed: see SetShare
	smallUntil int64  // until then, the first pieces of new clients are small: see smallPieces
	left       turn   // the work that is left in this round of the loop, for all clients
	resumed    uint64 // number of the wakeup in which Resume last began a round
	restLine   []byte // scratch: the next piece of a multi-key read

	// Accepts has the limits with which requests from clients are parsed. It is set from the
	// current table. If a request is parsed again later, IO.Wire is used, because a reload may
	// lower the limits while the request waits.
	Accepts wire.Limits

	Req           wire.Request      // scratch: the current request
	Frame         binary.Frame      // scratch: the frame of the current request, of a binary client
	frameKey      []byte            // scratch: the key in the frame of the current request
	spelled       []byte            // scratch: the text or meta form of the current request, of a binary client
	framed        []byte            // scratch: the frame of a reply
	framedReply   wire.Reply        // scratch: the reply that is converted to a frame
	batch         *Exchange         // the quiet gets that are being collected; nil: none are
	FreeExchanges *Exchange         // exchanges that are kept for reuse, linked by Next
	freeShares    link.Free[shares] // objects that are kept for reuse; one is needed for each read with keys of several routes
	freeBatches   link.Free[batch]  // objects that are kept for reuse; one is needed for each batch of quiet gets
}

// Handler handles the requests of the clients of one listener.
type Handler interface {
	// Serve handles the request in Clients.Req, which has the bytes raw: it answers the request
	// or sends it to servers. It reports whether it has moved the bytes out of the input.
	Serve(s *Session, raw []byte) (taken bool)

	// ServeQuiet adds the key of a quiet get to a batch: see Session.Batch. It does nothing and
	// returns false if the key needs more than a get.
	ServeQuiet(s *Session, key []byte) bool

	// EndBatch sends the quiet gets that were collected in x to their servers.
	EndBatch(x *Exchange)

	// AskRest sends the next keys of x, a multi-key read. These keys are the request in
	// Clients.Req, which has the bytes raw.
	AskRest(x *Exchange, raw []byte)

	// NeedsFence reports whether a command may need several requests, so that the last of them
	// could reach a server on the wrong side of a flush_all. If so, flush_all and the commands
	// after it wait until the earlier commands of the client are answered.
	NeedsFence() bool

	// NoMemory rejects a storage command if there is no memory for its data block. rest bytes
	// of the block are still to come.
	NoMemory(s *Session, raw []byte, rest int)

	// ConnOf returns the connection on which the storage command in Clients.Req, which has the bytes raw,
	// would be sent to a server. It returns nil for another command, and if the command would fail.
	ConnOf(s *Session, raw []byte) *upstream.Conn

	// LoggedIn is called when the client has logged in.
	LoggedIn(s *Session)
}

// ByAge returns the sessions, oldest first, so that operations on several of them do not depend
// on map order. It is only for rare events.
func (e *Clients) ByAge() []*Session {
	return slices.SortedFunc(maps.Keys(e.Sessions), func(a, b *Session) int { return cmp.Compare(a.ID&^upstream.Bulky, b.ID&^upstream.Bulky) })
}

// SweepIdle closes the clients that have been silent for too long, or have not logged in in
// time.
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
			e.Log.Debug("client closed: it does not read its last replies, limits.unfinished reached", "client", s.Peer(), "held", s.Buffered())
			*count++
			s.Abort()
		case count == &e.Count.UnfinishedClosed:
			e.Log.Debug("client closed in the middle of a command: limits.unfinished reached", "client", s.Peer(), "held", s.Buffered())
			fallthrough
		default:
			*count++
			s.Quit()
		}
	}
}

// WatchIdle sets the timer to check a client that may become idle now.
func (e *Clients) WatchIdle() {
	for _, d := range [...]time.Duration{e.Limits.Idle, e.Limits.Unfinished} {
		if d > 0 {
			e.At(link.IdleTimer, e.Now+int64(d))
		}
	}
}

// sweepWait is the minimum time between two checks of all clients: a timer for each client
// would cost more.
const sweepWait = 10 * time.Millisecond

// HoldList has the clients with replies that wait so that further replies are sent with them in
// one write. All wait equally long, so they are released in the order in which they were added.
type HoldList struct {
	List  []HeldClient // in the order in which they were added; the clients before First were released
	First int
}

// HeldClient is a client in a HoldList: its replies wait until more replies can be sent with them in
// one write.
type HeldClient struct {
	Session *Session
	Until   int64 // Session.HoldUntil when the client was added; if it differs now, the output was sent in between
}

// Add adds s to the end of the list.
func (h *HoldList) Add(s *Session, until int64) {
	if h.First > 64 && h.First > len(h.List)/2 { // if clients always wait, Due never empties the list
		n := copy(h.List, h.List[h.First:])
		clear(h.List[n:])
		h.List, h.First = h.List[:n], 0
	}
	h.List = append(h.List, HeldClient{s, until})
}

// Due returns when the first client is to be released; link.Never: no client waits.
func (h *HoldList) Due() int64 {
	for h.First < len(h.List) {
		if c := &h.List[h.First]; c.Session.HoldUntil == c.Until {
			return c.Until
		}
		h.First++ // the output of this client was sent while it was in the list
	}
	h.List, h.First = h.List[:0], 0
	return link.Never
}

// Release sends the output of clients that have waited long enough for further replies.
func (e *Clients) Release() {
	for e.Held.Due() <= e.Now {
		s := e.Held.List[e.Held.First].Session
		e.Held.First++
		s.ready = true
		e.Mark(&s.Link)
	}
}

// AddTo adds the clients to the snapshot of all loops.
func (e *Clients) AddTo(into *stats.Snapshot) {
	into.Clients += len(e.Sessions)
	for x := e.FreeExchanges; x != nil; x = x.Next {
		into.Kept += ExchangeSize
	}
	for s := range e.Sessions {
		into.InFlight += s.InFlight
	}
}

// Buffered returns how many bytes of memory closing s would free.
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

// Idle returns for how long Ringside has waited for the client to send the rest of a request, or to read replies; 0:
// it does not wait for that. A client that sends counts as on time as long as it sends slowRate bytes per second. If it must read, the time counts
// from the last bytes that its socket has accepted.
func (s *Session) Idle() time.Duration {
	if s.Full {
		return time.Duration(s.e.Now - s.readAt)
	}
	if s.In != nil && !s.Stalled {
		return time.Duration(s.e.Now - s.onTime)
	}
	return 0
}

// ExchangeSize is the size that counts against limits.memory for one exchange and the lines
// that it may store.
const ExchangeSize = int64(unsafe.Sizeof(Exchange{})) + 128

// valueSize is the size that counts for a stored value in addition to its bytes.
const valueSize = 160

// TrimExchanges frees the exchanges that are kept for reuse.
func (e *Clients) TrimExchanges() {
	for x := e.FreeExchanges; x != nil; x = x.Next {
		e.Buffers.Held -= ExchangeSize
	}
	e.FreeExchanges = nil
}
