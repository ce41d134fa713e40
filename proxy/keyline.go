package proxy

// Who waits for whom on one key: writes to a key of several copies come one
// after another, so that all copies see them in one order.

import "slices"

// keyline is the writes on one key: the one that is at work, and those behind
// it. Keys are told apart by their hash: two that share one wait for nothing
// worse than each other.
type keyline struct {
	owner *task
	queue []*task
}

const maxKeyline = 1000 // writes that wait on one key

// claim says that t may write its key now. If not, it is led when its turn
// comes.
func (e *Engine) claim(t *task, hash uint64) bool {
	l := e.keylines[hash]
	switch {
	case l == nil:
		if e.keylines == nil {
			e.keylines = map[uint64]*keyline{}
		}
		e.keylines[hash] = &keyline{owner: t}
		return true
	case l.owner == t: // it was parked
		return true
	case e.crowded(hash):
		t.fail("too many writes wait on this key", Crowded)
		return false
	}
	l.queue = append(l.queue, t)
	return false
}

// waits says that a write of t's client on the key is not done, or that it is
// t's turn.
func (e *Engine) waits(hash uint64, t *task) bool {
	l := e.keylines[hash]
	return l != nil && (l.owner.client == t.client && (l.owner == t || !l.owner.over) ||
		slices.ContainsFunc(l.queue, func(q *task) bool { return q.client == t.client && !q.over }))
}

// crowded says that no more can wait for a key.
func (e *Engine) crowded(hash uint64) bool {
	l := e.keylines[hash]
	return l != nil && len(l.queue) >= maxKeyline
}

// unclaim lets the next write on t's key begin.
func (e *Engine) unclaim(t *task, hash uint64) {
	l := e.keylines[hash]
	if l == nil || l.owner != t {
		return
	}
	if len(l.queue) == 0 {
		delete(e.keylines, hash)
		return
	}
	l.owner = l.queue[0]
	l.queue = l.queue[1:]
	e.turns = append(e.turns, l.owner)
	e.soon(keeperTimer) // End leads it
}

// takeTurns leads the writes whose turn has come. They are led from End, not
// from where the one before ended: a long line must not become a deep stack.
func (e *Engine) takeTurns() {
	for i := 0; i < len(e.turns); i++ { // may grow
		e.lead(e.turns[i])
	}
	clear(e.turns)
	e.turns = e.turns[:0]
}

// owner is the engine that leads the commands on a key of several copies.
func (p *Proxy) owner(hash uint64) *Engine {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.engines[hash%uint64(len(p.engines))]
}

// handOver lets another engine lead t; its answer comes back to where its
// client is.
func (t *task) handOver(o *Engine) {
	home, listener, prefix := t.e, t.rt.listener, t.rt.prefix
	home.pool.held -= int64(len(t.raw))
	deadline := t.deadline
	o.Post(func(o *Engine) {
		t.e = o
		o.pool.held += int64(len(t.raw))
		t.deadline = deadline
		if l := o.keep[listener]; l != nil {
			for i := range l.routes {
				if l.routes[i].prefix == prefix && l.routes[i].copies.Copies != 0 {
					t.rt = &l.routes[i]
					o.lead(t)
					return
				}
			}
		}
		t.fail("the configuration has just changed", Unavailable)
	})
}

// conclude ends the task's part of its exchange, on the engine that has it.
func (t *task) conclude(f func(e *Engine, x *Exchange)) {
	if t.over {
		return
	}
	t.over = true
	x := t.x
	if t.home == t.e {
		f(t.e, x)
		x.done()
		return
	}
	t.home.Post(func(e *Engine) {
		f(e, x)
		x.done()
	})
}
