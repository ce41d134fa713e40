package stamp

// This file derives tags from a key.

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// Rule determines the tags of the keys of a route.
type Rule struct {
	Namespace
	Patterns []*Pattern
	Prefix   []byte // prefix of the route, which is a tag of all its keys; empty: no such tag
}

// AppendTags appends the tags of key to dst, without duplicates.
func (r *Rule) AppendTags(dst []Tag, key []byte) []Tag {
	if len(r.Prefix) > 0 {
		dst = Add(dst, r.Tag(r.Prefix))
	}
	for _, p := range r.Patterns {
		dst = p.appendTags(r.Namespace, dst, key)
	}
	return dst
}

// Pattern matches keys and derives their tags.
//
// In a pattern * matches any bytes, or none. {name} matches one or more bytes up to
// the next occurrence of the byte that follows it in the pattern. At the end of the
// pattern, {name} stops before a colon or slash.
type Pattern struct {
	parts []part
	names []string
	tags  []template
}

// part is a literal text, a * or a {name}.
type part struct {
	text string
	kind byte // 0: literal text; '*' or '{': a wildcard
}

// template describes a tag that a Pattern derives from a key: literal texts, each followed by the
// value of a name of the pattern.
type template []slot

type slot struct {
	text string
	name int // index of the name that follows text; -1: none
}

const (
	maxNames = 8
	maxStars = 2 // maximum number of * in a pattern, because each * multiplies the number of matches to try
)

// found holds, for each name of a pattern, the start and end of its value in the
// key.
type found [maxNames][2]int

// ParsePattern parses a pattern and the tags that its keys have.
func ParsePattern(match string, tags []string) (*Pattern, error) {
	p := &Pattern{}
	for rest := match; rest != ""; {
		i := strings.IndexAny(rest, "*{}")
		switch {
		case i < 0:
			p.parts, rest = append(p.parts, part{text: rest}), ""
			continue
		case i > 0:
			p.parts, rest = append(p.parts, part{text: rest[:i]}), rest[i:]
		}
		if n := len(p.parts); n > 0 && p.parts[n-1].kind != 0 {
			return nil, fmt.Errorf("%q has %q right after another part of any length, so where the first one ends is ambiguous", match, rest[:1])
		}
		if rest[0] == '*' {
			if strings.Count(match, "*") > maxStars {
				return nil, fmt.Errorf("%q has more than %d *", match, maxStars)
			}
			p.parts, rest = append(p.parts, part{kind: '*'}), rest[1:]
			continue
		}
		name, behind, ok := cutName(rest)
		switch {
		case !ok:
			return nil, fmt.Errorf("%q has a brace that is not of a {name}", match)
		case slices.Contains(p.names, name):
			return nil, fmt.Errorf("%q has {%s} twice", match, name)
		case len(p.names) == maxNames:
			return nil, fmt.Errorf("%q has more than %d names", match, maxNames)
		}
		p.names, rest = append(p.names, name), behind
		p.parts = append(p.parts, part{kind: '{'})
	}
	if len(p.parts) == 0 {
		return nil, fmt.Errorf("an empty pattern matches no key")
	}
	for _, tag := range tags {
		t, err := p.template(tag)
		if err != nil {
			return nil, err
		}
		p.tags = append(p.tags, t)
	}
	return p, nil
}

// cutName removes {name} from the beginning of s.
func cutName(s string) (name, rest string, ok bool) {
	name, rest, ok = strings.Cut(s, "}")
	if !ok || len(name) < 2 || name[0] != '{' || strings.ContainsAny(name[1:], "{*") {
		return "", "", false
	}
	return name[1:], rest, true
}

// template parses a tag, which may use the names of the pattern.
func (p *Pattern) template(tag string) (t template, err error) {
	if err := CheckName([]byte(tag)); err != nil {
		return nil, fmt.Errorf("the tag %q: %w", tag, err)
	}
	for rest := tag; rest != ""; {
		i := strings.IndexAny(rest, "{}")
		if i < 0 {
			return append(t, slot{rest, -1}), nil
		}
		name, behind, ok := cutName(rest[i:])
		at := slices.Index(p.names, name)
		switch {
		case !ok:
			return nil, fmt.Errorf("the tag %q has a brace that is not of a {name}", tag)
		case at < 0:
			return nil, fmt.Errorf("the tag %q uses {%s}, which its match does not have", tag, name)
		}
		t = append(t, slot{rest[:i], at})
		rest = behind
	}
	return t, nil
}

// match reports whether parts match the rest of key, which begins at the offset `at`.
// names is the number of names before parts.
func match(key []byte, parts []part, f *found, names, at int) bool {
	for i := 0; i < len(parts); i++ {
		switch parts[i].kind {
		case '*':
			if i == len(parts)-1 {
				return true
			}
			for from := at; ; from++ { // tries each occurrence of the literal text that must follow the *
				n := bytes.Index(key[from:], []byte(parts[i+1].text))
				if n < 0 {
					return false
				}
				if from += n; match(key, parts[i+1:], f, names, from) {
					return true
				}
			}
		case '{':
			n := 0
			if i == len(parts)-1 {
				n = bytes.IndexAny(key[at:], ":/")
				if n < 0 {
					n = len(key) - at
				}
			} else {
				n = bytes.IndexByte(key[at:], parts[i+1].text[0])
			}
			if n <= 0 {
				return false
			}
			f[names] = [2]int{at, at + n}
			names++
			at += n
		default:
			if !bytes.HasPrefix(key[at:], []byte(parts[i].text)) {
				return false
			}
			at += len(parts[i].text)
		}
	}
	return at == len(key)
}

func (p *Pattern) appendTags(n Namespace, dst []Tag, key []byte) []Tag {
	var f found
	if !match(key, p.parts, &f, 0, 0) {
		return dst
	}
	for _, t := range p.tags {
		h := n
		for _, x := range t {
			for i := range len(x.text) {
				h = (h ^ Namespace(x.text[i])) * prime
			}
			if x.name >= 0 {
				h = h.add(key[f[x.name][0]:f[x.name][1]])
			}
		}
		dst = Add(dst, Tag(h))
	}
	return dst
}
