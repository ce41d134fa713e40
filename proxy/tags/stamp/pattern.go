package stamp

// Tags that follow from a key.

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// Rule says which tags the keys of a route have.
type Rule struct {
	Namespace
	Patterns []*Pattern
	Prefix   []byte // of the route, as a tag of all its keys; empty: it is none
}

// AppendTags appends the tags of key, each once.
func (r *Rule) AppendTags(dst []Tag, key []byte) []Tag {
	if len(r.Prefix) > 0 {
		dst = Add(dst, r.Tag(r.Prefix))
	}
	for _, p := range r.Patterns {
		dst = p.appendTags(r.Namespace, dst, key)
	}
	return dst
}

// Pattern matches keys, and says which tags they have.
//
// In it a * stands for any bytes, also none, and {name} for one or more that are not
// the one behind it in the pattern; at its end, that are no colon or slash.
type Pattern struct {
	parts []part
	names []string
	tags  []template
}

// part is a text, or one of the two that stand for others.
type part struct {
	text string
	kind byte // 0: the text itself; '*', '{'
}

// template is a tag of a pattern: texts, and the numbers of names between them.
type template []slot

type slot struct {
	text string
	name int // behind it; -1: none
}

const (
	maxNames = 8
	maxStars = 2 // each multiplies the ways that are tried
)

// found is what the names of a pattern stand for in a key.
type found [maxNames][2]int

// ParsePattern reads a pattern and its tags.
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
			return nil, fmt.Errorf("%q has %q right behind another part of any length: where one ends is not to be told", match, rest[:1])
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

// cutName splits {name} off the beginning of s.
func cutName(s string) (name, rest string, ok bool) {
	name, rest, ok = strings.Cut(s, "}")
	if !ok || len(name) < 2 || name[0] != '{' || strings.ContainsAny(name[1:], "{*") {
		return "", "", false
	}
	return name[1:], rest, true
}

// template reads a tag.
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

// match says whether the parts match key from at on; so many names are before them.
func match(key []byte, parts []part, f *found, names, at int) bool {
	for i := 0; i < len(parts); i++ {
		switch parts[i].kind {
		case '*':
			if i == len(parts)-1 {
				return true
			}
			for from := at; ; from++ { // a text follows
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
