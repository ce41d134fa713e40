package main

import (
	"html"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// render renders the site into a new directory, and returns its files by path.
func render(t *testing.T) (dir string, files map[string]string) {
	t.Helper()
	dir, files = filepath.Join(t.TempDir(), "site"), map[string]string{}
	s := newSite(root)
	if err := s.read("README.md"); err != nil {
		t.Fatal(err)
	}
	if err := s.write(dir); err != nil {
		t.Fatal(err)
	}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		files[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir, files
}

var (
	reference = regexp.MustCompile(`\s(?:href|src|data-top)="([^"]*)"`)
	named     = regexp.MustCompile(`\sid="([^"]*)"`)
	code      = regexp.MustCompile(`(?s)<pre>.*?</pre>`)
)

// TestSite checks the rendered files, and not their sources: every page of docs/ is in the site, each
// link leads to a file and to an anchor of the site, and nothing is loaded from another host. Two runs
// write the same bytes.
func TestSite(t *testing.T) {
	_, files := render(t)
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatal("no pages", err)
	}
	for _, page := range pages {
		name := "docs/" + strings.TrimSuffix(filepath.Base(page), ".md") + ".html"
		text := files[name]
		if text == "" {
			t.Errorf("the site has no %s", name)
		}
		if !strings.Contains(text, `aria-current="page"`) {
			t.Errorf("%s is not in the list of pages", name)
		}
		source, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if blocks := strings.Count(text, "<pre>"); blocks < strings.Count(string(source), "\n```")/2 {
			t.Errorf("%s has %d blocks of code, which is less than its source", name, blocks)
		}
	}
	anchors := map[string][]string{}
	for name, text := range files {
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			anchors[name] = append(anchors[name], html.UnescapeString(m[1]))
		}
	}
	links := 0
	for name, text := range files {
		if path.Ext(name) != ".html" {
			continue
		}
		if sheets := strings.Count(text, `<script`) + strings.Count(text, `<link`); sheets != 2 {
			t.Errorf("%s has %d scripts and style sheets, want 2", name, sheets)
		}
		for _, m := range reference.FindAllStringSubmatch(code.ReplaceAllString(text, ""), -1) {
			u, err := url.Parse(html.UnescapeString(m[1]))
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if u.Host != "" {
				if !strings.Contains(m[0], "href=") {
					t.Errorf("%s loads %s", name, u)
				}
				continue
			}
			links++
			to := name
			if u.Path != "" {
				to = path.Join(path.Dir(name), u.Path)
			}
			if _, ok := files[to]; !ok && !strings.Contains(m[0], "data-top") {
				t.Errorf("%s: the link %s leads nowhere", name, u)
			}
			if u.Fragment != "" && !slices.Contains(anchors[to], u.Fragment) {
				t.Errorf("%s: %s has no anchor #%s", name, to, u.Fragment)
			}
		}
	}
	if links < 1000 {
		t.Errorf("only %d links", links)
	}
	_, again := render(t)
	for name := range files {
		if files[name] != again[name] {
			t.Errorf("%s differs in a second run", name)
		}
	}
}

// TestSearch runs the search of the site on its index. The wanted page is one of the first two results.
func TestSearch(t *testing.T) {
	dir, _ := render(t)
	for _, c := range []struct{ query, want string }{
		{"eject_after", "docs/configuration.html"},
		{"stampede protection", "docs/guard.html"},
		{"php sessions", "docs/clients.html"},
		{"fnv1a_64", "docs/from-twemproxy.html"},
		{"SERVER_ERROR other instances may not see", "docs/errors.html"},
		{"buffered incr", "docs/counters.html"},
		{"certificate", "docs/tls.html"},
		{"nosuchwordanywhere", ""},
	} {
		out, err := exec.Command("node", "-e", `
			const fs = require('fs'), vm = require('vm'), [dir, query] = process.argv.slice(1), box = {};
			vm.runInNewContext(fs.readFileSync(dir + '/search-index.js', 'utf8'), box);
			console.log(require(dir + '/search.js')(box.searchIndex, query, 12).map((f) => f.path).join(' '));`, dir, c.query).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		found := strings.Fields(string(out))
		if first := found[:min(2, len(found))]; len(found) > 0 && c.want == "" || c.want != "" && !slices.Contains(first, c.want) {
			t.Errorf("%q finds first %q, want %q (all: %s)", c.query, first, c.want, out)
		}
	}
}

// TestMistakes renders pages with mistakes, and checks what the error says.
func TestMistakes(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"[a](docs/none.md)", "README.md: the link to docs/none.md leads nowhere"},
		{"[a](docs/a.md#none)", "README.md: docs/a.md has no heading #none"},
		{"[a](../outside.md)", "leads nowhere"},
		{"![a](https://example.org/a.png)", "must be files of the repository"},
		{"[a](ftp://example.org/a)", "must be files of the repository"},
		{"", "README.md: the list under Documentation does not have docs/b.md"},
	} {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "docs"), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{
			"README.md": "# Top\n\n" + c.text + "\n\n## Documentation\n\n| to | read |\n|---|---|\n| begin | [a](docs/a.md) |\n",
			"docs/a.md": "# A\n\n## Twice\n\n## Twice\n\n[second](#twice-1)\n",
			"docs/b.md": "# B\n",
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		err := newSite(dir).read("README.md")
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %s", c.text, err, c.want)
		}
		if c.text == "" && err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("other mistakes: %v", err)
		}
	}
}

// TestPicture checks that the picture in docs/ is the one that make docs draws.
func TestPicture(t *testing.T) {
	if text, err := os.ReadFile(filepath.Join(root, "docs", "ringside.svg")); err != nil || string(text) != string(picture()) {
		t.Errorf("docs/ringside.svg is old: run make docs (%v)", err)
	}
}
