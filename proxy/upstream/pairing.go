package upstream

// Whether an answer names what was asked for. Order pairs answers with
// requests; names tell when the order is wrong: because a server lies, or took
// something for another command than Ringside did.

import (
	"bytes"
	"slices"
	"strconv"

	"ringside/proxy/wire"
)

// MaxKey is the longest key that memcached takes, in bytes.
const MaxKey = 250

var space = []byte(" ")

// Remember keeps what the answer to r, which was parsed from raw, must name: the
// bytes of a request are gone once they are written. key is as the server knows
// it, decoded.
func (a *Attempt) Remember(r *wire.Request, raw, key []byte) {
	if len(key) <= cap(a.keys) { // so it is nearly always
		a.keys = a.keys[:len(key)]
		copy(a.keys, key)
	} else {
		a.keys = append(a.keys, key...)
	}
	if r.Opaque.End > 0 {
		a.label(raw[r.Opaque.Start-1 : r.Opaque.End])
	}
}

// label keeps the opaque of a, its flag's letter included, behind its key. No server
// sends one back that is longer than memcached's.
func (a *Attempt) label(opaque []byte) {
	if len(opaque) > 250 {
		return
	}
	a.keys = append(a.keys, opaque...)
	a.opaque = uint8(len(opaque))
}

// Named are the key of a, unless it has many, and its opaque.
func (a *Attempt) Named() (key, opaque []byte) {
	end := len(a.keys) - int(a.opaque)
	return a.keys[:end], a.keys[end:]
}

// rememberOne is Remember for one key of many: its length comes first.
func (a *Attempt) rememberOne(n int) { a.keys = append(a.keys, byte(n)) }

// RememberLine is Remember for the keys of a read of many, whose lengths
// rememberOne has noted. The line is the last that c was given; its first a.At
// bytes are the command. One copy of the line costs a tenth of copying key by key.
func (c *Conn) RememberLine(a *Attempt) {
	n := len(a.keys)
	a.lengths = int32(n)
	a.At += n + len(space)
	a.keys, a.many = c.Out.Last(a.keys, a.Size), true
	if n := cap(a.keys); n > manyKeys {
		c.Server.e.Buffers.Held += int64(n)
	}
}

// nextKey is the key that the next VALUE has if that key is no miss; empty if
// there can't be another VALUE.
func (a *Attempt) nextKey() []byte {
	switch at := a.At; {
	case a.many && at < len(a.keys):
		return a.keys[at : at+int(a.keys[a.Nth])]
	case at == 0:
		return a.keys
	}
	return nil
}

// keyDone notes that nextKey, of n bytes, had its VALUE or is a miss.
func (a *Attempt) keyDone(n int) {
	a.At += n + len(space)
	a.Nth++
}

// withOpaque is the request line, which was parsed into e.Plain, with an opaque of
// Ringside's own, if it can have one. withoutOpaque takes it out of the answer.
func (e *Servers) withOpaque(a *Attempt, line []byte) []byte {
	r := &e.Plain
	if r.Dialect != wire.Meta || r.Op == wire.Noop || r.Op == wire.Debug || a.opaque > 0 || r.Line.Len() > maxSealed {
		return line
	}
	e.opaque++
	opaque := strconv.AppendUint([]byte("Ors"), e.opaque, 10)
	a.label(opaque)
	a.OwnOpaque = true
	return slices.Concat(line[:r.Line.End], space, opaque, line[r.Line.End:])
}

// maxSealed is how long a line may be that gets an opaque: memcached refuses one
// of more than 2,048 bytes.
const maxSealed = 1024

// withoutOpaque appends the reply b to dst, without Ringside's own opaque.
func withoutOpaque(dst, b []byte, r *wire.Reply) []byte {
	if r.Opaque.End == 0 {
		return append(dst, b...)
	}
	dst = append(dst, bytes.TrimRight(b[:r.Opaque.Start-1], " ")...)
	return append(dst, b[r.Opaque.End:]...)
}

// names reports whether the reply b, a VALUE or a meta reply that was parsed into
// e.Rep, can be the answer to a, by what it names. memcached answers the keys of a read in the order
// of asking, each as often as it was asked for.
func (c *Conn) names(a *Attempt, b []byte) bool {
	r := &c.Server.e.Rep
	switch {
	case r.Awaited:
		a.keyDone(r.Key.Len())
		return true
	case r.Kind.Failed():
		return true
	case a.Dialect == wire.Meta:
		return a.namesMeta(b, r, c.Speech&wire.BareGets != 0)
	}
	for key := r.Key.Of(b); ; { // keys that come before it are misses
		next := a.nextKey()
		if len(next) == 0 {
			return false
		}
		a.keyDone(len(next))
		if bytes.Equal(next, key) {
			return true
		}
	}
}

// namesMeta is names for meta: flags k and O come back if they were asked for,
// and only then. A server may spell a key in base64 or as it is, whichever its
// item was made with.
func (a *Attempt) namesMeta(b []byte, r *wire.Reply, echoesMisses bool) bool {
	asked, opaque := a.Named()
	bare := r.Kind == wire.Miss && !echoesMisses
	switch at := r.Opaque; {
	case at.End == 0 && len(opaque) > 0 && !bare:
		return false
	case at.End > 0 && string(b[at.Start-1:at.End]) != string(opaque):
		return false
	}
	key := r.Key.Of(b)
	keyed := a.Flags&wire.ReturnKey != 0 && a.Echo == nil // else the server was not asked
	switch {
	case r.Kind == wire.Item:
		return bytes.Equal(key, asked) || encodes(key, asked)
	case r.Key.End == 0:
		return !keyed || bare
	case !keyed:
		return false
	case r.Letters.Has('b'):
		return encodes(key, asked)
	}
	return bytes.Equal(key, asked)
}

// encodes reports whether b64 is key in base64.
func encodes(b64, key []byte) bool {
	var room [MaxKey]byte
	decoded, ok := wire.DecodeKey(room[:0], b64)
	return ok && bytes.Equal(decoded, key)
}
