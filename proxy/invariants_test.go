package proxy

// What must be true of an engine between two wakeups, whatever has happened.

import (
	"fmt"
	"slices"
)

// inventory walks all that an engine holds and says what is wrong with it.
type inventory struct {
	e      *Engine
	owner  map[*chunk]string
	bytes  int64 // of what was found
	asks   map[*Exchange]int
	live   map[*Exchange]bool
	faults []string
}

// faults returns what is wrong with e between two wakeups.
func faults(e *Engine) []string {
	v := &inventory{e: e, owner: map[*chunk]string{}, asks: map[*Exchange]int{}, live: map[*Exchange]bool{}}
	v.chunk(e.scratch, "scratch")
	for s := range e.sessions {
		v.session(s)
	}
	for _, c := range v.conns() {
		v.conn(c)
	}
	for x, n := range v.asks {
		v.want(x.waiting == n, "an exchange waits for %d attempts, %d are there", x.waiting, n)
		if x.s == nil {
			v.exchange(x, "orphan")
		}
	}
	v.free()
	v.bytes += int64(len(v.live)) * exchangeSize
	v.want(v.bytes == e.pool.held, "the pool counts %d bytes, %d are held", e.pool.held, v.bytes)
	v.want(e.booked.Load() == e.pool.held, "the pool counts %d bytes, %d are booked", e.pool.held, e.booked.Load())
	v.want(len(e.dirty) == 0 && len(e.wake) == 0, "%d links dirty, %d sessions to wake", len(e.dirty), len(e.wake))
	return v.faults
}

func (v *inventory) want(ok bool, format string, args ...any) {
	if !ok {
		v.faults = append(v.faults, fmt.Sprintf(format, args...))
	}
}

func (v *inventory) chunk(c *chunk, where string) {
	if c == nil {
		return
	}
	v.want(v.owner[c] == "", "a chunk belongs to %s and to %s", v.owner[c], where)
	v.want(0 <= c.r && c.r <= c.w && c.w <= len(c.b), "%s: a chunk holds %d to %d of %d", where, c.r, c.w, len(c.b))
	v.owner[c] = where
	v.bytes += int64(len(c.b))
}

func (v *inventory) queue(q *queue, where string) {
	size := 0
	var last *chunk
	for c := q.head; c != nil; c = c.next {
		if v.owner[c] != "" {
			v.want(false, "a chunk belongs to %s and to %s", v.owner[c], where)
			return // perhaps a circle
		}
		v.chunk(c, where)
		size += c.len()
		last = c
	}
	v.want(last == q.tail, "%s: the tail is not the last chunk", where)
	v.want(size == q.size, "%s: %d bytes, counted %d", where, size, q.size)
}

func (v *inventory) conns() (list []*Conn) {
	for _, srv := range v.e.byAddress {
		list = append(list, srv.conns...)
		v.want(srv.zombies <= zombiesPerConn*srv.connections, "%s: %d zombies", srv.label(), srv.zombies)
		v.want(srv.asked == nil, "a read is being split between wakeups")
		if srv.down && srv.conns[0].state == connIdle {
			v.want(srv.redialAt >= v.e.timers[requestTimer], "%s: redialled at %d, looked at %d", srv.label(), srv.redialAt, v.e.timers[requestTimer])
		}
	}
	for _, c := range v.e.leaving {
		for _, c := range c.srv.conns {
			if !slices.Contains(list, c) {
				list = append(list, c)
			}
		}
	}
	undos, unheard := 0, 0
	for _, c := range v.e.zombies {
		v.want(!slices.Contains(list, c), "%s: a zombie serves", c.srv.label())
		v.want(c.zombie && c.state == connUp && c.length > 0, "%s: a zombie waits for nothing", c.srv.label())
		v.want(v.e.timers[requestTimer] <= c.until, "%s: a zombie ends at %d, the engine looks at %d", c.srv.label(), c.until, v.e.timers[requestTimer])
		list = append(list, c)
	}
	for _, c := range list {
		undos += c.undos
		unheard += c.length
	}
	v.want(undos == v.e.undos, "%d undos, counted %d", undos, v.e.undos)
	waiting := 0
	for s := range v.e.sessions {
		if s.head != nil {
			waiting++
		}
	}
	v.want(waiting == v.e.waiting, "%d clients wait, counted %d", waiting, v.e.waiting)
	v.want(unheard == v.e.unheard, "%d requests without an answer, counted %d", unheard, v.e.unheard)
	return list
}

func (v *inventory) session(s *Session) {
	n, last := 0, (*Exchange)(nil)
	for x := s.head; x != nil; x = x.next {
		if v.live[x] {
			v.want(false, "an exchange is twice in its client's order")
			return
		}
		v.want(x.s == s, "an exchange of one client is in the order of another")
		v.exchange(x, fmt.Sprintf("client %d", s.id))
		if x.waiting > 0 {
			v.asks[x] += 0
		}
		v.want(x.settled == (x.waiting == 0), "an exchange waits for %d attempts; settled: %v", x.waiting, x.settled)
		last = x
		n++
	}
	v.want(n == s.inFlight, "%d in flight, counted %d", n, s.inFlight)
	v.want(last == s.tail, "the tail is not the last exchange")
	if s.head != nil {
		v.want(s.head.out.size == 0, "the first exchange keeps %d bytes", s.head.out.size)
		v.want(!s.head.settled, "the first exchange is settled and still there")
	}
	v.chunk(s.in, "a client's input")
	v.queue(&s.out, "a client's output")
	l := v.e.limits
	if s.out.size > 0 && !s.full && !s.whole {
		v.want(s.head != nil, "client %d: %d bytes are a part of no answer", s.id, s.out.size)
	} else if s.out.size > 0 && !s.full {
		held := slices.ContainsFunc(v.e.held.list[v.e.held.first:], func(h heldClient) bool { return h.s == s && h.until == s.holdUntil })
		v.want(held, "client %d: %d bytes wait and nobody will send them", s.id, s.out.size)
	}
	if s.stalled {
		v.want(s.inFlight > l.InFlight/2 || s.out.size > l.Output/2, "client %d is stalled for no reason", s.id)
	} else if s.in != nil {
		v.want(s.tryAt > 0 || s.need > s.in.len(), "client %d: %d bytes wait to be parsed", s.id, s.in.len())
	}
	v.want(!s.quitting || s.head != nil || s.out.size > 0 || s.full, "client %d is done and not closed", s.id)
}

func (v *inventory) exchange(x *Exchange, where string) {
	v.live[x] = true
	v.bytes += int64(x.held)
	v.queue(&x.out, where+": an exchange's answer")
	if st := x.streams; st != nil {
		v.queue(&st.late, where+": an exchange's late values")
		for _, b := range st.next {
			v.queue(&b.held, where+": a value held back")
		}
		v.want(st.turn != nil || st.late.size == 0, "%s: late values and no stream", where)
	}
	if x.order != nil {
		v.bytes += int64(x.order.held)
		for i := range x.order.values {
			v.queue(&x.order.values[i].block, where+": a value that waits for its place")
		}
	}
}

func (v *inventory) conn(c *Conn) {
	name := c.srv.label()
	n, last := 0, (*Attempt)(nil)
	earliest, pos, undos, internal := int64(never), uint64(0), 0, 0
	for a := c.head; a != nil; a = a.next {
		v.want(last == nil || a.start == pos, "%s: a request begins at %d, the one before ends at %d", name, a.start, pos)
		pos = a.start + uint64(a.size)
		x := exchangeOf(a)
		if x != nil {
			v.asks[x]++
			v.want(x.s == nil || v.live[x], "%s: an attempt of an exchange that is in no client's order", name)
		}
		if a.undo {
			undos++
		}
		if a.internal {
			internal++
		}
		v.bytes += attemptSize
		v.want(!a.loose(), "%s: a mutation may run late and nothing undoes it", name)
		if x != nil || a.probe {
			earliest = min(earliest, a.deadline)
		}
		last = a
		if n++; n > c.length {
			break
		}
	}
	v.want(n == c.length, "%s: %d requests, counted %d", name, n, c.length)
	v.want(undos == c.undos, "%s: %d undos, counted %d", name, undos, c.undos)
	v.want(internal == c.internal, "%s: %d requests of Ringside's own, counted %d", name, internal, c.internal)
	v.want(last == c.tail, "%s: the tail is not the last request", name)
	v.want(last == nil || pos == c.given, "%s: the last request ends at %d, given %d", name, pos, c.given)
	v.want(c.given-c.taken == uint64(c.out.size), "%s: given %d, taken %d, %d wait", name, c.given, c.taken, c.out.size)
	if c.state == connDialing {
		earliest = min(earliest, c.dialBy)
	}
	v.want(c.deadline <= earliest, "%s: due at %d, looked at %d", name, earliest, c.deadline)
	v.want(v.e.timers[requestTimer] <= c.deadline, "%s: due at %d, the engine looks at %d", name, c.deadline, v.e.timers[requestTimer])
	v.want(c.state != connIdle || c.length == 0, "%s: %d requests wait and nobody dials", name, c.length)
	v.want(c.state != connIdle || c.in == nil, "%s: no connection, and input", name)
	if c.state == connUp && !c.full && c.out.size > 0 {
		v.want(c.due() > 0, "%s: %d bytes wait and nothing will flush them", name, c.out.size)
	}
	v.want(c.streamLeft == 0 || c.length > 0, "%s: in the middle of nobody's value", name)
	v.chunk(c.in, name+": input")
	v.queue(&c.out, name+": output")
}

// free checks that nothing that is in use is in a free list.
func (v *inventory) free() {
	for i, c := range v.e.pool.free {
		n := 0
		for ; c != nil && n <= v.e.pool.count[i]; c = c.next {
			v.want(v.owner[c] == "", "a free chunk belongs to %s", v.owner[c])
			v.bytes += int64(len(c.b))
			n++
		}
		v.want(n == v.e.pool.count[i], "%d free chunks of class %d, counted %d", n, i, v.e.pool.count[i])
	}
	seen := map[*Exchange]bool{}
	for x := v.e.freeExchanges; x != nil; x = x.next {
		v.want(!v.live[x], "an exchange in use is free")
		v.bytes += exchangeSize
		if seen[x] {
			v.want(false, "the free exchanges are a circle")
			break
		}
		seen[x] = true
	}
	used := map[*Attempt]bool{}
	for _, c := range v.conns() {
		for a := c.head; a != nil && !used[a]; a = a.next {
			used[a] = true
		}
	}
	for a := v.e.freeAttempts; a != nil; a = a.next {
		if used[a] {
			v.want(false, "an attempt is free twice, or free and in use")
			break
		}
		used[a] = true
		v.bytes += attemptSize
	}
}

// exchangeOf is the client's command that a is a part of; nil if it is none.
func exchangeOf(a *Attempt) *Exchange {
	switch to := a.to.(type) {
	case *Exchange:
		return to
	case *instead:
		return to.Exchange
	case *part:
		return to.Exchange
	}
	return nil
}
