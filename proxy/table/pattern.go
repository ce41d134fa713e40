package table

// Which keys a route takes.

import (
	"bytes"
	"strings"
)

// Pattern says which keys a route takes: literal texts in their order, with any
// bytes between them, or none. A key begins with the first text and ends with the
// last one. So {"a:", ""} is every key that begins with a:, {"", ""} is every key,
// and {"a"} is the key a alone.
type Pattern [][]byte

// star stands for any bytes in the match of a route.
const star = "*"

// Pattern is the keys that the route wants. What of them it gets depends on the
// other routes of its listener: see Literal.
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

// Label is what metrics call the route. No prefix has a blank, so it tells a match from
// a prefix that is spelled alike.
func (r *Route) Label() string {
	if r.Match != "" {
		return "match " + r.Match
	}
	return r.Prefix
}

// Takes says whether key fits. Each text between the first and the last is taken
// where it stands first: if the rest fits behind a later place, it fits behind that.
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

// Literal is how many bytes of a key p spells out. Of the routes that want a key, the
// one that spells out most gets it.
func (p Pattern) Literal() (n int) {
	for _, text := range p {
		n += len(text)
	}
	return n
}
