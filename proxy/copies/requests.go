package copies

// The request that each deed of package replicate is, and what is read back from its
// answer.

import (
	"bytes"
	"slices"
	"strconv"
	"time"

	"ringside/proxy/health/divert"
	"ringside/proxy/task"
	"ringside/proxy/wire"
	"ringside/replicate"
)

// line is the request of an ask. The answer is parsed by its op and dialect, which may be
// other ones than the client's.
func (c *command) line(t *task.Task, a *copyAsk) []byte {
	line := c.spell(t, a)
	if len(t.Raw) > 0 && &line[0] == &t.Raw[0] { // the client's own, which is parsed
		t.Loop.Plain = t.Req
		t.Loop.Plain.Flags &^= wire.Binary
	} else {
		t.Loop.Wire.Next(line, &t.Loop.Plain)
	}
	a.op, a.dialect = t.Loop.Plain.Op, t.Loop.Plain.Dialect
	return line
}

// spell writes the request of an ask. The comments at package replicate's deeds say what
// each has to show.
func (c *command) spell(t *task.Task, a *copyAsk) []byte {
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
	mark := " F" + wire.MarkFlags + " T" + strconv.Itoa(markTime(t)) + " c"
	guard := func() string { return " C" + c.arg(t, a.Guard, 'c') }
	switch a.Deed {
	case replicate.Forward:
		return c.forward(t, a, key, chosen)
	case replicate.Store:
		if r.Dialect == wire.Text {
			a.respelled = true
			return t.Meta("ms", key, guard()+" F"+string(r.ClientFlags.Of(t.Raw))+exptime()+" c", t.Body())
		}
		at, _ := wire.FlagArg(t.Raw, r.MetaFlags, 'M')
		at.Start--
		return t.WithKey(key, task.Edit{At: at, With: []byte(guard()[1:])}, c.also(t, a, "c", chosen))
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
		return t.Meta("ms", key, mode+guard()+chosen, t.Body())
	case replicate.Count:
		flags := " v" + guard() + chosen
		if t.Op == wire.Decr {
			flags += " MD"
		}
		if r.Delta.Len() > 0 {
			flags += " D" + string(r.Delta.Of(t.Raw))
		}
		return t.Meta("ma", key, flags+exptime(), nil)
	case replicate.Extend:
		return t.Meta("mg", key, " s f c"+exptime(), nil)
	case replicate.Remove:
		return t.Meta("md", key, "", nil)
	case replicate.Fetch:
		return t.Meta("mg", key, " v f t s c", nil)
	case replicate.Preview:
		if t.Op == wire.Incr || t.Op == wire.Decr {
			return t.Meta("mg", key, " s f c v", nil)
		}
		return t.Meta("mg", key, " s f c", nil)
	case replicate.Look, replicate.Review, replicate.Check:
		if a.Deed == replicate.Check && c.ofSet(t, a.Guard) {
			return t.Meta("mg", key, " v f", nil)
		}
		return t.Meta("mg", key, " s f c", nil)
	case replicate.Claim:
		return t.Meta("ms", key, " ME"+mark, []byte{})
	case replicate.Bury:
		return t.Meta("ms", key, mark, []byte{})
	case replicate.Swap:
		return t.Meta("ms", key, " C"+string(c.token)+mark, []byte{})
	case replicate.Remark:
		return t.Meta("ms", key, guard()+mark, []byte{})
	case replicate.Drop:
		return t.Meta("md", key, guard(), nil)
	}
	return c.fill(t, a, key, guard())
}

// fill stores what another member had, if the cas of guard is still there.
func (c *command) fill(t *task.Task, a *copyAsk, key []byte, guard string) []byte {
	ttl := c.arg(t, a.From, 't')
	if ttl == "-1" {
		ttl = "0"
	}
	from := &c.asks[a.From].result
	flags := guard + " F" + c.arg(t, a.From, 'f') + " T" + ttl
	if a.Chosen {
		flags += " E" + c.arg(t, a.From, 'c')
	}
	return t.Meta("ms", key, flags, from.Reply.Body.Of(from.Bytes))
}

// forward is the client's own request with the key and the cas of the member, and with
// the flags by which the answer shows what the rule needs to know.
func (c *command) forward(t *task.Task, a *copyAsk, key []byte, chosen string) []byte {
	r := &t.Req
	if r.Dialect == wire.Text && (t.Op == wire.Append || t.Op == wire.Prepend) {
		a.respelled = true
		return t.Meta("ms", key, [...]string{" MA c", " MP c"}[t.Op-wire.Append], t.Body())
	}
	var edits []task.Edit
	if c.token != nil {
		edits = append(edits, task.Edit{At: t.TokenSpan(), With: c.token})
	}
	switch {
	case r.Dialect == wire.Text:
	case t.Op == wire.Incr || t.Op == wire.Decr:
		edits = append(edits, c.also(t, a, "v", chosen))
	case t.Op == wire.Append || t.Op == wire.Prepend:
		edits = append(edits, c.also(t, a, "c", chosen))
	case t.Op <= wire.Gats:
		edits = append(edits, c.also(t, a, "f", chosen))
	case chosen != "":
		edits = append(edits, c.also(t, a, "", chosen))
	}
	return t.WithKey(key, edits...)
}

// ofSet says that an ask is the client's own set, whose answer shows no cas.
func (c *command) ofSet(t *task.Task, ask int) bool {
	return c.asks[ask].Deed == replicate.Forward && t.Op == wire.Set
}

// expired says that what t stores is gone at once, by an exptime that has passed.
func (c *command) expired(t *task.Task) bool {
	n, err := strconv.ParseInt(string(t.Req.Exptime.Of(t.Raw)), 10, 64)
	return err == nil && divert.CapTTL(n, 1, c.e.Wall) < 0
}

// after is what t's command makes of an item: its size after an append, its number after
// an incr. seen is the answer to a Preview of the item, size its size there.
func after(t *task.Task, seen []byte, rep *wire.Reply, size uint64) uint64 {
	if t.Op == wire.Append || t.Op == wire.Prepend {
		return size + uint64(len(t.Body()))
	}
	n, _ := strconv.ParseUint(string(bytes.TrimSpace(rep.Body.Of(seen))), 10, 64)
	delta := uint64(1)
	if t.Req.Delta.Len() > 0 {
		delta, _ = strconv.ParseUint(string(t.Req.Delta.Of(t.Raw)), 10, 64)
	}
	if t.Op == wire.Incr {
		return n + delta
	}
	return n - min(n, delta)
}

// also is the edit that adds flags to the client's meta request: the flag letter, if the
// client has not asked for it (hide takes it out of the answer), and more.
func (c *command) also(t *task.Task, a *copyAsk, letter, more string) task.Edit {
	if letter != "" && !t.Req.Letters.Has(letter[0]) {
		a.added = letter[0]
		more += " " + letter
	}
	end := t.Req.Line.End
	return task.Edit{At: wire.Span{Start: end, End: end}, With: []byte(more)}
}

// markTime is the TTL of a mark in seconds. It is longer than the deadline of a command,
// so whoever has made the mark has ended before it expires.
func markTime(t *task.Task) int {
	return max(5, int((t.Route.Pool.Timeouts.Deadline+time.Second-1)/time.Second)+2)
}

// arg is the argument of a meta flag in the answer to an ask; "0" if it is not there.
func (c *command) arg(t *task.Task, ask int, letter byte) string {
	got := &c.asks[ask].result
	at, ok := wire.FlagArg(got.Bytes, got.Reply.MetaFlags, letter)
	if !ok {
		return "0"
	}
	return string(at.Of(got.Bytes))
}

// hide takes the flag that Ringside has added out of the answer.
func (a *copyAsk) hide() {
	r := &a.result
	rep := &r.Reply
	if a.added == 0 {
		return
	}
	if a.added == 'v' {
		if rep.Kind == wire.Value {
			flags := rep.MetaFlags.Of(r.Bytes)
			line := append([]byte("HD"), bytes.TrimRight(append([]byte(" "), flags...), " \r\n")...)
			r.SetAnswer(a.op, a.dialect, append(line, wire.CRLF...))
		}
		return
	}
	if at, ok := wire.FlagArg(r.Bytes, rep.MetaFlags, a.added); ok {
		from := at.Start - 1
		if r.Bytes[from-1] == ' ' {
			from--
		}
		r.SetAnswer(a.op, a.dialect, append(slices.Clone(r.Bytes[:from]), r.Bytes[at.End:]...))
	}
}
