package config

// This file contains the kinds of setting values: how each kind is read, printed, described in the
// JSON Schema, and compared.

import (
	"fmt"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// schema is a piece of JSON Schema.
type schema = map[string]any

// A value describes one kind of setting: how a setting of this kind is read, printed and compared.
type value[V any] struct {
	read   func(d *document, n *node, path string, to *V) // reads the node n into *to; on a mistake it records an error and leaves *to unchanged
	show   func(V) any                                    // returns the setting in the form of a configuration file; the result is nil if the kind has no such form
	schema func() schema
	words  []string  // the possible values, if they are a few words; nil: other values
	diff   differ[V] // describes the changes of a setting; nil: the results of show are compared
}

// wrong records an error: the setting at path is not what want describes.
func (d *document) wrong(n *node, path, want string) {
	d.fail(n.line, n.column, "%s must be %s, not %s%s", path, want, n.is(), variable(n.text))
}

// variable returns a hint if text contains an environment variable such as ${HOME}. Environment
// variables are not expanded.
func variable(text string) string {
	if strings.Contains(text, "${") {
		return "; nothing is taken from the environment: fill in ${…} before, with envsubst for one"
	}
	return ""
}

// text describes a setting that is a text and not empty. The parameter what describes it in errors.
func text(what string) value[string] {
	return value[string]{
		read: func(d *document, n *node, path string, to *string) {
			switch {
			case n.kind == scalar && n.tag == "!!str" && n.text != "":
				*to = n.text
			case n.kind == scalar && n.text != "":
				d.fail(n.line, n.column, "%s must be %s; %s alone is no text: write %q", path, what, n.text, n.text)
			default:
				d.wrong(n, path, what)
			}
		},
		show:   func(v string) any { return v },
		schema: func() schema { return schema{"type": "string", "minLength": 1} },
	}
}

// integer describes a setting that is a whole number from least to most.
func integer(least, most int) value[int] {
	return wholeNumber(fmt.Sprintf("a whole number between %d and %d", least, most), least, most)
}

func wholeNumber(want string, least, most int) value[int] {
	return value[int]{
		read: func(d *document, n *node, path string, to *int) {
			v, err := strconv.Atoi(n.text)
			if n.kind != scalar || n.tag != "!!int" || err != nil || v < least || v > most {
				d.wrong(n, path, want)
				return
			}
			*to = v
		},
		show:   func(v int) any { return v },
		schema: func() schema { return schema{"type": "integer", "minimum": least, "maximum": most} },
	}
}

// An option is one of the words that a setting can have, with the value that the word means.
type option[V any] struct {
	word  string
	means V
}

// oneOf describes a setting that is one of a few words. For the words on and off it also accepts
// true and false, because they are the same in YAML 1.1.
func oneOf[V comparable](options ...option[V]) value[V] {
	words := make([]string, len(options))
	for i, o := range options {
		words[i] = o.word
	}
	return value[V]{
		words: words,
		read: func(d *document, n *node, path string, to *V) {
			if o, ok := chosen(n, options); ok {
				*to = o
				return
			}
			hint := ""
			if n.kind == scalar && !n.empty() {
				hint = didYouMean(n.text, words)
			}
			d.fail(n.line, n.column, "%s must be %s, not %s%s", path, list(words), n.is(), hint)
		},
		show: func(v V) any {
			for _, o := range options {
				if o.means == v {
					return o.word
				}
			}
			return nil
		},
		schema: func() schema { return wordsSchema(options) },
	}
}

// chosen returns the meaning of the option with the word in the node n. ok is false if no option
// has that word.
func chosen[V any](n *node, options []option[V]) (means V, ok bool) {
	word := n.text
	if n.tag == "!!bool" {
		word = map[bool]string{true: "on", false: "off"}[strings.EqualFold(n.text, "true")]
	}
	for _, o := range options {
		if n.kind == scalar && o.word == word {
			return o.means, true
		}
	}
	return means, false
}

func wordsSchema[V any](options []option[V]) schema {
	all := []any{}
	for _, o := range options {
		all = append(all, o.word)
		if o.word == "on" || o.word == "off" {
			all = append(all, o.word == "on")
		}
	}
	return schema{"enum": all}
}

// modes describes the short forms of a setting that can also be a mapping. The parameter want
// describes all forms in errors.
func modes[V any](want string, options ...option[V]) value[V] {
	return value[V]{
		read: func(d *document, n *node, path string, to *V) {
			if o, ok := chosen(n, options); ok {
				*to = o
				return
			}
			d.wrong(n, path, want)
		},
		show:   func(V) any { return nil },
		schema: func() schema { return wordsSchema(options) },
	}
}

// words describes a setting that is one of the words in all. The value of the setting is the word
// itself.
func words(all ...string) value[string] {
	options := make([]option[string], len(all))
	for i, word := range all {
		options[i] = option[string]{word, word}
	}
	return oneOf(options...)
}

// spoken describes a setting that is one of the values in all. In the file, each value is written
// as its String method returns it.
func spoken[V interface {
	comparable
	fmt.Stringer
}](all ...V) value[V] {
	options := make([]option[V], len(all))
	for i, v := range all {
		options[i] = option[V]{v.String(), v}
	}
	return oneOf(options...)
}

// depends returns v without a default in the JSON Schema, for a setting with a default that depends
// on other settings.
func depends[V any](v value[V]) value[V] {
	v.diff = byWords(v.show)
	v.show = func(V) any { return nil }
	return v
}

// optional describes a setting with a pointer as its value. The pointer is nil if the file does not
// contain the setting.
func optional[V any](v value[V]) value[*V] {
	return value[*V]{
		read: func(d *document, n *node, path string, to **V) {
			*to = new(V)
			v.read(d, n, path, *to)
		},
		show:   func(*V) any { return nil },
		schema: v.schema,
	}
}

// orOff describes a setting that is a whole number from least to most, or the word off, which is
// stored as 0.
func orOff(least, most int) value[int] {
	v := wholeNumber(fmt.Sprintf("off, or a whole number between %d and %d", least, most), least, most)
	read, plain := v.read, v.schema
	v.read = func(d *document, n *node, path string, to *int) {
		if n.kind == scalar && (n.text == "off" || n.tag == "!!bool" && strings.EqualFold(n.text, "false")) {
			*to = 0
			return
		}
		read(d, n, path, to)
	}
	v.schema = func() schema { return schema{"anyOf": []any{plain(), schema{"enum": []any{"off", false}}}} }
	return v
}

func yesNo() value[bool] {
	c := oneOf(option[bool]{"on", true}, option[bool]{"off", false})
	read := c.read
	c.read = func(d *document, n *node, path string, to *bool) {
		switch {
		case n.kind == scalar && n.text == "yes":
			*to = true
		case n.kind == scalar && n.text == "no":
			*to = false
		case n.kind == scalar && (n.tag == "!!bool" || n.text == "on" || n.text == "off"):
			read(d, n, path, to)
		default:
			d.wrong(n, path, "on or off")
		}
	}
	c.show = func(v bool) any { return v }
	c.schema = func() schema { return schema{"enum": []any{true, false, "on", "off", "yes", "no"}} }
	return c
}

const durationPattern = `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`

var isNumber = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?$`)

// duration describes a setting that is a duration with its unit, from least to most. If least is 0,
// the word off is accepted too.
func duration(least, most time.Duration) value[time.Duration] {
	return durationOr(least == 0, least, most)
}

// durationOr describes a duration like the function duration. The parameter `off` decides whether
// the word off and 0 are accepted, whatever least is.
func durationOr(off bool, least, most time.Duration) value[time.Duration] {
	example := "500ms"
	if most > time.Hour { // the setting is an expiry, which memcached counts in seconds, so the example has no milliseconds
		example = "1m"
	} else if least >= time.Second {
		example = "30s"
	}
	want := fmt.Sprintf("a duration between %s and %s, such as %s", short(least), short(most), example)
	switch {
	case least == 0:
		want = fmt.Sprintf("off, or a duration up to %s, such as %s", short(most), example)
	case off:
		want = "off, or " + want
	}
	return value[time.Duration]{
		read: func(d *document, n *node, path string, to *time.Duration) {
			isOff := n.text == "off" || n.tag == "!!bool" && strings.EqualFold(n.text, "false")
			v, err := time.ParseDuration(n.text)
			switch {
			case n.kind == scalar && off && isOff:
				*to = 0
			case n.kind == scalar && isNumber.MatchString(n.text):
				d.fail(n.line, n.column, "%s has no unit: write %sms or %ss", path, n.text, n.text)
			case n.kind != scalar || err != nil || v < least && !(off && v == 0) || v > most:
				d.wrong(n, path, want)
			default:
				*to = v
			}
		},
		show: func(v time.Duration) any {
			if v == 0 {
				return "off"
			}
			return short(v)
		},
		schema: func() schema {
			s := schema{"type": "string", "pattern": durationPattern}
			if off {
				return schema{"anyOf": []any{s, schema{"enum": []any{"off", false}}}}
			}
			return s
		},
	}
}

// short formats a duration like String, but without zeros at the end, such as 1h for 1h0m0s.
func short(v time.Duration) string {
	s := v.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return strings.Replace(s, "µ", "u", 1)
}

const sizePattern = `^[0-9]+(B|KiB|MiB|GiB)$`

var (
	isSize   = regexp.MustCompile(sizePattern)
	nearSize = regexp.MustCompile(`^([0-9]+) ?([kKmMgG])[iI]?[bB]?$`)
	sizeUnit = map[string]int64{"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
)

// size describes a setting that is a number of bytes from least to most, without a unit or with a
// binary unit such as KiB.
func size[V int | int64](least, most V) value[V] {
	want := fmt.Sprintf("a size between %s and %s", bytesText(int64(least)), bytesText(int64(most)))
	return value[V]{
		read: func(d *document, n *node, path string, to *V) {
			v, ok := parseSize(n)
			if !ok || v < int64(least) || v > int64(most) {
				hint := ""
				if m := nearSize.FindStringSubmatch(n.text); n.kind == scalar && !isSize.MatchString(n.text) && m != nil {
					hint = fmt.Sprintf(" (did you mean %s%siB?)", m[1], strings.ToUpper(m[2]))
				}
				d.fail(n.line, n.column, "%s must be %s, not %s%s", path, want, n.is(), hint)
				return
			}
			*to = V(v)
		},
		show: func(v V) any { return bytesText(int64(v)) },
		schema: func() schema {
			return schema{"anyOf": []any{
				schema{"type": "integer", "minimum": int64(least), "maximum": int64(most)},
				schema{"type": "string", "pattern": sizePattern},
			}}
		},
	}
}

func parseSize(n *node) (int64, bool) {
	digits, unit := n.text, "B"
	if n.tag != "!!int" {
		if !isSize.MatchString(n.text) {
			return 0, false
		}
		digits = strings.TrimRight(n.text, "BiKMG")
		unit = n.text[len(digits):]
	}
	v, err := strconv.ParseInt(digits, 10, 64)
	return v * sizeUnit[unit], n.kind == scalar && err == nil && v <= math.MaxInt64/sizeUnit[unit]
}

// bytesText formats a number of bytes in the largest unit in which it is a whole number.
func bytesText(v int64) string {
	for _, unit := range []string{"GiB", "MiB", "KiB"} {
		if v > 0 && v%sizeUnit[unit] == 0 {
			return strconv.FormatInt(v/sizeUnit[unit], 10) + unit
		}
	}
	return strconv.FormatInt(v, 10)
}

// listOf describes a setting that is a list of at least `least` values. `least` is 0, 1 or 2.
func listOf[V any](item value[V], least int) value[[]V] {
	return value[[]V]{
		read: func(d *document, n *node, path string, to *[]V) {
			if n.kind == sequence && 0 < len(n.items) && len(n.items) < least {
				d.fail(n.line, n.column, "%s must be a list of at least two, not of one", path)
				return
			}
			if n.kind != sequence || len(n.items) < least {
				d.wrong(n, path, "a list"+[...]string{"", " of at least one", " of at least two"}[least])
				return
			}
			// Allocate the full length now, because the map d.where has pointers to the elements as
			// keys.
			*to = make([]V, len(n.items))
			for i, from := range n.items {
				d.where[&(*to)[i]] = from
				item.read(d, from, fmt.Sprintf("%s[%d]", path, i), &(*to)[i])
			}
		},
		show: func(vs []V) any {
			all := []any{}
			for _, v := range vs {
				all = append(all, item.show(v))
			}
			return all
		},
		schema: func() schema { return schema{"type": "array", "items": item.schema(), "minItems": least} },
	}
}

// elements describes a list in which each element has a name. Changes of the list are described by
// these names.
func elements[V element](item value[V], list value[[]V]) value[[]V] {
	list.diff = byName(item)
	return list
}

// oneOrMore describes a setting that is a list. A list with one element can be written without
// brackets.
func oneOrMore[V any](item value[V]) value[[]V] {
	many := listOf(item, 1)
	return value[[]V]{
		read: func(d *document, n *node, path string, to *[]V) {
			if n.kind == sequence {
				many.read(d, n, path, to)
				return
			}
			*to = make([]V, 1)
			d.where[&(*to)[0]] = n
			item.read(d, n, path, &(*to)[0])
		},
		show:   many.show,
		schema: func() schema { return schema{"anyOf": []any{item.schema(), many.schema()}} },
	}
}

// either describes a setting with two forms: the short form brief, and the mapping full.
func either[V any](brief, full value[V]) value[V] {
	return value[V]{
		read: func(d *document, n *node, path string, to *V) {
			if n.kind == mapping {
				full.read(d, n, path, to)
				return
			}
			brief.read(d, n, path, to)
		},
		show:   brief.show,
		schema: func() schema { return schema{"anyOf": []any{brief.schema(), full.schema()}} },
		diff:   full.compare,
	}
}

// switched describes a setting that is on, off, or a mapping.
func switched[V any](onOff, full value[V]) value[V] {
	v := either(onOff, full)
	v.diff = func(within, name string, old, f V, say func(format string, args ...any)) {
		onOff.compare(within, name, old, f, say)
		full.compare(within, name, old, f, say)
	}
	return v
}

// A differ calls say once for each difference between the settings old and f. name is the name of
// the setting. The text within is the prefix of every message.
type differ[V any] func(within, name string, old, f V, say func(format string, args ...any))

// compare calls say once for each difference between the settings old and f. It compares their
// forms in the file as a whole if v has no differ.
func (v value[V]) compare(within, name string, old, f V, say func(format string, args ...any)) {
	if v.diff != nil {
		v.diff(within, name, old, f, say)
		return
	}
	byWords(v.show)(within, name, old, f, say)
}

// byWords returns a differ for settings that are compared as a whole, by their forms in a
// configuration file.
func byWords[V any](show func(V) any) differ[V] {
	return func(within, name string, old, f V, say func(format string, args ...any)) {
		if a, b := show(old), show(f); !reflect.DeepEqual(a, b) {
			say("%s%s %s to %s", within, name, spell(a), spell(b))
		}
	}
}

func spell(shown any) string {
	list, ok := shown.([]any)
	if !ok {
		list = []any{shown}
	}
	words := make([]string, 0, len(list))
	for _, v := range list {
		words = append(words, fmt.Sprint(v))
	}
	if text := strings.Join(words, ", "); text != "" && shown != nil {
		return text
	}
	return "unset"
}

// An element is an element of a list in which each element has a name.
type element interface {
	called() (kind, name string)
	inFull() string // returns the name, followed by the address or the pools if the name does not contain them
}

// byName returns a differ for lists of elements with names. It reports removed and added elements,
// and the differences of the others. For servers it also reports a changed order, because placement
// can depend on the order.
func byName[V element](inner value[V]) differ[[]V] {
	return func(within, _ string, old, f []V, say func(format string, args ...any)) {
		before, after := map[string]*V{}, map[string]*V{}
		for i := range old {
			_, name := old[i].called()
			before[name] = &old[i]
		}
		for i := range f {
			_, name := f[i].called()
			after[name] = &f[i]
		}
		var stay, stayed []string
		ordered := false
		for i := range old {
			switch kind, name := old[i].called(); {
			case after[name] == nil:
				say("%s-%s %s", within, kind, old[i].inFull())
			default:
				stayed = append(stayed, name)
			}
		}
		for i := range f {
			kind, name := f[i].called()
			ordered = kind == "server"
			is := before[name]
			if is == nil {
				say("%s+%s %s", within, kind, f[i].inFull())
				continue
			}
			stay = append(stay, name)
			inner.compare(within+kind+" "+name+": ", "", *is, f[i], say)
		}
		if ordered && !reflect.DeepEqual(stay, stayed) {
			say("%sthe servers stand in another order", within)
		}
	}
}
