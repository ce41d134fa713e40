// Command site renders the pages of the repository as a static site with a search: README.md and all
// Markdown files to which links lead from there. The site needs no server and no other host: its files
// can be opened from a disk. It is a separate module, so that a build of Ringside does not need its
// dependency.
//
// It also draws the picture of README.md.
//
// It fails, and lists all mistakes, if a link or an anchor does not exist, if an image is missing or is
// on another host, or if a page of docs/ is not in the list of pages of README.md. Two runs with the
// same files write the same bytes.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	from := flag.String("from", ".", "the top `directory` of the repository")
	to := flag.String("to", "bin/docs", "the `directory` for the site; it is replaced")
	flag.Parse()
	s := newSite(*from)
	err := os.WriteFile(filepath.Join(*from, "docs", "ringside.svg"), picture(), 0o644)
	if err == nil {
		err = s.read("README.md")
	}
	if err == nil {
		err = s.write(*to)
	}
	at, absent := filepath.Abs(*to)
	err = errors.Join(err, absent)
	if err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
	fmt.Printf("%d pages: open %s\n", len(s.order), filepath.Join(at, "index.html"))
}
