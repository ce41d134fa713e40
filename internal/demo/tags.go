package demo

// This file implements ringside demo --tags. It shows what one delete of a tag does, for
// a client that knows only get, set and delete.

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"

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
	c, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	answers := bufio.NewReader(c)
	ask := func(command, want string) error {
		fmt.Fprintf(c, "%s\r\n", command)
		if s, err := answers.ReadString('\n'); err != nil || strings.TrimSpace(s) != want {
			return fmt.Errorf("%q was answered %q, %v", command, s, err)
		}
		return nil
	}
	for i := range tagPages {
		if err := ask(fmt.Sprintf("set post:%d;tags=user:%d 0 0 4\r\npage", i, i%tagUsers), "STORED"); err != nil {
			return err
		}
	}
	fmt.Fprintf(text, "%d pages were stored, such as\n\n  set post:42;tags=user:2 0 0 4\n\n", tagPages)
	var n tagCounts
	for _, step := range []struct {
		found   *int
		command string
		why     string
	}{
		{&n.Stored, "", ""},
		{&n.User, "delete tag:user:2", "user 2 has changed his name"},
		{&n.All, "delete tag:posts", "all pages look otherwise from now on; the route says that each has this tag"},
	} {
		if step.command != "" {
			if err := ask(step.command, "DELETED"); err != nil {
				return err
			}
			fmt.Fprintf(text, "  %-18s %s\n", step.command, step.why)
		}
		if *step.found, err = pagesFound(c, answers); err != nil {
			return err
		}
		fmt.Fprintf(text, "  %18d pages are found\n", *step.found)
	}
	if asJSON {
		return cli.NewEncoder(out).Encode(n)
	}
	fmt.Fprintf(out, "\nThe configuration of the tags:\n\n  routes:\n  %s", tagRoute)
	return nil
}

// pagesFound gets all pages, one after the other, and returns the number of hits.
func pagesFound(c io.Writer, answers *bufio.Reader) (n int, err error) {
	for i := range tagPages {
		fmt.Fprintf(c, "get post:%d\r\n", i)
		for ended := false; !ended; {
			line, err := answers.ReadString('\n')
			switch {
			case err != nil:
				return 0, err
			case strings.HasPrefix(line, "VALUE "):
				n++
			case line == "page\r\n":
			case line == "END\r\n":
				ended = true
			default:
				return 0, fmt.Errorf("a get was answered %q", line)
			}
		}
	}
	return n, nil
}
