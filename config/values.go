package config

// This file contains the kinds of setting values: how each kind is read, printed, described in the
// JSON Schema, and compared.

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// schema is a piece of JSON Schema.
type schema = map[string]any

// A value describes one kind of setting: how a setting of this kind is read, printed and compared.
type value[V any] struct {
	read    func(d *document, n *node, path string, to *V) // reads the node n into *to; on a mistake it records an error and leaves *to unchanged
	show    func(V) any                                    // returns the setting in the form of a configuration file, or nil if it is not set; nil: the kind has no such form
	schema  schema
	words   []string  // the possible values, if they are a few words; nil: other values
	diff    differ[V] // describes the changes of a setting; nil: the results of show are compared
	depends bool      // the default depends on other settings, so the schema has none
}

// form returns the setting v in the form of a configuration file, or nil.
func (v value[V]) form(of V) any {
	if v.show == nil {
		return nil
	}
	return v.show(of)
}

// before returns v with a step that is tried first. The step returns true if the setting needs no
// further reading: it was read, or a mistake was recorded.
func before[V any](v value[V], step func(d *document, n *node, path string, to *V) bool) value[V] {
	read := v.read
	v.read = func(d *document, n *node, path string, to *V) {
		if !step(d, n, path, to) {
			read(d, n, path, to)
		}
	}
	return v
}

// after returns v with a step that follows if the setting was read without a mistake.
func after[V any](v value[V], step func(d *document, n *node, path string, to *V)) value[V] {
	read := v.read
	v.read = func(d *document, n *node, path string, to *V) {
		mistakes := len(d.errs)
		if read(d, n, path, to); len(d.errs) == mistakes {
			step(d, n, path, to)
		}
	}
	return v
}

// wrong records an error: the setting at path is not what want describes.
func (d *document) wrong(n *node, path, want string) {
	d.failAt(n, "%s must be %s, not %s", path, want, n.is())
}

// text describes a setting that is a text and not empty. The parameter what describes it in errors.
func text(what string) value[string] {
	return value[string]{
		read: func(d *document, n *node, path string, to *string) {
			switch {
			case n.kind == scalar && (n.tag == "!!str" || n.eitherType) && n.text != "":
				*to = n.text
			case n.kind == scalar && n.text != "":
				d.failAt(n, "%s must be %s; %s alone is not text: write %q", path, what, n.text, n.text)
			default:
				d.wrong(n, path, what)
			}
		},
		show:   filled,
		schema: schema{"type": "string", "minLength": 1},
	}
}

// filled returns s, or nil if s is empty.
func filled(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// integer describes a setting that is a whole number from least to most.
func integer[V int | uint64](least, most V) value[V] {
	return wholeNumber(fmt.Sprintf("a whole number between %d and %d", least, most), least, most)
}

func wholeNumber[V int | uint64](want string, least, most V) value[V] {
	return value[V]{
		read: func(d *document, n *node, path string, to *V) {
			v, err := strconv.ParseInt(n.text, 10, 64)
			if n.kind != scalar || n.tag != "!!int" || err != nil || v < int64(least) || v > int64(most) {
				d.wrong(n, path, want)
				return
			}
			*to = V(v)
		},
		show: func(v V) any {
			if v < least { // the setting is not set
				return nil
			}
			return v
		},
		schema: schema{"type": "integer", "minimum": least, "maximum": most},
	}
}

const percentPattern = `^([0-9]+(\.[0-9]+)?)%$`

var isPercentage = regexp.MustCompile(percentPattern)

// ParsePercentage parses a percentage from 0% to 100%, such as 40%.
func ParsePercentage(text string) (v float64, ok bool) {
	m := isPercentage.FindStringSubmatch(text)
	if m == nil {
		return 0, false
	}
	v, err := strconv.ParseFloat(m[1], 64)
	return v, err == nil && v <= 100
}

// percentage describes a setting that is a percentage from 0% to 100%.
func percentage() value[float64] {
	return value[float64]{
		read: func(d *document, n *node, path string, to *float64) {
			v, ok := ParsePercentage(n.text)
			if n.kind != scalar || !ok {
				d.wrong(n, path, "a share from 0% to 100%, such as 40%")
				return
			}
			*to = v
		},
		show:   func(v float64) any { return strconv.FormatFloat(v, 'f', -1, 64) + "%" },
		schema: schema{"type": "string", "pattern": percentPattern},
	}
}

// An option is one of the words that a setting can have, with the value that the word means.
type option[V any] struct {
	word  string
	means V
}

// oneOf describes a setting that is one of a few words.
func oneOf[V any](options ...option[V]) value[V] { return wordOr("", options...) }

// wordOr describes a setting that is one of a few words, or has the form that the parameter more
// describes in errors. For the words on and off it also accepts true, yes, false and no.
func wordOr[V any](more string, options ...option[V]) value[V] {
	var words []string
	all := []any{}
	for _, o := range options {
		words, all = append(words, o.word), append(all, o.word)
		switch o.word {
		case "on":
			all = append(all, true, "yes")
		case "off":
			all = append(all, false, "no")
		}
	}
	want := words
	if more != "" {
		want = append(slices.Clip(words), more)
	}
	return value[V]{
		words: words,
		read: func(d *document, n *node, path string, to *V) {
			if i := slices.Index(words, n.word()); i >= 0 {
				*to = options[i].means
				return
			}
			d.failAt(n, "%s must be %s, not %s%s", path, list(want), n.is(), didYouMean(n.text, words))
		},
		show: func(v V) any {
			for _, o := range options {
				if reflect.DeepEqual(o.means, v) {
					return o.word
				}
			}
			return nil
		},
		schema: schema{"enum": all},
	}
}

// switches maps other words to on and off. The words true and false stand for booleans, too.
var switches = map[string]string{"true": "on", "yes": "on", "false": "off", "no": "off"}

// word returns the text of the node, with on and off for the words in switches.
func (n *node) word() string { return cmp.Or(switches[strings.ToLower(n.text)], n.text) }

// named describes a setting that is one of the values in all. In the file, each value is written as
// the function name returns it.
func named[V any](name func(V) string, all ...V) value[V] {
	var options []option[V]
	for _, v := range all {
		options = append(options, option[V]{name(v), v})
	}
	return oneOf(options...)
}

// words describes a setting that is one of the words in all. The value of the setting is the word
// itself.
func words(all ...string) value[string] {
	return named(func(word string) string { return word }, all...)
}

// yesNo describes a setting that is on or off.
func yesNo() value[bool] {
	v := oneOf(option[bool]{"on", true}, option[bool]{"off", false})
	v.show = func(v bool) any { return v }
	return v
}

// depends returns v without a default in the JSON Schema, for a setting with a default that depends
// on other settings.
func depends[V any](v value[V]) value[V] {
	v.depends = true
	return v
}

// optional describes a setting with a pointer as its value. The pointer is nil if the file does not
// contain the setting, or a preset sets it.
func optional[V any](v value[V]) value[*V] {
	show := func(p *V) any {
		switch {
		case p == nil:
			return nil
		case v.show == nil:
			return "on"
		}
		return v.show(*p)
	}
	return value[*V]{
		read: func(d *document, n *node, path string, to **V) {
			*to = new(V)
			v.read(d, n, path, *to)
		},
		show: show,
		diff: func(within, name string, old, f *V, say func(format string, args ...any)) {
			if old != nil && f != nil {
				v.compare(within, name, *old, *f, say)
				return
			}
			byWords(show)(within, name, old, f, say)
		},
		schema: v.schema,
	}
}

// orOff returns v, which also accepts the word off. It is stored as the zero value.
func orOff[V comparable](v value[V]) value[V] {
	var off V
	show := v.show
	v.show = func(v V) any {
		if v == off {
			return "off"
		}
		return show(v)
	}
	v.schema = anyOf(v.schema, schema{"enum": []any{"off", false, "no"}})
	return before(v, func(d *document, n *node, path string, to *V) bool {
		if n.word() == "off" {
			*to = off
		}
		return n.word() == "off"
	})
}

func anyOf(schemas ...any) schema { return schema{"anyOf": schemas} }

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
	v := value[time.Duration]{
		read: func(d *document, n *node, path string, to *time.Duration) {
			v, err := time.ParseDuration(n.text)
			switch {
			case isNumber.MatchString(n.text):
				d.failAt(n, "%s has no unit: write %sms or %ss", path, n.text, n.text)
			case n.kind != scalar || err != nil || v < least && !(off && v == 0) || v > most:
				d.wrong(n, path, want)
			default:
				*to = v
			}
		},
		show: func(v time.Duration) any {
			if v == 0 {
				return nil
			}
			return short(v)
		},
		schema: schema{"type": "string", "pattern": durationPattern},
	}
	if off {
		return orOff(v)
	}
	return v
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
				d.failAt(n, "%s must be %s, not %s%s", path, want, n.is(), hint)
				return
			}
			*to = V(v)
		},
		show:   func(v V) any { return bytesText(int64(v)) },
		schema: anyOf(schema{"type": "integer", "minimum": int64(least), "maximum": int64(most)}, schema{"type": "string", "pattern": sizePattern}),
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
				d.failAt(n, "%s must be a list of at least two, not of one", path)
				return
			}
			if all := severalIn(n.text); n.kind == scalar && len(all) > 1 {
				d.failAt(n, "%s must be a list, not %s: %s", path, n.is(), listHint(all))
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
			if len(vs) == 0 || item.show == nil {
				return nil
			}
			var all []any
			for _, v := range vs {
				all = append(all, item.show(v))
			}
			return all
		},
		schema: schema{"type": "array", "items": item.schema, "minItems": least},
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
	v := listOf(item, 1)
	v.schema = anyOf(item.schema, v.schema)
	return before(v, func(d *document, n *node, path string, to *[]V) bool {
		if n.kind == sequence {
			return false
		}
		*to = make([]V, 1)
		d.where[&(*to)[0]] = n
		item.read(d, n, path, &(*to)[0])
		return true
	})
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
		schema: anyOf(brief.schema, full.schema),
		diff: func(within, name string, old, f V, say func(format string, args ...any)) {
			if brief.form(old) != nil && brief.form(f) != nil {
				byWords(brief.show)(within, name, old, f, say)
				return
			}
			full.compare(within, name, old, f, say)
		},
	}
}

// A differ calls say once for each difference between the settings old and f. name is the name of
// the setting. The text within is the prefix of every message.
type differ[V any] func(within, name string, old, f V, say func(format string, args ...any))

// compare calls say once for each difference between the settings old and f. It compares their
// forms in the file as a whole if v has no differ.
func (v value[V]) compare(within, name string, old, f V, say func(format string, args ...any)) {
	if v.diff == nil {
		v.diff = byWords(v.form)
	}
	v.diff(within, name, old, f, say)
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
	switch v := shown.(type) {
	case nil:
		return "unset"
	case []any:
		return strings.TrimSuffix(strings.ReplaceAll(fmt.Sprintln(v...), " ", ", "), "\n")
	}
	return fmt.Sprint(shown)
}

// An element is an element of a list in which each element has a name.
type element interface {
	// called returns the kind and the name of the element, and the text that describes it if it is
	// added or removed: the name, followed by the address or the pools if the name does not contain
	// them.
	called() (kind, name, full string)
}

// pairsOf describes a mapping of at least one name to an element, which is stored as a list in the order
// of the file. what describes a pair for errors, and one is the schema of an element. The function read reads
// a pair; the position of the element is recorded already.
func pairsOf[V any](what string, one schema, read func(d *document, p pair, path string, to *V)) value[[]V] {
	return value[[]V]{
		read: func(d *document, n *node, path string, to *[]V) {
			if n.kind != mapping || len(n.pairs) == 0 {
				d.wrong(n, path, "a mapping of at least one "+what)
				return
			}
			*to = make([]V, len(n.pairs))
			for i, p := range n.pairs {
				d.where[&(*to)[i]] = p.key
				read(d, p, path, &(*to)[i])
			}
		},
		schema: schema{"type": "object", "minProperties": 1, "additionalProperties": one},
	}
}

// byName returns a differ for lists of elements with names. It reports removed and added elements,
// and the differences of the others. For servers it also reports a changed order, because placement
// can depend on the order.
func byName[V element](inner value[V]) differ[[]V] {
	return func(within, _ string, old, f []V, say func(format string, args ...any)) {
		names := func(list []V) (names []string) {
			for i := range list {
				_, name, _ := list[i].called()
				names = append(names, name)
			}
			return names
		}
		before, now := names(old), names(f)
		for i, name := range before {
			if kind, _, full := old[i].called(); !slices.Contains(now, name) {
				if kind == "listener" {
					full += ": its clients are closed after the replies to requests in flight"
				}
				say("%s-%s %s", within, kind, full)
			}
		}
		last, moved := -1, false
		for i, name := range now {
			kind, _, full := f[i].called()
			at := slices.Index(before, name)
			if at < 0 {
				say("%s+%s %s", within, kind, full)
				continue
			}
			moved = moved || kind == "server" && at < last
			last = at
			inner.compare(within+kind+" "+name+": ", "", old[at], f[i], say)
		}
		if moved {
			say("%sthe servers stand in another order", within)
		}
	}
}
