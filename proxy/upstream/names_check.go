package upstream

// The keys and the opaque of one request, and the check of replies against them.

import (
	"bytes"

	"ringside/proxy/wire"
)

// maxKey is the maximum length of a key in memcached, in bytes.
const maxKey = 250

// gap is the length of the space before each key of a line, in bytes.
const gap = len(" ")

// Names is what the reply to a request must name. The zero value is one empty key.
type Names struct {
	Line
	keys    []byte // with one key: the key as the server knows it, then the opaque; with many keys: the lengths of the keys, then the request line
	At      int32  // position in keys of the first key that had no VALUE yet
	Nth     int32  // number of keys before that key; a VALUE directly before END is not counted
	lengths int32  // with many keys: the number of keys
	Many    bool
	missed  bool  // a key had no VALUE, and a later one had one
	opaque  uint8 // length of the opaque at the end of keys; 0: there is none

	Strip string        // prefix that the route removed from the key
	Echo  *wire.KeyEcho // key that the client requested in the reply and the server did not return; nil: none
}

// Room returns the buffer of n. A caller may append to it and store the result with Reuse.
func (n *Names) Room() []byte { return n.keys }

// Reuse makes room the buffer of n. The names of n are appended to it.
func (n *Names) Reuse(room []byte) { n.keys = room }

// Remember stores the names of r, which was parsed from raw. key is decoded, in the form that
// the server knows.
func (n *Names) Remember(r *wire.Request, raw, key []byte) {
	if len(key) <= cap(n.keys) { // nearly always
		n.keys = n.keys[:len(key)]
		copy(n.keys, key)
	} else {
		n.keys = append(n.keys, key...)
	}
	if r.Opaque.End > 0 {
		n.SetOpaque(raw[r.Opaque.Start-1 : r.Opaque.End])
	}
}

// SetOpaque stores the opaque, with its flag letter, after the key. It ignores an opaque that
// is too long for a server to return.
func (n *Names) SetOpaque(opaque []byte) {
	if len(opaque) > 250 {
		return
	}
	n.keys = append(n.keys, opaque...)
	n.opaque = uint8(len(opaque))
}

// HasOpaque reports whether the reply must have an opaque.
func (n *Names) HasOpaque() bool { return n.opaque > 0 }

// DropOpaque removes the opaque, because the request no longer has it.
func (n *Names) DropOpaque() { n.keys, n.opaque = n.keys[:len(n.keys)-int(n.opaque)], 0 }

// Named returns the key, unless there are many, and the opaque.
func (n *Names) Named() (key, opaque []byte) {
	end := len(n.keys) - int(n.opaque)
	return n.keys[:end], n.keys[end:]
}

// AddLength stores the length of one of many keys. SetLine then adds the line.
func (n *Names) AddLength(size int) { n.keys = append(n.keys, byte(size)) }

// SetLine stores the keys of a multi-key read, after AddLength has stored their lengths. room is
// the buffer with the line after the lengths. The first n.At bytes of the line are the command.
func (n *Names) SetLine(room []byte) {
	count := len(n.keys)
	n.lengths = int32(count)
	n.At += int32(count + gap)
	n.keys, n.Many = room, true
}

// NextKey returns the first key that may still have a VALUE. It is empty if there can't be
// another VALUE.
func (n *Names) NextKey() []byte {
	switch at := int(n.At); {
	case n.Many && at < len(n.keys):
		return n.keys[at : at+int(n.keys[n.Nth])]
	case at == 0:
		return n.keys
	}
	return nil
}

// LastKey reports whether NextKey is the last key that can have a VALUE.
func (n *Names) LastKey() bool { return !n.Many || n.Nth+1 == n.lengths }

// Awaits reports whether a VALUE of key can still arrive, and whether it would be the last one.
func (n *Names) Awaits(key []byte) (last, ok bool) {
	left := *n // a copy: n changes only when the VALUE is complete
	for next := left.NextKey(); len(next) > 0; next = left.NextKey() {
		if bytes.Equal(next, key) {
			return left.LastKey(), true
		}
		left.KeyDone(len(next))
	}
	return false, false
}

// found marks a key that had its VALUE. It replaces the space before the key in the line.
const found = '+'

// Found records that NextKey, of that length, had its VALUE.
func (n *Names) Found(size int) {
	if n.Many {
		n.keys[n.At-1] = found
	}
	n.pass(size)
}

// Missing calls f for each of many keys that had no VALUE, after the reply is complete.
// lastFound means that the last VALUE was that of NextKey.
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

// first returns the position of the first of many keys.
func (n *Names) first() int {
	at := len(n.keys) + gap
	for _, size := range n.keys[:n.lengths] {
		at -= int(size) + gap
	}
	return at
}

// KeyDone records that NextKey, of that length, is a miss.
func (n *Names) KeyDone(size int) {
	n.missed = true
	n.pass(size)
}

// pass moves on from NextKey, which has that length, to the next key.
func (n *Names) pass(size int) {
	n.At += int32(size + gap)
	n.Nth++
}

// FirstKey returns the first key, as the server knows it, and the number of keys.
func (n *Names) FirstKey() (key []byte, keys int) {
	if !n.Many {
		key, _ = n.Named()
		return key, 1
	}
	at := n.first()
	return n.keys[at : at+int(n.keys[0])], int(n.lengths)
}

// AppendKeys appends the keys that had no VALUE yet to dst, each with a space and strip before
// it.
func (n *Names) AppendKeys(dst []byte, strip string) []byte {
	if !n.Many {
		key, _ := n.Named()
		return append(append(append(dst, ' '), strip...), key...)
	}
	left := *n // a copy: the reply to n may still arrive
	for key := left.NextKey(); len(key) > 0; key = left.NextKey() {
		dst = append(append(append(dst, ' '), strip...), key...)
		left.KeyDone(len(key))
	}
	return dst
}

// FitsText reports whether a VALUE of key can be the next one. memcached returns the keys of a
// read in request order, each as often as it was requested, and skips those that it does not
// have.
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

// FitsMeta reports whether the meta reply r, which has the bytes b, can be the reply to this
// request. The server returns the flags k and O only if the request has them. keyed means that
// the request has k. echoesMisses means that this server also returns k and O with EN. A server
// may return a key in base64 or plain, depending on how its item was created.
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
