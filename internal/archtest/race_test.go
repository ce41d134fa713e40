package archtest

// The list of packages that make test runs with the race detector.

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// racePackages is the list. One line is one package, as a path from the root.
const racePackages = ".ci/race-packages"

// TestRacePackages checks that the list has exactly the packages with tests in
// which a data race is possible: their code, without tests, starts goroutines
// or imports sync or sync/atomic. The race detector finds nothing in the
// others, and costs three to ten times the time.
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
