package proxy

// What an engine does when limits.memory is reached: see memory.go.

import (
	"cmp"
	"slices"
	"time"
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
	e.trim()
	e.pressed = false
	if e.now < e.relieveAt {
		e.full = true
		return
	}
	most := e
	for _, o := range e.Shared.Engines() {
		if o.booked.Load() > most.booked.Load() {
			most = o
		}
	}
	for _, o := range e.Shared.Engines() {
		if o != e {
			o.Post(func(o *Engine) {
				o.trim()
				if o == most {
					o.takeFromLargest()
				}
			})
		}
	}
	if most == e {
		e.takeFromLargest()
	}
	e.book()
	if e.Shared.memory.Load() > e.most*7/8 {
		e.relieveAt = e.now + int64(reliefWait)
	}
	e.full = true // if account finds it so
}

// hoarder is a client or a connection to a server, and what it would give back.
type hoarder struct {
	link *Link
	held int64
}

// takeFromLargest takes from those who hold most, until an eighth of the memory
// is free. So the next look at all of them is far.
func (e *Engine) takeFromLargest() {
	need := e.most/8 - e.free()
	if need <= 0 {
		return
	}
	var all []hoarder
	add := func(l *Link, held int64) {
		if held >= leastHeld {
			all = append(all, hoarder{l, held})
		}
	}
	for s := range e.sessions {
		add(&s.Link, s.held())
	}
	for _, srv := range e.list {
		for _, c := range srv.conns {
			add(&c.Link, c.unsent())
		}
	}
	for _, c := range slices.Concat(e.zombies, e.leaving) {
		add(&c.Link, c.unsent())
	}
	slices.SortFunc(all, func(a, b hoarder) int {
		return cmp.Or(cmp.Compare(b.held, a.held), cmp.Compare(number(a.link), number(b.link)))
	})
	for _, h := range all {
		if need <= 0 {
			break
		}
		need -= h.held
		if s, ok := h.link.end.(*Session); ok {
			e.count.MemoryClosed++
			e.log.Warn("closed the client that held most: limits.memory reached", "client", s.peer(), "held", h.held, "limit", e.most)
			s.abort()
		} else {
			h.link.end.(*Conn).shed(h.held)
		}
	}
	e.trim()
}

// number orders those who hold the same: it is a client's, and 0 of servers.
func number(l *Link) uint64 {
	if s, ok := l.end.(*Session); ok {
		return s.id
	}
	return 0
}
