package proxy

// What a task's command asks for, and what the answers to it mean, whoever leads it.

import (
	"math"
	"strconv"
	"time"

	"ringside/proxy/health"
	"ringside/proxy/wire"
	"ringside/replicate"
)

// absence is how t's command says that there is nothing.
func absence(t *task) wire.Kind {
	switch {
	case t.op <= wire.Gats && t.req.Dialect == wire.Text:
		return wire.End
	case t.op <= wire.Gats || t.op == wire.Debug:
		return wire.Miss
	case t.op == wire.Add || t.op == wire.Replace || t.op == wire.Append || t.op == wire.Prepend:
		return wire.NotStored
	}
	return wire.NotFound
}

// commandOf says what t's command is to package replicate.
func commandOf(t *task) replicate.Command {
	r := &t.req
	c := replicate.Command{Op: operations[t.op]}
	if r.Dialect == wire.Text {
		return c
	}
	has := r.Letters.Has
	c.If = has('C')
	c.Vivify = has('N')
	c.Stale = has('I')
	if t.op == wire.Get {
		c.Win = has('N') || has('R')
		switch cas, touch := has('c'), has('T'); {
		case cas && touch:
			c.Op = replicate.Gats
		case touch:
			c.Op = replicate.Gat
		case cas:
			c.Op = replicate.Gets
		}
	}
	return c
}

var operations = [wire.NumOps]replicate.Op{
	wire.Get: replicate.Get, wire.Gets: replicate.Gets, wire.Gat: replicate.Gat, wire.Gats: replicate.Gats,
	wire.Set: replicate.Set, wire.Add: replicate.Add, wire.Replace: replicate.Replace, wire.Append: replicate.Append,
	wire.Prepend: replicate.Prepend, wire.Cas: replicate.Cas, wire.Incr: replicate.Incr, wire.Decr: replicate.Decr,
	wire.Touch: replicate.Touch, wire.Delete: replicate.Delete, wire.Debug: replicate.Debug,
}

// token is the cas token that the client gives.
func (t *task) token() (n uint64, ok bool) {
	at := t.tokenSpan()
	if at.Len() == 0 {
		return 0, false
	}
	n, err := strconv.ParseUint(string(at.Of(t.raw)), 10, 64)
	return n, err == nil
}

func (t *task) tokenSpan() wire.Span { return t.req.Unique }

// shortLived are the edits that let the item live no longer than limit.
func (t *task) shortLived(limit time.Duration) []edit {
	most := int64(limit / time.Second)
	now := time.Now().Unix()
	cap := func(at wire.Span) edit {
		n, err := strconv.ParseInt(string(at.Of(t.raw)), 10, 64)
		if err != nil {
			n = math.MaxInt32
		}
		return edit{at, strconv.AppendInt(nil, health.CapTTL(n, most, now), 10)}
	}
	switch {
	case t.req.Exptime.Len() > 0 && t.op != wire.FlushAll:
		return []edit{cap(t.req.Exptime)}
	case t.req.Dialect == wire.Meta && t.op.Stores():
		end := t.req.Line.End
		return []edit{{wire.Span{Start: end, End: end}, strconv.AppendInt([]byte(" T"), most, 10)}}
	}
	if at, ok := wire.FlagArg(t.raw, t.req.MetaFlags, 'N'); ok && t.req.Dialect == wire.Meta {
		return []edit{cap(at)}
	}
	return nil
}

// body is the data block of t's request.
func (t *task) body() []byte {
	b := t.req.Body.Of(t.raw)
	if b == nil {
		return []byte{}
	}
	return b
}

// builds says whether a command needs what is there: without it, it would find
// nothing where the interim server has a value.
func builds(op wire.Op) bool {
	switch op {
	case wire.Incr, wire.Decr, wire.Append, wire.Prepend, wire.Replace, wire.Cas, wire.Touch:
		return true
	}
	return false
}

// missed says whether an answer to t's request is a miss.
func (t *task) missed(r *Result) bool {
	rep := &t.e.rep
	return r.parsed(t.op, t.req.Dialect, rep) && (rep.Kind == wire.End || rep.Kind == wire.Miss || rep.Kind == wire.NotFound)
}

// isStub says whether an answer to t's request is a stub, and shows it.
func (t *task) isStub(r *Result) bool {
	rep := &t.e.rep
	return t.req.Dialect == wire.Meta && r.parsed(t.op, wire.Meta, rep) && rep.Kind == wire.Value && rep.Body.Len() == 0 &&
		rep.Letters.Has('Z') && !commandOf(t).Vivify
}

// mayBeStub says that what a read has found looks like what a repair leaves
// while it is at work, and does not say whether it is.
func mayBeStub(t *task, rep *wire.Reply) bool {
	if t.req.Dialect == wire.Text {
		return rep.Kind == wire.Value && rep.Body.Len() == 0
	}
	return rep.Kind == wire.Header && rep.Letters.Has('Z') && !commandOf(t).Vivify
}

// dying says that an item is not worth a copy: it lives less than 2 s more, or
// it is stale, which a copy would hide.
func dying(b []byte, rep *wire.Reply) bool {
	at, ok := wire.FlagArg(b, rep.MetaFlags, 't')
	return ok && (string(at.Of(b)) == "0" || string(at.Of(b)) == "1") || rep.Letters.Has('X')
}
