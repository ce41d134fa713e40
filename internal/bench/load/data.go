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
)

// data contains the keys and values of the load, in the form in which they are sent and compared.
type data struct {
	count, size, keySize int
	binary               bool
	behind               int // number of bytes that follow a value in a reply: its line end, or 0 in the binary protocol

	// heads has the first line of a hit for each key, with the key in it. Examples: "VALUE k 7
	// 100\r\n", or "VA 100 kk f7\r\n" for the meta protocol.
	heads [][]byte
	keyAt int // offset of the key in each first line of a hit (heads)

	// noise contains all values: the value of key i begins at byte i. Two values differ nearly
	// everywhere. All values together fit into the CPU's cache.
	noise []byte

	setLength []byte // part of a text set after the flags: no expiration, and the length of the value
	msLength  []byte // part of a meta set after the key: the length of the value, and the flag F
}

func newData(w Workload) *data {
	d := &data{count: w.Count, size: w.Value, keySize: w.KeySize, binary: w.Binary, behind: len(crlf)}
	if w.Binary {
		d.behind = 0
	}
	d.heads = make([][]byte, d.count)
	prefix := bytes.Repeat([]byte{'k'}, d.keySize-digits)
	d.keyAt = len("VALUE ")
	if w.Quiet > 0 {
		d.keyAt = len(fmt.Sprintf("VA %d k", d.size))
	}
	for i := range d.heads {
		key := fmt.Sprintf("%s%0*d", prefix, digits, i)
		if w.Quiet > 0 {
			d.heads[i] = fmt.Appendf(nil, "VA %d k%s f%d\r\n", d.size, key, i)
		} else {
			d.heads[i] = fmt.Appendf(nil, "VALUE %s %d %d\r\n", key, i, d.size)
		}
	}
	d.setLength = fmt.Appendf(nil, " 0 %d\r\n", d.size)
	d.msLength = fmt.Appendf(nil, " %d F", d.size)
	d.noise = make([]byte, d.size+d.count)
	for i, state := 0, uint64(1); i < len(d.noise); i++ {
		d.noise[i] = byte(splitmix(&state))
	}
	return d
}

func (d *data) key(i int) []byte   { return d.heads[i][d.keyAt : d.keyAt+d.keySize] }
func (d *data) value(i int) []byte { return d.noise[i : i+d.size] }

// number returns the number of the key in the first line of a hit. ok is false if the line differs
// from the expected line of that key.
func (d *data) number(line []byte) (int, bool) {
	end := d.keyAt + d.keySize
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
// number 0 follows the greatest number.
func (d *data) appendGet(out []byte, first, n int) []byte {
	out = append(out, "get"...)
	for i := range n {
		out = append(out, ' ')
		out = append(out, d.key((first+i)%d.count)...)
	}
	return append(out, "\r\n"...)
}

// appendPart appends a get of those keys that are on the server with number `who`. The keys are n
// keys with consecutive numbers from `first` on. any is false if none of the keys is on that
// server.
func (d *data) appendPart(out []byte, first, n int, owner []uint8, who uint8) (_ []byte, any bool) {
	for i := range n {
		i := (first + i) % d.count
		if owner[i] != who {
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
	out = append(out, "set "...)
	out = append(out, d.key(i)...)
	out = append(out, ' ')
	out = strconv.AppendInt(out, int64(i), 10)
	out = append(out, d.setLength...)
	out = append(out, d.value(i)...)
	return append(out, "\r\n"...)
}

// appendQuietGets appends a batch of quiet meta gets, which have replies only for hits, with an mn
// at the end.
func (d *data) appendQuietGets(out []byte, first, n int) []byte {
	for i := range n {
		out = append(out, "mg "...)
		out = append(out, d.key((first+i)%d.count)...)
		out = append(out, " k f v q\r\n"...)
	}
	return append(out, "mn\r\n"...)
}

// appendQuietSets appends a batch of quiet meta sets, which have replies only for errors, with an
// mn at the end.
func (d *data) appendQuietSets(out []byte, first, n int) []byte {
	for i := range n {
		i := (first + i) % d.count
		out = append(out, "ms "...)
		out = append(out, d.key(i)...)
		out = append(out, d.msLength...)
		out = strconv.AppendInt(out, int64(i), 10)
		out = append(out, " q\r\n"...)
		out = append(out, d.value(i)...)
		out = append(out, "\r\n"...)
	}
	return append(out, "mn\r\n"...)
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
