package archtest

// docs/errors.md must contain every error text that clients can get from Ringside
// itself.

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// errorTexts are functions below proxy/ with an argument that is the text, or the end
// of the text, of an error for a client.
var errorTexts = []string{
	"AppendServerError", "AppendClientError", "clientError", "Fail", "Refuse", "refuseKey",
	"abort", "desync", "failAll", "failOne", "giveUp", "goDown", "rejectGreeting", "unavailable",
}

// errorFields are fields and variables that contain the text of an error for clients.
var errorFields = []string{"Why", "why", "WaitReason", "queueFull", "refusal"}

// errorResults are functions that return the text of an error for clients.
var errorResults = []string{"Refusal", "unfitKey"}

// errorsOf are files with errors that are sent to clients unchanged.
var errorsOf = []string{"proxy/tags/named.go", "proxy/tags/stamp/tag.go"}

// texts finds the constant parts of the possible values of expressions.
type texts struct {
	values  map[string][]ast.Expr // by package.name: value of a constant or variable
	results map[string][]ast.Expr // by package.name: results of a function or method
	found   map[string]token.Position
	fset    *token.FileSet
}

func (x *texts) of(pkg string, e ast.Expr, depth int) {
	if depth == 0 {
		return
	}
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			x.found[text] = x.fset.Position(e.Pos())
		}
	case *ast.BinaryExpr:
		if e.Op == token.ADD {
			x.of(pkg, e.X, depth)
			x.of(pkg, e.Y, depth)
		}
	case *ast.ParenExpr:
		x.of(pkg, e.X, depth)
	case *ast.Ident:
		for _, v := range x.values[pkg+"."+e.Name] {
			x.of(pkg, v, depth-1)
		}
	case *ast.SelectorExpr:
		if of, ok := e.X.(*ast.Ident); ok {
			for _, v := range x.values[of.Name+"."+e.Sel.Name] {
				x.of(of.Name, v, depth-1)
			}
		}
	case *ast.CallExpr:
		for _, arg := range e.Args {
			x.of(pkg, arg, depth)
		}
		of, name := called(pkg, e)
		for _, result := range x.results[of+"."+name] {
			x.of(of, result, depth-1)
		}
	}
}

// called returns the package and the name of the called function. For a method it
// returns the caller's package.
func called(pkg string, call *ast.CallExpr) (of, name string) {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return pkg, f.Name
	case *ast.SelectorExpr:
		if x, ok := f.X.(*ast.Ident); ok && (x.Name == "wire" || x.Name == "upstream" || x.Name == "client") {
			return x.Name, f.Sel.Name
		}
		return pkg, f.Sel.Name
	}
	return pkg, ""
}

func TestErrorsAreExplained(t *testing.T) {
	x := &texts{map[string][]ast.Expr{}, map[string][]ast.Expr{}, map[string]token.Position{}, token.NewFileSet()}
	parsed := map[string]*ast.File{}
	returned := map[string][]ast.Expr{} // by package: results of errorResults
	for _, file := range files(t) {
		if !strings.HasPrefix(file, "proxy/") || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") ||
			strings.HasPrefix(file, "proxy/admin/") || strings.HasPrefix(file, "proxy/live/") || strings.HasPrefix(file, "proxy/wire/wiretest/") ||
			path.Base(file) == "waiting.go" { // descriptions of waiting clients, for the admin pages
			continue
		}
		f, err := parser.ParseFile(x.fset, filepath.Join(root, file), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		parsed[file] = f
		pkg := f.Name.Name
		add := func(name string, values []ast.Expr, i int) {
			if i < len(values) {
				x.values[pkg+"."+name] = append(x.values[pkg+"."+name], values[i])
			}
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if v, ok := spec.(*ast.ValueSpec); ok {
						for i, name := range v.Names {
							add(name.Name, v.Values, i)
						}
					}
				}
			case *ast.FuncDecl:
				if d.Body == nil || d.Type.Results == nil {
					continue
				}
				ast.Inspect(d.Body, func(n ast.Node) bool {
					if r, ok := n.(*ast.ReturnStmt); ok {
						key := pkg + "." + d.Name.Name
						x.results[key] = append(x.results[key], r.Results...)
						if slices.Contains(errorResults, d.Name.Name) {
							returned[pkg] = append(returned[pkg], r.Results...)
						}
					}
					return true
				})
			}
		}
	}
	for pkg, results := range returned {
		for _, e := range results {
			x.of(pkg, e, 4)
		}
	}
	for _, file := range slices.Sorted(maps.Keys(parsed)) {
		f := parsed[file]
		pkg := f.Name.Name
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				_, name := called(pkg, n)
				if slices.Contains(errorTexts, name) || slices.Contains(errorsOf, file) && (name == "New" || name == "Errorf") {
					for _, arg := range n.Args {
						x.of(pkg, arg, 4)
					}
				}
			case *ast.AssignStmt:
				for i, to := range n.Lhs {
					if len(n.Rhs) == len(n.Lhs) && slices.Contains(errorFields, nameOf(to)) {
						x.of(pkg, n.Rhs[i], 4)
					}
				}
			case *ast.CompositeLit:
				if nameOf(n.Type) == "Wait" { // descriptions of waiting clients, for the admin pages
					return false
				}
			case *ast.KeyValueExpr:
				if slices.Contains(errorFields, nameOf(n.Key)) {
					x.of(pkg, n.Value, 4)
				}
			case *ast.BasicLit:
				if text, err := strconv.Unquote(n.Value); err == nil && (strings.HasPrefix(text, "SERVER_ERROR ") || strings.HasPrefix(text, "CLIENT_ERROR ")) {
					x.found[text] = x.fset.Position(n.Pos())
				}
			}
			return true
		})
	}
	data, err := os.ReadFile(filepath.Join(root, "docs/errors.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := strings.Join(strings.Fields(string(data)), " ")
	parts := 0
	for _, text := range slices.Sorted(maps.Keys(x.found)) {
		for _, part := range verb.Split(text, -1) {
			part = strings.TrimPrefix(strings.TrimPrefix(part, "SERVER_ERROR "), "CLIENT_ERROR ")
			part = strings.Join(strings.Fields(strings.Trim(part, " ,:;()|")), " ")
			if !strings.Contains(part, " ") {
				continue
			}
			if parts++; !strings.Contains(page, part) {
				t.Errorf("%s: docs/errors.md does not explain %q", x.found[text], part)
			}
		}
	}
	if parts < 60 {
		t.Errorf("found the parts of %d texts only: has a function been renamed?", parts)
	}
}

// verb matches a formatting verb of Sprintf.
var verb = regexp.MustCompile(`%[a-z]`)

// nameOf returns the name of a variable or field.
func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}
