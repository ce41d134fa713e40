package archtest

// Files and names in the documentation and in comments must exist, so that readers find
// the code.

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// papers are the documents in which names of files and code are checked.
var papers = []string{"ARCHITECTURE.md", "CONTRIBUTING.md", "README.md"}

// root is the directory of the module, relative to this package.
const root = "../.."

// source contains all Go files of the module with their declarations.
type source struct {
	declared map[string][]string // by path: functions, types, and methods and fields as Type.Member
	packages map[string]string   // by path: name of the package
}

func readSource(t *testing.T) source {
	t.Helper()
	s := source{map[string][]string{}, map[string]string{}}
	for _, file := range files(t) {
		if !strings.HasSuffix(file, ".go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		s.packages[file] = f.Name.Name
		for _, d := range f.Decls {
			s.declared[file] = append(s.declared[file], names(d)...)
		}
	}
	return s
}

// files returns the paths of the module's files, relative to its root.
func files(t *testing.T) (list []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(at string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() != ".." && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case !d.IsDir():
			name, err := filepath.Rel(root, at)
			list = append(list, filepath.ToSlash(name))
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// names returns the names that a declaration declares.
func names(d ast.Decl) (list []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			return []string{d.Name.Name}
		}
		of := d.Recv.List[0].Type
		if p, ok := of.(*ast.StarExpr); ok {
			of = p.X
		}
		if g, ok := of.(*ast.IndexExpr); ok {
			of = g.X
		}
		if id, ok := of.(*ast.Ident); ok {
			return []string{id.Name + "." + d.Name.Name}
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.ValueSpec:
				for _, n := range spec.Names {
					list = append(list, n.Name)
				}
			case *ast.TypeSpec:
				list = append(list, spec.Name.Name)
				var members *ast.FieldList
				switch t := spec.Type.(type) {
				case *ast.StructType:
					members = t.Fields
				case *ast.InterfaceType:
					members = t.Methods
				}
				if members == nil {
					continue
				}
				for _, f := range members.List {
					for _, n := range f.Names {
						list = append(list, spec.Name.Name+"."+n.Name)
					}
				}
			}
		}
	}
	return list
}

// has reports whether a file declares name: Name, Type.Member or package.Name.
func (s source) has(name string) bool {
	of, member, dotted := strings.Cut(name, ".")
	for file, declared := range s.declared {
		if slices.Contains(declared, name) || dotted && s.packages[file] == of && slices.Contains(declared, member) {
			return true
		}
	}
	return false
}

var (
	quoted   = regexp.MustCompile("`([^`]+)`")
	linked   = regexp.MustCompile(`\]\(([^):#]+)\)`)
	fileThen = regexp.MustCompile("`([\\w./-]+\\.go)`: `([\\w.]+)`")
	thenFile = regexp.MustCompile("`([\\w.]+)` \\(in `([\\w./-]+\\.go)`\\)")
	goName   = regexp.MustCompile(`^([A-Z]\w*\.\w+|(\w+\.)?\w*[A-Z]\w*)$`) // Type.member, or a name with a capital letter; settings have none
	goFile   = regexp.MustCompile(`[\w./-]*\w\.go\b`)
)

func TestPapersNameWhatExists(t *testing.T) {
	s := readSource(t)
	for _, paper := range papers {
		text, err := os.ReadFile(filepath.Join(root, paper))
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			for _, m := range slices.Concat(quoted.FindAllStringSubmatch(line, -1), linked.FindAllStringSubmatch(line, -1)) {
				checkNamed(t, s, paper, i+1, m[1])
			}
			pairs := fileThen.FindAllStringSubmatch(line, -1)
			for _, m := range thenFile.FindAllStringSubmatch(line, -1) {
				pairs = append(pairs, []string{m[0], m[2], m[1]})
			}
			for _, m := range pairs {
				if !slices.Contains(s.declared[m[1]], m[2]) {
					t.Errorf("%s:%d: %s declares no %s", paper, i+1, m[1], m[2])
				}
			}
		}
	}
}

// checkNamed checks a name in a document if it is a path, or, in ARCHITECTURE.md, a
// name in the code.
func checkNamed(t *testing.T, s source, paper string, line int, name string) {
	t.Helper()
	first, _, _ := strings.Cut(name, "/")
	_, err := os.Stat(filepath.Join(root, first))
	switch {
	case strings.ContainsAny(name, " *{}<") || first == "":
	case strings.HasSuffix(name, ".go") || strings.Contains(name, "/") && err == nil:
		if _, err := os.Stat(filepath.Join(root, name)); err != nil {
			t.Errorf("%s:%d: there is no file %s", paper, line, name)
		}
	case paper == "ARCHITECTURE.md" && goName.MatchString(name) && !s.has(name):
		t.Errorf("%s:%d: nothing is called %s", paper, line, name)
	}
}

// TestCommentsNameFilesThatExist checks file names in comments. A bare name refers to a
// file in the same directory; otherwise the name must include the package.
func TestCommentsNameFilesThatExist(t *testing.T) {
	all := files(t)
	for _, file := range all {
		if !strings.HasSuffix(file, ".go") {
			continue
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, filepath.Join(root, file), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, group := range f.Comments {
			for _, c := range group.List {
				for _, named := range goFile.FindAllString(c.Text, -1) {
					beside := slices.Contains(all, path.Join(path.Dir(file), named))
					elsewhere := strings.Contains(named, "/") && slices.ContainsFunc(all, func(f string) bool { return strings.HasSuffix("/"+f, "/"+named) })
					if !beside && !elsewhere {
						t.Errorf("%s: a comment names %s, which is not beside it; of another package say package/file.go", fset.Position(c.Pos()), named)
					}
				}
			}
		}
	}
}
