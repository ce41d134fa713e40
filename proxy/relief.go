package proxy

// This file rejects values that are too large, and frees memory when limits.memory is
// reached: see link/memory.go.

import (
	"cmp"
	"log/slog"
	"slices"
	"time"

	"ringside/proxy/client"
	"ringside/proxy/link"
	"ringside/proxy/stats"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

const (
	// leastHeld is the minimum number of bytes that must be freed at a client or
	// connection to be worthwhile.
	leastHeld = 4 << 10

	// reliefWait is the time until the next search for the largest memory users, if the
	// last one did not free enough. A search visits all clients.
	reliefWait = 10 * time.Millisecond
)

// makeRoom frees memory on all engines, mainly on the one that uses the most.
func (e *Engine) makeRoom() {
	e.Trim()
	e.Book()
	if !e.MemoryShort && e.FreeMemory() >= 0 {
		return
	}
	e.MemoryShort = false
	if e.Now < e.relieveAt {
		e.MemoryFull = true
		return
	}
	most := e
	for _, o := range e.Shared.Engines() {
		if o.Booked.Load() > most.Booked.Load() {
			most = o
		}
	}
	for _, o := range e.Shared.Engines() {
		if o != e {
			o.Post(func(o *Engine) {
				o.Trim()
				if o == most {
					o.takeFromLargest()
				}
			})
		}
	}
	if most == e {
		e.takeFromLargest()
	}
	e.Book()
	if e.Shared.memory.Load() > e.MemoryLimit*7/8 {
		e.relieveAt = e.Now + int64(reliefWait)
	}
	e.MemoryFull = true // client requests are rejected until IO.Account finds that there is room again
}

// dropEnded closes the client of this loop that has sent no more for the longest time and still waits for replies, and reports
// whether there was one. Most such clients have disconnected, for example after a timeout of their own: Ringside can't see whether they
// still read. While a server is slow, they would use up limits.clients.
func (e *Engine) dropEnded() bool {
	if e.Now >= e.endedAt {
		e.endedAt, e.ended = e.Now+int64(reliefWait), nil
		for s := range e.Sessions {
			if s.Ended() {
				e.ended = append(e.ended, s)
			}
		}
		slices.SortFunc(e.ended, func(a, b *client.Session) int { return cmp.Or(cmp.Compare(a.Last, b.Last), cmp.Compare(a.ID, b.ID)) })
	}
	for len(e.ended) > 0 {
		s := e.ended[0]
		e.ended[0] = nil
		if e.ended = e.ended[1:]; s.Ended() {
			e.Count.EndedClosed++
			e.LogLimited(slog.LevelWarn, "", "client closed before its last reply: limits.clients is reached, and it sends no more", "client", s.Peer())
			s.Abort()
			return true
		}
	}
	return false
}

// refuseMemory rejects a storage command because there is no memory for its data block.
// The remaining rest bytes of the block are discarded when they arrive.
func (e *Engine) refuseMemory(s *client.Session, raw []byte, rest int) {
	e.Count.NoMemory++
	r := &e.Req
	r.Swallow = int64(rest)
	r.Answer = noMemory
	if r.Dialect == wire.Text {
		r.Answer = e.quietly(noMemory)
	}
	e.refuse(s, raw)
}

// noMemory is memcached's reply when it has no memory for an item.
var noMemory = []byte("SERVER_ERROR out of memory storing object\r\n")

// hoarder is a client or server connection, with the bytes that are freed by closing
// the client or by dropping the connection's unsent requests.
type hoarder struct {
	link *link.Link
	held int64
	idle time.Duration // how long Ringside has waited for the other end to send the rest of a request, or to read
}

// waste is the product of what h holds and of how long that was of no use.
func (h hoarder) waste() int64 { return h.held * h.idle.Milliseconds() }

// mostWaste sorts those that waste the most memory first.
func mostWaste(all []hoarder) {
	slices.SortFunc(all, func(a, b hoarder) int {
		return cmp.Or(cmp.Compare(b.waste(), a.waste()), cmp.Compare(b.held, a.held), cmp.Compare(number(a.link), number(b.link)))
	})
}

// takeFromLargest closes the clients, and drops the unsent requests of the server connections,
// that waste the most memory, until an eighth of limits.memory is free. With that room, the next
// search is not needed soon. Those for which Ringside does not wait come last, in order of their memory. So clients that
// only hold memory are closed before clients that transfer larger values.
func (e *Engine) takeFromLargest() {
	need := e.MemoryLimit/8 - e.FreeMemory()
	if need <= 0 {
		return
	}
	var all []hoarder
	add := func(l *link.Link, held int64, idle time.Duration) {
		if held >= leastHeld {
			all = append(all, hoarder{l, held, idle})
		}
	}
	for s := range e.Sessions {
		add(&s.Link, s.Buffered(), s.Idle())
	}
	for _, srv := range e.List {
		for _, c := range srv.Conns {
			add(&c.Link, c.Unsent(), c.Idle())
		}
	}
	for _, c := range slices.Concat(e.Lingering, e.Closing) {
		add(&c.Link, c.Unsent(), c.Idle())
	}
	mostWaste(all)
	for _, h := range all {
		if need <= 0 {
			break
		}
		need -= h.held
		if s, ok := h.link.End.(*client.Session); ok {
			e.Count.MemoryClosed++
			e.Log.Debug("client closed: it had many buffered bytes, limits.memory reached", "client", s.Peer(), "held", h.held, "idle", h.idle.Round(time.Millisecond).String(), "limit", e.MemoryLimit)
			s.Abort()
		} else {
			h.link.End.(*upstream.Conn).Shed(h.held)
		}
	}
	e.Trim()
}

// freeForLarge closes the clients of all loops that have not read their replies for some seconds, and rejects incomplete requests of
// clients that send them slowly, until large requests of n bytes can be read. It begins with those that waste the most memory.
func (e *Engine) freeForLarge(n int64) {
	for _, o := range e.Shared.Engines() {
		e.on(o, func(o *Engine) { o.freeOwnForLarge(n) })
	}
}

func (e *Engine) freeOwnForLarge(n int64) {
	var all []hoarder
	for s := range e.Sessions {
		if held := s.Buffered(); held >= leastHeld && (s.IsUnread() || s.IsLate()) {
			all = append(all, hoarder{&s.Link, held, s.Idle()})
		}
	}
	mostWaste(all)
	for _, h := range all {
		if e.MissingMemory(n) <= 0 {
			break
		}
		s := h.link.End.(*client.Session)
		switch {
		case s.IsUnread():
			e.Count.UnreadClosed++
			e.LogLimited(slog.LevelWarn, "", "client closed: it has not read its replies for 3s, and others wait with large values for limits.memory", "client", s.Peer(), "held", h.held, "limit", e.MemoryLimit)
			s.Abort()
		case s.Reject():
			e.LogLimited(slog.LevelWarn, "", "value rejected: its client sends it slowly, and others wait with large values for limits.memory", "client", s.Peer(), "held", h.held, "limit", e.MemoryLimit)
		default:
			e.Count.MemoryClosed++
			e.LogLimited(slog.LevelWarn, "", "client closed: it sends a command line slowly, and others wait with large values for limits.memory", "client", s.Peer(), "held", h.held, "limit", e.MemoryLimit)
			s.Abort()
		}
	}
}

// number orders links that use the same amount of memory. It is the client's ID, and 0
// for server connections.
func number(l *link.Link) uint64 {
	if s, ok := l.End.(*client.Session); ok {
		return s.ID
	}
	return 0
}

// refuse answers a storage command with the error in e.Req.Answer: its value is too large, or
// there is no memory for it. If memcached would delete the old value with that error, refuse
// deletes it first: a client that sends set must not read the value that it meant to replace.
func (e *Engine) refuse(s *client.Session, raw []byte) {
	r := &e.Req
	s.Swallow = r.Swallow
	if r.Op != wire.Set { // memcached keeps the old value, except for meta commands; keeping it there too loses no lock
		e.local(s, r.Answer, stats.ClientFault)
		return
	}
	lst := e.listener(s)
	wrote := e.tags.Bare(lst, r.Key.Of(raw))
	rt, srv, key := e.place(lst, wrote)
	if why := unfitKey(rt, key); why != "" {
		e.refuseKey(s, why)
		return
	}
	x := e.NewExchange(s)
	setRoute(x, rt)
	e.near.Writes(x, rt, key)
	if rt.NeedsTask(srv) || e.Follows(s, rt, key) {
		e.admit(s, x, e.NewRemoval(x, rt, wrote, key, r.Answer))
	} else if c := e.reach(x, 0, rt, srv); c != nil {
		a := x.Attempt()
		a.To = &client.Instead{Exchange: x, Answer: append([]byte{}, r.Answer...)}
		a.Flags = 0
		c.EnqueueDelete(a, &rt.Timeouts, key[len(rt.Strip):], r.Flags&wire.Base64 != 0)
	}
	x.FinishOne()
}
