package config

// YAML bytes to a tree of bounded size, with aliases followed and merges done.

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// Bounds on what is read: far above any real file, and low enough that a file
// made to exhaust memory is refused before it does.
const (
	maxBytes = 4 << 20 // of a file
	maxNodes = 200_000 // values in it, each counted as often as aliases repeat it
)

type kind int

const (
	scalar kind = iota
	sequence
	mapping
)

// A node is one value of the file.
type node struct {
	line, column int
	kind         kind
	tag          string // of a scalar: !!str, !!int, !!float, !!bool, !!null, …
	text         string // of a scalar
	items        []*node
	pairs        []pair
}

// A pair is one key of a mapping with its value; the key is a scalar.
type pair struct{ key, value *node }

// is says what a person would call the node.
func (n *node) is() string {
	switch {
	case n.kind == sequence && len(n.items) == 0:
		return "an empty list"
	case n.kind == sequence:
		return "a list"
	case n.kind == mapping && len(n.pairs) == 0:
		return "an empty mapping"
	case n.kind == mapping:
		return "a mapping"
	case n.tag == "!!null":
		return "empty"
	case n.tag == "!!str":
		return quote(n.text)
	default:
		return strings.Trim(quote(n.text), `"`)
	}
}

// empty says that nothing stands after the key.
func (n *node) empty() bool { return n.kind == scalar && n.tag == "!!null" }

// A document collects what is wrong with one file while it is read.
type document struct {
	others bool // read the files that this one names, too
	name   string
	errs   Errors

	warnings Errors // what is right, but hardly what is wanted

	lastLine, lastColumn int // of the file

	nodes  int                 // expanded so far
	open   map[*yaml.Node]bool // being expanded, to see an alias of what contains it
	broken bool                // the tree is not whole; reading on would blame the wrong things

	where map[any]*node // what a setting, by its address, was read from
	base  Pool          // what a pool inherits

	defaults *Pool // the same, as it was read
}

// fail notes that something is wrong at a place of the file.
func (d *document) fail(line, column int, format string, args ...any) {
	d.errs = append(d.errs, &Error{d.name, line, column, fmt.Sprintf(format, args...)})
}

// warn notes that something at a place of the file is hardly what is wanted.
func (d *document) warn(n *node, format string, args ...any) {
	d.warnings = append(d.warnings, &Error{d.name, n.line, n.column, fmt.Sprintf(format, args...)})
}

// parse returns the root of the file, or nil when there is nothing to read on:
// the syntax is wrong, or the file is too big.
func (d *document) parse(data []byte) *node {
	if len(data) > maxBytes {
		d.fail(1, 1, "the file has %d bytes; at most %d are read", len(data), maxBytes)
		return nil
	}
	if !d.readable(data) {
		return nil
	}
	input := &counted{data: data}
	decoder := yaml.NewDecoder(input)
	var first, second yaml.Node
	switch err := decoder.Decode(&first); {
	case errors.Is(err, io.EOF):
		d.fail(1, 1, "the file is empty")
		return nil
	case err != nil:
		d.syntax(input, err)
		return nil
	}
	switch err := decoder.Decode(&second); {
	case err == nil:
		d.fail(second.Line, second.Column, "a second YAML document begins here; a file holds one, remove the ---")
		return nil
	case !errors.Is(err, io.EOF):
		d.syntax(input, err)
		return nil
	}
	d.open = map[*yaml.Node]bool{}
	root := d.expand(first.Content[0])
	if d.broken {
		return nil
	}
	return root
}

// readable refuses bytes that are no YAML text at all, which the YAML library
// reports without a place.
func (d *document) readable(data []byte) bool {
	line, column := 1, 1
	for rest := data; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		switch {
		case r == utf8.RuneError && size == 1:
			d.fail(line, column, "byte 0x%02x is not UTF-8 text", rest[0])
			return false
		case r < ' ' && r != '\t' && r != '\n' && r != '\r', r >= 0x7f && r < 0xa0 && r != nextLine, r == 0xfffe, r == 0xffff:
			d.fail(line, column, "the control character %U is not allowed in YAML", r)
			return false
		}
		rest = rest[size:]
		column++
		switch r {
		case '\r':
			if len(rest) > 0 && rest[0] == '\n' {
				break
			}
			line, column = line+1, 1
		case '\n', nextLine, lineSeparator, paragraphSeparator:
			line, column = line+1, 1
		}
	}
	d.lastLine, d.lastColumn = line, column
	return true
}

// The line ends that YAML knows besides \n, \r and the two together.
const (
	nextLine           = '\u0085'
	lineSeparator      = '\u2028'
	paragraphSeparator = '\u2029'
)

// counted hands out one byte at a time, so that it knows how far the YAML
// library had to read until it saw a mistake.
type counted struct {
	data []byte
	read int
}

func (c *counted) Read(p []byte) (int, error) {
	if c.read == len(c.data) {
		return 0, io.EOF
	}
	n := copy(p[:min(1, len(p))], c.data[c.read:])
	c.read += n
	return n, nil
}

var (
	atLine        = regexp.MustCompile(`^line (\d+): `)
	unknownAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)
)

// syntax reports what the YAML library says. It tells the line of what it was
// in the middle of at best, so the place is where it stopped reading; but when
// that is the end of the file, something was not closed, and its line counts.
func (d *document) syntax(input *counted, err error) {
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	within := 0
	if m := atLine.FindStringSubmatch(message); m != nil {
		within, _ = strconv.Atoi(m[1])
		message = message[len(m[0]):]
		if strings.HasPrefix(message, "did not find expected") {
			within++ // the library counts lines from 0 in this one
		}
	}
	read := strings.TrimRight(string(input.data[:input.read]), " \t\r\n")
	if m := unknownAnchor.FindStringSubmatch(message); m != nil {
		message = fmt.Sprintf("*%s refers to an anchor that is not above it; define it with &%s", m[1], m[1])
		read = read[:strings.LastIndex(read, "*"+m[1])+1]
	}
	line, column := end(read)
	lines := strings.Split(string(input.data), "\n")
	if input.read == len(input.data) && within > 0 && within <= len(lines) {
		if text := strings.TrimLeft(lines[within-1], " \t"); text != "" {
			line, column = within, 1+len(lines[within-1])-len(text)
		}
	}
	if indent := lines[line-1][:len(lines[line-1])-len(strings.TrimLeft(lines[line-1], " \t"))]; strings.Contains(indent, "\t") {
		column = 1 + strings.IndexByte(indent, '\t')
		message = "lines are indented with spaces, not tabs"
	}
	for i := line; i > 0 && i > line-2; i-- { // what is wrong with a line may show in the next one
		if hint := unspaced(lines[i-1]); hint != "" {
			d.fail(i, 1+len(lines[i-1])-len(strings.TrimLeft(lines[i-1], " ")), "not YAML: %s%s", message, hint)
			return
		}
	}
	d.fail(line, column, "not YAML: %s", message)
}

// end returns the place of the last character of text.
func end(text string) (line, column int) {
	start := strings.LastIndexByte(text, '\n') + 1
	return 1 + strings.Count(text, "\n"), max(1, utf8.RuneCountInString(text[start:]))
}

// expand copies a YAML node with its aliases followed. It returns nil, once the
// error is noted, when the tree would be endless or too big.
func (d *document) expand(from *yaml.Node) *node {
	if d.nodes++; d.nodes > maxNodes {
		if !d.broken {
			d.fail(from.Line, from.Column, "the file holds more than %d values, with what its aliases repeat", maxNodes)
		}
		d.broken = true
		return nil
	}
	to := &node{line: from.Line, column: from.Column}
	if to.line > d.lastLine { // an empty value after the last line
		to.line, to.column = d.lastLine, d.lastColumn
	}
	switch from.Kind {
	case yaml.AliasNode:
		if d.open[from.Alias] {
			d.fail(from.Line, from.Column, "*%s contains itself", from.Value)
			d.broken = true
			return nil
		}
		return d.expand(from.Alias)
	case yaml.ScalarNode:
		to.tag, to.text = from.ShortTag(), from.Value
		return to
	}
	d.open[from] = true
	defer delete(d.open, from)
	if from.Kind == yaml.SequenceNode {
		to.kind = sequence
		for _, item := range from.Content {
			if n := d.expand(item); n != nil {
				to.items = append(to.items, n)
			}
		}
		return to
	}
	to.kind = mapping
	d.expandPairs(from, to)
	return to
}

// expandPairs fills a mapping: what it says itself, then what it merges, where
// the first to name a key wins.
func (d *document) expandPairs(from *yaml.Node, to *node) {
	var merged []*node
	seen := map[string]*node{}
	for i := 0; i+1 < len(from.Content); i += 2 {
		key, value := d.expand(from.Content[i]), d.expand(from.Content[i+1])
		if key == nil || value == nil {
			continue
		}
		if key.kind != scalar {
			d.fail(key.line, key.column, "a key must be a word, not %s", key.is())
			continue
		}
		if key.tag == "!!merge" {
			merged = append(merged, d.mergeable(value)...)
			continue
		}
		if first := seen[key.text]; first != nil {
			d.fail(key.line, key.column, "%s stands here a second time; the first is in line %d", quote(key.text), first.line)
			continue
		}
		seen[key.text] = key
		to.pairs = append(to.pairs, pair{key, value})
	}
	for _, m := range merged {
		for _, p := range m.pairs {
			if seen[p.key.text] == nil {
				seen[p.key.text] = p.key
				to.pairs = append(to.pairs, p)
			}
		}
	}
}

// mergeable returns the mappings that << brings in.
func (d *document) mergeable(n *node) []*node {
	from := n.items
	if n.kind != sequence {
		from = []*node{n}
	}
	for _, m := range from {
		if m.kind != mapping {
			d.fail(m.line, m.column, "<< merges a mapping or a list of mappings, not %s", m.is())
			return nil
		}
	}
	return from
}
