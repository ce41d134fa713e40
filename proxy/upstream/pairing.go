package upstream

// This file applies the names of requests (names.go) to a connection. It checks whether a reply names
// what was requested, adds opaques to Ringside's own requests, and divides the replies to gets that
// share a command line.

import (
	"bytes"
	"slices"
	"strconv"

	"ringside/proxy/wire"
)

// BeginLine starts the command line of the attempt a, which reads several keys. If possible, a
// continues the command line of the attempt `before`, the request before a in the queue. Otherwise
// BeginLine appends the command to c.Out. The parameter key is the length of a's first key.
func (c *Conn) BeginLine(a, before *Attempt, command []byte, key int) {
	gets := len(command) > len("get")
	if a.Op > wire.Gets || !c.joinLine(a, before, gets, key) {
		a.Line.Begin(gets)
		c.Out.Append(&c.Server.e.Buffers, command)
		c.Give(a, len(command))
		a.At = int32(len(command))
	}
}

// EndLine ends the command line of the attempt a, which is last in the queue and has all its keys. It
// also stores the keys in a, for the check of the reply.
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

// joinLine makes a, which has no bytes yet, continue the command line of `before`, if that line can
// be shared (see Line) and has room for a key with the length `key`. It reports whether a continues
// the line.
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

// withOpaque returns the request line, which was parsed into e.Plain, with an opaque that Ringside
// adds. If the request can't have an opaque or already has one, line is returned unchanged. The
// function withoutOpaque removes the opaque from the reply.
func (e *Servers) withOpaque(a *Attempt, line []byte) []byte {
	r := &e.Plain
	if r.Dialect != wire.Meta || r.Op == wire.Noop || r.Op == wire.Debug || a.HasOpaque() || r.Line.Len() > maxSealed || r.IsFull() {
		return line
	}
	e.opaque++
	opaque := strconv.AppendUint([]byte("Ors"), e.opaque, 10)
	a.SetOpaque(opaque)
	a.OwnOpaque = true
	return slices.Concat(line[:r.Line.End], []byte(" "), opaque, line[r.Line.End:])
}

// maxSealed is the maximum length of a request line to which Ringside adds an opaque. memcached rejects
// lines of more than 2,048 bytes.
const maxSealed = 1024

// withoutOpaque returns the reply b without the opaque that Ringside added.
func withoutOpaque(b []byte, r *wire.Reply) []byte {
	return slices.Concat(bytes.TrimRight(b[:r.Opaque.Start-1], " "), b[r.Opaque.End:])
}

// misfit says why the reply b can't be the reply to a; "": it can. b must have a form that the command
// has, and name a key and the opaque of a. b is a VALUE or a meta reply that was parsed into e.rep.
func (c *Conn) misfit(a *Attempt, b []byte) string {
	r := &c.Server.e.rep
	switch {
	case r.Awaited:
		a.Found(r.Key.Len())
	case r.Kind.Failed():
	case a.Dialect == wire.Meta && !a.FitsMeta(b, r, a.keyed(), c.Features&wire.BareGets != 0), a.Dialect == wire.Text && !a.FitsText(r.Key.Of(b)):
		return otherName
	case a.Dialect == wire.Meta && (!r.Fits(a.Op, a.Flags, b) || (r.Kind == wire.Value || r.Kind == wire.Header) && a.Shows&^r.Letters != 0):
		return a.invalid()
	}
	return ""
}

// invalid is the reason of a protocol violation: the reply to a has a form that its command does not have.
func (a *Attempt) invalid() string {
	return "sent an invalid reply to " + a.Op.Command(a.Dialect, a.Flags)
}

// keyed reports whether the meta request a has the flag k, so that the reply names the key. If a.Echo is
// set, the request was sent without it.
func (a *Attempt) keyed() bool { return a.Flags&wire.ReturnKey != 0 && a.Echo == nil }

// GiveGet appends the get or gets a, which was parsed from raw into r, to c.Out. If possible, a
// continues the command line of `before`, the request before a in the queue. strip is the prefix
// that is removed from the key for the server. If a can't share a command line (see Line), GiveGet
// does nothing and returns false.
func (c *Conn) GiveGet(a, before *Attempt, r *wire.Request, raw []byte, strip string) bool {
	if !c.Server.joinGets || !Plain(r, raw) {
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

// GiveKey appends line, the get of one key, to c.Out, as the bytes of the attempt a. If possible, a
// continues the command line of `before`, the request before a in the queue.
func (c *Conn) GiveKey(a, before *Attempt, line []byte) {
	if c.joinLine(a, before, false, len(line)-len("get \r\n")) {
		line = line[len("get"):]
	}
	c.Out.Append(&c.Server.e.Buffers, line)
	c.Give(a, len(line))
	a.Line.Ends(len(line))
}

// divide handles r, the next reply on a command line that several gets share. r is at the start of
// buf. a is the first get in the queue, and r is not known to be a VALUE of a's next key. If r is a
// reply to a, divide returns false, and sets r.Last if no key of a follows. If r is a reply to a
// later get on the line, divide sets c.passing to the number of gets before that get: their other
// keys are misses. END completes all gets on the line. An error is the reply to a and to all gets
// after a on the line, so it stays in the input until the last of them has received it.
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
				return false // r is a VALUE of a key that no get on the line has requested: the caller aborts the connection
			}
		}
		if c.passing = misses; misses > 0 {
			return true
		}
	}
	return false
}

// pass completes the reply to a, the first request in the queue, as if END had arrived: the keys of a
// that had no VALUE are misses.
func (c *Conn) pass(a *Attempt) {
	r := &c.Server.e.rep
	c.passing--
	*r = wire.Reply{Kind: wire.End, Last: true, Line: wire.Span{End: uint32(len(wire.AnswerEnd) - len(wire.CRLF))}, Size: len(wire.AnswerEnd)}
	c.noteAnswer()
	c.reply(a, r, wire.EndLine)
}

// keepLines sets or clears the field expired for all requests on each shared command line. It sets the
// field if the whole line can be dropped, and otherwise clears it, because a single key can't be
// removed from a line.
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
