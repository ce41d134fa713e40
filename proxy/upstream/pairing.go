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

// BeginLine gives a, a read of many keys of which the first has so many bytes, its command,
// or lets it go on with the line of before, which was last in the queue.
func (c *Conn) BeginLine(a, before *Attempt, command []byte, key int) {
	gets := len(command) > len("get")
	if a.Op > wire.Gets || !c.joinLine(a, before, gets, key) {
		a.Line.Begin(gets)
		c.Out.Append(&c.Server.e.Buffers, command)
		c.Give(a, len(command))
		a.At = int32(len(command))
	}
}

// EndLine ends the line of a, which is last in the queue and whose keys AddKey has given,
// and keeps its names.
func (c *Conn) EndLine(a *Attempt) {
	b := &c.Server.e.Buffers
	a.SetLine(c.Out.Last(a.Room(), a.Size))
	if n := cap(a.Room()); n > manyKeys {
		b.Held += int64(n)
	}
	c.Out.Append(b, wire.CRLF)
	c.Give(a, len(wire.CRLF))
	if a.Op <= wire.Gets {
		a.Line.Ends(a.Size)
	}
}

// joinLine lets a, of which nothing is given yet, continue the line of before, if a key of so
// many bytes can go there: see names.Line.
func (c *Conn) joinLine(a, before *Attempt, gets bool, key int) bool {
	const end = len("\r\n")
	if !c.Server.joinGets || before == nil || before.Start < c.Taken || !before.Fits(gets, key) || !c.Out.Unappend(end) {
		return false
	}
	a.Continue(&before.Line)
	before.Size -= end
	a.Start -= uint64(end)
	c.Given -= uint64(end)
	return true
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
	from, to := 0, int(r.Key.Start)
	a.Strip = strip
	gets := r.Op == wire.Gets
	if c.joinLine(a, before, gets, r.Key.Len()-len(strip)) {
		from = to - len(" ")
	} else {
		a.Line.Begin(gets)
	}
	b := &c.Server.e.Buffers
	if strip == "" {
		c.Out.Append(b, raw[from:])
	} else {
		c.Out.Append(b, raw[from:to])
		c.Out.Append(b, raw[to+len(strip):])
	}
	c.Give(a, len(raw)-from-len(strip))
	a.Line.Ends(a.Size)
	return true
}

// divide looks at r, at the head of buf: the next reply of the answer to a line that goes on
// behind a, the head of the queue, and not known to be a VALUE of a's next key. If it is
// one of a's, divide reports false, and r is the last of a's if no key of a's follows. Else
// it is for a request further on: passing becomes how many before that have no more to
// come. An error is for a and those behind it.
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
			last, ok := b.Awaits(key)
			if r.Last = last; ok {
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
	return false
}

// pass tells a, the head of the queue, that its server has no more of its keys.
func (c *Conn) pass(a *Attempt) {
	r := &c.Server.e.rep
	c.passing--
	*r = wire.Reply{Kind: wire.End, Last: true, Line: wire.Span{End: uint32(len(wire.AnswerEnd) - len(wire.CRLF))}, Size: len(wire.AnswerEnd)}
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
