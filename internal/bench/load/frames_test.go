//go:build linux

package load

// The checker of the binary protocol, with replies split at every position, and with wrong replies.

import (
	"encoding/binary"
	"testing"
)

// answer returns a server's reply in the binary protocol.
func answer(opcode byte, opaque int, extras, key, value string) string {
	b := appendHead(nil, opcode, len(extras), len(key), len(value), opaque)
	b[0] = 0x81
	binary.BigEndian.PutUint64(b[16:], 77) // some cas
	return string(b) + extras + key + value
}

// found returns the reply for key i.
func found(d *data, opcode byte, i int) string {
	key := ""
	if opcode == opGetKQ {
		key = string(d.key(i))
	}
	return answer(opcode, i, string(binary.BigEndian.AppendUint32(nil, uint32(i))), key, string(d.value(i)))
}

func TestCheckerTakesFrames(t *testing.T) {
	work := testWork
	work.Binary = true
	d := newData(work)
	replies := found(d, opGet, 4) + answer(opSet, 2, "", "", "") +
		found(d, opGetKQ, 9) + found(d, opGetKQ, 0) + found(d, opGetKQ, 1) + answer(opNoop, 0, "", "", "") + answer(opNoop, 0, "", "", "")
	for piece := 1; piece <= len(replies); piece++ {
		c := newChecker(d, nil, 4, 3)
		c.push(request{kind: get, first: 4, n: 1})
		c.push(request{kind: set, first: 2, n: 1})
		c.push(request{kind: quietGets, first: 9, n: 3})
		c.push(request{kind: quietFence})
		if answered, err := feed(&c, replies, piece); answered != 4 || err != nil {
			t.Fatalf("in pieces of %d bytes: %d answered, %v", piece, answered, err)
		}
	}
	miss := []byte(answer(opGet, 4, "", "", "Not found"))
	miss[7] = 1
	wrong := []byte(found(d, opGet, 4))
	wrong[len(wrong)-1] ^= 1
	one, three := request{kind: get, first: 4, n: 1}, request{kind: quietGets, first: 3, n: 3}
	for _, lie := range []struct {
		name    string
		due     request
		replies string
	}{
		{"a miss", one, string(miss)},
		{"a wrong value", one, string(wrong)},
		{"another key", one, found(d, opGet, 5)},
		{"another opcode", one, found(d, opGetKQ, 4)},
		{"text", one, "VALUE k 0 1\r\nx\r\nEND\r\n          "},
		{"a key missing", three, found(d, opGetKQ, 3) + found(d, opGetKQ, 5) + answer(opNoop, 0, "", "", "")},
		{"out of order", three, found(d, opGetKQ, 4) + found(d, opGetKQ, 3)},
		{"twice", three, found(d, opGetKQ, 4) + found(d, opGetKQ, 4)},
		{"surplus", one, found(d, opGet, 4) + answer(opNoop, 0, "", "", "")},
	} {
		for piece := 1; piece <= len(lie.replies); piece++ {
			c := newChecker(d, nil, 4, 3)
			c.push(lie.due)
			if _, err := feed(&c, lie.replies, piece); err == nil {
				t.Fatalf("%s, in pieces of %d bytes, is taken", lie.name, piece)
			}
		}
	}
}
