package config

// This file searches for an example key that matches the patterns of two routes.

import (
	"bytes"

	"ringside/proxy/table"
)

// filler is the part of an example key where patterns allow any bytes. It is not valid UTF-8, so no
// pattern contains it.
const filler = "\xff"

// keyOfBoth returns an example key that matches both patterns p and q. The key has filler where
// both patterns allow any bytes. It returns false if no key matches both.
func keyOfBoth(p, q table.Pattern) (string, bool) {
	if !mayMeet(p, q) {
		return "", false
	}
	m := meeting{a: tokensOf(p), b: tokensOf(q)}
	m.dead = make([]bool, (len(m.a)+1)*(len(m.b)+1))
	ok := m.from(0, 0)
	return string(m.key), ok
}

// mayMeet returns false if the beginnings or the ends of the patterns p and q are so different that
// no key can match both.
func mayMeet(p, q table.Pattern) bool {
	a, b := p[0], q[0]
	c, d := p[len(p)-1], q[len(q)-1]
	return (bytes.HasPrefix(a, b) || bytes.HasPrefix(b, a)) && (bytes.HasSuffix(c, d) || bytes.HasSuffix(d, c))
}

// anything is the token for a *, which matches zero or more bytes of any value.
const anything = -1

// tokensOf returns the pattern p as tokens: one token for each literal byte, and the token anything
// for each *.
func tokensOf(p table.Pattern) (list []int) {
	for i, text := range p {
		if i > 0 {
			list = append(list, anything)
		}
		for _, c := range text {
			list = append(list, int(c))
		}
	}
	return list
}

// meeting is a search for a key that matches two patterns.
type meeting struct {
	a, b []int
	key  []byte // the beginning of the key found so far
	dead []bool // true: no key matches the remaining patterns a[i:] and b[j:]; the index is i*(len(b)+1)+j
}

// from searches for a key that matches the remaining patterns a[i:] and b[j:], and appends it to
// key. Where both patterns allow any bytes, from appends filler. Fewer other patterns match a key
// with filler.
func (m *meeting) from(i, j int) bool {
	if i == len(m.a) && j == len(m.b) {
		return true
	}
	at := i*(len(m.b)+1) + j
	if m.dead[at] {
		return false
	}
	a, b := byteAt(m.a, i), byteAt(m.b, j)
	size := len(m.key)
	step := func(literal, i, j int) bool {
		if literal != anything {
			m.key = append(m.key, byte(literal))
		}
		if m.from(i, j) {
			return true
		}
		m.key = m.key[:size]
		return false
	}
	var ok bool
	switch {
	case a == anything && b == anything:
		m.key = append(m.key, filler...)
		size = len(m.key)
		ok = step(anything, i+1, j) || step(anything, i, j+1)
		if !ok {
			m.key = m.key[:size-len(filler)]
		}
	case a == anything:
		ok = step(anything, i+1, j) || b != nothing && step(b, i, j+1)
	case b == anything:
		ok = step(anything, i, j+1) || a != nothing && step(a, i+1, j)
	default:
		ok = a == b && step(a, i+1, j+1)
	}
	m.dead[at] = !ok
	return ok
}

// nothing is the token that byteAt returns at the end of a pattern.
const nothing = -2

func byteAt(tokens []int, i int) int {
	if i == len(tokens) {
		return nothing
	}
	return tokens[i]
}
