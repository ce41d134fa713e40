package table

// This file defines the tag settings of a route.

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"ringside/proxy/tags/stamp"
)

// TagSettings holds the settings of a route with tags. Package tags implements them.
type TagSettings struct {
	stamp.Rule
	Suffix string // separates a key from further tags that the client names; empty: clients cannot name tags
	Read   bool   // understand values that other instances have stored with tags, but store none
}

// CheckTagNames returns an error for the first of names that is not a valid tag name. The names are from JSON, which has U+FFFD in place of each
// byte that is not UTF-8. So names with it are not accepted: another tag could be meant.
func CheckTagNames(names []string) error {
	for _, name := range names {
		if strings.ContainsRune(name, utf8.RuneError) {
			return fmt.Errorf("%.100q: the name of a tag must be UTF-8 here: use delete with the name as its client writes it", name)
		}
		if err := stamp.CheckName([]byte(name)); err != nil {
			return fmt.Errorf("%.100q: %w", name, err)
		}
	}
	return nil
}

// TagsOf returns the tags of these names in t. CheckTagNames must have accepted the names.
func (t *Table) TagsOf(names []string) (list []stamp.Tag, err error) {
	for _, l := range t.Listeners {
		for _, r := range l.Routes {
			if r.Tags == nil {
				continue
			}
			for _, name := range names {
				list = stamp.Add(list, r.Tags.Tag([]byte(name)))
			}
			return list, nil
		}
	}
	return nil, errors.New("no route has tags")
}
