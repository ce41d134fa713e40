package upstream

// This file determines which commands a server understands. The first command on each connection is
// version, because a restarted server may have another memcached version.
//
// A request that not every release understands is not sent before the version is known.
// Requests after it on the connection wait too, because clients rely on the order. Their bytes
// stay in the connection's queue, in the form that the newest release understands.
//
//	… ► get k ► ms k 5 ► get j ► …
//	            held: nothing is sent from here on
//
// When the release is known, the held requests are checked. A request that the server does not
// understand is sent as text if text means the same (package wire: AppendAsText). Otherwise the
// reply is a CLIENT_ERROR that names the server and its version. So a server without ms never
// parses a data block as commands, even if it was replaced at a reconnect.
//
// On a connection that lingers, the reply to the version command may be late and an error. The server
// then counts as the oldest release, because held requests would otherwise never be answered.

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

// Require records what the server must understand to run the request a, which is last in the
// queue. If it is not known that the server understands this, a is not sent yet (held).
func (c *Conn) Require(a *Attempt, needs wire.Features) {
	if needs&^c.Features != 0 {
		c.hold(a, needs)
	}
}

// hold stops the sending of the attempt a and of all requests after it.
func (c *Conn) hold(a *Attempt, needs wire.Features) {
	a.needs = needs
	if c.held == nil {
		c.held = a
		if c.Features != 0 {
			c.Server.e.ToTranslate = append(c.Server.e.ToTranslate, c)
		}
	}
}

// unheld appends to iov the bytes to send before the first held request.
func (c *Conn) unheld(iov [][]byte) [][]byte {
	left := int(c.held.Start - c.Taken)
	if left == 0 { // do not append an empty piece: a driver calls this until there are no pieces, and would never end
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

// learnRelease parses the server's reply to the version command.
func (c *Conn) learnRelease(line []byte) {
	srv := c.Server
	words := bytes.TrimSpace(bytes.TrimPrefix(line, []byte("VERSION")))
	said := strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' { // the text is used in replies, metrics and logs
			return '?'
		}
		return c
	}, string(words[:min(len(words), maxVersion)]))
	if srv.Release != (wire.Release{}) && srv.Version != said {
		srv.e.LogLimited(slog.LevelInfo, srv.Label(), "server version changed", "server", srv.Target.Name, "address", srv.Address(), "was", srv.Version, "is", said)
	}
	srv.Release, srv.Version = wire.ReleaseOf(line), said
	c.speaks(srv.Release.Features())
}

// speaks records that the server understands the features f. At the end of the wakeup, the held
// requests are sent.
func (c *Conn) speaks(f wire.Features) {
	c.Features = f
	if c.isSpare {
		c.Server.e.Mark(&c.Link)
	}
	if c.held != nil {
		c.Server.e.ToTranslate = append(c.Server.e.ToTranslate, c)
	}
}

// maxVersion is the maximum length of the stored memcached version of a server, in bytes.
const maxVersion = 64

// FeaturesFor returns what the server understands, as known on the connection for the client with that
// number; 0: the server's version is not known on that connection yet.
func (srv *Server) FeaturesFor(client uint64) wire.Features {
	return srv.connOf(client).Features
}

// TranslateHeld handles the held requests of all connections on which the server's release is known
// now.
func (e *Servers) TranslateHeld() {
	for i := 0; i < len(e.ToTranslate); i++ { // the list may grow in the loop: a receiver may send requests again
		c := e.ToTranslate[i]
		if c.held != nil && c.Features != 0 {
			c.translateHeld()
			e.Mark(&c.Link)
		}
	}
	e.ToTranslate = e.ToTranslate[:0]
}

// translateHeld makes the held requests of c ready to be sent. If the server does not understand some
// of them, translateHeld rebuilds the queue from the first held request on, in the form that the
// server understands.
func (c *Conn) translateHeld() {
	e, first := c.Server.e, c.held
	fits := true
	for a := first; a != nil && fits; a = a.Next {
		fits = a.needs&^c.Features == 0
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
	var refused []*Attempt // attempts that the server can't understand; they fail at the end of the function, because their receivers may send requests again
	for a := first; a != nil; {
		next, sentAt := a.Next, a.sentAt
		a.Next = nil
		var line link.Queue
		rest.Transfer(&e.Buffers, &line, a.Size)
		if a.needs&^c.Features != 0 && !c.translate(a, &line) {
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

// translate replaces line, the request of the attempt a, by an equivalent request that the server
// understands. It reports whether there is one.
func (c *Conn) translate(a *Attempt, line *link.Queue) bool {
	e := c.Server.e
	if a.Dialect != wire.Meta || a.needs&wire.Unknown != 0 {
		return false
	}
	var text []byte
	if w, ok := a.To.(*Collector); ok && w.pings() { // a keeper needs only any reply, so version is sent in place of its request
		text = AskVersion
		a.Op, a.Dialect = wire.Version, wire.Text
	} else {
		m := new(textForm)
		for _, b := range line.Spans(nil, line.Size) {
			m.line = append(m.line, b...)
		}
		if !e.Wire.One(m.line, &m.req) {
			return false
		}
		m.req.Flags |= a.Flags & wire.Binary
		var ok bool
		if text, ok = wire.AppendAsText(nil, m.line, &m.req, c.Features); !ok {
			return false
		}
		if !e.Wire.One(text, &e.Plain) {
			return false
		}
		m.op = e.Plain.Op
		a.Op, a.Dialect = m.op, wire.Text
		a.AsText = m
		a.DropOpaque() // a text reply does not contain an opaque
	}
	a.needs = 0
	line.Drop(&e.Buffers)
	line.Append(&e.Buffers, text)
	return true
}

// textForm is a meta request that was sent as text.
type textForm struct {
	line   []byte       // bytes of the meta request
	req    wire.Request // the parsed meta request
	op     wire.Op      // command of the text request
	answer []byte       // the server's reply to the text request so far
}

// refuse fails the attempt a, which has left the queue, because the server would not understand it, or would read
// it as several commands.
func (c *Conn) refuse(a *Attempt) {
	e, srv := c.Server.e, c.Server
	why := fmt.Sprintf("server %s is of version %s, %s", srv.Label(), cmp.Or(srv.Version, "unknown"), wire.TooOld)
	if a.needs&wire.Unknown != 0 {
		why = unfitLine
	}
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

// toMeta handles b, the next bytes of the reply to a, which was sent as a text request in place of a
// meta request. When the text reply is complete, toMeta returns the equivalent meta reply, and sets
// e.rep to its parsed form. Before that it returns nil.
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
