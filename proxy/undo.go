package proxy

// Mutations that nobody waits for any more and that may still run: the undo
// behind them, and the connections that live on for it.

import (
	"bytes"
	"encoding/base64"
	"slices"
	"time"

	"ringside/proxy/health"
	"ringside/proxy/wire"
)

// A mutation that was answered with an error or a timeout may lie in the
// server's receive buffer and run when the server goes on: after a newer write
// or delete that was acknowledged meanwhile. No reset takes it out of there.
// So the key's delete goes right behind it, on the same connection, and the
// worst that is left is a miss.
//
//	set k v1 ► timeout ► delete k, behind it; new traffic goes to a new connection
//	server goes on: v1 is stored, k is deleted; both answers are discarded
//
// A connection that is closed with an undo on it makes memcached drop what it
// has not read yet: the set runs and the delete does not. So it lives on, a
// zombie, until the undo is answered.
//
// The undo is a loud delete (md for a key in base64), for every server: one
// answer each, so that pairing by order goes on, and the last is the barrier.

const (
	// zombieTime is how long a zombie waits for the answer to its last undo.
	zombieTime = 60 * time.Second

	// ackTime is how long a kernel may have bytes before it acknowledges them:
	// Linux 200 ms at most.
	ackTime = 250 * time.Millisecond

	// zombiesPerConn bounds the zombies of one server, for each connection that
	// it may have. A mutation on one more is aborted and may outlive that.
	zombiesPerConn = 4
)

// leavesValue says whether r, run late, can put a value in the place of a newer
// one or of none. A cas with an old token cannot; incr, append and their like
// build on what is there and only count, late or not; touch and delete leave
// no value. What creates an item on a miss (N) can, and so can a cas that
// stores with an old token too (I).
func leavesValue(r *wire.Request) bool {
	switch r.Op {
	case wire.Set, wire.Add, wire.Replace:
		return true
	case wire.Cas:
		return r.Letters.Has('I')
	case wire.Append, wire.Prepend, wire.Incr, wire.Decr:
		return r.Letters.Has('N')
	}
	return false
}

// loose says that nobody waits for a any more, that it may run late and leave
// a value, and that nothing undoes that yet.
func (a *Attempt) loose() bool { return a.leaves && a.to == nil }

// undo puts a delete behind all that is on c, for each loose mutation.
func (c *Conn) undo() {
	for a := c.head; a != nil; a = a.next { // what it appends is not loose
		if a.loose() {
			c.undoOne(a)
		}
	}
	c.until = c.srv.e.now + int64(zombieTime)
}

func (c *Conn) undoOne(a *Attempt) {
	e := c.srv.e
	u := e.newAttempt(nil)
	u.op, u.dialect, u.undo = wire.Delete, wire.Text, true
	c.own(u)
	key, _ := a.named()
	if a.flags&wire.Base64 != 0 {
		u.dialect = wire.Meta
		e.line = append(e.line[:0], "md "...)
		e.line = base64.StdEncoding.AppendEncode(e.line, key)
		e.line = append(e.line, " b\r\n"...)
	} else {
		e.line = append(e.line[:0], "delete "...)
		e.line = append(e.line, key...)
		e.line = append(e.line, wire.LineEnd...)
	}
	u.keys = append(u.keys, key...)
	a.leaves = false
	c.enlist(u)
	if u.dialect == wire.Meta {
		c.want(u, wire.Metas)
	}
	c.out.append(&e.pool, e.line)
	c.give(u, len(e.line))
	c.answered = true // it is not held for company
	c.undos++
	e.undos++
	c.srv.count.Undone++
}

// reached says whether the server's kernel may have all of a loose mutation.
// What is still in ours never gets there after an Abort.
func (c *Conn) reached() bool {
	first := (*Attempt)(nil)
	for a := c.head; a != nil && first == nil; a = a.next {
		if a.loose() {
			first = a
		}
	}
	switch {
	case first == nil || c.Sock == nil:
		return false
	case c.srv.e.now-c.lastOut < int64(ackTime):
		return true
	}
	return first.start+uint64(first.size)+uint64(c.Sock.Unsent()) <= c.taken
}

// late is called when mutations on c have become loose. When the server has
// not said anything since, the connection is taken for stuck: new requests go
// to another, and what has not left this machine never will.
func (c *Conn) late(stuck bool) {
	switch {
	case stuck && c.undos == 0 && !c.reached():
		c.abort("server "+c.srv.label()+": aborted, for what was sent does not arrive there", Lost)
	case stuck && !c.zombie:
		c.undo()
		c.rise("server " + c.srv.label() + ": too many connections wait for late answers")
	default:
		c.undo()
	}
}

// giveUp fails every request on c for the reason why, and gets rid of c.
func (c *Conn) giveUp(why string, o Outcome) {
	if c.state == connUp {
		for a := c.head; a != nil; a = a.next {
			a.expired = a.to != nil && a.start >= c.taken
			c.failOne(a, why, o)
		}
		if c.undos > 0 || c.reached() {
			c.dropUnsent()
			c.undo()
			c.rise(why)
			return
		}
	}
	if c.state == connIdle { // not dialled yet
		c.clear()
		c.failAll(why, o)
		return
	}
	c.abort(why, o)
}

// rise makes c a zombie: new requests go to a new connection in its place. It
// stays open until all on it is answered; what has not timed out may still be
// answered in time. If there are too many, what is on it fails instead.
func (c *Conn) rise(why string) {
	srv := c.srv
	e := srv.e
	fresh := srv.newConn()
	srv.conns[slices.Index(srv.conns, c)] = fresh
	if srv.wanted() {
		e.mark(&fresh.Link)
	}
	c.zombie = true
	srv.zombies++
	e.zombies = append(e.zombies, c)
	c.last = map[uint64]uint64{}
	for a := c.head; a != nil; a = a.next {
		a.probe = false
		if client, ok := a.client(); ok {
			c.last[client] = a.start
		}
	}
	if srv.zombies > zombiesPerConn*srv.connections {
		c.abort(why, Lost)
		return
	}
	e.mark(&c.Link)
}

// behind is where the next request of a client goes that would go to c: to the
// zombie that still has one of that client, which it must not overtake. It is
// rare; inlined, it would cost every request some instructions.
//
//go:noinline
func (c *Conn) behind(client uint64) *Conn {
	for _, z := range c.srv.e.zombies {
		if z.srv != c.srv || z.head == nil {
			continue
		}
		if start, ok := z.last[client]; ok && start >= z.head.start {
			z.last[client] = z.given
			return z
		}
	}
	return c
}

// forget says that nobody waits for a, on a zombie, any more.
func (c *Conn) forget(a *Attempt) {
	if client, ok := a.client(); ok && c.last[client] == a.start {
		delete(c.last, client)
	}
}

// client is the number of the client that waits for a, if one does.
func (a *Attempt) client() (id uint64, ok bool) {
	if a.to == nil {
		return 0, false
	}
	id = a.to.Client()
	return id, id != 0
}

// bury forgets a zombie whose connection has ended.
func (c *Conn) bury() {
	e := c.srv.e
	if i := slices.Index(e.zombies, c); i >= 0 {
		e.zombies = slices.Delete(e.zombies, i, i+1)
		c.srv.zombies--
	}
}

// expireZombies ends the zombies that have waited long enough. One on which a
// client still waits for an answer goes on.
func (e *Servers) expireZombies() {
	for _, c := range slices.Clone(e.zombies) {
		if c.deadline <= e.now {
			c.expire()
		}
		if c.until <= e.now {
			if !c.awaited() {
				c.abort("server "+c.srv.label()+": no late answer came", TimedOut)
				continue
			}
			c.until = e.now + int64(zombieTime)
		}
		if c.state == connUp {
			e.at(requestTimer, min(c.deadline, c.until))
		}
	}
}

// mayCome says whether a server may have, or be about to have for a moment, what
// a late mutation of key leaves: its undo is not answered.
func (srv *Server) mayCome(key []byte) bool {
	in := func(c *Conn) bool {
		if c.undos == 0 || c.srv != srv {
			return false
		}
		for a := c.head; a != nil; a = a.next {
			if a.undo && bytes.Equal(health.Undivert(a.keys), key) {
				return true
			}
		}
		return false
	}
	return srv.e.undos > 0 && (slices.ContainsFunc(srv.conns, in) || slices.ContainsFunc(srv.e.zombies, in))
}
