package archtest

// The list of packages that make test runs with the race detector.

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// racePackages is the file with the list: one package per line, as a path from the
// root.
const racePackages = ".ci/race-packages"

// TestRacePackages checks that the list contains exactly the packages with tests in
// which a data race is possible. In these the code, without tests, starts goroutines or
// imports sync or sync/atomic. In other packages the race detector finds nothing, and
// tests need three to ten times as long.
func TestRacePackages(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, racePackages))
	if err != nil {
		t.Fatal(err)
	}
	listed := strings.Fields(string(text))
	if !slices.IsSorted(listed) {
		t.Errorf("%s is not sorted", racePackages)
	}
	var want []string
	for _, p := range list(t, systems[0]) {
		if len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 && canRace(t, p) {
			want = append(want, "./"+p.name())
		}
	}
	slices.Sort(want)
	for _, name := range want {
		if !slices.Contains(listed, name) {
			t.Errorf("%s starts goroutines or uses locks or atomics: add it to %s", name, racePackages)
		}
	}
	for _, name := range listed {
		if !slices.Contains(want, name) {
			t.Errorf("%s has no tests, or neither goroutines, locks nor atomics: remove it from %s", name, racePackages)
		}
	}
}

// canRace reports whether the code of a package starts goroutines or imports
// sync or sync/atomic.
func canRace(t *testing.T, p listed) bool {
	t.Helper()
	if slices.Contains(p.Imports, "sync") || slices.Contains(p.Imports, "sync/atomic") {
		return true
	}
	for _, file := range p.GoFiles {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, file), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		starts := false
		ast.Inspect(f, func(n ast.Node) bool {
			_, ok := n.(*ast.GoStmt)
			starts = starts || ok
			return !starts
		})
		if starts {
			return true
		}
	}
	return false
}

// TestSingle checks the tests that the Makefile runs without the race detector. They
// must be in the packages in which it runs them this way. Elsewhere make full would not
// run a test of that name at all.
func TestSingle(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	value := func(name string) string {
		for line := range strings.Lines(string(text)) {
			if v, ok := strings.CutPrefix(line, name+" = "); ok {
				return strings.TrimSpace(strings.ReplaceAll(v, "$$", "$"))
			}
		}
		t.Fatalf("the Makefile does not set %s", name)
		return ""
	}
	single, packages := regexp.MustCompile(value("SINGLE")), strings.Fields(value("SINGLES"))
	found := map[string]bool{}
	for _, p := range list(t, systems[0]) {
		for _, file := range slices.Concat(p.TestGoFiles, p.XTestGoFiles) {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, file), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range f.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok || !single.MatchString(fn.Name.Name) {
					continue
				}
				if name := "./" + p.name(); slices.Contains(packages, name) {
					found[name] = true
				} else {
					t.Errorf("%s of %s has a name that SINGLE of the Makefile matches, but %s is not in SINGLES: rename it, or add the package", fn.Name.Name, name, name)
				}
			}
		}
	}
	for _, name := range packages {
		if !found[name] {
			t.Errorf("SINGLES of the Makefile has %s, which has no test that SINGLE matches: remove it", name)
		}
	}
}
