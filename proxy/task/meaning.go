package task

// What a task's command asks for, and what the answers to it mean, whichever leader
// it has.

import (
	"math"
	"strconv"
	"strings"
	"time"

	"ringside/proxy/health/divert"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
	"ringside/replicate"
)

// Absence is the kind of reply by which t's command learns that there is no item.
func Absence(t *Task) wire.Kind {
	switch {
	case t.Op <= wire.Gats && t.Req.Dialect == wire.Text:
		return wire.End
	case t.Op <= wire.Gats || t.Op == wire.Debug:
		return wire.Miss
	case t.Op == wire.Add || t.Op == wire.Replace || t.Op == wire.Append || t.Op == wire.Prepend:
		return wire.NotStored
	}
	return wire.NotFound
}

// CommandOf says what t's command is to package replicate.
func CommandOf(t *Task) replicate.Command {
	r := &t.Req
	c := replicate.Command{Op: operations[t.Op]}
	if r.Dialect == wire.Text {
		return c
	}
	has := r.Letters.Has
	c.If = has('C')
	c.Vivify = has('N')
	c.Stale = has('I') || t.Op == wire.Delete && has('x') // x leaves the item, empty
	if t.Op == wire.Get {
		c.Win = has('N') || has('R')
		switch cas, touch := has('c'), has('T'); {
		case cas && touch:
			c.Op = replicate.Gats
		case touch:
			c.Op = replicate.Gat
		case cas && r.Flags&wire.Binary == 0: // a binary client's get shows the cas of whoever answers
			c.Op = replicate.Gets
		}
	}
	return c
}

// operations are the operations of package replicate.
var operations = [wire.NumOps]replicate.Op{
	wire.Get: replicate.Get, wire.Gets: replicate.Gets, wire.Gat: replicate.Gat, wire.Gats: replicate.Gats,
	wire.Set: replicate.Set, wire.Add: replicate.Add, wire.Replace: replicate.Replace, wire.Append: replicate.Append,
	wire.Prepend: replicate.Prepend, wire.Cas: replicate.Cas, wire.Incr: replicate.Incr, wire.Decr: replicate.Decr,
	wire.Touch: replicate.Touch, wire.Delete: replicate.Delete, wire.Debug: replicate.Debug,
}

// Token is the cas token that the client gives.
func (t *Task) Token() (n uint64, ok bool) {
	at := t.TokenSpan()
	if at.Len() == 0 {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimPrefix(string(at.Of(t.Raw)), "+"), 10, 64)
	return n, err == nil
}

// TokenSpan is where in Raw the token is; it is empty if there is none. memcached
// takes a C of mg and makes nothing of it.
func (t *Task) TokenSpan() wire.Span {
	if t.Op <= wire.Gats {
		return wire.Span{}
	}
	return t.Req.Unique
}

// ShortLived are the edits that let the item live no longer than limit.
func (t *Task) ShortLived(limit time.Duration) []Edit {
	most := int64(limit / time.Second)
	capped := func(at wire.Span) Edit {
		n, err := strconv.ParseInt(string(at.Of(t.Raw)), 10, 64)
		if err != nil {
			n = math.MaxInt32
		}
		return Edit{at, strconv.AppendInt(nil, divert.CapTTL(n, most, t.Loop.Wall), 10)}
	}
	switch {
	case t.Req.Exptime.Len() > 0 && t.Op != wire.FlushAll:
		return []Edit{capped(t.Req.Exptime)}
	case t.Req.Dialect == wire.Meta && t.Op.Stores():
		end := t.Req.Line.End
		return []Edit{{wire.Span{Start: end, End: end}, strconv.AppendInt([]byte(" T"), most, 10)}}
	}
	if at, ok := wire.FlagArg(t.Raw, t.Req.MetaFlags, 'N'); ok && t.Req.Dialect == wire.Meta {
		return []Edit{capped(at)}
	}
	return nil
}

// ClientFlags are the client flags of t's request as every meta command takes them.
func (t *Task) ClientFlags() string {
	return strconv.FormatUint(uint64(wire.ClientFlags(t.Req.ClientFlags.Of(t.Raw))), 10)
}

// Exptime is the exptime of t's request, likewise.
func (t *Task) Exptime() string {
	return strconv.FormatInt(wire.Signed(t.Req.Exptime.Of(t.Raw)), 10)
}

// Delta is by how much t counts.
func (t *Task) Delta() uint64 {
	if t.Req.Delta.Len() == 0 {
		return 1
	}
	return wire.Unsigned(t.Req.Delta.Of(t.Raw))
}

// Body is the data block of t's request.
func (t *Task) Body() []byte {
	b := t.Req.Body.Of(t.Raw)
	if b == nil {
		return []byte{}
	}
	return b
}

// NeedsValue says whether a command builds on the value that is there, or on that there is
// none. At a server that has come back empty it would find nothing, though the interim server has one.
func NeedsValue(t *Task) bool {
	switch t.Op {
	case wire.Add, wire.Incr, wire.Decr, wire.Append, wire.Prepend, wire.Replace, wire.Cas, wire.Touch:
		return true
	}
	c := CommandOf(t)
	return t.Op == wire.Delete && (c.Stale || c.If)
}

// Missed says whether an answer is a miss.
func Missed(r *upstream.Result) bool {
	return r.Reply.Kind == wire.End || r.Reply.Kind == wire.Miss || r.Reply.Kind == wire.NotFound
}

// Expiring says whether an item is not worth a copy: it lives less than 2 s more, or
// it is stale, which a copy would hide. b is the answer with flag t that rep is of.
func Expiring(b []byte, rep *wire.Reply) bool {
	at, ok := wire.FlagArg(b, rep.MetaFlags, 't')
	return ok && (string(at.Of(b)) == "0" || string(at.Of(b)) == "1") || rep.Letters.Has('X')
}

// LeavesValue says whether r, run late, can put a value in the place of a newer
// one or of none. A cas with an old token cannot; incr, append and their like
// build on what is there and only count, late or not; touch and delete leave
// no value. What creates an item on a miss (N) can, and so can a cas that
// stores with an old token too (I).
func LeavesValue(r *wire.Request) bool {
	switch r.Op {
	case wire.Set, wire.Add, wire.Replace:
		return true
	case wire.Cas:
		return r.Letters.Has('I')
	case wire.Append, wire.Prepend, wire.Incr, wire.Decr:
		return r.Letters.Has('N')
	}
	return false
}
