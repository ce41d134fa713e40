package table

// How values of a route are tied to tags.

import (
	"errors"
	"fmt"

	"ringside/proxy/tags/stamp"
)

// Tags is what a route with tags does: package tags.
type Tags struct {
	stamp.Rule
	Suffix string // what names further tags stands behind the key and this; empty: nothing does
	Read   bool   // heads are understood, and none is written
}

// CheckTagNames says which of names no tag can have, and why.
func CheckTagNames(names []string) error {
	for _, name := range names {
		if err := stamp.CheckName([]byte(name)); err != nil {
			return fmt.Errorf("%.100q: %w", name, err)
		}
	}
	return nil
}

// TagsOf are the tags of these names in t. The names have been checked (CheckTagNames).
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
