package proxy

// Who waits for whom on one key. A client's commands on a key take effect in
// the order in which it sent them, though each may take several asks at several
// servers; and writes to a key of several copies come one after another, so that
// all copies see them in one order.

// keyline is the commands of one line: those at work, and those behind them.
// Reads are at work together, and everything else alone. Who waits for a line
// has begun nothing, and who has its turn in the line of its client may wait for
// the line of the key, but never the other way round: so nobody waits in a
// circle, and each ends by its own deadline.
type keyline struct {
	reads int   // at work
	alone *task // at work
	queue []*task
}

// lineOf names a line: of a client on a key, kept where the client is, or, with
// client 0, of all who write a key of several copies, kept where such are led.
// Keys are told apart by their hash: two that share one wait for nothing worse
// than each other.
type lineOf struct{ client, key uint64 }

const maxKeyline = 1000 // commands that wait in one line

const tooLong = "the commands before it on this key took too long"

func (t *task) ownLine() lineOf { return lineOf{t.client, t.hash} }

// keyLine is the line of a key, whoever asks for it.
func keyLine(hash uint64) lineOf { return lineOf{0, hash} }

// begin leads t, which its client has just sent, when the client's commands on
// the key before it are done.
func (e *Tasks) begin(t *task) {
	t.x.s.tasks++
	if t.inLine = true; e.claim(t, t.ownLine()) {
		e.lead(t)
	}
}

// follows says that something on key that a client has asked before is not
// done, and not even on its way on the connection where the next would go.
func (e *Tasks) follows(s *Session, rt *route, key []byte) bool {
	return rt != nil && e.keylines[lineOf{s.id, e.loops.HashKey(key[len(rt.strip):])}] != nil
}

// letGo lets the client's next command on t's key begin.
func (e *Tasks) letGo(t *task) {
	if t.inLine && !t.fills {
		t.inLine = false
		e.unclaim(t, t.ownLine())
	}
}

// claim says that t may begin now, as far as this line goes. If not, it is led
// when its turn comes.
func (e *Tasks) claim(t *task, name lineOf) bool {
	l := e.keylines[name]
	switch {
	case l == nil:
		if e.keylines == nil {
			e.keylines = map[lineOf]*keyline{}
		}
		l = &keyline{}
		e.keylines[name] = l
	case l.alone == t: // it was parked, or its turn has come
		return true
	case e.crowded(name):
		t.inLine = t.inLine && name.client == 0
		t.fail("too many commands wait on this key", Crowded)
		return false
	}
	l.queue = append(l.queue, t)
	return l.next() == t
}

// next lets the first of those who wait begin, if it may.
func (l *keyline) next() *task {
	if l.alone != nil || len(l.queue) == 0 || l.reads > 0 && !l.queue[0].reads {
		return nil
	}
	t := l.queue[0]
	l.queue = l.queue[1:]
	if t.reads {
		l.reads++
	} else {
		l.alone = t
	}
	return t
}

// crowded says that no more can wait in a line.
func (e *Tasks) crowded(name lineOf) bool {
	l := e.keylines[name]
	return l != nil && len(l.queue) >= maxKeyline
}

// unclaim takes t out of a line, if it is at work there, and lets those begin who
// may now.
func (e *Tasks) unclaim(t *task, name lineOf) {
	l := e.keylines[name]
	switch {
	case l == nil:
		return
	case t.reads && name.client != 0: // nobody merely reads in the line of the key
		l.reads--
	case l.alone != t:
		return
	default:
		l.alone = nil
	}
	for next := l.next(); next != nil; next = l.next() {
		e.turns = append(e.turns, next)
		e.soon(keeperTimer) // End leads it
	}
	if l.reads == 0 && l.alone == nil {
		delete(e.keylines, name)
	}
}

// takeTurns leads the commands whose turn has come. They are led from End, not
// from where the one before ended: a long line must not become a deep stack.
func (e *Tasks) takeTurns() {
	for i := 0; i < len(e.turns); i++ { // may grow
		e.lead(e.turns[i])
	}
	clear(e.turns)
	e.turns = e.turns[:0]
}

// handOver lets another engine lead t; its answer comes back to where its
// client is.
func (t *task) handOver(o *Tasks) {
	home, listener, prefix := t.e, t.rt.listener, t.rt.prefix
	home.pool.hold(-t.held)
	deadline := t.deadline
	o.post(func(o *Tasks) {
		t.e = o
		o.pool.hold(t.held)
		t.deadline = deadline
		if l := o.listeners[listener]; l != nil {
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
func (t *task) conclude(f func(e *Tasks, x *Exchange)) {
	if t.over {
		return
	}
	t.over = true
	end := func(e *Tasks) {
		e.letGo(t)
		if s := t.x.s; s != nil {
			s.tasks--
		}
		f(e, t.x)
		t.x.done()
	}
	if t.home == t.e {
		end(t.e)
		return
	}
	t.home.post(end)
}
