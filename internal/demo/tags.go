package demo

// This file implements ringside demo --tags. It shows what one delete of a tag does, for
// a client that knows only get, set and delete.

import (
	"fmt"
	"io"

	"github.com/bradfitz/gomemcache/memcache"

	"ringside/internal/cli"
)

const (
	tagPages = 1000
	tagUsers = 10
)

// tagRoute is the route with tags, in YAML. Each page has the tag posts in addition to tags that a
// client sends.
const tagRoute = "  - {prefix: \"post:\", pool: main, tags: {patterns: [{match: \"post:{id}\", tags: [posts]}]}}\n"

// tagCounts has the number of pages that were found after each step of the demo.
type tagCounts struct {
	Stored int `json:"stored"`
	User   int `json:"after_a_user_has_changed"`
	All    int `json:"after_all_were_dropped"`
}

// showTags stores pages with tags. It then invalidates the pages of one user, and later all pages.
// It prints how many pages are found after each step.
func showTags(address string, out io.Writer, asJSON bool) error {
	text := out
	if asJSON {
		text = io.Discard
	}
	c := newClient(address)
	defer c.Close()
	var pages []string
	for i := range tagPages {
		pages = append(pages, fmt.Sprintf("post:%d", i))
		if err := c.Set(&memcache.Item{Key: fmt.Sprintf("%s;tags=user:%d", pages[i], i%tagUsers), Value: []byte("page")}); err != nil {
			return err
		}
	}
	fmt.Fprintf(text, "%d pages were stored, such as\n\n  set post:42;tags=user:2 0 0 4\n\n", tagPages)
	var n tagCounts
	for _, step := range []struct {
		found *int
		tag   string
		why   string
	}{
		{&n.Stored, "", ""},
		{&n.User, "tag:user:2", "user 2 has changed his name"},
		{&n.All, "tag:posts", "all pages look otherwise from now on; the route says that each has this tag"},
	} {
		if step.tag != "" {
			if err := c.Delete(step.tag); err != nil {
				return err
			}
			fmt.Fprintf(text, "  %-18s %s\n", "delete "+step.tag, step.why)
		}
		found, err := c.GetMulti(pages)
		if err != nil {
			return err
		}
		*step.found = len(found)
		fmt.Fprintf(text, "  %18d pages are found\n", *step.found)
	}
	if asJSON {
		return cli.NewEncoder(out).Encode(n)
	}
	fmt.Fprintf(out, "\nThe configuration of the tags:\n\n  routes:\n  %s", tagRoute)
	return nil
}
