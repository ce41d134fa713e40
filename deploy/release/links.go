package main

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/goreleaser/nfpm/v2/files"
)

// relink rewrites the links of the Markdown pages in contents, so that they work at the paths
// where the package installs the pages. A link to a file that the package does not contain is
// replaced by the file's path in the source. The rewritten pages are stored in dir.
func relink(contents files.Contents, dir string) error {
	installed := map[string]string{} // destination by path in the source; a directory has an entry if exactly one installed file is in it: the destination of that file
	several := map[string]bool{}
	for _, c := range contents {
		if c.Source == "" {
			continue
		}
		at := path.Clean(c.Source)
		installed[at] = c.Destination
		several[path.Dir(at)] = installed[path.Dir(at)] != ""
		installed[path.Dir(at)] = c.Destination
	}
	for in, are := range several {
		if are {
			delete(installed, in)
		}
	}
	for _, c := range contents {
		if path.Ext(c.Source) != ".md" {
			continue
		}
		page, err := os.ReadFile(c.Source)
		if err != nil {
			return err
		}
		page = []byte(relinked(string(page), c, installed))
		c.Source = filepath.Join(dir, strings.ReplaceAll(c.Destination, "/", "_"))
		if err := os.WriteFile(c.Source, page, 0o600); err != nil {
			return err
		}
		c.FileInfo.Size = int64(len(page))
	}
	return nil
}

var link = regexp.MustCompile(`\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)`)

// relinked returns the Markdown text page with its links rewritten for the package. c is the
// packaged file with this text. installed maps a path in the source to its destination in the
// package.
func relinked(page string, c *files.Content, installed map[string]string) string {
	return link.ReplaceAllStringFunc(page, func(whole string) string {
		m := link.FindStringSubmatch(whole)
		said, at := m[1], path.Join(path.Dir(c.Source), m[2])
		if _, err := os.Stat(at); err != nil {
			return whole // a link to another site, or no link at all
		}
		if to := installed[at]; to != "" {
			relative, err := filepath.Rel(path.Dir(c.Destination), to)
			if err != nil {
				return whole
			}
			return "[" + said + "](" + relative + m[3] + ")"
		}
		if said == at {
			return said + " (in the source)"
		}
		return said + " (" + at + " in the source)"
	})
}
