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
	m.dead = make([]bool, len(m.a)*len(m.b))
	return m.from(0, 0)
}

// mayMeet returns false if the beginnings or the ends of the patterns p and q are so different that
// no key can match both.
func mayMeet(p, q table.Pattern) bool {
	a, b := p[0], q[0]
	c, d := p[len(p)-1], q[len(q)-1]
	return (bytes.HasPrefix(a, b) || bytes.HasPrefix(b, a)) && (bytes.HasSuffix(c, d) || bytes.HasSuffix(d, c))
}

// These tokens stand for something else than a literal byte.
const (
	anything = -1 // a *, which matches zero or more bytes of any value
	nothing  = -2 // the end of a pattern
)

// tokensOf returns the pattern p as tokens: one token for each literal byte, the token anything for
// each *, and the token nothing.
func tokensOf(p table.Pattern) (list []int) {
	for i, text := range p {
		if i > 0 {
			list = append(list, anything)
		}
		for _, c := range text {
			list = append(list, int(c))
		}
	}
	return append(list, nothing)
}

// meeting is a search for a key that matches two patterns.
type meeting struct {
	a, b []int
	dead []bool // true: no key matches the remaining patterns a[i:] and b[j:]; the index is i*len(b)+j
}

// from returns a key that matches the remaining patterns a[i:] and b[j:]. Where both patterns allow
// any bytes, the key has filler. Fewer other patterns match a key with filler.
func (m *meeting) from(i, j int) (key string, ok bool) {
	at := i*len(m.b) + j
	if m.dead[at] {
		return "", false
	}
	a, b := m.a[i], m.b[j]
	try := func(text string, i, j int) {
		if !ok {
			key, ok = m.from(i, j)
			key = text + key
		}
	}
	switch {
	case a == nothing && b == nothing:
		return "", true
	case a == anything && b == anything:
		try(filler, i+1, j)
		try(filler, i, j+1)
	case a == anything:
		try("", i+1, j)
		if b != nothing {
			try(string([]byte{byte(b)}), i, j+1)
		}
	case b == anything:
		try("", i, j+1)
		if a != nothing {
			try(string([]byte{byte(a)}), i+1, j)
		}
	case a == b:
		try(string([]byte{byte(a)}), i+1, j+1)
	}
	m.dead[at] = !ok
	return key, ok
}
