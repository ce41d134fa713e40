package proxy_test

// The simulation's driver: sockets that transfer any part of the bytes.

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"time"

	"ringside/proxy/link"
	"ringside/proxy/upstream"
)

func (w *world) effect(x link.Effect) {
	l := x.Link
	switch s := l.Sock.(type) {
	case nil:
		if x.Kind == link.Dial {
			w.dial(l)
		} else if x.Kind != link.Write && x.Kind != link.Abort { // a socket may end before its effect is carried out
			w.fatalf("effect %d for a link without a socket", x.Kind)
		}
	case *simClient:
		s.effect(x.Kind)
	case *simConn:
		switch x.Kind {
		case link.Write:
			s.write()
		case link.Close, link.Abort:
			s.shut(x.Kind)
		default:
			w.fatalf("effect %d for a server connection", x.Kind)
		}
	}
}

func (w *world) dial(l *link.Link) {
	_, address := l.Server().Target()
	i := slices.IndexFunc(w.servers, func(s *simServer) bool { return s.name == address })
	c := &simConn{w: w, srv: w.servers[i], link: l, state: "dialling", old: w.d.one(4)}
	l.Sock = c
	w.conns = append(w.conns, c)
	w.log("dial %s", address)
	if w.instant && !c.srv.hangs && !c.srv.cut {
		c.dialled()
	}
}

func (c *simConn) dialled() {
	if c.srv.refuses {
		c.dies(errors.New("connection refused"))
		return
	}
	c.w.log("%s is connected", c.srv.name)
	c.state = "up"
	c.w.e.Up(c.link)
}

// part returns how many of n bytes a socket transfers this time.
func (w *world) part(n int) int {
	switch w.d.n(4) {
	case 0:
		return w.d.n(n + 1)
	case 1:
		return min(n, w.d.n(30))
	case 2:
		return min(n, w.d.n(70_000))
	}
	return n
}

// write does what a driver does for a Write effect: it sends all that the socket
// accepts.
func (c *simConn) write() {
	if c.full {
		c.w.fatalf("%s: a write to a socket that is full", c.srv.name)
	}
	c.give(func(n int) int {
		if c.w.d.one(4) {
			return c.w.part(n)
		}
		return n
	}, c.w.handsOver)
}

// drain makes a full socket accept more; then the driver sends unasked.
func (c *simConn) drain(all bool) {
	if !c.full || c.state != "up" {
		return
	}
	c.give(func(n int) int {
		if !all {
			return c.w.part(n)
		}
		return n
	}, false)
}

func (c *simConn) give(takes func(n int) int, handsOver bool) {
	b, full := send(c.w, c.link, takes, handsOver)
	c.full = full
	if c.forgotten > 0 {
		c.vanished += len(b)
		return
	}
	c.in = append(c.in, b...)
	if c.srv.cut {
		c.unsent += len(b)
	}
}

// send moves pending bytes until the socket is full or nothing is left.
func send(w *world, l *link.Link, takes func(n int) int, handsOver bool) (b []byte, full bool) {
	for {
		size := 0
		spans := l.Pending(nil)
		for _, s := range spans {
			size += len(s)
		}
		n := takes(size)
		full = n < size || handsOver
		for left := n; left > 0; spans = spans[1:] {
			part := spans[0][:min(left, len(spans[0]))]
			b = append(b, part...)
			left -= len(part)
		}
		w.e.Wrote(l, n, full)
		if full || size == 0 {
			return b, full
		}
	}
}

// deliver passes part of the server's replies to the engine.
func (c *simConn) deliver(all bool) {
	n := len(c.out)
	if !all {
		n = c.w.part(n)
	}
	if c.w.trickle { // so that several connections are in the middle of a value
		n = min(n, 30_000)
	}
	if n == 0 || c.state != "up" || c.srv.cut || c.forgotten > 0 {
		return
	}
	b := c.out[:n]
	c.out = c.out[n:]
	c.w.log("%s delivers %d bytes: %.60q", c.srv.name, n, b)
	c.w.e.Bytes(c.link, b)
}

// dies ends the connection at the server. The server may have processed part of the
// requests in flight.
func (c *simConn) dies(err error) {
	c.w.log("%s ends a connection: %v", c.srv.name, err)
	c.end()
	c.w.e.Closed(c.link, err)
}

// shut carries out the engine's effect that ends the connection.
func (c *simConn) shut(k link.EffectKind) {
	c.w.log("the connection to %s is ended by effect %d", c.srv.name, k)
	if k == link.Close && (len(c.in) > 0 || len(c.out) > 0) && !c.bitten {
		c.w.fatalf("%s: closed with %d bytes to do and %d to get", c.srv.name, len(c.in), len(c.out))
	}
	if k == link.Abort && !c.bitten && !c.link.Dialer.(*upstream.Conn).Lingering {
		c.in, c.unsent = c.in[:len(c.in)-c.unsent], 0
		c.w.ghosts = append(c.w.ghosts, c)
		c.leave("ghost")
		return
	}
	c.end()
}

// end lets the server process some of the received requests and drop the rest. On a
// lingering connection it processes nothing. If a late delete is lost there the value
// stays; this is counted (LateDeletesLost) and can't be prevented.
func (c *simConn) end() {
	n := c.w.d.n(4)
	if c.link.Dialer.(*upstream.Conn).Lingering || c.link.Dialer.(*upstream.Conn).LateDeletes > 0 {
		n = 0
	}
	for ; n > 0 && c.process(); n-- {
	}
	c.leave("closed")
}

func (c *simConn) leave(state string) {
	c.state = state
	c.link.Sock = nil
	c.w.conns = slices.DeleteFunc(c.w.conns, func(o *simConn) bool { return o == c })
}

// forget makes a firewall drop the state of an idle connection.
func (c *simConn) forget() {
	if c.state != "up" || c.forgotten > 0 || c.link.Dialer.(*upstream.Conn).Length > 0 || len(c.in)+len(c.out) > 0 {
		return
	}
	c.forgotten, c.acks = c.w.now, c.w.d.one(2)
	c.w.log("a firewall forgets a connection to %s; it acknowledges: %v", c.srv.name, c.acks)
}

// forgotTime is how long a forgotten connection may stay in use: keepalive, the request
// timeout, and twice the largest step of the clock.
const forgotTime = int64(3 * time.Second)

// checkForgotten fails if a connection is still in use although a ping or a request
// must have found it dead.
func (w *world) checkForgotten() {
	for _, c := range w.conns {
		u := c.link.Dialer.(*upstream.Conn)
		if c.forgotten > 0 && w.now-c.forgotten > forgotTime && w.pools[0].Keepalive > 0 && c.state == "up" && u.Server.Keeps(u) && !u.Server.Draining() {
			w.fatalf("%s: a connection is still in use that a firewall has forgotten %v ago", c.srv.name, time.Duration(w.now-c.forgotten))
		}
	}
}

// stray sends a reply although the server owes none.
func (c *simConn) stray() {
	if c.state != "up" || c.forgotten > 0 || c.link.Dialer.(*upstream.Conn).Length > 0 || len(c.in)+len(c.out) > 0 || c.link.Dialer.(*upstream.Conn).State != upstream.ConnUp {
		return
	}
	c.w.log("%s answers what nobody asked", c.srv.name)
	doubts := c.w.e.Count.Desyncs
	c.w.e.Bytes(c.link, []byte("VALUE c1k1 0 3\r\nxyz\r\nEND\r\n"))
	if c.w.e.Count.Desyncs != doubts+1 {
		c.w.fatalf("%s: an answer that nobody waits for did not end the connection", c.srv.name)
	}
}

// garbage sends bytes that are not a reply, after the real replies.
func (c *simConn) garbage() {
	if c.state != "up" || c.link.Dialer.(*upstream.Conn).State != upstream.ConnUp {
		return
	}
	c.out = append(c.out, "WHAT?\r\n"...)
	c.bitten = true
	c.w.log("%s answers garbage", c.srv.name)
}

func (c *simClient) effect(k link.EffectKind) {
	w := c.w
	switch k {
	case link.Write:
		if c.full {
			w.fatalf("c%d: a write to a socket that is full", c.id)
		}
		c.take(w.handsOver)
	case link.Pause:
		c.paused = true
	case link.Resume:
		c.paused = false
	case link.Abort:
		w.log("c%d is aborted", c.id)
		w.aborted++
		c.leave()
	case link.Close:
		w.log("c%d is closed", c.id)
		c.leave()
		switch {
		case !c.waits():
		case inValue(c.got):
			w.cut++
			return
		default:
			w.fatalf("c%d is closed; ended %v, %d answers are missing, first to %s", c.id, c.ended, len(c.wants), c.wants[0].text)
		}
		if !c.ended && w.table.Limits.Idle == 0 {
			w.fatalf("c%d is closed for no reason", c.id)
		}
	}
}

// inValue reports whether the client's received bytes end inside a value that is large
// enough to be forwarded in parts.
func inValue(b []byte) bool {
	for {
		line, rest, _ := bytes.Cut(b, []byte("\r\n"))
		words := bytes.Fields(line)
		at := map[string]int{"VALUE": 3, "VA": 1}
		switch {
		case len(words) == 0 || len(words) <= at[string(words[0])]:
			return false
		case at[string(words[0])] == 0: // a reply without a value
			b = rest
			continue
		}
		size, _ := strconv.Atoi(string(words[at[string(words[0])]]))
		if size+2 > len(rest) {
			return size > 64<<10
		}
		b = rest[size+2:]
	}
}

// waits reports whether an answer to sent commands is missing.
func (c *simClient) waits() bool {
	return slices.ContainsFunc(c.wants, func(x *want) bool { return x.kind != "noreply" && x.kind != "quit" && x.end <= c.sent })
}

// drain makes a full socket accept more.
func (c *simClient) drain() {
	if !c.full || c.link.Sock == nil {
		return
	}
	c.take(false)
}

func (c *simClient) take(handsOver bool) {
	b, full := send(c.w, c.link, func(n int) int {
		if c.slow {
			return c.w.part(n)
		}
		return n
	}, handsOver)
	c.full = full
	c.hears(b)
}

// send passes part of the client's pending bytes to the engine.
func (c *simClient) send(all bool) {
	n := len(c.pending)
	if !all {
		n = c.w.part(n)
	}
	if n == 0 || c.link.Sock == nil || c.paused {
		return
	}
	c.w.log("c%d sends %d bytes: %.60q", c.id, n, c.pending[:n])
	b := c.pending[:n]
	c.pending = c.pending[n:]
	c.sent += n
	c.w.e.Bytes(c.link, b)
}

func (c *simClient) reset() {
	c.w.log("c%d resets", c.id)
	c.leave()
	c.w.e.Closed(c.link, errors.New("connection reset by peer"))
}

// halfClose ends the client's sending side.
func (c *simClient) halfClose() {
	if c.paused || c.ended && len(c.pending) > 0 {
		return // its FIN is not read
	}
	c.w.log("c%d closes its half", c.id)
	c.ended = true
	c.pending = nil
	c.w.e.Closed(c.link, nil)
}

func (c *simClient) leave() {
	c.link.Sock = nil
	c.w.clients = slices.DeleteFunc(c.w.clients, func(o *simClient) bool { return o == c })
}
