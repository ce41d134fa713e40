package config

// This file contains the errors of a configuration file, with their positions and with hints at the
// nearest known word.

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Error is one mistake in a file.
type Error struct {
	File         string
	Line, Column int // position in the file, counted from 1; a column is a character, not a byte
	Message      string
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Message)
}

// Errors holds all mistakes of a file, sorted by position.
type Errors []*Error

// Error returns the text of all errors, one per line.
func (e Errors) Error() string { return errors.Join(e.Unwrap()...).Error() }

// Unwrap returns the errors one by one, so that errors.As finds a single *Error.
func (e Errors) Unwrap() []error {
	all := make([]error, len(e))
	for i, err := range e {
		all[i] = err
	}
	return all
}

// sorted sorts the errors by position and removes duplicates. A wrong value that several aliases
// repeat causes several equal errors.
func (e Errors) sorted() Errors {
	slices.SortStableFunc(e, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	seen := map[Error]bool{}
	return slices.DeleteFunc(e, func(o *Error) bool {
		twice := seen[*o]
		seen[*o] = true
		return twice
	})
}

// orNil returns the sorted errors, or nil if there are none. A nil Errors in a variable of type
// error would compare unequal to nil.
func (e Errors) orNil() error {
	if len(e) == 0 {
		return nil
	}
	return e.sorted().withoutCrowds()
}

// mostUnknown is the maximum number of errors about unknown keys that are reported. A file of another
// program can have thousands of them.
const mostUnknown = 10

// withoutCrowds replaces the errors about unknown keys after the first mostUnknown by one error with
// their number.
func (e Errors) withoutCrowds() (list Errors) {
	unknown, last := 0, (*Error)(nil)
	for _, one := range e {
		if strings.HasPrefix(one.Message, unknownKey) {
			if unknown++; unknown > mostUnknown {
				if last == nil {
					last = &Error{File: one.File, Line: one.Line, Column: one.Column}
					list = append(list, last)
				}
				last.Message = fmt.Sprintf("and %s", count(unknown-mostUnknown, "more unknown key"))
				continue
			}
		}
		list = append(list, one)
	}
	return list
}

// unknownKey is the beginning of the message of an error about an unknown key.
const unknownKey = "unknown key "

// invisible returns a hint if the line of an error has a character that looks like another one, or if
// a space is missing after the dash of a list. Otherwise it returns "".
func invisible(line string) string {
	if before, _, ok := strings.Cut(line, "\u00a0"); ok {
		return fmt.Sprintf(" (column %d has a non-breaking space: replace it with a space)", 1+utf8.RuneCountInString(before))
	}
	if m := noDashSpace.FindStringSubmatch(line); m != nil {
		return fmt.Sprintf(" (a dash needs a space after it: write - %s)", m[1])
	}
	return ""
}

// noDashSpace matches a line with an item of a list without a space after its dash.
var noDashSpace = regexp.MustCompile(`^[ \t]*-([A-Za-z0-9\[{"'/][^ ]*)[ \t]*$`)

// didYouMean returns " (did you mean ...?)" with the known word nearest to word, or "" if none
// is near.
func didYouMean(word string, known []string) string {
	best, least := "", 1+min(3, max(1, len(word)/3))
	for _, k := range known {
		if len(k) > 3 && strings.HasPrefix(strings.ToLower(word), k) { // word begins with a known word: for "warning", the known word is "warn"
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

// glued matches a key, a colon and a value without a space between them. The key is at the
// beginning of a line, of a list item, or of an entry in braces.
var glued = regexp.MustCompile(`(?:^|[{,])[ \t]*(?:- +)?([a-z_]+):([A-Za-z0-9_."'-]+)`)

// unspaced returns a hint if a space is missing after the colon of a key in text, or if text has a
// colon in place of the underscore of a key. Otherwise it returns "".
func unspaced(text string) string {
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

// distance returns the edit distance of a and b. It counts the bytes that must be added, removed,
// changed, or swapped with a neighbour to turn a into b.
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

// maxQuoted is the number of characters of a text that quote keeps.
const maxQuoted = 60

// quote quotes a text from the file. It cuts long texts, so that the message stays readable.
func quote(s string) string {
	if utf8.RuneCountInString(s) > maxQuoted {
		s = string([]rune(s)[:maxQuoted]) + "…"
	}
	return fmt.Sprintf("%q", s)
}

// list joins words with commas and "or", as in "a, b or c".
func list(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
