package config

// What is wrong with a file, where, and the known word that is nearest.

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Error is one thing that is wrong with a file.
type Error struct {
	File         string
	Line, Column int // from 1; columns count characters, not bytes
	Message      string
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Message)
}

// Errors is everything that is wrong with a file, in the order of the file.
type Errors []*Error

// Error returns one line per error.
func (e Errors) Error() string {
	var b strings.Builder
	for i, err := range e {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(err.Error())
	}
	return b.String()
}

// Unwrap lets errors.As find a single *Error.
func (e Errors) Unwrap() []error {
	all := make([]error, len(e))
	for i, err := range e {
		all[i] = err
	}
	return all
}

// sorted puts errors in the order of the file and says each once: a value that
// is used through several aliases may be wrong in the same way several times.
func (e Errors) sorted() Errors {
	slices.SortStableFunc(e, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return slices.CompactFunc(e, func(a, b *Error) bool { return *a == *b })
}

// orNil keeps a nil list from becoming an error that is not nil.
func (e Errors) orNil() error {
	if len(e) == 0 {
		return nil
	}
	return e.sorted()
}

// didYouMean returns " (did you mean ...?)" with the known word nearest to word,
// or nothing when none is near.
func didYouMean(word string, known []string) string {
	best, least := "", 1+min(3, max(1, len(word)/3))
	for _, k := range known {
		if len(k) > 3 && strings.HasPrefix(strings.ToLower(word), k) { // warning for warn
			return fmt.Sprintf(" (did you mean %q?)", k)
		}
		if d := len(k) - len(word); d >= least || -d >= least {
			continue
		}
		if d := distance(strings.ToLower(word), k); d < least {
			best, least = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", best)
}

// glued is a colon with a word on both sides, at the beginning of a line or of a part
// of a mapping in braces.
var glued = regexp.MustCompile(`(?:^|[{,])[ \t]*(?:- +)?([a-z_]+):([A-Za-z0-9_."'-]+)`)

// unspaced says that a colon needs a space behind it, where text has one without
// behind a key, or that it stands for an underscore.
func unspaced(text string, isKey func(name string) bool) string {
	for _, m := range glued.FindAllStringSubmatch(text, -1) {
		switch {
		case isKey(m[1] + "_" + m[2]):
			return fmt.Sprintf(" (did you mean %q?)", m[1]+"_"+m[2])
		case isKey(m[1]):
			return fmt.Sprintf(" (a colon needs a space behind it: write %s: %s)", m[1], m[2])
		}
	}
	return ""
}

// distance counts the characters to add, remove, change or swap with their
// neighbour to make b of a.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}

// quote shows a text from the file, cut where it would drown the message.
func quote(s string) string {
	const most = 60
	if utf8.RuneCountInString(s) > most {
		s = string([]rune(s)[:most]) + "…"
	}
	return fmt.Sprintf("%q", s)
}

// list joins words as a person would: a, b or c.
func list(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
