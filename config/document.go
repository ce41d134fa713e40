package config

// This file parses YAML into a tree of bounded size, in which aliases and merges are resolved.

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"ringside/proxy/table"
)

// These are bounds on a configuration file. They are far above any real file. They are low enough
// to reject a file that was made to exhaust memory.
const (
	maxBytes = 4 << 20 // maximum size of a file in bytes
	maxNodes = 200_000 // maximum number of values in a file; each repetition by an alias counts
)

type kind int

const (
	scalar kind = iota
	sequence
	mapping
)

// A node is one value of a YAML file: a scalar, a sequence or a mapping.
type node struct {
	line, column int
	kind         kind
	tag          string // YAML type if the node is a scalar: !!str, !!int, !!float, !!bool, !!null, …; else empty
	text         string // text if the node is a scalar, with the values of its variables; else empty
	eitherType   bool   // the node is a quoted scalar with variables: a text, or what tag says
	missing      bool   // the node is a scalar, and its variables are all empty, so the setting is not set
	unset        bool   // a variable of the node has no value, so errors about the node mean nothing
	items        []*node
	pairs        []pair
}

// A pair is one key of a mapping with its value. The key is always a scalar.
type pair struct{ key, value *node }

// is describes the node in words, for errors.
func (n *node) is() string {
	empty := ""
	if len(n.items)+len(n.pairs) == 0 {
		empty = "n empty"
	}
	switch {
	case n.kind == sequence:
		return "a" + empty + " list"
	case n.kind == mapping:
		return "a" + empty + " mapping"
	case n.tag == "!!null":
		return "empty"
	case n.tag == "!!str":
		return quote(n.text)
	default:
		return strings.Trim(quote(n.text), `"`)
	}
}

// empty reports whether the node has no value, as in "key:".
func (n *node) empty() bool { return n.kind == scalar && n.tag == "!!null" }

// A document is a file while it is read, with the errors found so far.
type document struct {
	others bool // whether to read also the files that a configuration names, such as auth_file
	from   Variables
	name   string
	data   []byte // the text
	lists  Lists  // the servers of sources; nil: none is known
	errs   Errors

	secured map[PoolTLS]table.Security // the TLS of servers that was read, by its settings
	logins  map[PoolAuth]table.Login   // the logins to servers that were read, by their settings

	warnings Errors // settings that are valid but probably not intended

	lastLine, lastColumn int // position of the last character of the file, from 1

	nodes  int                 // number of nodes expanded so far
	open   map[*yaml.Node]bool // nodes being expanded, to detect an alias inside the node that it refers to
	broken bool                // the tree is incomplete, so later errors would be misleading

	literal   bool                // the nodes being expanded keep their variables
	variables map[string]variable // variables of the file, by the text between ${ and }
	used      map[string]string   // environment variables that the file uses and that have a value
	secrets   secrets

	where     map[any]*node // positions of settings: maps a pointer to a field of a File to the node with its value; no entry: the file does not set the field
	inherited map[any]*node // positions in the mapping `defaults` of settings that pools inherit; the keys are as in where

	defaults *Pool // settings that pools inherit: the defaults, and what the file sets in `defaults`; pointers to its fields are keys of where
}

// fail records an error at a position of the file.
func (d *document) fail(line, column int, format string, args ...any) {
	d.errs = append(d.errs, &Error{d.name, line, column, fmt.Sprintf(format, args...)})
}

// warn records a warning at the position of n: a setting is valid but probably not intended.
func (d *document) warn(n *node, format string, args ...any) {
	d.warnings = append(d.warnings, &Error{d.name, n.line, n.column, fmt.Sprintf(format, args...)})
}

// parse parses data as YAML and returns the root of the tree. If the syntax is wrong or the file is
// too large, it records the error and returns nil.
func (d *document) parse(data []byte) *node {
	if len(data) > maxBytes {
		d.fail(1, 1, "the file has more than %d bytes", maxBytes)
		return nil
	}
	if !d.readable(string(data)) {
		return nil
	}
	input := &counted{data: data}
	decoder := yaml.NewDecoder(input)
	var first, second yaml.Node
	err := decoder.Decode(&first)
	if errors.Is(err, io.EOF) {
		d.fail(1, 1, "the file is empty")
		return nil
	}
	if err == nil {
		err = decoder.Decode(&second)
	}
	switch {
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

// readable rejects bytes that cannot be in YAML, because the YAML library reports them without
// a position.
func (d *document) readable(text string) bool {
	for i, r := range text {
		line, column := 0, 0
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(text[i:], string(utf8.RuneError)):
			line, column = position(text[:i])
			d.fail(line, column, "byte 0x%02x is not UTF-8 text", text[i])
		case r < ' ' && r != '\t' && r != '\n' && r != '\r', r >= 0x7f && r < 0xa0 && r != '\u0085', r == 0xfffe, r == 0xffff:
			line, column = position(text[:i])
			d.fail(line, column, "the control character %U is not allowed in YAML", r)
		}
		if line > 0 {
			return false
		}
	}
	d.lastLine, d.lastColumn = position(text)
	return true
}

// lineBreak matches the line ends of YAML.
var lineBreak = regexp.MustCompile("\r\n?|[\n\u0085\u2028\u2029]")

// position returns the position of the character after text.
func position(text string) (line, column int) {
	breaks, start := lineBreak.FindAllStringIndex(text, -1), 0
	if len(breaks) > 0 {
		start = breaks[len(breaks)-1][1]
	}
	return 1 + len(breaks), 1 + utf8.RuneCountInString(text[start:])
}

// counted is a reader that returns one byte per call. The field read is therefore the offset up to
// which the YAML library had read when it found a mistake.
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

// syntax records an error of the YAML library. At best, the library names the line where the
// construct began that it was parsing. The recorded position is therefore where the library stopped
// reading. If it stopped at the end of the file, a construct was not closed, and the recorded
// position is the line of that construct.
func (d *document) syntax(input *counted, err error) {
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	within := 0
	if m := atLine.FindStringSubmatch(message); m != nil {
		within, _ = strconv.Atoi(m[1])
		message = message[len(m[0]):]
		if strings.HasPrefix(message, "did not find expected") {
			within++ // in messages of this kind the library counts lines from 0
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
	for i := line; i > 0 && i > line-2; i-- { // look for the mistake in this line and in the line before, because it can cause an error one line later
		if hint := unspaced(lines[i-1]); hint != "" {
			d.fail(i, 1+len(lines[i-1])-len(strings.TrimLeft(lines[i-1], " ")), "not YAML: %s%s", message, hint)
			return
		}
	}
	hint := ""
	if text := lines[line-1]; strings.Contains(text, "${") {
		hint = " (quote a value with ${…} between [] or {}: \"${NAME}\")"
	}
	d.fail(line, column, "not YAML: %s%s", message, hint)
}

// end returns the position of the last character of text.
func end(text string) (line, column int) {
	start := strings.LastIndexByte(text, '\n') + 1
	return 1 + strings.Count(text, "\n"), max(1, utf8.RuneCountInString(text[start:]))
}

// expand copies a YAML node and replaces aliases by copies of their nodes. If the tree would
// be infinite or too large, it records an error and returns nil.
func (d *document) expand(from *yaml.Node) *node {
	if d.nodes++; d.nodes > maxNodes {
		if !d.broken {
			d.fail(from.Line, from.Column, "the file holds more than %d values, with what its aliases repeat", maxNodes)
		}
		d.broken = true
		return nil
	}
	to := &node{line: from.Line, column: from.Column}
	if to.line > d.lastLine { // the node is an empty value after the last line of the file
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
		d.scalar(from, to)
		return to
	}
	d.open[from] = true
	defer delete(d.open, from)
	if from.Kind == yaml.SequenceNode {
		to.kind = sequence
		for _, item := range from.Content {
			if n := d.expand(item); n != nil && !n.missing {
				to.items = append(to.items, n)
			}
		}
		return to
	}
	to.kind = mapping
	d.expandPairs(from, to)
	return to
}

// expandPairs copies the pairs of a mapping from the YAML node `from` to the node `to`. The pairs
// of the mapping itself are first, then the pairs of mappings that it merges (<<). If a key occurs
// several times, the first pair counts.
func (d *document) expandPairs(from *yaml.Node, to *node) {
	var merged []*node
	seen := map[string]*node{}
	for i := 0; i+1 < len(from.Content); i += 2 {
		literal := d.literal
		d.literal = true
		key := d.expand(from.Content[i])
		d.literal = literal || len(d.open) == 1 && key != nil && strings.HasPrefix(key.text, "x-")
		value := d.expand(from.Content[i+1])
		d.literal = literal
		if key == nil || value == nil || value.missing {
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
			d.fail(key.line, key.column, "%s is here a second time; the first is in line %d", quote(key.text), first.line)
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

// mergeable returns the mappings that a key << merges. n is the value of that key: a mapping or a
// list of mappings.
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

// place returns the position of the first setting in settings that the file contains. Defaults and
// inherited values have no position of their own, so callers also pass the settings that enclose
// them.
func (d *document) place(settings ...any) *node {
	for _, s := range settings {
		if n := d.where[s]; n != nil {
			return n
		}
	}
	return &node{line: 1, column: 1}
}

// failAt records an error at the position of n, unless n is a value that is not known.
func (d *document) failAt(n *node, format string, args ...any) {
	if n.unset {
		return
	}
	d.fail(n.line, n.column, format, args...)
}
