package upstream

// This file stores the keys and the opaque of a request, and checks replies against them.

import (
	"bytes"

	"ringside/proxy/wire"
)

// maxKey is the maximum length of a key in memcached, in bytes.
const maxKey = 250

// gap is the length of the space before each key in a request line, in bytes.
const gap = len(" ")

// Names is what the reply to a request must name: its keys and its opaque. The zero value has one
// empty key and no opaque.
type Names struct {
	Line
	keys    []byte // of a request with one key: the key in the form for the server, then the opaque; with many keys: the length of each key, then the request line
	At      int32  // position in the field keys of the next key that may have a VALUE in the reply
	Nth     int32  // index of the next key that may have a VALUE in the reply
	lengths int32  // number of keys of a request with many keys
	Many    bool
	missed  bool  // a key has no VALUE in the reply, although a later key has one
	opaque  uint8 // length of the opaque at the end of the field keys; 0: there is none

	Strip string        // prefix that the route removes from the client's key for the server
	Echo  *wire.KeyEcho // the key to add to the reply, because the client has requested it and the server does not return it; nil: none
}

// Room returns the buffer for the keys of n. The caller may append to the buffer, and must then store
// the result with Reuse.
func (n *Names) Room() []byte { return n.keys }

// Reuse makes room the buffer for the keys of n. Keys that n stores later are appended to room.
func (n *Names) Reuse(room []byte) { n.keys = room }

// Remember stores in n the names of the request r, which was parsed from raw: its key and its opaque.
// key is the key in the form for the server, without base64.
func (n *Names) Remember(r *wire.Request, raw, key []byte) {
	n.SetKey(key)
	if r.Opaque.End > 0 {
		n.SetOpaque(raw[r.Opaque.Start-1 : r.Opaque.End])
	}
}

// SetKey stores the key of a request with one key, in the form for the server.
func (n *Names) SetKey(key []byte) {
	if len(key) <= cap(n.keys) { // nearly always
		n.keys = n.keys[:len(key)]
		copy(n.keys, key)
	} else {
		n.keys = append(n.keys, key...)
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

// DropOpaque removes the opaque from n, because the request no longer has an opaque.
func (n *Names) DropOpaque() { n.keys, n.opaque = n.keys[:len(n.keys)-int(n.opaque)], 0 }

// Named returns the key and the opaque of a request with one key. The opaque may be empty.
func (n *Names) Named() (key, opaque []byte) {
	end := len(n.keys) - int(n.opaque)
	return n.keys[:end], n.keys[end:]
}

// AppendKey appends the key of a request with one key to dst, in the form of the client.
func (n *Names) AppendKey(dst []byte) []byte {
	key, _ := n.Named()
	return append(append(dst, n.Strip...), key...)
}

// AddLength stores the length of the next key of a request with many keys. After the last key,
// SetLine must be called.
func (n *Names) AddLength(size int) { n.keys = append(n.keys, byte(size)) }

// SetLine stores the keys of a multi-key read, after AddLength has stored their lengths. room is the
// buffer of n, with the request line after the lengths. The first n.At bytes of the line are the
// command.
func (n *Names) SetLine(room []byte) {
	count := len(n.keys)
	n.lengths = int32(count)
	n.At += int32(count + gap)
	n.keys, n.Many = room, true
}

// NextKey returns the next key that may have a VALUE in the reply. It returns an empty key if no
// VALUE can follow.
func (n *Names) NextKey() []byte {
	switch at := int(n.At); {
	case n.Many && at < len(n.keys):
		return n.keys[at : at+int(n.keys[n.Nth])]
	case at == 0:
		return n.keys
	}
	return nil
}

// LastKey reports whether the result of NextKey is the last key that can have a VALUE in the reply.
func (n *Names) LastKey() bool { return !n.Many || n.Nth+1 == n.lengths }

// Awaits reports whether a VALUE of key can still arrive in the reply (ok), and whether no other VALUE
// can follow it (last).
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

// found replaces the space before a key in the stored request line, if the reply had a VALUE of the
// key.
const found = '+'

// Found records that the reply has a VALUE of the key that NextKey returns. size is the length of
// that key.
func (n *Names) Found(size int) {
	if n.Many {
		n.keys[n.At-1] = found
	}
	n.pass(size)
}

// Missing calls f for each key without a VALUE in the reply to a request with many keys. The reply
// must be complete. lastFound means that the last VALUE was of the key that NextKey returns.
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

// first returns the position in n.keys of the first key of a request with many keys.
func (n *Names) first() int {
	at := len(n.keys) + gap
	for _, size := range n.keys[:n.lengths] {
		at -= int(size) + gap
	}
	return at
}

// KeyDone records that the key that NextKey returns is a miss. size is the length of that key.
func (n *Names) KeyDone(size int) {
	n.missed = true
	n.pass(size)
}

// pass makes NextKey return the key after the key that it returns now. size is the length of the
// current key.
func (n *Names) pass(size int) {
	n.At += int32(size + gap)
	n.Nth++
}

// FirstKey returns the first key of the request, in the form for the server, and the number of keys.
func (n *Names) FirstKey() (key []byte, keys int) {
	if !n.Many {
		key, _ = n.Named()
		return key, 1
	}
	at := n.first()
	return n.keys[at : at+int(n.keys[0])], int(n.lengths)
}

// AppendKeys appends to dst the keys that have had no VALUE in the reply so far. Before each key, it
// appends a space and the prefix strip.
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

// FitsText reports whether the next VALUE in the reply to a text request may be of key. It records
// that key has a VALUE. memcached returns the keys of a read in request order, each as often as it was
// requested, and skips the keys that it does not have.
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

// FitsMeta reports whether the meta reply r, which has the bytes b, can be the reply to the
// request of n. A server returns the flags k and O only if the request has them. keyed means that
// the request has the flag k. echoesMisses means that this server also returns k and O with EN. A
// server may return a key in base64 or plain, depending on how its item was created.
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

// encodes reports whether b64 is the base64 form of key.
func encodes(b64, key []byte) bool {
	var room [maxKey]byte
	decoded, ok := wire.DecodeKey(room[:0], b64)
	return ok && bytes.Equal(decoded, key)
}
