package replication

// This file formats the request for each step (replicate.Step) of a rule.

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

// line returns the bytes of the request for the ask a. It records the op and the dialect with
// which the reply must be parsed. Both may differ from those of the client's request.
func (c *command) line(t *task.Task, a *copyAsk) []byte {
	line := c.spell(t, a)
	if len(t.Raw) > 0 && &line[0] == &t.Raw[0] { // the client's own request, which is parsed already
		t.Loop.Plain = t.Req
		t.Loop.Plain.Flags &^= wire.Binary
	} else {
		t.Loop.Wire.One(line, &t.Loop.Plain)
	}
	a.op, a.dialect = t.Loop.Plain.Op, t.Loop.Plain.Dialect
	return line
}

// spell formats the request for the ask a. The comments at the constants of replicate.Step say
// what its reply must contain.
func (c *command) spell(t *task.Task, a *copyAsk) []byte {
	r, key := &t.Req, c.keyAt(t, a.Replica)
	exptime := func() string {
		if r.Exptime.Len() == 0 {
			return ""
		}
		return " T" + t.Exptime()
	}
	if a.respelled = true; a.Step == replicate.Forward {
		if c.readsSource(t, a) {
			return task.StepRequest(t, replicate.Fetch, key, "", 0)
		}
		return c.forward(t, a, key)
	}
	guard := task.CasFlag(&c.asks[a.Guard].result)
	switch a.Step {
	case replicate.Store:
		switch a.respelled = r.Dialect == wire.Text; {
		case t.Op == wire.Delete && c.token != nil: // an md with the client's cas token: an earlier ask has found that the token matches
			return t.WithKey(key, task.Edit{At: t.TokenSpan(), With: []byte(guard[len(" C"):])})
		case t.Op == wire.Delete:
			return t.WithKey(key, a.show(t, 0, guard))
		case r.Dialect == wire.Text:
			return t.Meta("ms", key, guard+" F"+t.ClientFlags()+exptime()+" c", t.Body())
		}
		return t.WithKey(key, a.guarded(t, guard, t.Op != wire.Set)...)
	case replicate.Join:
		if c.moving != nil && r.Dialect == wire.Meta { // there is no follower, so the client gets the reply
			a.respelled = false
			return t.WithKey(key, a.guarded(t, guard, false)...)
		}
		mode := " MA"
		if t.Op == wire.Prepend {
			mode = " MP"
		}
		return t.Meta("ms", key, mode+guard, t.Body())
	case replicate.Extend:
		if c.moving != nil && r.Flags&wire.Base64 == 0 {
			return slices.Concat([]byte("gats "+t.Exptime()+" "), key, wire.CRLF)
		}
		return t.Meta("mg", key, " s f c"+exptime(), nil)
	case replicate.RefreshTombstone:
		if a.Guard == a.Number {
			guard = " C" + string(c.token)
		}
	case replicate.Fill:
		return task.FillRequest(t, key, guard, &c.asks[a.From].result)
	case replicate.Preview:
		if t.Op == wire.Incr || t.Op == wire.Decr {
			return t.Meta("mg", key, " s f c v", nil)
		}
	case replicate.Check:
		if c.ofSet(t, a.Guard) {
			return t.Meta("mg", key, " v f", nil)
		}
		fallthrough
	case replicate.Look:
		if c.moving != nil && a.Replica == 0 && c.keepsStale(t, key) { // the old owner's stale items do not move
			return slices.Concat([]byte("gets "), key, wire.CRLF)
		}
	}
	life := tombstoneTTL(t)
	if c.moving != nil {
		life = min(life, mostPlaceholder)
	}
	if c.filling() {
		life = c.fillLife(a.Replica)
	}
	return task.StepRequest(t, a.Step, key, guard, life)
}

// forward returns the client's own request, but with the key and the cas that are valid at the
// replica of a. It adds the meta flags for what the rule must see in the reply.
func (c *command) forward(t *task.Task, a *copyAsk, key []byte) []byte {
	r := &t.Req
	a.respelled = r.Dialect == wire.Text && (t.Op == wire.Append || t.Op == wire.Prepend)
	if a.respelled {
		return t.Meta("ms", key, [...]string{" MA c", " MP c"}[t.Op-wire.Append], t.Body())
	}
	var edits []task.Edit
	if c.token != nil {
		edits = append(edits, task.Edit{At: t.TokenSpan(), With: c.token})
	}
	switch {
	case r.Dialect == wire.Text:
	case t.Op == wire.Incr || t.Op == wire.Decr:
		edits = append(edits, a.show(t, 'v', ""))
	case t.Op == wire.Append || t.Op == wire.Prepend:
		edits = append(edits, a.show(t, 'c', ""))
	case t.Op <= wire.Gats:
		edits = append(edits, a.show(t, 'f', ""))
	}
	return t.WithKey(key, edits...)
}

// guarded returns the edits to the client's ms that make it store only in place of the item with the cas
// in the flag guard. The reply must show the new cas. With any, the mode of the ms goes, so that it can
// store in place of an item. The client's token goes, too: the item has this cas already, or the client's
// command is an add, which ignores the token. The flag I would also store in place of a newer item.
func (a *copyAsk) guarded(t *task.Task, guard string, any bool) (edits []task.Edit) {
	remove := func(letter byte, with string) bool {
		at, ok := wire.FlagArg(t.Raw, t.Req.MetaFlags, letter)
		if ok {
			edits = append(edits, task.Edit{At: wire.Span{Start: at.Start - 2, End: at.End}, With: []byte(with)}) // with the space before the letter
		}
		return ok
	}
	remove('C', "")
	remove('I', "")
	if any && remove('M', guard) {
		guard = ""
	}
	return append(edits, a.show(t, 'c', guard))
}

// keepsStale reports whether an item that is stale may be the same after t. A look at it must then not be
// an mg: the server would tell Ringside, and no client after that, to rebuild the value. A key
// that no text command can have is looked at with mg.
func (c *command) keepsStale(t *task.Task, key []byte) bool {
	switch t.Op {
	case wire.Set, wire.Replace, wire.Delete:
		if !t.Req.Letters.Has('C') {
			return false
		}
	}
	return wire.PlainKey(key)
}

// ofSet reports whether the ask with the number `ask` is the client's own set. Its reply shows no
// cas.
func (c *command) ofSet(t *task.Task, ask int) bool {
	return c.asks[ask].Step == replicate.Forward && t.Op == wire.Set
}

// expired reports whether the item expires at once, because t sets an exptime that has passed. An
// append does not set one.
func (c *command) expired(t *task.Task) bool {
	return t.Op != wire.Append && t.Op != wire.Prepend && divert.CapTTL(wire.Signed(t.Req.Exptime.Of(t.Raw)), 1, c.e.Wall) < 0
}

// after returns the result that t's command would have on an item: the size after an append, or
// the number after an incr. The parameter `seen` has the bytes of rep, the reply to a Preview of
// the item. size is the present size of the item.
func after(t *task.Task, seen []byte, rep *wire.Reply, size uint64) uint64 {
	if t.Op == wire.Append || t.Op == wire.Prepend {
		return size + uint64(len(t.Body()))
	}
	n, _ := strconv.ParseUint(string(bytes.TrimSpace(rep.Body.Of(seen))), 10, 64)
	if t.Op == wire.Incr {
		return n + t.Delta()
	}
	return n - min(n, t.Delta())
}

// show returns the edit that adds meta flags to the client's request (see task.Show). It records
// the added flag, because settle must remove this flag from the reply.
func (a *copyAsk) show(t *task.Task, letter byte, more string) (edit task.Edit) {
	edit, a.added = task.Show(t, letter, more)
	return edit
}

// tombstoneTTL returns the TTL of a tombstone, in seconds. The TTL is longer than the deadline of
// a command, so the command ends before its tombstone expires. With a usual deadline it also covers the
// new deadline of what follows the reply (command.finish), and memcached may expire an item a second
// early. A tombstone without a reply stays that long: its server may still store it, and only its cas,
// which is not known then, would allow to remove no other item.
func tombstoneTTL(t *task.Task) int {
	return max(5, int((t.Route.Pool.Timeouts.Deadline+time.Second-1)/time.Second)+2)
}
