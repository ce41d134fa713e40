package proxy

// What an engine refuses, and how it makes room when limits.memory is reached: see
// link/memory.go.

import (
	"cmp"
	"slices"
	"time"

	"ringside/proxy/client"
	"ringside/proxy/link"
	"ringside/proxy/stats"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

const (
	// leastHeld is what a client or a connection must hold to be worth it.
	leastHeld = 4 << 10

	// reliefWait is the time to the next look at who holds most when the last
	// has not helped: it looks at all clients.
	reliefWait = 10 * time.Millisecond
)

// makeRoom makes room, here or at the engine that holds most.
func (e *Engine) makeRoom() {
	e.Trim()
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
	e.MemoryFull = true // if account finds it so
}

// refuseMemory refuses a storage command for whose data block there is no
// memory. rest bytes of it are still to come, and are discarded as they do.
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

// what memcached says when it has no memory for an item.
var noMemory = []byte("SERVER_ERROR out of memory storing object\r\n")

// hoarder is a client or a connection to a server, and what it would give back.
type hoarder struct {
	link *link.Link
	held int64
}

// takeFromLargest takes from those who hold most, until an eighth of the memory
// is free. So the next look at all of them is far.
func (e *Engine) takeFromLargest() {
	need := e.MemoryLimit/8 - e.FreeMemory()
	if need <= 0 {
		return
	}
	var all []hoarder
	add := func(l *link.Link, held int64) {
		if held >= leastHeld {
			all = append(all, hoarder{l, held})
		}
	}
	for s := range e.Sessions {
		add(&s.Link, s.Buffered())
	}
	for _, srv := range e.List {
		for _, c := range srv.Conns {
			add(&c.Link, c.Unsent())
		}
	}
	for _, c := range slices.Concat(e.Lingering, e.Closing) {
		add(&c.Link, c.Unsent())
	}
	slices.SortFunc(all, func(a, b hoarder) int {
		return cmp.Or(cmp.Compare(b.held, a.held), cmp.Compare(number(a.link), number(b.link)))
	})
	for _, h := range all {
		if need <= 0 {
			break
		}
		need -= h.held
		if s, ok := h.link.End.(*client.Session); ok {
			e.Count.MemoryClosed++
			e.Log.Debug("closed the client that held most: limits.memory reached", "client", s.Peer(), "held", h.held, "limit", e.MemoryLimit)
			s.Abort()
		} else {
			h.link.End.(*upstream.Conn).Shed(h.held)
		}
	}
	e.Trim()
}

// number orders those who hold the same: it is a client's, and 0 of servers.
func number(l *link.Link) uint64 {
	if s, ok := l.End.(*client.Session); ok {
		return s.ID
	}
	return 0
}

// refuse answers a storage command whose value is too large for Ringside. The
// old value must go first, as it does in memcached: the client meant to
// replace it.
func (e *Engine) refuse(s *client.Session, raw []byte) {
	r := &e.Req
	e.Count.TooLarge++
	s.Swallow = r.Swallow
	if r.Op != wire.Set && (r.Dialect == wire.Text || r.Flags&wire.Binary != 0) { // memcached keeps the old value of these
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
	goesBy(x, rt)
	e.near.Writes(x, rt, key)
	if rt.NeedsTask(srv) || s.Tasks > 0 && e.Follows(s, rt, key) || rt != nil && rt.Guard != nil {
		e.admit(s, x, e.NewRemoval(x, rt, wrote, key, r.Answer))
	} else if c := e.reach(x, 0, rt, srv); c != nil {
		a := x.Attempt()
		a.To = &client.Instead{Exchange: x, Answer: append([]byte{}, r.Answer...)}
		a.Flags = 0
		c.EnqueueDelete(a, &rt.Timeouts, key[len(rt.Strip):], r.Flags&wire.Base64 != 0)
	}
	x.FinishOne()
}
