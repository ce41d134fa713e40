package config

// This file replaces variables such as ${NAME} in the values of a configuration file, and hides
// secrets in what is printed.

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// Variables are the sources of the variables in a configuration file, and of what is known about this
// machine. With the zero Variables, all names are unset, no file can be read, and no host is this machine.
type Variables struct {
	Lookup     func(name string) (value string, set bool) // value of ${name}; nil: all names are unset
	ReadFile   func(path string) ([]byte, error)          // content for ${file:path}; nil: no file can be read
	Reads      func(path string)                          // called before a file of a variable, a certificate, a key, a CA or passwords are read; may be nil
	AllowUnset bool                                       // a variable without a value is a warning, and not an error
	OwnHost    func(host string) bool                     // whether a name or an IP address is that of this machine; nil: none is
}

func (v *Variables) reads(path string) {
	if v.Reads != nil {
		v.Reads(path)
	}
}

// Environment returns the variables of this process, and the files and the addresses of this machine.
func Environment() Variables {
	return Variables{Lookup: os.LookupEnv, ReadFile: ReadSecret, OwnHost: isOwnHost}
}

// From returns a function for Variables.Lookup that knows the given values.
func From(values map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, set := values[name]
		return value, set
	}
}

// ReadSecret reads the file of a variable ${file:path}.
func ReadSecret(path string) ([]byte, error) { return ReadFile(path, maxSecret+1) }

// ParseEnv parses a file with one NAME=value per line, as docker run --env-file reads it. Empty
// lines and lines that begin with # are ignored. Quotes are part of the value.
func ParseEnv(name string, data []byte) (map[string]string, error) {
	values := map[string]string{}
	var errs Errors
	for i, line := 1, bufio.NewScanner(bytes.NewReader(data)); line.Scan(); i++ {
		text := strings.TrimSpace(line.Text())
		if text == "" || text[0] == '#' {
			continue
		}
		key, value, ok := strings.Cut(text, "=")
		if !ok || !isVariable.MatchString(key) {
			errs = append(errs, &Error{name, i, 1, "a line is NAME=value, with a name of letters, digits and _"}) // without the text, which may contain a secret
			continue
		}
		values[key] = value
	}
	return values, errs.orNil()
}

const (
	maxSecret  = 64 << 10 // maximum size in bytes of a file that contains a value
	minSecret  = 4        // shorter values of files are not hidden, because they also occur in other words
	maxSecrets = 1000     // maximum number of different variables of a file
)

var isVariable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// A variable is a variable that a configuration file uses.
type variable struct {
	value string
	set   bool  // it has a value
	why   error // why it has none
}

// scalar copies a scalar of the file, and replaces its variables. Variables of keys, and of
// values that the file only defines for its aliases, stay as they are.
func (d *document) scalar(from *yaml.Node, to *node) {
	to.tag, to.text = from.ShortTag(), from.Value
	if d.literal || !strings.Contains(from.Value, "$") {
		return
	}
	var b strings.Builder
	for rest := from.Value; rest != ""; {
		text, after, found := strings.Cut(rest, "$")
		b.WriteString(text)
		switch {
		case !found:
			rest = ""
			continue
		case strings.HasPrefix(after, "$"):
			b.WriteByte('$')
			rest = after[1:]
			continue
		case !strings.HasPrefix(after, "{"):
			b.WriteByte('$')
			rest = after
			continue
		}
		inner, after, closed := strings.Cut(after[1:], "}")
		if !closed {
			d.failAt(to, "${ is not closed: write ${NAME}, or $$ for a dollar")
			return
		}
		rest = after
		v := d.variable(inner)
		switch {
		case v.set:
			b.WriteString(v.value)
		case d.from.AllowUnset && v.why != nil && !errors.As(v.why, new(malformed)):
			to.unset = true
			d.warn(to, "%v; the file is checked without it", v.why)
			b.WriteString(standIn(inner))
		default:
			d.failAt(to, "%v", v.why)
			to.unset = true // report no more errors about this value
			b.WriteString(standIn(inner))
		}
	}
	to.text = b.String()
	to.missing = to.text == ""
	if from.Style&yaml.TaggedStyle == 0 {
		to.eitherType = from.Style != 0
		to.tag = (&yaml.Node{Kind: yaml.ScalarNode, Value: to.text}).ShortTag()
		if to.tag == "!!merge" { // only a key << merges
			to.tag = "!!str"
		}
	}
}

// standIn returns the text that stands for a variable without a value. It can be a part of an
// address or of a name.
func standIn(inner string) string {
	name, _, _ := strings.Cut(inner, ":")
	if path, ok := strings.CutPrefix(inner, "file:"); ok {
		name = path[strings.LastIndexByte(path, '/')+1:]
	}
	return "unset-" + strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9') {
			return r
		}
		return '-'
	}, name)
}

// malformed is an error for a variable that is not a variable.
type malformed string

func (m malformed) Error() string { return string(m) }

// variable returns the variable that is written as ${inner}.
func (d *document) variable(inner string) variable {
	v, known := d.variables[inner]
	if !known {
		if len(d.variables) == maxSecrets {
			return variable{why: malformed(fmt.Sprintf("the file uses more than %d variables", maxSecrets))}
		}
		v.value, v.why = d.resolve(inner)
		v.set = v.why == nil
		d.variables[inner] = v
	}
	return v
}

// resolve returns the value of ${inner}.
func (d *document) resolve(inner string) (string, error) {
	if path, ok := strings.CutPrefix(inner, "file:"); ok {
		return d.secret(path)
	}
	name, usual, hasDefault := strings.Cut(inner, ":-")
	switch {
	case !isVariable.MatchString(name):
		return "", malformed(fmt.Sprintf("%s is not a variable: write ${NAME}, ${NAME:-default} or ${file:/path}; $$ is a dollar", quote("${"+inner+"}")))
	case strings.Contains(usual, "${"):
		return "", malformed("a default cannot contain another variable: " + quote("${"+inner+"}"))
	}
	var value string
	var set bool
	if d.from.Lookup != nil {
		value, set = d.from.Lookup(name)
	}
	if set && value != "" {
		d.used[name] = value
	}
	switch {
	case set && value != "":
		return value, oneLine(value, "the environment variable "+name)
	case hasDefault:
		return usual, nil
	case set:
		return "", fmt.Errorf("the environment variable %s is empty: ${%s:-} allows that", name, name)
	}
	return "", fmt.Errorf("the environment variable %s is not set: set it, or write ${%s:-default}", name, name)
}

// secret returns the content of the file at path, without the line end.
func (d *document) secret(path string) (string, error) {
	if !strings.HasPrefix(path, "/") {
		return "", malformed(fmt.Sprintf("the path in %s does not begin with /", quote("${file:"+path+"}")))
	}
	if d.from.ReadFile == nil {
		return "", fmt.Errorf("${file:%s} is not read here", path)
	}
	d.from.reads(path)
	data, err := d.from.ReadFile(path)
	if err != nil {
		if e := (*fs.PathError)(nil); errors.As(err, &e) {
			err = e.Err
		}
		return "", fmt.Errorf("${file:%s} cannot be read: %w", path, err)
	}
	value := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	switch {
	case len(data) > maxSecret:
		return "", fmt.Errorf("the file in ${file:%s} has more than %d bytes", path, maxSecret)
	case value == "":
		return "", fmt.Errorf("the file in ${file:%s} is empty", path)
	}
	if len(value) >= minSecret {
		d.secrets[value] = "${file:" + path + "}"
	}
	return value, oneLine(value, "the file in ${file:"+path+"}")
}

// oneLine returns an error if value is more than one line of text. The parameter what names its
// source.
func oneLine(value, what string) error {
	if !utf8.ValidString(value) || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		return fmt.Errorf("%s is not one line of text", what)
	}
	return nil
}

// secrets maps each secret to the variable that has it.
type secrets map[string]string

// hide replaces the secrets in text by their variables.
func (s secrets) hide(text string) string {
	longest := slices.SortedFunc(maps.Keys(s), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a, b))
	})
	for _, value := range longest {
		quoted := strconv.Quote(value)
		forms := []string{value, quoted[1 : len(quoted)-1]}
		if r := []rune(value); len(r) > maxQuoted {
			short := strconv.Quote(string(r[:maxQuoted]))
			forms = append(forms, short[1:len(short)-1])
		}
		for _, form := range forms {
			text = strings.ReplaceAll(text, form, s[value])
		}
	}
	return text
}

// Hide returns text with the variables ${file:…} of the file f in place of their values. Values of
// less than four bytes are not hidden.
func (f *File) Hide(text string) string { return f.secrets.hide(text) }
