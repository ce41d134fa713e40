package archtest

// Links between Markdown files must have an existing target file and heading.

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	pageLink = regexp.MustCompile(`\]\(([^():]*?)(#[^()]*)?\)`)
	unlinked = regexp.MustCompile(`[^\pL\pN _-]`)
)

// anchors returns the link names of a page's headings.
func anchors(text string) map[string]bool {
	all, code := map[string]bool{}, false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "```") {
			code = !code
		}
		if level := strings.TrimLeft(line, "#"); !code && level != line && strings.HasPrefix(level, " ") {
			all[strings.ReplaceAll(unlinked.ReplaceAllString(strings.ToLower(strings.TrimSpace(level)), ""), " ", "-")] = true
		}
	}
	return all
}

func TestLinksLeadSomewhere(t *testing.T) {
	links := 0
	for _, file := range files(t) {
		if !strings.HasSuffix(file, ".md") || strings.Contains(file, "node_modules") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range pageLink.FindAllStringSubmatch(string(text), -1) {
			links++
			target := file
			if m[1] != "" {
				target = path.Join(path.Dir(file), m[1])
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s: the link to %s leads nowhere", file, m[1])
				continue
			}
			if m[2] == "" || !strings.HasSuffix(target, ".md") {
				continue
			}
			there, err := os.ReadFile(filepath.Join(root, target))
			if err != nil {
				t.Fatal(err)
			}
			if !anchors(string(there))[m[2][1:]] {
				t.Errorf("%s: %s has no heading %s", file, target, m[2])
			}
		}
	}
	if links < 50 {
		t.Errorf("found only %d links", links)
	}
}
