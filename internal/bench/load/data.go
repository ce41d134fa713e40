//go:build linux

package load

// This file makes the keys and values. Both depend only on the number of a key.

import (
	"bytes"
	"fmt"
	"strconv"
)

const (
	digits   = 9 // number of digits at the end of a key; they are the number of the key and identify it in a reply
	minKey   = digits + 1
	maxCount = 10_000_000
	keyAt    = len("VALUE ") // offset of the key in the first line of a hit
)

// data contains the keys and values of the load, in the form in which they are sent and compared.
type data struct {
	count, size, keySize int

	// heads has the first line of a hit for each key, with the key in it: "VALUE k 7 100\r\n".
	heads [][]byte

	// noise contains all values: the value of key i begins at byte i. Two values differ nearly
	// everywhere. All values together fit into the CPU's cache.
	noise []byte

	setLength []byte // part of a set after the flags: no expiration, and the length of the value
}

func newData(w Workload) *data {
	d := &data{count: w.Count, size: w.Value, keySize: w.KeySize, heads: make([][]byte, w.Count), noise: make([]byte, w.Value+w.Count)}
	prefix := bytes.Repeat([]byte{'k'}, d.keySize-digits)
	for i := range d.heads {
		d.heads[i] = fmt.Appendf(nil, "VALUE %s%0*d %d %d\r\n", prefix, digits, i, i, d.size)
	}
	d.setLength = fmt.Appendf(nil, " 0 %d\r\n", d.size)
	for i, state := 0, uint64(1); i < len(d.noise); i++ {
		d.noise[i] = byte(splitmix(&state))
	}
	return d
}

func (d *data) key(i int) []byte   { return d.heads[i][keyAt : keyAt+d.keySize] }
func (d *data) value(i int) []byte { return d.noise[i : i+d.size] }

// number returns the number of the key in the first line of a hit. ok is false if the line differs
// from the expected line of that key.
func (d *data) number(line []byte) (int, bool) {
	end := keyAt + d.keySize
	if len(line) < end {
		return 0, false
	}
	n := 0
	for _, c := range line[end-digits : end] {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, n < d.count && bytes.Equal(line, d.heads[n])
}

// appendGet appends a get of n keys with consecutive numbers. The first number is `first`, and
// number 0 follows the greatest number. If owner is not nil, only the keys of the server with
// number `who` are requested. any is false if none of the keys is on that server.
func (d *data) appendGet(out []byte, first, n int, owner []uint8, who uint8) (_ []byte, any bool) {
	for i := range n {
		i := (first + i) % d.count
		if owner != nil && owner[i] != who {
			continue
		}
		if !any {
			out, any = append(out, "get"...), true
		}
		out = append(append(out, ' '), d.key(i)...)
	}
	if any {
		out = append(out, "\r\n"...)
	}
	return out, any
}

func (d *data) appendSet(out []byte, i int) []byte {
	out = append(append(out, "set "...), d.key(i)...)
	out = strconv.AppendInt(append(out, ' '), int64(i), 10)
	out = append(append(out, d.setLength...), d.value(i)...)
	return append(out, "\r\n"...)
}

// splitmix is the random number generator splitmix64 by Vigna. It returns the next number and
// changes state.
func splitmix(state *uint64) uint64 {
	*state += 0x9e3779b97f4a7c15
	z := *state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
