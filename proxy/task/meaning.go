package task

// This file interprets a task's command and the replies to the command, for all handlers.

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

// MissKind returns the kind of reply to t's command if there is no item.
func MissKind(t *Task) wire.Kind {
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

// LifeOfCreated returns the edits with which t, an ms with mode append or prepend and N, can be sent with
// another mode to create the item: the flag T gets the argument of N.
func (t *Task) LifeOfCreated() []Edit {
	at, _ := wire.FlagArg(t.Raw, t.Req.MetaFlags, 'N')
	edits := []Edit{{At: wire.Span{Start: at.Start - 1, End: at.End}, With: append([]byte("T"), at.Of(t.Raw)...)}}
	if old, ok := wire.FlagArg(t.Raw, t.Req.MetaFlags, 'T'); ok {
		edits = append(edits, Edit{At: wire.Span{Start: old.Start - uint32(len(" T")), End: old.End}})
	}
	return edits
}

// CommandOf returns t's command in the terms of package replicate.
func CommandOf(t *Task) replicate.Command {
	r := &t.Req
	c := replicate.Command{Op: operations[t.Op]}
	if r.Dialect == wire.Text {
		return c
	}
	has := r.Letters.Has
	c.If = has('C')
	switch t.Op {
	case wire.Get, wire.Incr, wire.Decr, wire.Append, wire.Prepend: // all other commands ignore N
		c.Vivify = has('N')
	}
	c.Stale = has('I') || t.Op == wire.Delete && has('x') // md with the flag x stores an empty item instead of the old one
	if t.Op == wire.Get {
		c.Win = has('N') || has('R')
		switch cas, touch := has('c'), has('T'); {
		case cas && touch:
			c.Op = replicate.Gats
		case touch:
			c.Op = replicate.Gat
		case cas && r.Flags&wire.Binary == 0: // a binary client always gets a cas, which may be that of any replica
			c.Op = replicate.Gets
		}
	}
	return c
}

// operations maps operations of package wire to those of package replicate.
var operations = [wire.NumOps]replicate.Op{
	wire.Get: replicate.Get, wire.Gets: replicate.Gets, wire.Gat: replicate.Gat, wire.Gats: replicate.Gats,
	wire.Set: replicate.Set, wire.Add: replicate.Add, wire.Replace: replicate.Replace, wire.Append: replicate.Append,
	wire.Prepend: replicate.Prepend, wire.Cas: replicate.Cas, wire.Incr: replicate.Incr, wire.Decr: replicate.Decr,
	wire.Touch: replicate.Touch, wire.Delete: replicate.Delete, wire.Debug: replicate.Debug,
}

// Token returns the cas token in the client's request.
func (t *Task) Token() (n uint64, ok bool) {
	at := t.TokenSpan()
	if at.Len() == 0 {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimPrefix(string(at.Of(t.Raw)), "+"), 10, 64)
	return n, err == nil
}

// TokenSpan returns where in Raw the cas token of the request is; the span is empty if there is
// none. A read has no token: memcached accepts a C flag of mg but ignores it.
func (t *Task) TokenSpan() wire.Span {
	if t.Op <= wire.Gats {
		return wire.Span{}
	}
	return t.Req.Unique
}

// ShortLived returns the edits that limit the item's TTL to limit.
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

// ClientFlags returns the client flags of t's request, in the form of meta commands.
func (t *Task) ClientFlags() string {
	return strconv.FormatUint(uint64(wire.ClientFlags(t.Req.ClientFlags.Of(t.Raw))), 10)
}

// Exptime returns the exptime of t's request, in the form of meta commands.
func (t *Task) Exptime() string {
	return strconv.FormatInt(wire.Signed(t.Req.Exptime.Of(t.Raw)), 10)
}

// Delta returns the number that an incr or decr adds or subtracts.
func (t *Task) Delta() uint64 {
	if t.Req.Delta.Len() == 0 {
		return 1
	}
	return wire.Unsigned(t.Req.Delta.Of(t.Raw))
}

// Body returns the data block of t's request.
func (t *Task) Body() []byte {
	b := t.Req.Body.Of(t.Raw)
	if b == nil {
		return []byte{}
	}
	return b
}

// NeedsValue reports whether the command t depends on the existing value, or on its absence. At
// a server that has rejoined empty, such a command finds nothing, although the substitute
// server has a value.
func NeedsValue(t *Task) bool {
	switch t.Op {
	case wire.Add, wire.Incr, wire.Decr, wire.Append, wire.Prepend, wire.Replace, wire.Cas, wire.Touch:
		return true
	}
	c := CommandOf(t)
	return t.Op == wire.Delete && (c.Stale || c.If)
}

// Missed reports whether a reply is a miss.
func Missed(r *upstream.Result) bool {
	return r.Reply.Kind == wire.End || r.Reply.Kind == wire.Miss || r.Reply.Kind == wire.NotFound
}

// Expiring reports whether an item is not worth a copy: its remaining TTL is below 2 s, or it
// is stale, which a copy would not show. b is the reply to an mg with the flag t, and rep is b
// parsed.
func Expiring(b []byte, rep *wire.Reply) bool {
	at, ok := wire.FlagArg(b, rep.MetaFlags, 't')
	return ok && (string(at.Of(b)) == "0" || string(at.Of(b)) == "1") || rep.Letters.Has('X')
}

// LeavesValue reports whether r, if it runs late, can replace a newer value, so that a late delete
// must follow it. A cas with an old token can't, but a cas that also stores under an old token (I) can.
// A touch and a delete leave no value.
//
// An add, and an incr, append or the like that creates a missing item (N), can leave a value, but never
// replace one. They count as commands that can't, because a late delete would be worse: the item that
// it finds is often that of another client, such as a lock that was granted or a counter with
// increments that were answered. What the command itself has created stays until it expires.
func LeavesValue(r *wire.Request) bool {
	return r.Op == wire.Set || r.Op == wire.Replace || r.Op == wire.Cas && r.Letters.Has('I')
}

// UncheckedFlags returns the error for a meta command with flags that Ringside must check itself, because
// another command may be sent in its place: the server would not check the client's flags. These are
// flags that memcached 1.6.18 does not know, and an opaque that is too long: memcached notices that
// only after it has counted, or has touched the item. UncheckedFlags returns "" for all other commands.
func (t *Task) UncheckedFlags() string {
	switch {
	case t.Req.Dialect != wire.Meta:
	case !t.Op.Stores() && t.Req.LongOpaque():
		return "opaque token too long"
	case !t.Req.UnknownFlags():
	case t.Op == wire.Delete || t.Op == wire.Incr || t.Op == wire.Decr:
		return "invalid or duplicate flag"
	case t.Op == wire.Append || t.Op == wire.Prepend:
		return "invalid flag"
	}
	return ""
}
