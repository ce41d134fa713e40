package client

// This file handles the replies of servers to the parts of a client's command, and sends them
// to the client.

import (
	"fmt"
	"strconv"

	"ringside/proxy/link"
	"ringside/proxy/stats"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// wholeValue is the maximum size of a value that is only forwarded when all of it has arrived.
// A larger one is forwarded as it arrives. If its server fails in the middle, the client is
// closed.
const wholeValue = 64 << 10

// Client returns the number of the client that waits for x; 0: it is gone.
func (x *Exchange) Client() uint64 {
	if x.Session == nil {
		return 0
	}
	return x.Session.ID
}

// Reply handles one reply to the part a, with the bytes b. It forwards the reply, or records it
// until all parts have finished.
func (x *Exchange) Reply(c *upstream.Conn, a *upstream.Attempt, r *wire.Reply, b []byte) (taken int) {
	switch {
	case a.Dialect == wire.Text && a.Op <= wire.Gats:
		return x.textRead(c, a, r, b)
	case r.Kind == wire.ServerError && a.Op == wire.Get:
		x.FailByServer(a.Share, c.Server.Label(), string(r.Line.Of(b)))
	default:
		x.Outcome = stats.OutcomeOf(r.Kind)
		if a.Op == wire.Get && r.Kind == wire.Header { // the server has the item, and the client requested no value: mg without v
			x.Outcome = stats.Hit
		}
		x.Lookup.FoundMeta(a.Share, a, r, b)
		if !wire.Hidden(a.Op, a.Dialect, a.Flags, r.Kind) {
			return x.forward(a, r, b)
		}
	}
	return 0
}

// Done is called when the reply to the part a is complete.
func (x *Exchange) Done(c *upstream.Conn, a *upstream.Attempt) {
	if x.Slow() {
		x.slowPart(c, a, c.Slowest(a), "")
	}
	x.FinishOne()
}

// Failed is called when the part a has failed, perhaps after a part of its reply.
func (x *Exchange) Failed(c *upstream.Conn, a *upstream.Attempt, f upstream.Failure) {
	if f.Foreign {
		x.refuse(wire.AppendClientError(nil, f.Why))
		return
	}
	if x.Slow() {
		x.slowPart(c, a, c.FailedIn(a, f), f.Why)
	}
	x.Fail(a.Share, f.Why, f.Outcome)
	if a.Streams && x.Session != nil && x.InOrder == nil && x.breakOff(a) { // if x.InOrder is set, nothing of the value has been sent to the client yet
		x.Session.cut(x)
	}
	x.FinishOne()
}

// refuse ends one request of x with an error line. The request was not sent, because the
// release of the server does not support it.
func (x *Exchange) refuse(line []byte) {
	if x.dialect == wire.Meta || x.Flags&wire.Quiet == 0 {
		x.ErrLine = append(x.ErrLine[:0], line...)
	}
	x.Outcome = stats.ClientFault
	x.FinishOne()
}

// textRead handles one VALUE, END or error line of a part of a text read.
func (x *Exchange) textRead(c *upstream.Conn, a *upstream.Attempt, r *wire.Reply, b []byte) (taken int) {
	switch r.Kind {
	case wire.Value:
		x.Hit(a.Share)
		x.Lookup.FoundText(a.Share, r, b)
		if x.InOrder != nil && x.Session != nil {
			x.InOrder.Keep(&x.e.Buffers, a.Strip+string(r.Key.Of(b)), x.clientForm(a, r, b[:r.Size]))
			return 0
		}
		switch {
		case a.Joined && r.Last && len(b) < link.BigSpan && x.Session != nil && !a.Renames() && x.endsWith(): // several gets share one request, so there is no END yet after this value
			q := x.dest(a)
			x.e.Add(q, append(append(x.e.Draft(q, len(b)+len(wire.EndLine)), b...), wire.AnswerEnd...))
			return 0
		case len(b) > r.Size && !x.endsWith(): // b ends with END, which is cut off: the client gets END after the last value
			b = b[:r.Size]
		}
		return x.forward(a, r, b)
	case wire.End:
	case wire.ServerError:
		x.FailByServer(a.Share, c.Server.Label(), string(r.Line.Of(b)))
	default: // an error line: the client gets only one, even if several servers send one
		x.ErrLine = append(x.ErrLine[:0], b...)
		x.Outcome = stats.ClientFault
	}
	return 0
}

// endsWith reports and records whether the client gets the END of the current part.
func (x *Exchange) endsWith() bool {
	x.ended = x.Waiting == 1 && x.InOrder == nil && len(x.Rest) == 0 && x.trouble == "" && len(x.ErrLine) == 0
	return x.ended
}

// forward sends b to the client, with the key as the client knows it.
func (x *Exchange) forward(a *upstream.Attempt, r *wire.Reply, b []byte) (taken int) {
	x.replies++
	q := x.dest(a)
	switch {
	case q == nil:
	case a.Renames():
		q.Append(&x.e.Buffers, x.clientForm(a, r, b))
	case a.AsText != nil: // b was built here, so it can't be moved out of the input
		q.Append(&x.e.Buffers, b)
	case len(b) >= link.BigSpan:
		return x.give(q, b, 0, len(b))
	default:
		q.Append(&x.e.Buffers, b)
	}
	return 0
}

// give appends b[from:to] to q. If b is large, it moves b out of the input: taken is len(b) then.
func (x *Exchange) give(q *link.Queue, b []byte, from, to int) (taken int) {
	if len(b) < link.BigSpan {
		q.Append(&x.e.Buffers, b[from:to])
		return 0
	}
	c := x.e.Take(len(b))
	c.Start, c.End = c.Start+from, c.Start+to
	q.Push(&x.e.Buffers, c)
	return len(b)
}

// Value forwards a value that arrived as the meta reply b, to a client that has not sent a meta
// request. a has the key. A text client gets the client flags and, if cas is not nil, the cas.
func (x *Exchange) Value(a *upstream.Attempt, r *wire.Reply, b, flags, cas []byte) (taken int) {
	e := x.e
	x.Hit(a.Share)
	if x.Lookup != nil {
		x.Lookup.FoundShown(a.Share, a, flags, r.Body.Of(b))
	}
	if x.Flags&wire.Binary != 0 {
		x.Outcome = stats.Hit
		return x.forwardValue(a, r, b)
	}
	q := x.dest(a)
	if q == nil {
		return 0
	}
	if x.InOrder != nil {
		e.Line = append(appendValueHead(e.Line[:0], a, r.Body.Len(), flags, cas), b[r.Body.Start:r.Size]...)
		key, _ := a.Named()
		x.InOrder.Keep(&e.Buffers, a.Strip+string(key), e.Line)
		return 0
	}
	line := appendValueHead(e.Draft(q, len(a.Strip)+longestHead+len(b)), a, r.Body.Len(), flags, cas)
	if len(b) >= link.BigSpan {
		e.Add(q, line)
		return x.give(q, b, int(r.Body.Start), len(b))
	}
	line = append(line, b[r.Body.Start:r.Size]...)
	if x.endsWith() {
		line = append(line, wire.AnswerEnd...)
	}
	e.Add(q, line)
	return 0
}

// longestHead is more than the bytes of a VALUE line without a.Strip, and of END, that the meta reply
// does not have. The reply has the key.
const longestHead = 32

// appendValueHead appends to dst the VALUE line for a value of size bytes.
func appendValueHead(dst []byte, a *upstream.Attempt, size int, flags, cas []byte) []byte {
	key, _ := a.Named()
	if dst = append(dst, "VALUE "...); a.Strip != "" {
		dst = append(dst, a.Strip...)
	}
	dst = append(dst, key...)
	dst = append(append(dst, ' '), flags...)
	dst = appendDecimal(append(dst, ' '), uint(size))
	if cas != nil {
		dst = append(append(dst, ' '), cas...)
	}
	return append(dst, wire.CRLF...)
}

// appendDecimal appends n to dst. It takes half the time of strconv.AppendUint, which is only fast for
// two digits.
func appendDecimal(dst []byte, n uint) []byte {
	switch {
	case n < 100:
		return strconv.AppendUint(dst, uint64(n), 10)
	case n >= 1000:
		dst = appendDecimal(dst, n/1000)
		n %= 1000
	}
	return append(dst, byte('0'+n/100), byte('0'+n/10%10), byte('0'+n%10))
}

// BeginValue forwards the head of a value that arrives in pieces as a meta reply, to a client
// that has not sent a meta request. More forwards the rest.
func (x *Exchange) BeginValue(c *upstream.Conn, a *upstream.Attempt, r *wire.Reply, b, flags, cas []byte) {
	switch {
	case x.Flags&wire.Binary != 0:
		x.frames.Begin(c, a, r, b)
		return
	case x.InOrder != nil:
		x.Begin(c, a, r, b)
		return
	}
	x.begin(a, r.Body.Len())
	x.Hit(a.Share)
	x.Outcome = stats.Hit
	if q := x.dest(a); q != nil {
		x.e.Line = appendValueHead(x.e.Line[:0], a, r.Body.Len(), flags, cas)
		q.Append(&x.e.Buffers, x.e.Line)
		q.Append(&x.e.Buffers, b[r.Body.Start:])
	}
}

// clientForm returns the reply b with the key as the client knows it.
func (x *Exchange) clientForm(a *upstream.Attempt, r *wire.Reply, b []byte) []byte {
	if !a.Renames() {
		return b
	}
	x.e.Line = a.Rename(x.e.Line[:0], b, r)
	return x.e.Line
}

// Streams reports whether a value is too large to wait for all of it. A value that must wait for
// earlier values of the same reply is stored and not streamed, unless limits.memory has no room for
// it. Then Begin fails its key.
func (x *Exchange) Streams(r *wire.Reply, _ []byte) bool {
	if x.InOrder != nil {
		return x.e.Scarce(r.Size) || x.e.Servers.ExceedsWhole(r.Size)
	}
	return r.Body.Len() > wholeValue
}

// Begin forwards the beginning of a value.
func (x *Exchange) Begin(c *upstream.Conn, a *upstream.Attempt, r *wire.Reply, b []byte) (taken int) {
	if x.InOrder != nil {
		x.Fail(a.Share, fmt.Sprintf("server %s: limits.memory has no room for a value of %d bytes that waits for its turn", c.Server.Label(), r.Body.Len()), stats.ServerFault)
		return 0
	}
	x.begin(a, r.Body.Len())
	x.Hit(a.Share)
	x.Outcome = stats.Hit
	return x.forward(a, r, b)
}

// More forwards the next bytes of a value.
func (x *Exchange) More(c *upstream.Conn, a *upstream.Attempt, b []byte, last bool) (taken int) {
	switch {
	case x.Flags&wire.Binary != 0: // for a binary client, BeginValue has sent the beginning of the value as a frame
		return x.frames.More(c, a, b, last)
	case x.InOrder != nil: // Begin has failed the key, because there was no memory to store its value until its turn
		return 0
	}
	if q := x.dest(a); q != nil {
		taken = x.give(q, b, 0, len(b))
	}
	if last {
		x.end(a)
	}
	return taken
}

// IsSlow reports whether the client does not read its replies. If so, it also paces the client.
func (x *Exchange) IsSlow() bool {
	if x.Session == nil || !x.Session.behind(x.Out.Size) {
		return false
	}
	x.Session.fallBehind()
	return true
}

// TakeBack takes back the part a, a read without any reply so far: its keys are requested again
// later, with the rest.
func (x *Exchange) TakeBack(a *upstream.Attempt) {
	x.Session.pace()
	x.e.Line = a.AppendKeys(x.e.Line[:0], a.Strip)
	command := wire.Get
	if x.Op == wire.Gets || x.Flags&wire.Binary != 0 { // the reply to a binary request includes the cas
		command = wire.Gets
	}
	x.KeepRest([]byte(command.String()), x.e.Line)
	if x.Waiting--; x.Waiting == 0 {
		x.Session.unstall()
	}
}

// TakesBack returns true: an exchange can request the keys of a part again.
func (x *Exchange) TakesBack() bool { return true }

// Instead is a part of an exchange. Its client gets Answer, whatever the server replies.
type Instead struct {
	*Exchange
	Answer []byte
}

func (i *Instead) Reply(*upstream.Conn, *upstream.Attempt, *wire.Reply, []byte) (taken int) {
	i.Emit(i.Answer)
	i.Outcome = stats.ClientFault
	return 0
}

func (i *Instead) Failed(c *upstream.Conn, a *upstream.Attempt, f upstream.Failure) {
	if f.Foreign {
		i.refuse(i.Answer)
		return
	}
	i.Exchange.Failed(c, a, f)
}

func (i *Instead) Streams(*wire.Reply, []byte) bool { return false }

// Part is one server's part of a command that is sent to every server. Exchange.Gather combines
// the replies.
type Part struct {
	*Exchange
	answer []byte // the reply, as far as it has arrived
	cut    bool   // the reply is discarded, because there was no memory for all of it
}

// GatherAttempt creates an attempt of x with a reply for Exchange.Gather.
func (x *Exchange) GatherAttempt() *upstream.Attempt {
	a := x.Attempt()
	p := &Part{Exchange: x}
	a.To, x.parts = p, append(x.parts, p)
	return a
}

func (p *Part) Reply(_ *upstream.Conn, _ *upstream.Attempt, _ *wire.Reply, b []byte) (taken int) {
	switch x := p.Exchange; {
	case x.Session == nil: // the client is gone
	case p.cut:
	case x.e.Scarce(len(b)): // a reply to stats cachedump may have 2 MiB per server
		x.HoldGathered(-len(p.answer))
		p.answer, p.cut = nil, true
	default:
		p.answer = append(p.answer, b...)
		x.HoldGathered(len(b))
	}
	return 0
}

func (p *Part) Streams(*wire.Reply, []byte) bool { return false }

func (p *Part) Done(c *upstream.Conn, _ *upstream.Attempt) {
	switch x := p.Exchange; {
	case x.Session == nil:
	case p.cut:
		x.Gather.Add(c.Server, nil, fmt.Sprintf("server %s: no room for its answer: %s", c.Server.Label(), link.OutOfMemory))
	default:
		x.Gather.Add(c.Server, p.answer, "")
	}
	p.FinishOne()
}

func (p *Part) Failed(c *upstream.Conn, _ *upstream.Attempt, f upstream.Failure) {
	if p.Session != nil {
		p.Gather.Add(c.Server, nil, f.Why)
	}
	p.FinishOne()
}
