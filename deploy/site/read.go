package main

// This file reads pages, follows their links, and checks them.

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	tables "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
)

// site is a set of pages. All paths are relative to the top of the repository, with slashes.
type site struct {
	from     string // top of the repository
	markdown goldmark.Markdown
	pages    map[string]*page // by path of the source: a Markdown file, another text file, or a directory
	order    []string         // paths of pages, in the order in which links lead to them
	copies   []string         // paths of images
	anchors  []anchor         // links to a part of a page, checked after all pages are read
	groups   []group          // the list of pages of README.md
	mistakes []error
}

// page is one page of the site.
type page struct {
	source string
	title  string
	text   []byte          // the source
	tree   ast.Node        // nil if the page is not Markdown
	ids    map[string]bool // anchors of the headings
	files  []string        // of a directory: the files in it
}

// anchor is a link to a heading.
type anchor struct{ from, to, id string }

// group is a row of the list of pages.
type group struct {
	Name  string
	Pages []entry
}

// entry is a page in the list of pages.
type entry struct{ Source, Name string }

func newSite(from string) *site {
	return &site{from: from, pages: map[string]*page{}, markdown: goldmark.New(
		goldmark.WithExtensions(extension.Table),
		goldmark.WithParserOptions(parser.WithAutoHeadingID()),
		goldmark.WithRendererOptions(html.WithUnsafe()), // the marks of benchmark tables are comments
	)}
}

// read reads the page first and all pages to which links lead from there. The error has all mistakes.
func (s *site) read(first string) error {
	s.add(first)
	for i := 0; i < len(s.order); i++ { // readPage appends to order
		if err := s.readPage(s.pages[s.order[i]]); err != nil {
			return err
		}
	}
	for _, a := range s.anchors {
		if p := s.pages[a.to]; !p.ids[a.id] {
			s.fail(a.from, "%s has no heading #%s", a.to, a.id)
		}
	}
	s.groups = s.contents(s.pages[first])
	listed := map[string]bool{first: true}
	for _, g := range s.groups {
		for _, e := range g.Pages {
			listed[e.Source] = true
		}
	}
	docs, err := filepath.Glob(filepath.Join(s.from, "docs", "*.md"))
	if err != nil {
		return err
	}
	for _, file := range docs {
		if page := "docs/" + filepath.Base(file); !listed[page] {
			s.fail(first, "the list under Documentation does not have %s", page)
		}
	}
	return errors.Join(s.mistakes...)
}

func (s *site) fail(page, format string, args ...any) {
	s.mistakes = append(s.mistakes, fmt.Errorf("%s: "+format, append([]any{page}, args...)...))
}

// add adds a page, unless the site has it.
func (s *site) add(source string) {
	if s.pages[source] == nil {
		s.pages[source] = &page{source: source, title: source}
		s.order = append(s.order, source)
	}
}

// readPage parses a page, and replaces the targets of its links by those of the site.
func (s *site) readPage(p *page) error {
	at := filepath.Join(s.from, p.source)
	if info, err := os.Stat(at); err != nil {
		return err
	} else if info.IsDir() {
		return s.readDirectory(p, at)
	}
	var err error
	if p.text, err = os.ReadFile(at); err != nil || path.Ext(p.source) != ".md" {
		return err
	}
	ids := &headings{known: map[string]bool{}}
	p.tree = s.markdown.Parser().Parse(text.NewReader(p.text), parser.WithContext(parser.NewContext(parser.WithIDs(ids))))
	p.ids = ids.known
	return ast.Walk(p.tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			if n.Level == 1 {
				p.title = plain(n, p.text)
			}
		case *ast.Link:
			n.Destination = []byte(s.target(p.source, string(n.Destination), false))
		case *ast.Image:
			n.Destination = []byte(s.target(p.source, string(n.Destination), true))
		}
		return ast.WalkContinue, nil
	})
}

// readDirectory makes a page with links to the files of a directory and of those in it.
func (s *site) readDirectory(p *page, at string) error {
	return filepath.WalkDir(at, func(file string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(s.from, file)
		if err == nil {
			name = filepath.ToSlash(name)
			s.add(name)
			p.files = append(p.files, name)
		}
		return err
	})
}

// target returns the target of a link or of an image in the site. It adds the page to which the link
// leads, or the image.
func (s *site) target(from, to string, image bool) string {
	u, err := url.Parse(to)
	switch {
	case err != nil:
		s.fail(from, "the link %s: %v", to, err)
		return to
	case u.Scheme != "" || u.Host != "":
		if image || u.Scheme != "http" && u.Scheme != "https" {
			s.fail(from, "%s: images, and links that are not http or https, must be files of the repository", to)
		}
		return to
	}
	at := from
	if u.Path != "" {
		at = path.Join(path.Dir(from), u.Path)
	}
	info, err := os.Stat(filepath.Join(s.from, at))
	if err != nil || strings.HasPrefix(at, "..") {
		s.fail(from, "the link to %s leads nowhere", to)
		return to
	}
	if image {
		s.copies = append(s.copies, at)
		return relative(from, at)
	}
	if readme := path.Join(at, "README.md"); info.IsDir() {
		if _, err := os.Stat(filepath.Join(s.from, readme)); err == nil {
			at = readme
		}
	}
	s.add(at)
	if u.Fragment == "" {
		return relative(from, file(at))
	}
	s.anchors = append(s.anchors, anchor{from, at, u.Fragment})
	return relative(from, file(at)) + "#" + u.Fragment
}

// contents returns the list of pages: the table under the heading Documentation. Its second column
// has links.
func (s *site) contents(p *page) (list []group) {
	under := false
	for n := p.tree.FirstChild(); n != nil; n = n.NextSibling() {
		if h, ok := n.(*ast.Heading); ok {
			under = plain(h, p.text) == "Documentation"
		}
		if t, ok := n.(*tables.Table); ok && under {
			for row := t.FirstChild().NextSibling(); row != nil; row = row.NextSibling() {
				list = append(list, group{plain(row.FirstChild(), p.text), s.entries(row.LastChild(), p)})
			}
		}
	}
	if list == nil {
		s.fail(p.source, "has no table under the heading Documentation")
	}
	return list
}

// entries returns the pages to which the links in n lead.
func (s *site) entries(n ast.Node, p *page) (list []entry) {
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		l, ok := c.(*ast.Link)
		if !ok {
			continue
		}
		for source := range s.pages {
			if relative(p.source, file(source)) == string(l.Destination) {
				list = append(list, entry{source, plain(l, p.text)})
			}
		}
	}
	return list
}

// file returns the path in the site of the page with this source.
func file(source string) string {
	if source == "README.md" {
		return "index.html"
	}
	return strings.TrimSuffix(source, ".md") + ".html"
}

// relative returns the link from the page with the source from to a path in the site.
func relative(from, to string) string {
	link, err := filepath.Rel(path.Dir(from), to)
	if err != nil {
		panic(err) // both are relative paths
	}
	return filepath.ToSlash(link)
}

// plain returns the text of n without marks.
func plain(n ast.Node, source []byte) string {
	var b strings.Builder
	err := ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			if n.Type() == ast.TypeBlock {
				b.WriteByte(' ')
			}
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Text:
			b.Write(n.Segment.Value(source))
			if n.SoftLineBreak() || n.HardLineBreak() {
				b.WriteByte(' ')
			}
		case *ast.String:
			b.Write(n.Value)
		case *ast.AutoLink:
			b.Write(n.Label(source))
		case *ast.FencedCodeBlock, *ast.CodeBlock:
			b.Write(n.Lines().Value(source))
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		panic(err) // the function returns none
	}
	return strings.TrimSpace(b.String())
}

// headings makes the anchors of headings as GitHub does.
type headings struct{ known map[string]bool }

var unlinked = regexp.MustCompile(`[^\pL\pN _-]`)

func (h *headings) Generate(value []byte, _ ast.NodeKind) []byte {
	id := strings.ReplaceAll(unlinked.ReplaceAllString(strings.ToLower(strings.TrimSpace(string(value))), ""), " ", "-")
	free := id
	for i := 1; h.known[free]; i++ {
		free = id + "-" + strconv.Itoa(i)
	}
	h.known[free] = true
	return []byte(free)
}

func (h *headings) Put(id []byte) { h.known[string(id)] = true }
