package archtest

// This file tests the words of texts that people read: errors, log lines, help, the dashboard, alerts.

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// banned matches words that texts do not use. A server or a request is not a person, so it is not "who".
// The others are terms that the glossary replaces, and phrases in which the subject is missing.
var banned = regexp.MustCompile(`(?i)\b(who|whom|whose|whoever|nobody|somebody|anybody|everybody|stand-in|interim|doomed|hollow|errand` +
	`|is told|are told|by what|that which|is to be told|has said|have said|not sure|stands here|stands for itself|comes behind|what (the )?servers? (said|keeps?))\b`)

// peoples are texts about people.
var peoples = []string{"one of whom changes his name"}

func TestWordsOfTexts(t *testing.T) {
	check := func(where, text string) {
		for _, of := range peoples {
			text = strings.ReplaceAll(text, of, "")
		}
		for _, word := range banned.FindAllString(text, -1) {
			t.Errorf("%s says %q: use a term of docs/glossary.md, and name the subject", where, word)
		}
	}
	texts := 0
	for _, file := range files(t) {
		generated := strings.Contains(file, "testdata/") || strings.Contains(file, "node_modules/")
		switch {
		case generated:
		case strings.HasSuffix(file, ".go") && !strings.HasSuffix(file, "_test.go") && !strings.HasPrefix(file, "internal/testenv/"):
			set := token.NewFileSet()
			f, err := parser.ParseFile(set, filepath.Join(root, file), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING && strings.Contains(l.Value, " ") {
					text, err := strconv.Unquote(l.Value)
					if err != nil {
						t.Fatal(err)
					}
					check(strings.TrimPrefix(set.Position(l.Pos()).String(), root+string(filepath.Separator)), text)
					texts++
				}
				return true
			})
		case strings.HasPrefix(file, "proxy/admin/page/"), strings.HasPrefix(file, "deploy/prometheus/"):
			text, err := os.ReadFile(filepath.Join(root, file))
			if err != nil {
				t.Fatal(err)
			}
			check(file, withoutNames.ReplaceAllString(string(text), ""))
			texts++
		}
	}
	if texts < 1000 {
		t.Errorf("found %d texts", texts)
	}
}

// withoutNames matches what looks like a word of a text and is a name in the code of the page.
var withoutNames = regexp.MustCompile(`\b(who|interim)\b`)
