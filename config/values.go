package config

// The kinds of values: how each is read, shown and described to editors.

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

// A value is one kind of setting.
type value[V any] struct {
	read   func(d *document, n *node, path string, to *V) // notes what is wrong and leaves to alone then
	show   func(V) any                                    // as it would stand in a file
	schema func() schema
	words  []string  // all that it may be, if that is a few
	diff   differ[V] // what is another in a file than in one before; nil: what show says
}

// wrong notes that the value at path is not what it must be.
func (d *document) wrong(n *node, path, want string) {
	d.fail(n.line, n.column, "%s must be %s, not %s%s", path, want, n.is(), variable(n.text))
}

// variable says that nobody fills in what a person took for a variable.
func variable(text string) string {
	if strings.Contains(text, "${") {
		return "; nothing is taken from the environment: fill in ${…} before, with envsubst for one"
	}
	return ""
}

// text is any string; what says what it is for.
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

// integer is a whole number within bounds.
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

// An option is one word of a choice.
type option[V any] struct {
	word  string
	means V
}

// oneOf is one of a few words. On and off may be written as true and false
// too, because YAML 1.1 takes them for the same.
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

// chosen is what the option means whose word n is.
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

// modes are the short forms of what has settings of its own; want names them, and that
// it may be a mapping of these.
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

// words is a choice of words that mean themselves.
func words(all ...string) value[string] {
	options := make([]option[string], len(all))
	for i, word := range all {
		options[i] = option[string]{word, word}
	}
	return oneOf(options...)
}

// spoken is a choice of values that say their words themselves.
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

// depends is a value whose default depends on other settings.
func depends[V any](v value[V]) value[V] {
	v.diff = byWords(v.show)
	v.show = func(V) any { return nil }
	return v
}

// optional is a value that means something else when it is left out.
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

// orOff is a number of which 0, written off, turns something off.
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

// duration is a time with its unit, within bounds. Where the least is 0, that
// turns something off, and may be written so.
func duration(least, most time.Duration) value[time.Duration] {
	return durationOr(least == 0, least, most)
}

// durationOr is duration. off says that 0 turns something off, whatever the least is.
func durationOr(off bool, least, most time.Duration) value[time.Duration] {
	example := "500ms"
	if most > time.Hour { // of memcached's, which counts seconds
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

// short writes a duration without the zeros that String ends in.
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

// size is a number of bytes within bounds, bare or with a binary unit.
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

// bytesText writes a number of bytes in the largest unit that keeps it whole.
func bytesText(v int64) string {
	for _, unit := range []string{"GiB", "MiB", "KiB"} {
		if v > 0 && v%sizeUnit[unit] == 0 {
			return strconv.FormatInt(v/sizeUnit[unit], 10) + unit
		}
	}
	return strconv.FormatInt(v, 10)
}

// listOf is a list of values, of which it may want one or two.
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
			// In full length first: where remembers the places of what is read by address.
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

// elements is a list whose elements people know by their names.
func elements[V element](item value[V], list value[[]V]) value[[]V] {
	list.diff = byName(item)
	return list
}

// oneOrMore is a list that may be written without its brackets while it has one
// element.
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

// either is written short as a scalar, or in full as a mapping.
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

// switched is on or off as a scalar, or its settings as a mapping.
func switched[V any](onOff, full value[V]) value[V] {
	v := either(onOff, full)
	v.diff = func(within, name string, old, f V, say func(format string, args ...any)) {
		onOff.compare(within, name, old, f, say)
		full.compare(within, name, old, f, say)
	}
	return v
}

// A differ says what is another in f than in old. The setting is called name;
// within stands before everything that is said.
type differ[V any] func(within, name string, old, f V, say func(format string, args ...any))

// compare says what is another in f. A value without a differ of its own is one
// word.
func (v value[V]) compare(within, name string, old, f V, say func(format string, args ...any)) {
	if v.diff != nil {
		v.diff(within, name, old, f, say)
		return
	}
	byWords(v.show)(within, name, old, f, say)
}

// byWords compares what stands in the files.
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

// An element of a list that people know by a name.
type element interface {
	called() (kind, name string)
	inFull() string // the name, and where it leads where the name doesn't say that
}

// byName compares lists whose elements have names: some come, some go, and the
// others are compared. The order counts where keys may go by it.
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
