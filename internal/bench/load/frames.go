//go:build linux

package load

// This file has the requests of the binary protocol and checks the replies to them.

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

const (
	headSize = 24 // number of bytes of a frame before its extras, key and value

	opGet   = 0x00
	opSet   = 0x01
	opNoop  = 0x0a
	opGetKQ = 0x0d
)

// appendHead appends the header of a request in the binary protocol. The opaque field is the number
// of the key.
func appendHead(out []byte, opcode byte, extras, key, value, opaque int) []byte {
	out = append(out, 0x80, opcode, byte(key>>8), byte(key), byte(extras), 0, 0, 0)
	out = binary.BigEndian.AppendUint32(out, uint32(extras+key+value))
	out = binary.BigEndian.AppendUint32(out, uint32(opaque))
	return append(out, 0, 0, 0, 0, 0, 0, 0, 0)
}

// appendFrameGets appends a read of n keys with consecutive numbers from `first` on. It appends a
// get for one key, or quiet gets and a noop for several keys.
func (d *data) appendFrameGets(out []byte, first, n int) []byte {
	if n == 1 {
		return append(appendHead(out, opGet, 0, d.keySize, 0, first), d.key(first)...)
	}
	for i := range n {
		i := (first + i) % d.count
		out = append(appendHead(out, opGetKQ, 0, d.keySize, 0, i), d.key(i)...)
	}
	return d.appendNoop(out)
}

func (d *data) appendNoop(out []byte) []byte { return appendHead(out, opNoop, 0, 0, 0, 0) }

func (d *data) appendFrameSet(out []byte, i int) []byte {
	out = appendHead(out, opSet, 8, d.keySize, d.size, i)
	out = binary.BigEndian.AppendUint64(out, uint64(i)<<32) // flags (the number of the key), and no expiration
	return append(append(out, d.key(i)...), d.value(i)...)
}

// frame checks the beginning of a reply frame: header, extras and key. n is the number of bytes it
// used; 0: more bytes are needed. whole is true if the reply ends there.
func (c *checker) frame(b []byte) (n int, whole bool, err error) {
	switch {
	case b[0] != 0x81:
		return len(b), false, fmt.Errorf("expected a frame, got %s", quote(b))
	case len(b) < headSize:
		return 0, false, nil
	}
	key, extras := int(binary.BigEndian.Uint16(b[2:])), int(b[4])
	if n = headSize + extras + key; len(b) < n {
		return 0, false, nil
	}
	if c.size == 0 {
		return n, false, fmt.Errorf("a reply that nobody waits for: %s", quote(b[:n]))
	}
	r, d := c.first(), c.data
	opcode, value := byte(opGet), d.size
	switch r.kind {
	case set:
		opcode, value = opSet, 0
	case quietGets:
		if opcode = opGetKQ; b[1] == opNoop {
			opcode, value = opNoop, 0
			if c.found < r.n {
				return n, false, fmt.Errorf("a miss: %d of the %d keys from %s on were not answered", r.n-c.found, r.n, d.key(r.first))
			}
		}
	case quietFence:
		opcode, value = opNoop, 0
	}
	status := binary.BigEndian.Uint16(b[6:])
	if b[1] != opcode || status != 0 || int(binary.BigEndian.Uint32(b[8:])) != extras+key+value {
		return n, false, fmt.Errorf("expected opcode %#02x with %d bytes of value, got %s", opcode, value, quote(b[:n]))
	}
	if opcode == opSet || opcode == opNoop {
		return n, true, nil
	}
	i := int(binary.BigEndian.Uint32(b[12:]))
	if i >= d.count || extras != 4 || int(binary.BigEndian.Uint32(b[headSize:])) != i ||
		opcode == opGetKQ && !bytes.Equal(b[headSize+extras:n], d.key(i)) || opcode == opGet && key > 0 {
		return n, false, fmt.Errorf("expected the value of one of the %d keys from %s on, got %s", r.n, d.key(r.first), quote(b[:n]))
	}
	return n, false, c.hit(r, i)
}
