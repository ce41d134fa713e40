package archtest

// How large packages, files and structs may grow, and how entangled the files
// of a package may be.

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	// mostRoomLines bounds the lines of a package, without tests. The configuration may have
	// more: much of it is a table of settings, and what is said of each.
	mostRoomLines = 2650

	// mostFileLines bounds every file, tests too.
	mostFileLines = 600

	// mostFields bounds a struct. An embedded struct is one field: it is a part
	// with a name and a meaning of its own, and its fields are counted where it is
	// declared. Those of a struct type that is written inside another one have no
	// name, so they count there.
	mostFields = 25

	// mostTangled bounds a tangle: files of one package, tests apart, that use each
	// other's names in a circle. Whoever reads one of them has to read all.
	mostTangled = 10
)

// TestShape prints its measures with -v.
func TestShape(t *testing.T) {
	packages := list(t, systems[0])
	exports := exportData(t)
	for _, p := range packages {
		if len(p.GoFiles) == 0 {
			continue
		}
		lines := 0
		for _, file := range slices.Concat(p.GoFiles, p.IgnoredGoFiles) {
			lines += countLines(t, filepath.Join(p.Dir, file))
		}
		if p.name() != "config" && lines > mostRoomLines {
			t.Errorf("%s has %d lines without tests: %d are the most of a room", p.name(), lines, mostRoomLines)
		}
		files, info, fset := check(t, p, exports)
		largest, structs := "", structFields(files)
		for name, fields := range structs {
			if fields > mostFields {
				t.Errorf("%s.%s has %d fields: %d are the most; give what belongs together a type of its own", p.name(), name, fields, mostFields)
			}
			if fields > structs[largest] || fields == structs[largest] && name < largest {
				largest = name
			}
		}
		tangle := largestTangle(files, info, fset)
		if len(tangle) > mostTangled {
			t.Errorf("%d files of %s use each other in a circle, %d may: %s", len(tangle), p.name(), mostTangled, strings.Join(tangle, " "))
		}
		t.Logf("%-24s %5d lines, tangle of %2d files, largest struct %s with %d fields", p.name(), lines, len(tangle), largest, structs[largest])
	}
}

func TestNoFileIsLong(t *testing.T) {
	for _, p := range list(t, systems[0]) {
		for _, file := range slices.Concat(p.GoFiles, p.IgnoredGoFiles, p.TestGoFiles, p.XTestGoFiles) {
			if n := countLines(t, filepath.Join(p.Dir, file)); n > mostFileLines {
				t.Errorf("%s has %d lines: %d are the most", path.Join(p.name(), file), n, mostFileLines)
			}
		}
	}
}

func countLines(t *testing.T, file string) int {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(b, []byte("\n"))
}

// exportData are the files that tell the type checker of imported packages, by
// import path.
func exportData(t *testing.T) map[string]string {
	t.Helper()
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Export", module+"/...")
	var trouble bytes.Buffer
	cmd.Stderr = &trouble
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list -export: %v\n%s", err, trouble.String())
	}
	exports := map[string]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct{ ImportPath, Export string }
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return exports
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
	}
}

// check reads the files of a package and finds what each name in them means.
func check(t *testing.T, p listed, exports map[string]string) ([]*ast.File, *types.Info, *token.FileSet) {
	t.Helper()
	fset := token.NewFileSet()
	var files []*ast.File
	for _, file := range p.GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(p.Dir, file), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	lookup := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: importer.ForCompiler(fset, "gc", lookup)}
	if _, err := conf.Check(p.ImportPath, fset, files, info); err != nil {
		t.Fatalf("%s: %v", p.name(), err)
	}
	return files, info, fset
}

// structFields are the structs that have a name, and how many fields each has.
func structFields(files []*ast.File) map[string]int {
	fields := map[string]int{}
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				if s, ok := spec.Type.(*ast.StructType); ok {
					fields[spec.Name.Name] = countFields(s)
				}
			}
			return true
		})
	}
	return fields
}

func countFields(s *ast.StructType) (n int) {
	for _, f := range s.Fields.List {
		n += max(1, len(f.Names))
		if inner, ok := f.Type.(*ast.StructType); ok {
			n += countFields(inner)
		}
	}
	return n
}

// largestTangle are the files of the largest strongly connected component of
// the graph in which a file points to those that declare what it uses:
// constants, variables, types, functions, methods and fields.
func largestTangle(files []*ast.File, info *types.Info, fset *token.FileSet) []string {
	uses := map[string]map[string]bool{}
	for _, f := range files {
		from := fset.File(f.Pos()).Name()
		uses[from] = map[string]bool{}
		ast.Inspect(f, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				if o := info.Uses[id]; o != nil && o.Pos().IsValid() {
					if at := fset.File(o.Pos()); at != nil {
						uses[from][at.Name()] = true
					}
				}
			}
			return true
		})
	}
	reach := map[string]map[string]bool{}
	for from := range uses {
		seen := map[string]bool{}
		var walk func(string)
		walk = func(at string) {
			for to := range uses[at] {
				if uses[to] != nil && !seen[to] {
					seen[to] = true
					walk(to)
				}
			}
		}
		walk(from)
		reach[from] = seen
	}
	var tangles [][]string
	for from := range uses {
		tangle := []string{filepath.Base(from)}
		for to := range reach[from] {
			if to != from && reach[to][from] {
				tangle = append(tangle, filepath.Base(to))
			}
		}
		slices.Sort(tangle)
		tangles = append(tangles, tangle)
	}
	return slices.MaxFunc(tangles, func(a, b []string) int { return cmp.Compare(len(a), len(b)) })
}
