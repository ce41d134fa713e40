package archtest

// The walks: how much code one request enters. `make figures` prints it.

import (
	"bufio"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// printWalks prints, for each conversation in proxy/testdata/walks, the functions and
// files that the walk enters. A walk enters a function if the conversation as a whole
// calls it more often than the part before the walk does.
func printWalks(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	binary := filepath.Join(dir, "walks")
	run := func(name string, args ...string) {
		command := exec.Command(name, args...)
		command.Dir, command.Stderr = filepath.Join(root, "proxy"), os.Stderr
		if err := command.Run(); err != nil {
			t.Fatal(err)
		}
	}
	run("go", "test", "-c", "-covermode=count", "-coverpkg="+module+"/proxy/...,"+module+"/replicate", "-o", binary, ".")
	files, err := filepath.Glob(filepath.Join(root, "proxy/testdata/walks/*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no walks: %v", err)
	}
	fmt.Println("\nfunctions and files of the engine that a request enters:")
	for _, file := range files {
		walk := strings.TrimSuffix(filepath.Base(file), ".txt")
		calls := map[string]map[string]int{}
		for _, part := range []string{"before", "whole"} {
			profile := filepath.Join(dir, part)
			run(binary, "-test.run=^TestWalks$/^"+walk+"$/^"+part+"$", "-test.coverprofile="+profile)
			calls[part] = blocks(t, profile)
		}
		functions, entered := 0, map[string]bool{}
		for at, n := range calls["whole"] {
			name, place, _ := strings.Cut(at, ":")
			if n > calls["before"][at] && isBody(t, name, place) {
				functions++
				entered[name] = true
			}
		}
		fmt.Printf("%-20s %4d functions in %3d files\n", walk, functions, len(entered))
	}
}

// blocks returns how often each block of a coverage profile was executed, by the file
// and the position of its first character.
func blocks(t *testing.T, profile string) map[string]int {
	t.Helper()
	f, err := os.Open(profile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	list := map[string]int{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var statements, count int
		at, rest, _ := strings.Cut(lines.Text(), ",")
		if _, err := fmt.Sscanf(rest[strings.IndexByte(rest+" ", ' '):], "%d %d", &statements, &count); err == nil {
			list[strings.TrimPrefix(at, module+"/")] += count
		}
	}
	return list
}

// bodies has, by file, the positions of the bodies of its functions and methods.
var bodies = map[string]map[string]bool{}

// isBody reports whether the body of a function or method begins at the place, which is
// written as line.column. Function literals, and the package proxy/conversation, which
// plays the client and the servers, do not count.
func isBody(t *testing.T, file, place string) bool {
	t.Helper()
	if strings.HasPrefix(file, "proxy/conversation/") || strings.HasSuffix(file, "_test.go") {
		return false
	}
	if bodies[file] == nil {
		bodies[file] = map[string]bool{}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, filepath.Join(root, file), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if d, ok := d.(*ast.FuncDecl); ok && d.Body != nil {
				// The first block begins at the brace, or at the first statement, which depends on the release of Go.
				for _, p := range []token.Pos{d.Body.Lbrace, d.Body.Lbrace + 1} {
					at := fset.Position(p)
					bodies[file][fmt.Sprintf("%d.%d", at.Line, at.Column)] = true
				}
				if len(d.Body.List) > 0 {
					at := fset.Position(d.Body.List[0].Pos())
					bodies[file][fmt.Sprintf("%d.%d", at.Line, at.Column)] = true
				}
			}
		}
	}
	return bodies[file][place]
}
