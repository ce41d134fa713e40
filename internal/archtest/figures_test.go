package archtest

// Figures about the code: its size, the coupling of its packages, and the language of
// its comments. `make figures` prints them. No figure fails a test.

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var withFigures = flag.Bool("figures", false, "print the figures of the whole module: packages, exported names, foreign writes, lines, language")

// habits are words that native technical writing rarely uses. Their number per 1,000
// words shows which text may be hard to read. A low number does not prove that a text
// is easy to read.
var habits = []struct {
	name string
	word *regexp.Regexp
	aim  float64 // per 1,000 words, over all comments
}{
	{"who", regexp.MustCompile(`(?i)\b(who|whom|whose)\b`), 1.0},
	{"nobody", regexp.MustCompile(`(?i)\b(nobody|somebody|anybody|everybody)\b`), 0.6},
	{"inverted", regexp.MustCompile(`(?i)\b(is told|are told|by what|what it|what they|that which|as it is|has had|of its own)\b`), 0.6},
	{"light verbs", regexp.MustCompile(`(?i)\b(goes|comes|takes|gives|stands|holds|lends|leads|brings|lets)\b`), 2.5},
}

var aWord = regexp.MustCompile(`[A-Za-z']+`)

// prose counts the words and habits of a text.
type prose struct {
	words int
	of    [4]int // count of each habit
}

func (p *prose) add(text string) {
	p.words += len(aWord.FindAllString(text, -1))
	for i, h := range habits {
		p.of[i] += len(h.word.FindAllString(text, -1))
	}
}

func (p *prose) plus(q prose) {
	p.words += q.words
	for i := range p.of {
		p.of[i] += q.of[i]
	}
}

// rate returns the number of uses of a habit per 1,000 words.
func (p *prose) rate(habit int) float64 {
	return float64(p.of[habit]) * 1000 / float64(max(1, p.words))
}

func (p *prose) String() string {
	s := fmt.Sprintf("%7d words", p.words)
	for i, h := range habits {
		s += fmt.Sprintf("  %s %4.1f", h.name, p.rate(i))
	}
	return s
}

// fewWords is the number of comment words below which packages are reported together.
const fewWords = 500

func TestFigures(t *testing.T) {
	if !*withFigures {
		// Check the counter with a fixed text, because a change of the counter changes
		// all figures.
		var p prose
		p.add("Who goes there? Nobody is told what it takes.")
		if want := (prose{9, [4]int{1, 1, 2, 2}}); p != want {
			t.Errorf("counted %v, want %v", p, want)
		}
		return
	}
	exported, foreign := coupling(t)
	lines, comments := map[bool]int{}, map[string]*prose{} // keyed by whether the file is a test
	statements := map[bool]int{}                           // keyed by whether the file belongs to the engine
	var pages, all, few prose
	for _, file := range files(t) {
		text, err := os.ReadFile(filepath.Join(root, file))
		switch {
		case err != nil:
			t.Fatal(err)
		case strings.Contains(file, "node_modules/") || strings.Contains(file, "testdata/"):
		case strings.HasSuffix(file, ".md") && file != "CHANGELOG.md" && !strings.HasPrefix(file, "docs/benchmarks/"):
			pages.add(withoutCode(string(text)))
		case strings.HasSuffix(file, ".go"):
			lines[strings.HasSuffix(file, "_test.go")] += bytes.Count(text, []byte("\n"))
			of := filepath.ToSlash(filepath.Dir(file))
			if comments[of] == nil {
				comments[of] = new(prose)
			}
			comments[of].add(commentsOf(t, file, text))
			if !strings.HasSuffix(file, "_test.go") && !strings.HasPrefix(file, "deploy/") {
				statements[strings.HasPrefix(file, "proxy/") || strings.HasPrefix(file, "replicate/")] += statementsOf(t, file, text)
			}
		}
	}
	fmt.Printf("packages        %6d\n", len(list(t, "linux")))
	fmt.Printf("exported names  %6d  of packages that are not commands: functions, types, variables, constants, methods, fields\n", exported)
	fmt.Printf("foreign writes  %6d  assignments to fields of structs of other packages\n", foreign)
	fmt.Printf("statements      %6d  of Go code that is no test, without blocks; %d of them in proxy/... and replicate\n", statements[false]+statements[true], statements[true])
	fmt.Printf("source lines    %6d\n", lines[false])
	fmt.Printf("test lines      %6d\n", lines[true])
	fmt.Println("\nper 1,000 words of comments:")
	for _, of := range slices.Sorted(maps.Keys(comments)) {
		p := comments[of]
		all.plus(*p)
		if p.words < fewWords {
			few.plus(*p)
			continue
		}
		over := ""
		for i, h := range habits {
			if p.rate(i) > 2*h.aim {
				over = "  <"
			}
		}
		fmt.Printf("%-28s %v%s\n", of, p, over)
	}
	fmt.Printf("%-28s %v\n%-28s %v\n%-28s %v\n", "packages with fewer words", &few, "all comments", &all, "pages", &pages)
	printWalks(t)
	aims := "\naims for all comments:"
	for _, h := range habits {
		aims += fmt.Sprintf("  %s %.1f", h.name, h.aim)
	}
	fmt.Println(aims + "; < is above twice that")
}

// commentsOf returns the text of a file's comments, without directives.
func commentsOf(t *testing.T, name string, text []byte) string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, group := range f.Comments {
		b.WriteString(group.Text() + "\n")
	}
	return b.String()
}

// statementsOf counts the statements of a file. A block is no statement.
func statementsOf(t *testing.T, name string, text []byte) (n int) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(node ast.Node) bool {
		if _, ok := node.(ast.Stmt); ok {
			if _, block := node.(*ast.BlockStmt); !block {
				n++
			}
		}
		return true
	})
	return n
}

var (
	fenced  = regexp.MustCompile("(?s)```.*?```")
	noProse = regexp.MustCompile(`(?m)^(    |\|).*$`)
)

// withoutCode returns the prose of a page, without code blocks and tables.
func withoutCode(page string) string {
	return noProse.ReplaceAllString(fenced.ReplaceAllString(page, " "), " ")
}

// coupling counts the exported names of all packages that are not commands, and the
// assignments to struct fields that another package declares. It ignores tests.
func coupling(t *testing.T) (exported, foreign int) {
	t.Helper()
	type pkg struct {
		ImportPath, Dir, Export string
		GoFiles                 []string
		Standard                bool
	}
	command := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,Standard", module+"/...")
	command.Dir, command.Stderr = root, os.Stderr
	out, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	exports, ours := map[string]string{}, []pkg{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
		if p.ImportPath == module || strings.HasPrefix(p.ImportPath, module+"/") {
			ours = append(ours, p)
		}
	}
	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for _, p := range ours {
		var syntax []*ast.File
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			syntax = append(syntax, f)
		}
		info := &types.Info{Selections: map[*ast.SelectorExpr]*types.Selection{}}
		checked, err := (&types.Config{Importer: imports}).Check(p.ImportPath, fset, syntax, info)
		if err != nil {
			t.Fatal(err)
		}
		if checked.Name() != "main" {
			exported += exportedOf(checked)
		}
		for _, f := range syntax {
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.AssignStmt:
					for _, to := range n.Lhs {
						foreign += foreignField(info, checked, to)
					}
				case *ast.IncDecStmt:
					foreign += foreignField(info, checked, n.X)
				}
				return true
			})
		}
	}
	return exported, foreign
}

// exportedOf counts the exported names of a package, including methods and fields of
// its exported types.
func exportedOf(p *types.Package) (n int) {
	for _, name := range p.Scope().Names() {
		object := p.Scope().Lookup(name)
		if !object.Exported() {
			continue
		}
		n++
		named, ok := object.Type().(*types.Named)
		if _, isType := object.(*types.TypeName); !ok || !isType {
			continue
		}
		for m := range named.Methods() {
			if m.Exported() {
				n++
			}
		}
		if s, ok := named.Underlying().(*types.Struct); ok {
			for f := range s.Fields() {
				if f.Exported() {
					n++
				}
			}
		}
	}
	return n
}

// foreignField returns 1 if the expression `to` is a field, or part of a field, of a
// struct that another package of this module declares. Otherwise it returns 0.
func foreignField(info *types.Info, here *types.Package, to ast.Expr) int {
	for {
		switch x := to.(type) {
		case *ast.IndexExpr:
			to = x.X
		case *ast.StarExpr:
			to = x.X
		case *ast.ParenExpr:
			to = x.X
		case *ast.SelectorExpr:
			s := info.Selections[x]
			if s == nil || s.Kind() != types.FieldVal {
				return 0 // a variable of another package
			}
			if from := s.Obj().Pkg(); from != nil && from != here && strings.HasPrefix(from.Path(), module+"/") {
				return 1
			}
			return 0
		default:
			return 0
		}
	}
}
