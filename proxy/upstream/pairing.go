package upstream

// Whether an answer names what was asked for, the opaques that Ringside adds to its own
// requests, and gets that share a line: what package names knows, on a connection.

import (
	"bytes"
	"slices"
	"strconv"

	"ringside/proxy/upstream/names"
	"ringside/proxy/wire"
)

// RememberLine keeps the names of a, a read of many keys whose lengths AddKey has noted.
// Its line is the last that c was given.
func (c *Conn) RememberLine(a *Attempt) {
	a.SetLine(c.Out.Last(a.Room(), a.Size))
	if n := cap(a.Room()); n > manyKeys {
		c.Server.e.Buffers.Held += int64(n)
	}
}

// withOpaque is the request line, which was parsed into e.Plain, with an opaque of
// Ringside's own, if it can have one. withoutOpaque takes it out of the answer.
func (e *Servers) withOpaque(a *Attempt, line []byte) []byte {
	r := &e.Plain
	if r.Dialect != wire.Meta || r.Op == wire.Noop || r.Op == wire.Debug || a.HasOpaque() || r.Line.Len() > maxSealed {
		return line
	}
	e.opaque++
	opaque := strconv.AppendUint([]byte("Ors"), e.opaque, 10)
	a.SetOpaque(opaque)
	a.OwnOpaque = true
	return slices.Concat(line[:r.Line.End], []byte(" "), opaque, line[r.Line.End:])
}

// maxSealed is how long a line may be that gets an opaque: memcached refuses one
// of more than 2,048 bytes.
const maxSealed = 1024

// withoutOpaque is the reply b without Ringside's own opaque, which it has.
func withoutOpaque(b []byte, r *wire.Reply) []byte {
	return slices.Concat(bytes.TrimRight(b[:r.Opaque.Start-1], " "), b[r.Opaque.End:])
}

// names reports whether the reply b, a VALUE or a meta reply that was parsed into
// e.rep, can be the answer to a, by what it names.
func (c *Conn) names(a *Attempt, b []byte) bool {
	r := &c.Server.e.rep
	switch {
	case r.Awaited:
		a.Found(r.Key.Len())
		return true
	case r.Kind.Failed():
		return true
	case a.Dialect == wire.Meta:
		keyed := a.Flags&wire.ReturnKey != 0 && a.Echo == nil // else the server was not asked
		return a.FitsMeta(b, r, keyed, c.Speech&wire.BareGets != 0)
	}
	return a.FitsText(r.Key.Of(b))
}

// GiveGet puts the get or gets a, r that was parsed from raw, into c.Out: on the line of
// before, which was last in the queue, if it can be. strip is not for the server. It
// reports false, and has done nothing, if a can't share a line: see names.Line.
func (c *Conn) GiveGet(a, before *Attempt, r *wire.Request, raw []byte, strip string) bool {
	if !c.Server.joinGets || !names.Plain(r, raw) {
		return false
	}
	const end = len("\r\n")
	from, to := 0, int(r.Key.Start)
	a.Strip = strip
	key := r.Key.Len() - len(strip)
	if before != nil && before.Op == a.Op && before.Start >= c.Taken && before.Fits(key) && c.Out.Unappend(end) {
		a.Continue(&before.Line, key)
		before.Size -= end
		a.Start -= uint64(end)
		c.Given -= uint64(end)
		from = to - len(" ")
	} else {
		a.Line.Begin(to + key + end)
	}
	b := &c.Server.e.Buffers
	if strip == "" {
		c.Out.Append(b, raw[from:])
	} else {
		c.Out.Append(b, raw[from:to])
		c.Out.Append(b, raw[to+len(strip):])
	}
	c.Give(a, len(raw)-from-len(strip))
	return true
}

// divide looks at r, at the head of buf: the next reply of the answer to a line that goes on
// behind a, the head of the queue, and not known to be a VALUE of a's key. If it is one, it
// is all of the answer to a, and divide reports false. Else it is for a key further on:
// passing becomes how many are misses before it. An error is for a and those behind it.
func (c *Conn) divide(a *Attempt, r *wire.Reply, buf []byte) bool {
	switch {
	case r.Kind == wire.End:
		for b := a; b.Joined; b = b.Next {
			c.passing++
		}
		return true
	case r.Kind.Failed():
		c.noteAnswer()
		c.reply(a, r, buf[:r.Size])
		return true
	default:
		key, misses := r.Key.Of(buf), 0
		for b := a; ; b = b.Next {
			if name, _ := b.Named(); string(name) == string(key) {
				break
			}
			if misses++; !b.Joined {
				return false // of none: the caller ends the connection
			}
		}
		if c.passing = misses; misses > 0 {
			return true
		}
	}
	r.Last = true
	return false
}

// pass tells a, the head of the queue, that its server hasn't the key.
func (c *Conn) pass(a *Attempt) {
	r := &c.Server.e.rep
	c.passing--
	*r = wire.Reply{Kind: wire.End, Last: true, Line: wire.Span{End: uint32(len(wire.AnswerEnd) - len(wire.LineEnd))}, Size: len(wire.AnswerEnd)}
	c.noteAnswer()
	c.reply(a, r, wire.EndLine)
}

// keepLines keeps what has expired in the queue, and with it its key on a line that is not
// given up as a whole.
func (c *Conn) keepLines() {
	for first := c.Head; first != nil; first = first.Next {
		if !first.Joined {
			continue
		}
		last, whole := first, true
		for a := first; ; a = a.Next {
			whole = whole && (a.expired || a.To == nil) && a.Start >= c.Taken
			if last = a; !a.Joined {
				break
			}
		}
		for a := first; ; a = a.Next {
			if a.expired = whole; a == last {
				break
			}
		}
		first = last
	}
}
