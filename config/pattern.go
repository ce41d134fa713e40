package config

// Where the keys of two routes meet.

import (
	"bytes"

	"ringside/proxy/table"
)

// filler stands in an example of a key for what no pattern spells out. No pattern
// has it: it is no text.
const filler = "\xff"

// keyOfBoth is a key that p and q both take, with filler where neither says what
// stands there. It reports false if there is none.
func keyOfBoth(p, q table.Pattern) (string, bool) {
	if !mayMeet(p, q) {
		return "", false
	}
	m := meeting{a: tokensOf(p), b: tokensOf(q)}
	m.dead = make([]bool, (len(m.a)+1)*(len(m.b)+1))
	ok := m.from(0, 0)
	return string(m.key), ok
}

// mayMeet is false if the beginnings or the ends of p and q contradict each other.
func mayMeet(p, q table.Pattern) bool {
	a, b := p[0], q[0]
	c, d := p[len(p)-1], q[len(q)-1]
	return (bytes.HasPrefix(a, b) || bytes.HasPrefix(b, a)) && (bytes.HasSuffix(c, d) || bytes.HasSuffix(d, c))
}

// anything is the token of any bytes.
const anything = -1

// tokensOf is p byte by byte.
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

// meeting looks for a key that two patterns take.
type meeting struct {
	a, b []int
	key  []byte
	dead []bool // from these places on there is no such key
}

// from looks behind a[:i] and b[:j]. Where both take anything it prefers a key that
// has something there: fewer other patterns want that one.
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

// nothing is the token behind the last.
const nothing = -2

func byteAt(tokens []int, i int) int {
	if i == len(tokens) {
		return nothing
	}
	return tokens[i]
}
