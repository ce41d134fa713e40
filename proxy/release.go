package proxy

// What a server understands. Each connection begins with the question for its
// server's version, because another release may answer there than the last time.
//
// A request that not every release understands is not sent before that is
// answered, nor is what is behind it on the connection: clients count on the
// order. The bytes wait in the connection's queue, in the form that the newest
// release understands.
//
//	… ► get k ► ms k 5 ► get j ► …
//	            held: nothing goes out from here on
//
// When the server has told its release, or if that is known already, End looks
// at what is held. What the server does not understand becomes text where text
// has the same meaning (package wire: AppendClassic); else it is answered with a
// CLIENT_ERROR that names the server and what it calls itself. So a server that
// knows no ms never takes a data block for commands, whoever is replaced by whom
// at a reconnect.

import (
	"bytes"
	"fmt"
	"strings"

	"ringside/proxy/wire"
)

// want says what a, which is at the end of c's order, needs of the server.
func (c *Conn) want(a *Attempt, needs wire.Features) {
	if needs&^c.speech != 0 {
		c.hold(a, needs)
	}
}

func (c *Conn) hold(a *Attempt, needs wire.Features) {
	a.needs = needs
	if c.held == nil {
		c.held = a
		if c.speech != 0 {
			c.srv.e.misfits = append(c.srv.e.misfits, c)
		}
	}
}

// unheld appends to iov the bytes of c that may go out.
func (c *Conn) unheld(iov [][]byte) [][]byte {
	left := int(c.held.start - c.taken)
	if left == 0 { // an empty piece is no piece: who asks until there are none would ask for ever
		return iov
	}
	first := len(iov)
	iov = c.out.spans(iov, spansAtOnce)
	for i := first; i < len(iov); i++ {
		if len(iov[i]) >= left {
			iov[i] = iov[i][:left]
			return iov[:i+1]
		}
		left -= len(iov[i])
	}
	return iov
}

// learn takes what the server says when it is asked for its version.
func (c *Conn) learn(line []byte) {
	srv := c.srv
	words := bytes.TrimSpace(bytes.TrimPrefix(line, []byte("VERSION")))
	said := strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' { // it goes into answers, metrics and logs
			return '?'
		}
		return c
	}, string(words[:min(len(words), maxVersion)]))
	if srv.release != (wire.Release{}) && srv.version != said {
		srv.e.log.Info("a server has become another version", "server", srv.target.Name, "address", srv.target.Address, "was", srv.version, "is", said)
	}
	srv.release, srv.version = wire.ReleaseOf(line), said
	c.speech = srv.release.Features()
	if c.held != nil {
		srv.e.misfits = append(srv.e.misfits, c)
	}
}

// maxVersion is how much of what a server calls itself is kept, in bytes.
const maxVersion = 64

// speech is what the server understands on the connection of a client; nothing
// if that is not known.
func (srv *Server) speech(client uint64) wire.Features {
	return srv.conns[client%uint64(srv.connections)].speech
}

// suit goes on with what connections hold whose servers have told their release.
func (e *Servers) suit() {
	for i := 0; i < len(e.misfits); i++ { // may grow: who is told may ask again
		c := e.misfits[i]
		if c.held != nil && c.speech != 0 {
			c.suit()
			e.mark(&c.Link)
		}
	}
	e.misfits = e.misfits[:0]
}

// suit takes what c holds off its order, and puts it there again in the form
// that the server understands.
func (c *Conn) suit() {
	e, first := c.srv.e, c.held
	fits := true
	for a := first; a != nil && fits; a = a.next {
		fits = a.needs&^c.speech == 0
	}
	c.held = nil
	if fits {
		return
	}
	var keep queue
	c.out.transfer(&e.pool, &keep, int(first.start-c.taken))
	rest := c.out
	c.out, c.given = keep, first.start
	if c.head == first {
		c.head, c.tail = nil, nil
	} else {
		for c.tail = c.head; c.tail.next != first; c.tail = c.tail.next {
		}
		c.tail.next = nil
	}
	for a := first; a != nil; a = a.next {
		c.length--
		c.holding = max(c.holding-1, 0)
		e.unheard--
	}
	var strangers []*Attempt // told in the end: they may ask again
	for a := first; a != nil; {
		next, sentAt := a.next, a.sentAt
		a.next = nil
		var line queue
		rest.transfer(&e.pool, &line, a.size)
		if a.needs&^c.speech != 0 && !c.translate(a, &line) {
			line.drop(&e.pool)
			strangers = append(strangers, a)
		} else {
			c.enlist(a)
			a.sentAt, a.size = sentAt, 0
			n := line.size
			line.moveTo(&e.pool, &c.out)
			c.give(a, n)
		}
		a = next
	}
	for _, a := range strangers {
		c.refuse(a)
		e.freeAttempt(a)
	}
}

// translate puts in the place of a's request, line, one of the same meaning that
// the server understands.
func (c *Conn) translate(a *Attempt, line *queue) bool {
	e := c.srv.e
	if a.dialect != wire.Meta {
		return false
	}
	var text []byte
	if w, ok := a.to.(*collector); ok && w.pings() { // a keeper wants no text, but must hear that there is somebody
		text = askVersion
		a.op, a.dialect = wire.Version, wire.Text
	} else {
		m := new(classic)
		for _, b := range line.spans(nil, line.size) {
			m.line = append(m.line, b...)
		}
		e.wire.Next(m.line, &m.req)
		var ok bool
		if text, ok = wire.AppendClassic(nil, m.line, &m.req, c.speech); !ok {
			return false
		}
		e.wire.Next(text, &e.plain)
		m.op = e.plain.Op
		a.op, a.dialect = m.op, wire.Text
		a.classic = m
		key, _ := a.named()
		a.keys, a.opaque = a.keys[:len(key)], 0 // text names no opaque
	}
	a.needs = 0
	line.drop(&e.pool)
	line.append(&e.pool, text)
	return true
}

// classic is a meta request that was sent as text.
type classic struct {
	line []byte
	req  wire.Request // line, parsed
	op   wire.Op      // as text

	answer []byte // so far
}

// refuse settles a, which has left c's order and which the server would not
// understand.
func (c *Conn) refuse(a *Attempt) {
	e, srv := c.srv.e, c.srv
	why := fmt.Sprintf("server %s is of version %s, too old for this command", srv.label(), srv.version)
	srv.count.Failed++
	if a.internal {
		c.internal--
	}
	to := a.to
	a.to = nil
	switch {
	case a.undo:
		c.undos--
		e.undos--
	case to != nil:
		to.Failed(c, a, Failure{Why: why, Outcome: ClientFault, Foreign: true})
	}
}

// modern is the meta answer that b, more of the answer to a's text, makes whole;
// nil if more of it is to come. It is in e.rep then.
func (c *Conn) modern(a *Attempt, b []byte) []byte {
	e, m := c.srv.e, a.classic
	m.answer = append(m.answer, b...)
	if !e.rep.Last {
		return nil
	}
	b = wire.AppendModern(nil, m.line, &m.req, m.op, m.answer)
	a.op, a.dialect = m.req.Op, wire.Meta
	wire.NextReply(a.op, a.dialect, b, &e.rep)
	return b
}
