package table

// This file decides which keys match a route.

import (
	"bytes"
	"strings"
)

// Pattern describes the keys that match a route. It consists of literal texts, in order, with
// zero or more bytes of any value between them. A key begins with the first text and ends with
// the last one. So {"a:", ""} matches every key that begins with a:, {"", ""} matches every
// key, and {"a"} matches only the key a.
type Pattern [][]byte

// star matches zero or more bytes of any value in the match of a route.
const star = "*"

// Pattern returns the pattern of the route's keys. If several routes of a listener match a
// key, the most specific one wins: see Literal.
func (r *Route) Pattern() Pattern {
	if r.Match == "" {
		return Pattern{[]byte(r.Prefix), nil}
	}
	var p Pattern
	for text := range strings.SplitSeq(r.Match, star) {
		p = append(p, []byte(text))
	}
	return p
}

// Label is the name of the route in metrics. Prefixes have no spaces, so the label of a match
// differs from that of every prefix.
func (r *Route) Label() string {
	if r.Match != "" {
		return "match " + r.Match
	}
	return r.Prefix
}

// Takes reports whether key matches p. For each text between the first and the last it tries
// only the first occurrence: if the rest matches after a later occurrence, it also matches
// after the first.
func (p Pattern) Takes(key []byte) bool {
	first, last := p[0], p[len(p)-1]
	switch {
	case len(p) == 1:
		return bytes.Equal(key, first)
	case len(key) < len(first)+len(last) || !bytes.HasPrefix(key, first) || !bytes.HasSuffix(key, last):
		return false
	}
	key = key[len(first) : len(key)-len(last)]
	for _, text := range p[1 : len(p)-1] {
		at := bytes.Index(key, text)
		if at < 0 {
			return false
		}
		key = key[at+len(text):]
	}
	return true
}

// Literal returns the number of literal bytes of p. Of several routes that match a key, the
// one with the most literal bytes wins.
func (p Pattern) Literal() (n int) {
	for _, text := range p {
		n += len(text)
	}
	return n
}
