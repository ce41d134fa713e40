package upstream

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
// has the same meaning (package wire: AppendAsText); else it is answered with a
// CLIENT_ERROR that names the server and what it calls itself. A server that answers
// the question late and with an error, on a connection that lives on for what may still
// run, counts as the oldest: what is held there would wait for an answer that no
// longer comes. So a server that
// knows no ms never takes a data block for commands, whoever is replaced by whom
// at a reconnect.

import (
	"bytes"
	"cmp"
	"fmt"
	"log/slog"
	"strings"

	"ringside/proxy/link"
	"ringside/proxy/stats"
	"ringside/proxy/wire"
)

// Require says what a, which is last in the queue, needs the server to understand.
// If that is not known of the server, a is held.
func (c *Conn) Require(a *Attempt, needs wire.Features) {
	if needs&^c.Speech != 0 {
		c.hold(a, needs)
	}
}

// hold keeps a, and all that comes behind it, from going out.
func (c *Conn) hold(a *Attempt, needs wire.Features) {
	a.needs = needs
	if c.held == nil {
		c.held = a
		if c.Speech != 0 {
			c.Server.e.ToTranslate = append(c.Server.e.ToTranslate, c)
		}
	}
}

// unheld appends to iov the bytes that come before the first held request.
func (c *Conn) unheld(iov [][]byte) [][]byte {
	left := int(c.held.Start - c.Taken)
	if left == 0 { // a driver that asks until there is no piece would ask for ever for an empty one
		return iov
	}
	first := len(iov)
	iov = c.Out.Spans(iov, link.SpansAtOnce)
	for i := first; i < len(iov); i++ {
		if len(iov[i]) >= left {
			iov[i] = iov[i][:left]
			return iov[:i+1]
		}
		left -= len(iov[i])
	}
	return iov
}

// learnRelease takes what the server says when it is asked for its version.
func (c *Conn) learnRelease(line []byte) {
	srv := c.Server
	words := bytes.TrimSpace(bytes.TrimPrefix(line, []byte("VERSION")))
	said := strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' { // it goes into answers, metrics and logs
			return '?'
		}
		return c
	}, string(words[:min(len(words), maxVersion)]))
	if srv.Release != (wire.Release{}) && srv.Version != said {
		srv.e.LogLimited(slog.LevelInfo, srv.Label(), "a server has become another version", "server", srv.Target.Name, "address", srv.Target.Address, "was", srv.Version, "is", said)
	}
	srv.Release, srv.Version = wire.ReleaseOf(line), said
	c.speaks(srv.Release.Features())
}

// speaks notes what the server understands. What is held for that goes out in End.
func (c *Conn) speaks(f wire.Features) {
	c.Speech = f
	if c.held != nil {
		c.Server.e.ToTranslate = append(c.Server.e.ToTranslate, c)
	}
}

// maxVersion is how much of what a server calls itself is kept, in bytes.
const maxVersion = 64

// Speech is what the server understands on the connection of a client; 0 if that is
// not known.
func (srv *Server) Speech(client uint64) wire.Features {
	return srv.connOf(client).Speech
}

// TranslateHeld goes on with what connections hold whose servers have told their
// release by now.
func (e *Servers) TranslateHeld() {
	for i := 0; i < len(e.ToTranslate); i++ { // may grow: who is told may ask again
		c := e.ToTranslate[i]
		if c.held != nil && c.Speech != 0 {
			c.translateHeld()
			e.Mark(&c.Link)
		}
	}
	e.ToTranslate = e.ToTranslate[:0]
}

// translateHeld takes what c holds off the queue, and puts it there again in the
// form that the server understands.
func (c *Conn) translateHeld() {
	e, first := c.Server.e, c.held
	fits := true
	for a := first; a != nil && fits; a = a.Next {
		fits = a.needs&^c.Speech == 0
	}
	c.held = nil
	if fits {
		return
	}
	var keep link.Queue
	c.Out.Transfer(&e.Buffers, &keep, int(first.Start-c.Taken))
	rest := c.Out
	c.Out, c.Given = keep, first.Start
	if c.Head == first {
		c.Head, c.Tail = nil, nil
	} else {
		for c.Tail = c.Head; c.Tail.Next != first; c.Tail = c.Tail.Next {
		}
		c.Tail.Next = nil
	}
	for a := first; a != nil; a = a.Next {
		c.Length--
		c.holding = max(c.holding-1, 0)
		e.Outstanding--
	}
	var refused []*Attempt // told in the end: their receivers may ask again
	for a := first; a != nil; {
		next, sentAt := a.Next, a.sentAt
		a.Next = nil
		var line link.Queue
		rest.Transfer(&e.Buffers, &line, a.Size)
		if a.needs&^c.Speech != 0 && !c.translate(a, &line) {
			line.Drop(&e.Buffers)
			refused = append(refused, a)
		} else {
			c.push(a)
			a.sentAt, a.Size = sentAt, 0
			n := line.Size
			line.MoveTo(&e.Buffers, &c.Out)
			c.Give(a, n)
		}
		a = next
	}
	for _, a := range refused {
		c.refuse(a)
		e.freeAttempt(a)
	}
}

// translate puts a request of the same meaning that the server understands in the
// place of a's request, line. It reports false if there is none.
func (c *Conn) translate(a *Attempt, line *link.Queue) bool {
	e := c.Server.e
	if a.Dialect != wire.Meta {
		return false
	}
	var text []byte
	if w, ok := a.To.(*Collector); ok && w.pings() { // a keeper wants no text, but must hear that there is somebody
		text = AskVersion
		a.Op, a.Dialect = wire.Version, wire.Text
	} else {
		m := new(textForm)
		for _, b := range line.Spans(nil, line.Size) {
			m.line = append(m.line, b...)
		}
		e.Wire.Next(m.line, &m.req)
		m.req.Flags |= a.Flags & wire.Binary
		var ok bool
		if text, ok = wire.AppendAsText(nil, m.line, &m.req, c.Speech); !ok {
			return false
		}
		e.Wire.Next(text, &e.Plain)
		m.op = e.Plain.Op
		a.Op, a.Dialect = m.op, wire.Text
		a.AsText = m
		a.DropOpaque() // text names none
	}
	a.needs = 0
	line.Drop(&e.Buffers)
	line.Append(&e.Buffers, text)
	return true
}

// textForm is a meta request that was sent as text.
type textForm struct {
	line   []byte       // the meta request
	req    wire.Request // line, parsed
	op     wire.Op      // of the text
	answer []byte       // of the server, to the text, so far
}

// refuse fails a, which has left the queue, because the server would not understand
// it.
func (c *Conn) refuse(a *Attempt) {
	e, srv := c.Server.e, c.Server
	why := fmt.Sprintf("server %s is of version %s, %s", srv.Label(), cmp.Or(srv.Version, "unknown"), wire.TooOld)
	srv.Count.Failed++
	if a.Internal {
		c.Internal--
	}
	to := a.To
	a.To = nil
	switch {
	case a.LateDelete:
		c.LateDeletes--
		e.LateDeletes--
	case to != nil:
		to.Failed(c, a, Failure{Why: why, Outcome: stats.ClientFault, Foreign: true})
	}
}

// toMeta takes b, more of the answer to a's text. When that is whole it returns what
// a meta command would have answered, which is in e.rep then; before, nil.
func (c *Conn) toMeta(a *Attempt, b []byte) []byte {
	e, m := c.Server.e, a.AsText
	m.answer = append(m.answer, b...)
	if !e.rep.Last {
		return nil
	}
	b = wire.AppendAsMeta(nil, m.line, &m.req, m.op, m.answer)
	a.Op, a.Dialect = m.req.Op, wire.Meta
	wire.NextReply(a.Op, a.Dialect, b, &e.rep)
	return b
}
