//go:build linux

package bench

// This file defines the report, prints it as Markdown, and puts its parts into pages.

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Report contains the results of a measurement.
type Report struct {
	Head     string // command, date, machine and programs, in one line
	Tables   []*Table
	Failures []string // what went wrong; the tables have all other results in spite of it
}

// Table is one table of a report.
type Table struct {
	ID     string // name of the table in the marks of a page
	Title  string
	Note   string // what a reader must know; empty: nothing
	Header []string
	Rows   [][]string
}

// String returns the report as Markdown.
func (r *Report) String() string {
	parts := []string{r.head()}
	for _, t := range r.Tables {
		parts = append(parts, "## "+t.Title+"\n\n"+t.String())
	}
	return strings.Join(parts, "\n\n") + "\n"
}

// head returns the paragraph above the tables.
func (r *Report) head() string {
	text := r.Head + "."
	for _, f := range r.Failures {
		text += "\n\n**Failed:** " + oneLine(f)
	}
	return text
}

// String returns the note and the table as Markdown, without the title.
func (t *Table) String() string {
	var m strings.Builder
	if t.Note != "" {
		m.WriteString(t.Note + "\n\n")
	}
	line := func(cells []string) {
		for i := range t.Header {
			cell := "" // a row of a peer that failed has fewer cells
			if i < len(cells) {
				cell = strings.ReplaceAll(oneLine(cells[i]), "|", "\\|")
			}
			fmt.Fprintf(&m, "| %s ", cell)
		}
		m.WriteString("|\n")
	}
	line(t.Header)
	fmt.Fprintf(&m, "|%s\n", strings.Repeat(" --- |", len(t.Header)))
	for _, row := range t.Rows {
		line(row)
	}
	return strings.TrimSuffix(m.String(), "\n")
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// Fill replaces the marked parts of a page that have the given name. A part is the head or a table
// of the report:
//
//	<!-- NAME: ratios -->
//	this text is replaced
//	<!-- end -->
func (r *Report) Fill(page, name string) (filled string, err error) {
	marks := regexp.MustCompile(`(?s)(<!-- ` + regexp.QuoteMeta(name) + `: ([a-z ]+) -->\n).*?(<!-- end -->)`)
	filled = marks.ReplaceAllStringFunc(page, func(text string) string {
		m := marks.FindStringSubmatch(text)
		part := ""
		if m[2] == "head" {
			part = r.head()
		}
		for _, t := range r.Tables {
			if t.ID == m[2] {
				part = t.String()
			}
		}
		if part == "" {
			err = errors.Join(err, fmt.Errorf("the report has no part %q", m[2]))
		}
		return m[1] + "\n" + part + "\n\n" + m[3]
	})
	if !marks.MatchString(page) {
		err = fmt.Errorf(`the page has no part such as "<!-- %s: head -->", "<!-- end -->"`, name)
	}
	return filled, err
}
