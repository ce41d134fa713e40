package proxy

// What each deed of package replicate is as a request.

import (
	"bytes"
	"strconv"

	"ringside/proxy/wire"
	"ringside/replicate"
)

// line is the request of an ask.
func (c *copied) line(t *task, a *copyAsk) []byte {
	line := c.write(t, a)
	t.e.wire.Next(line, &t.e.plain)
	a.op, a.dialect = t.e.plain.Op, t.e.plain.Dialect
	return line
}

func (c *copied) write(t *task, a *copyAsk) []byte {
	r, key := &t.req, c.keyAt(t, a.Member)
	chosen := ""
	if a.Chosen {
		chosen = " E" + strconv.FormatUint(c.chosen, 10)
	}
	exptime := func() string {
		if r.Exptime.Len() == 0 {
			return ""
		}
		return " T" + string(r.Exptime.Of(t.raw))
	}
	switch a.Deed {
	case replicate.Forward:
		more := chosen
		if (t.op == wire.Incr || t.op == wire.Decr) && r.Dialect == wire.Meta && !r.Letters.Has('v') {
			a.shown = true
			more += " v"
		}
		end := r.Line.End
		var edits []edit
		if c.token != nil {
			edits = append(edits, edit{at: t.tokenSpan(), with: c.token})
		}
		if more != "" {
			edits = append(edits, edit{at: wire.Span{Start: end, End: end}, with: []byte(more)})
		}
		return t.spelled(key, edits...)
	case replicate.Put:
		flags := exptime() + chosen
		if r.ClientFlags.Len() > 0 {
			flags += " F" + string(r.ClientFlags.Of(t.raw))
		}
		return t.meta("ms", key, flags, t.body())
	case replicate.Join:
		mode := " MA"
		if t.op == wire.Prepend {
			mode = " MP"
		}
		return t.meta("ms", key, mode+chosen, t.body())
	case replicate.Count:
		flags := " v" + chosen
		if t.op == wire.Decr {
			flags += " MD"
		}
		if r.Delta.Len() > 0 {
			flags += " D" + string(r.Delta.Of(t.raw))
		}
		return t.meta("ma", key, flags+exptime(), nil)
	case replicate.Extend:
		return t.meta("mg", key, exptime(), nil)
	case replicate.Remove:
		return t.meta("md", key, "", nil)
	case replicate.Fetch:
		return t.meta("mg", key, " v f t s c", nil)
	case replicate.Stub:
		return t.meta("mg", key, " s c N"+strconv.Itoa(stubTime), nil)
	case replicate.Drop:
		return t.meta("md", key, " C"+c.arg(t, a.Guard, 'c'), nil)
	}
	// Fill.
	ttl := c.arg(t, a.From, 't')
	if ttl == "-1" {
		ttl = "0"
	}
	from := &c.asks[a.From].got
	from.parsed(wire.Get, wire.Meta, &t.e.rep)
	flags := " C" + c.arg(t, a.Guard, 'c') + " F" + c.arg(t, a.From, 'f') + " T" + ttl
	if a.Chosen {
		flags += " E" + c.arg(t, a.From, 'c')
	}
	from.parsed(wire.Get, wire.Meta, &t.e.rep)
	return t.meta("ms", key, flags, bytes.Clone(t.e.rep.Body.Of(from.bytes)))
}

// stubTime is how long a repair that was left unfinished may keep a key from
// being added, in seconds.
const stubTime = 30

// arg is what a meta flag says in the answer to an ask.
func (c *copied) arg(t *task, ask int, letter byte) string {
	got := &c.asks[ask].got
	if !got.parsed(wire.Get, wire.Meta, &t.e.rep) {
		return "0"
	}
	at, ok := wire.FlagArg(got.bytes, t.e.rep.MetaFlags, letter)
	if !ok {
		return "0"
	}
	return string(at.Of(got.bytes))
}

// hideNumber makes an answer to ma with v one to ma without: the client did not
// ask for the number.
func hideNumber(r *Result, rep *wire.Reply) {
	if !r.parsed(wire.Incr, wire.Meta, rep) || rep.Kind != wire.Value {
		return
	}
	flags := rep.MetaFlags.Of(r.bytes)
	line := append([]byte("HD"), bytes.TrimRight(append([]byte(" "), flags...), " \r\n")...)
	r.bytes = append(line, wire.LineEnd...)
}
