package copies

// What each deed of package replicate is as a request.

import (
	"bytes"
	"strconv"

	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
	"ringside/replicate"
)

// line is the request of an ask.
func (c *command) line(t *task.Task, a *copyAsk) []byte {
	line := c.write(t, a)
	t.Loop.Wire.Next(line, &t.Loop.Plain)
	a.op, a.dialect = t.Loop.Plain.Op, t.Loop.Plain.Dialect
	return line
}

func (c *command) write(t *task.Task, a *copyAsk) []byte {
	r, key := &t.Req, c.keyAt(t, a.Member)
	chosen := ""
	if a.Chosen {
		chosen = " E" + strconv.FormatUint(c.chosen, 10)
	}
	exptime := func() string {
		if r.Exptime.Len() == 0 {
			return ""
		}
		return " T" + string(r.Exptime.Of(t.Raw))
	}
	switch a.Deed {
	case replicate.Forward:
		more := chosen
		if (t.Op == wire.Incr || t.Op == wire.Decr) && r.Dialect == wire.Meta && !r.Letters.Has('v') {
			a.shown = true
			more += " v"
		}
		end := r.Line.End
		var edits []task.Edit
		if c.token != nil {
			edits = append(edits, task.Edit{At: t.TokenSpan(), With: c.token})
		}
		if more != "" {
			edits = append(edits, task.Edit{At: wire.Span{Start: end, End: end}, With: []byte(more)})
		}
		return t.WithKey(key, edits...)
	case replicate.Put:
		flags := exptime() + chosen
		if r.ClientFlags.Len() > 0 {
			flags += " F" + string(r.ClientFlags.Of(t.Raw))
		}
		return t.Meta("ms", key, flags, t.Body())
	case replicate.Join:
		mode := " MA"
		if t.Op == wire.Prepend {
			mode = " MP"
		}
		return t.Meta("ms", key, mode+chosen, t.Body())
	case replicate.Count:
		flags := " v" + chosen
		if t.Op == wire.Decr {
			flags += " MD"
		}
		if r.Delta.Len() > 0 {
			flags += " D" + string(r.Delta.Of(t.Raw))
		}
		return t.Meta("ma", key, flags+exptime(), nil)
	case replicate.Extend:
		return t.Meta("mg", key, exptime(), nil)
	case replicate.Remove:
		return t.Meta("md", key, "", nil)
	case replicate.Fetch:
		return t.Meta("mg", key, " v f t s c", nil)
	case replicate.Stub:
		return t.Meta("mg", key, " s c N"+strconv.Itoa(stubTime), nil)
	case replicate.Drop:
		return t.Meta("md", key, " C"+c.arg(t, a.Guard, 'c'), nil)
	}
	// Fill.
	ttl := c.arg(t, a.From, 't')
	if ttl == "-1" {
		ttl = "0"
	}
	from := &c.asks[a.From].got
	from.Parsed(wire.Get, wire.Meta, &t.Loop.Rep)
	flags := " C" + c.arg(t, a.Guard, 'c') + " F" + c.arg(t, a.From, 'f') + " T" + ttl
	if a.Chosen {
		flags += " E" + c.arg(t, a.From, 'c')
	}
	from.Parsed(wire.Get, wire.Meta, &t.Loop.Rep)
	return t.Meta("ms", key, flags, bytes.Clone(t.Loop.Rep.Body.Of(from.Bytes)))
}

// stubTime is how long a repair that was left unfinished may keep a key from
// being added, in seconds.
const stubTime = 30

// arg is what a meta flag says in the answer to an ask.
func (c *command) arg(t *task.Task, ask int, letter byte) string {
	got := &c.asks[ask].got
	if !got.Parsed(wire.Get, wire.Meta, &t.Loop.Rep) {
		return "0"
	}
	at, ok := wire.FlagArg(got.Bytes, t.Loop.Rep.MetaFlags, letter)
	if !ok {
		return "0"
	}
	return string(at.Of(got.Bytes))
}

// hideNumber makes an answer to ma with v one to ma without: the client did not
// ask for the number.
func hideNumber(r *upstream.Result, rep *wire.Reply) {
	if !r.Parsed(wire.Incr, wire.Meta, rep) || rep.Kind != wire.Value {
		return
	}
	flags := rep.MetaFlags.Of(r.Bytes)
	line := append([]byte("HD"), bytes.TrimRight(append([]byte(" "), flags...), " \r\n")...)
	r.Bytes = append(line, wire.LineEnd...)
}
