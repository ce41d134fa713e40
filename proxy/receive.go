package proxy

// What servers say to the parts of a client's command, on its way to the client.

import (
	"bytes"
	"encoding/base64"
	"fmt"

	"ringside/proxy/wire"
)

// wholeValue is the largest value that is forwarded only when all of it is
// here. A larger one is forwarded as it comes; if its server dies under it,
// the client is closed.
const wholeValue = 64 << 10

// Client is the number of the client that waits for x; 0: it is gone.
func (x *Exchange) Client() uint64 {
	if x.s == nil {
		return 0
	}
	return x.s.id
}

// Reply settles what one reply line or value, the bytes b, says about a.
func (x *Exchange) Reply(c *Conn, a *Attempt, r *wire.Reply, b []byte) (taken int) {
	switch {
	case a.dialect == wire.Text && a.op <= wire.Gats:
		return x.textRead(c, a, r, b)
	case r.Kind == wire.ServerError && a.op == wire.Get:
		x.fail("server "+c.srv.label()+": "+string(r.Line.Of(b)), ServerFault)
	default:
		x.outcome = outcomeOf(r.Kind)
		if a.op == wire.Get && r.Kind == wire.Header { // mg without v
			x.outcome = Hit
		}
		if !wire.Hidden(a.op, a.dialect, a.flags, r.Kind) {
			return x.forward(a, r, b)
		}
	}
	return 0
}

// Done counts a as finished.
func (x *Exchange) Done(*Conn, *Attempt) { x.done() }

// Failed settles a without an answer.
func (x *Exchange) Failed(c *Conn, a *Attempt, f Failure) {
	if f.Foreign {
		x.refuse(wire.AppendClientError(nil, f.Why))
		return
	}
	if a.streams && x.s != nil {
		x.s.cut(c.srv, f.Why)
	}
	x.fail(f.Why, f.Outcome)
	x.done()
}

// refuse settles a part that its server would not have understood by an error line.
func (x *Exchange) refuse(line []byte) {
	if x.dialect == wire.Meta || x.flags&wire.Quiet == 0 {
		x.errLine = append(x.errLine[:0], line...)
	}
	x.outcome = ClientFault
	x.done()
}

// textRead settles one VALUE, END or error line of a part of a text read.
func (x *Exchange) textRead(c *Conn, a *Attempt, r *wire.Reply, b []byte) (taken int) {
	switch r.Kind {
	case wire.Value:
		x.hits++
		if x.order != nil && x.s != nil {
			x.order.keep(&x.e.pool, a.strip+string(r.Key.Of(b)), x.clientForm(a, r, b[:r.Size]))
			return 0
		}
		if len(b) > r.Size && !x.endsWith() { // another part's END is what the client gets
			b = b[:r.Size]
		}
		return x.forward(a, r, b)
	case wire.End:
	case wire.ServerError:
		x.fail("server "+c.srv.label()+": "+string(r.Line.Of(b)), ServerFault)
	default: // one line ends the answer, however many parts have one
		x.errLine = append(x.errLine[:0], b...)
		x.outcome = ClientFault
	}
	return 0
}

// endsWith says, and notes, that the END of its last part is what the client gets.
func (x *Exchange) endsWith() bool {
	x.ended = x.waiting == 1 && x.order == nil && x.trouble == "" && len(x.errLine) == 0
	return x.ended
}

// forward sends b to the client, with the key as the client knows it.
func (x *Exchange) forward(a *Attempt, r *wire.Reply, b []byte) (taken int) {
	q := x.dest(a)
	switch {
	case q == nil:
	case a.renames():
		q.append(&x.e.pool, x.clientForm(a, r, b))
	case a.classic != nil: // b is not in the input
		q.append(&x.e.pool, b)
	case len(b) >= bigSpan:
		q.push(&x.e.pool, x.e.take(len(b)))
		return len(b)
	default:
		q.append(&x.e.pool, b)
	}
	return 0
}

// clientForm is the reply b with the key as the client knows it.
func (x *Exchange) clientForm(a *Attempt, r *wire.Reply, b []byte) []byte {
	if !a.renames() {
		return b
	}
	x.e.line = a.rename(x.e.line[:0], b, r)
	return x.e.line
}

// Streams says that a value is too large to wait for. One that has to be kept
// until its turn is waited for, unless there is no room.
func (x *Exchange) Streams(r *wire.Reply) bool {
	if x.order != nil {
		return x.e.scarce(r.Size)
	}
	return r.Body.Len() > wholeValue
}

// Begin forwards the beginning of a value.
func (x *Exchange) Begin(c *Conn, a *Attempt, r *wire.Reply, b []byte) (taken int) {
	if x.order != nil {
		x.fail(fmt.Sprintf("server %s: limits.memory has no room for a value of %d bytes that waits for its turn", c.srv.label(), r.Body.Len()), ServerFault)
		return 0
	}
	x.begin(a)
	x.hits++
	x.outcome = Hit
	return x.forward(a, r, b)
}

// More forwards more of a value.
func (x *Exchange) More(_ *Conn, a *Attempt, b []byte, last bool) (taken int) {
	if x.order != nil { // there was no room for it
		return 0
	}
	if q := x.dest(a); q == nil {
	} else if len(b) >= bigSpan {
		q.push(&x.e.pool, x.e.take(len(b)))
		taken = len(b)
	} else {
		q.append(&x.e.pool, b)
	}
	if last {
		x.end(a)
	}
	return taken
}

// instead is a part of an exchange whose client gets another answer than the
// server's, whatever that says.
type instead struct {
	*Exchange
	answer []byte
}

func (i *instead) Reply(*Conn, *Attempt, *wire.Reply, []byte) (taken int) {
	i.emit(nil, i.answer)
	i.outcome = ClientFault
	return 0
}

func (i *instead) Failed(c *Conn, a *Attempt, f Failure) {
	if f.Foreign {
		i.refuse(i.answer)
		return
	}
	i.Exchange.Failed(c, a, f)
}

func (i *instead) Streams(*wire.Reply) bool { return false }

// part is one server's part of a command to every server, whose answers x.gather
// makes one of.
type part struct {
	*Exchange
	answer []byte // so far
	cut    bool   // more of it came than there was room for
}

// ask makes an attempt whose answer is gathered.
func (x *Exchange) gatherAttempt() *Attempt {
	a := x.attempt()
	a.to = &part{Exchange: x}
	return a
}

func (p *part) Reply(_ *Conn, _ *Attempt, _ *wire.Reply, b []byte) (taken int) {
	switch x := p.Exchange; {
	case x.s == nil: // nobody waits for it
	case p.cut || x.e.scarce(len(b)): // a cachedump may bring 2 MiB a server
		p.cut = true
	default:
		p.answer = append(p.answer, b...)
		x.held += len(b)
		x.e.pool.hold(len(b))
	}
	return 0
}

func (p *part) Streams(*wire.Reply) bool { return false }

func (p *part) Done(c *Conn, _ *Attempt) {
	switch x := p.Exchange; {
	case x.s == nil:
	case p.cut:
		x.gather.add(c.srv, nil, fmt.Sprintf("server %s: no room for its answer: %s", c.srv.label(), outOfMemory))
	default:
		x.gather.add(c.srv, p.answer, "")
	}
	p.done()
}

func (p *part) Failed(c *Conn, _ *Attempt, f Failure) {
	if p.s != nil {
		p.gather.add(c.srv, nil, f.Why)
	}
	p.done()
}

// renames says that the client knows the key by another name than the server,
// or has asked for it and the server was not.
func (a *Attempt) renames() bool { return a.strip != "" || a.echo != nil }

// rename appends the reply b to dst with the key as the client knows it.
func (a *Attempt) rename(dst, b []byte, r *wire.Reply) []byte {
	if a.echo != nil {
		if here, ok := a.echo.At(b, r); ok {
			return append(append(append(dst, b[:here]...), a.echo.Text...), b[here:]...)
		}
	}
	asked, _ := a.named()
	key := r.Key.Of(b)
	dst = append(dst, b[:r.Key.Start]...)
	switch {
	case len(key) == 0:
	case r.Letters.Has('b') || r.Kind == wire.Item && !bytes.Equal(key, asked): // the item was made in base64
		dst = base64.StdEncoding.AppendEncode(dst, append([]byte(a.strip), asked...))
	default:
		dst = append(append(dst, a.strip...), key...)
	}
	return append(dst, b[r.Key.End:]...)
}
