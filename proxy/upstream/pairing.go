package upstream

// Whether an answer names what was asked for: what package names knows of the requests
// of a connection, and the opaques that Ringside adds to its own.

import (
	"bytes"
	"slices"
	"strconv"

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
