// Command rename changes the path of the Go module of Ringside, so that other modules can import its
// packages from a public address. It must run in the top directory of the repository.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
)

func main() {
	err := errors.New("usage: rename MODULE, for example example.org/you/ringside")
	if len(os.Args) == 2 {
		err = rename(os.Args[1])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "rename:", err)
		os.Exit(1)
	}
}

// rename changes go.mod, the go.mod of the separate modules, and all imports to the module path to.
// It first reads all files, and writes nothing if one of them has a mistake.
func rename(to string) error {
	if err := module.CheckPath(to); err != nil {
		return fmt.Errorf("%w: want host/owner/ringside", err)
	}
	top, err := os.ReadFile("go.mod")
	if err != nil {
		return fmt.Errorf("%w: run rename in the top directory of the repository", err)
	}
	from := modfile.ModulePath(top)
	list, err := exec.Command("git", "ls-files", "-z").Output()
	if err != nil {
		return fmt.Errorf("git ls-files: %w", err)
	}
	changed := map[string][]byte{}
	for _, path := range strings.Split(strings.TrimRight(string(list), "\x00"), "\x00") {
		change := renamedSource
		if filepath.Base(path) == "go.mod" {
			change = renamedModule
		} else if filepath.Ext(path) != ".go" {
			continue
		}
		old, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted, but not yet committed
		} else if err != nil {
			return err
		}
		text, err := change(path, old, from, to)
		if err != nil {
			return err
		}
		if !bytes.Equal(text, old) {
			changed[path] = text
		}
	}
	for path, text := range changed {
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
	}
	fmt.Printf("%s is now %s in %d files\n", from, to, len(changed))
	return nil
}

// renamedPath returns path with the module from replaced by to. It returns path itself if that is
// neither the module nor a directory in it.
func renamedPath(path, from, to string) string {
	below, ok := strings.CutPrefix(path, from+"/")
	if path == from {
		return to
	}
	if info, err := os.Stat(below); !ok || err != nil || !info.IsDir() {
		return path
	}
	return to + "/" + below
}

// renamedModule returns the text of a go.mod file with the new paths.
func renamedModule(path string, text []byte, from, to string) ([]byte, error) {
	f, err := modfile.Parse(path, text, nil)
	if err != nil {
		return nil, err
	}
	if err := f.AddModuleStmt(renamedPath(f.Module.Mod.Path, from, to)); err != nil {
		return nil, err
	}
	for _, r := range slices.Clone(f.Require) {
		if is := r.Mod; is.Path == from {
			if err := errors.Join(f.DropRequire(from), f.AddRequire(to, is.Version)); err != nil {
				return nil, err
			}
		}
	}
	for _, r := range slices.Clone(f.Replace) {
		if is := *r; is.Old.Path == from { // a copy, because dropping clears it
			if err := errors.Join(f.DropReplace(from, is.Old.Version), f.AddReplace(to, is.Old.Version, is.New.Path, is.New.Version)); err != nil {
				return nil, err
			}
		}
	}
	f.Cleanup()
	return f.Format()
}

// renamedSource returns the text of a Go file with new imports. Other strings that name a package of
// the module, such as arguments of go build, are changed too.
func renamedSource(path string, text []byte, from, to string) ([]byte, error) {
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, path, text, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	change := false
	ast.Inspect(f, func(n ast.Node) bool {
		l, ok := n.(*ast.BasicLit)
		if !ok || l.Kind != token.STRING {
			return true
		}
		if old, err := strconv.Unquote(l.Value); err == nil && strings.Contains(old, "/") {
			if is := renamedPath(old, from, to); is != old {
				l.Value, change = strconv.Quote(is), true
			}
		}
		return true
	})
	if !change {
		return text, nil
	}
	ast.SortImports(files, f)
	var out bytes.Buffer
	if err := format.Node(&out, files, f); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
