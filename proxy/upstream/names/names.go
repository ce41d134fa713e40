package names

// The names of one request, and the answers that fit them.

import (
	"bytes"

	"ringside/proxy/wire"
)

// maxKey is the longest key that memcached takes, in bytes.
const maxKey = 250

// gap is the space before each key of a line, in bytes.
const gap = len(" ")

// Names is what the answer to a request must name. Its zero value names an empty key.
type Names struct {
	Line
	keys    []byte // of one key: it, as the server knows it, and the opaque; of many: their lengths, and the line
	At      int32  // where in keys the first key is that had no VALUE yet
	Nth     int32  // how many keys are before it; a VALUE that END follows is not counted
	lengths int32  // of many: how many there are
	Many    bool
	missed  bool  // a key had no VALUE, and one behind it had
	opaque  uint8 // length of the opaque, at the end of keys; 0: there is none

	Strip string        // what the route took from the front of the key
	Echo  *wire.KeyEcho // what the client asked to see and the server was not asked for; nil: nothing
}

// Room is the bytes that n keeps its names in, and Reuse gives it others to append to.
func (n *Names) Room() []byte { return n.keys }

// Reuse lets n keep its names behind those in room, of which it has none yet.
func (n *Names) Reuse(room []byte) { n.keys = room }

// Remember keeps the names of r, which was parsed from raw. key is as the server knows
// it, decoded.
func (n *Names) Remember(r *wire.Request, raw, key []byte) {
	if len(key) <= cap(n.keys) { // so it is nearly always
		n.keys = n.keys[:len(key)]
		copy(n.keys, key)
	} else {
		n.keys = append(n.keys, key...)
	}
	if r.Opaque.End > 0 {
		n.SetOpaque(raw[r.Opaque.Start-1 : r.Opaque.End])
	}
}

// SetOpaque keeps the opaque, with its letter, behind the key. None that is longer than a
// server sends back is kept.
func (n *Names) SetOpaque(opaque []byte) {
	if len(opaque) > 250 {
		return
	}
	n.keys = append(n.keys, opaque...)
	n.opaque = uint8(len(opaque))
}

// HasOpaque reports whether an opaque is awaited.
func (n *Names) HasOpaque() bool { return n.opaque > 0 }

// DropOpaque forgets the opaque, which the request has lost.
func (n *Names) DropOpaque() { n.keys, n.opaque = n.keys[:len(n.keys)-int(n.opaque)], 0 }

// Named are the key, unless there are many, and the opaque.
func (n *Names) Named() (key, opaque []byte) {
	end := len(n.keys) - int(n.opaque)
	return n.keys[:end], n.keys[end:]
}

// AddLength is Remember for one key of many, of so many bytes. The line follows: SetLine.
func (n *Names) AddLength(size int) { n.keys = append(n.keys, byte(size)) }

// SetLine is Remember for the keys of a read of many, whose lengths AddLength has noted.
// room is Room with the line behind it, whose first n.At bytes are the command.
func (n *Names) SetLine(room []byte) {
	count := len(n.keys)
	n.lengths = int32(count)
	n.At += int32(count + gap)
	n.keys, n.Many = room, true
}

// NextKey is the key that the next VALUE has if that key is no miss; empty if
// there can't be another VALUE.
func (n *Names) NextKey() []byte {
	switch at := int(n.At); {
	case n.Many && at < len(n.keys):
		return n.keys[at : at+int(n.keys[n.Nth])]
	case at == 0:
		return n.keys
	}
	return nil
}

// LastKey says that NextKey is the last that can have a VALUE.
func (n *Names) LastKey() bool { return !n.Many || n.Nth+1 == n.lengths }

// Awaits reports whether a VALUE of key can still come, and whether it would be the last.
func (n *Names) Awaits(key []byte) (last, ok bool) {
	left := *n // n is told when the VALUE is whole
	for next := left.NextKey(); len(next) > 0; next = left.NextKey() {
		if bytes.Equal(next, key) {
			return left.LastKey(), true
		}
		left.KeyDone(len(next))
	}
	return false, false
}

// found stands in the line before a key that had its VALUE, where a space was.
const found = '+'

// Found notes that NextKey, of so many bytes, had its VALUE.
func (n *Names) Found(size int) {
	if n.Many {
		n.keys[n.At-1] = found
	}
	n.pass(size)
}

// Missing calls f with each of many keys that had no VALUE, when the answer is whole.
// lastFound says that NextKey had the last one.
func (n *Names) Missing(lastFound bool, f func(key []byte)) {
	if lastFound {
		n.Found(len(n.NextKey()))
	}
	if !n.missed && n.Nth == n.lengths {
		return
	}
	at := n.first()
	for _, size := range n.keys[:n.lengths] {
		if n.keys[at-1] != found {
			f(n.keys[at : at+int(size)])
		}
		at += int(size) + gap
	}
}

// first is where the first of many keys is.
func (n *Names) first() int {
	at := len(n.keys) + gap
	for _, size := range n.keys[:n.lengths] {
		at -= int(size) + gap
	}
	return at
}

// KeyDone notes that NextKey, of so many bytes, is a miss.
func (n *Names) KeyDone(size int) {
	n.missed = true
	n.pass(size)
}

// pass goes to the key behind NextKey, which has so many bytes.
func (n *Names) pass(size int) {
	n.At += int32(size + gap)
	n.Nth++
}

// FirstKey is the first key, as the server knows it, and how many there are.
func (n *Names) FirstKey() (key []byte, keys int) {
	if !n.Many {
		key, _ = n.Named()
		return key, 1
	}
	at := n.first()
	return n.keys[at : at+int(n.keys[0])], int(n.lengths)
}

// AppendKeys appends the keys that had no VALUE yet to dst, each behind a space and
// strip.
func (n *Names) AppendKeys(dst []byte, strip string) []byte {
	if !n.Many {
		key, _ := n.Named()
		return append(append(append(dst, ' '), strip...), key...)
	}
	left := *n // n goes on: the answer may still come
	for key := left.NextKey(); len(key) > 0; key = left.NextKey() {
		dst = append(append(append(dst, ' '), strip...), key...)
		left.KeyDone(len(key))
	}
	return dst
}

// FitsText reports whether a VALUE of key can be the next. memcached answers the keys of
// a read in the order of asking, each as often as it was asked for, and says nothing of
// those that it hasn't.
func (n *Names) FitsText(key []byte) bool {
	for {
		next := n.NextKey()
		if len(next) == 0 {
			return false
		}
		if bytes.Equal(next, key) {
			n.Found(len(next))
			return true
		}
		n.KeyDone(len(next))
	}
}

// FitsMeta reports whether the meta reply r, whose bytes are b, can be the answer. Flags k
// and O come back if they were asked for, and only then: keyed says that k was;
// echoesMisses that the server shows them with EN, too. A server may spell a key in
// base64 or as it is, whichever its item was made with.
func (n *Names) FitsMeta(b []byte, r *wire.Reply, keyed, echoesMisses bool) bool {
	asked, opaque := n.Named()
	bare := r.Kind == wire.Miss && !echoesMisses
	switch at := r.Opaque; {
	case at.End == 0 && len(opaque) > 0 && !bare:
		return false
	case at.End > 0 && string(b[at.Start-1:at.End]) != string(opaque):
		return false
	}
	key := r.Key.Of(b)
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
	var room [maxKey]byte
	decoded, ok := wire.DecodeKey(room[:0], b64)
	return ok && bytes.Equal(decoded, key)
}
