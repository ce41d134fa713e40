package main

// This file writes the site: its pages, images, and the index of the search.

import (
	"bytes"
	"embed"
	"encoding/json"
	"html/template"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/yuin/goldmark/ast"
)

//go:embed theme
var theme embed.FS

// view is what the template of a page gets.
type view struct {
	Title, Source string
	Top           string // path to the top of the site: "" or "../", once for each directory
	Body          template.HTML
	Parts         []section // headings of the second level
	Groups        []group
}

// section is a part of a page that the search finds: a heading and the text below it.
type section struct {
	ID, Heading string
	text        strings.Builder
}

// searched are the kinds of files that the search finds.
var searched = map[string]bool{".md": true, ".yaml": true, ".yml": true, ".service": true, ".conf": true}

// write writes the site to the directory to, and removes what was there before.
func (s *site) write(to string) error {
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	layout, err := template.New("page.html").Funcs(template.FuncMap{"file": file}).ParseFS(theme, "theme/page.html")
	if err != nil {
		return err
	}
	var pages, found [][]any // of the index: path and title of a page; number of the page, anchor, heading and text
	for i, source := range s.order {
		p := s.pages[source]
		v := view{Title: p.title, Source: source, Top: strings.Repeat("../", strings.Count(source, "/")), Groups: s.groups}
		if v.Body, err = s.body(p); err != nil {
			return err
		}
		pages = append(pages, []any{file(source), p.title})
		for _, part := range sections(p) {
			if !searched[path.Ext(source)] {
				break
			}
			found = append(found, []any{i, part.ID, part.Heading, strings.Join(strings.Fields(part.text.String()), " ")})
		}
		v.Parts = parts(p)
		var out bytes.Buffer
		if err := layout.Execute(&out, v); err != nil {
			return err
		}
		if err := store(to, file(source), out.Bytes()); err != nil {
			return err
		}
	}
	for _, image := range s.copies {
		data, err := os.ReadFile(filepath.Join(s.from, image))
		if err == nil {
			err = store(to, image, data)
		}
		if err != nil {
			return err
		}
	}
	index, err := json.Marshal(map[string]any{"pages": pages, "sections": found})
	if err != nil {
		return err
	}
	if err := store(to, "search-index.js", slices.Concat([]byte("searchIndex = "), index, []byte(";\n"))); err != nil {
		return err
	}
	for _, name := range []string{"style.css", "search.js"} {
		data, err := theme.ReadFile("theme/" + name)
		if err == nil {
			err = store(to, name, data)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func store(to, name string, data []byte) error {
	at := filepath.Join(to, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	return os.WriteFile(at, data, 0o644)
}

// body returns the HTML of a page. A directory is a list of links, and a file that is not Markdown is
// shown as it is.
func (s *site) body(p *page) (template.HTML, error) {
	var out bytes.Buffer
	switch {
	case p.tree != nil:
		if err := s.markdown.Renderer().Render(&out, p.text, p.tree); err != nil {
			return "", err
		}
	default:
		out.WriteString("<h1>" + template.HTMLEscapeString(p.source) + "</h1>\n")
		for _, name := range p.files {
			out.WriteString("<p><a href=\"" + template.HTMLEscapeString(relative(p.source, file(name))) + "\">" + template.HTMLEscapeString(name) + "</a></p>\n")
		}
		if p.files == nil {
			out.WriteString("<pre><code>" + template.HTMLEscapeString(string(p.text)) + "</code></pre>\n")
		}
	}
	return template.HTML(out.String()), nil
}

// sections returns the sections of a page for the search.
func sections(p *page) []*section {
	list := []*section{{Heading: p.title}}
	if p.tree == nil {
		list[0].text.Write(p.text)
		return list
	}
	for n := p.tree.FirstChild(); n != nil; n = n.NextSibling() {
		if h, ok := n.(*ast.Heading); ok && h.Level > 1 {
			list = append(list, &section{ID: id(h), Heading: plain(h, p.text)})
		} else if !ok {
			list[len(list)-1].text.WriteString(plain(n, p.text) + " ")
		}
	}
	return list
}

// parts returns the headings of the second level.
func parts(p *page) (list []section) {
	if p.tree == nil {
		return nil
	}
	for n := p.tree.FirstChild(); n != nil; n = n.NextSibling() {
		if h, ok := n.(*ast.Heading); ok && h.Level == 2 {
			list = append(list, section{ID: id(h), Heading: plain(h, p.text)})
		}
	}
	return list
}

func id(h *ast.Heading) string {
	if value, ok := h.AttributeString("id"); ok {
		return string(value.([]byte))
	}
	return ""
}
