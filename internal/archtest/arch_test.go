package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// module is the path of the module, which `make rename` can change.
var module = func() string {
	out, err := exec.Command("go", "list", "-m").Output()
	if err != nil {
		panic(err)
	}
	return strings.TrimSpace(string(out))
}()

// layers are the packages of the module from the lowest layer to the highest. A package
// may import the packages of lower layers, and nothing else of this module except what
// exceptions lists. A package that is missing here fails the test.
var layers = [][]string{
	1:  {"ring", "replicate", "proxy/ablation", "proxy/event", "proxy/wire", "proxy/tags/stamp", "proxy/watch/missreason", "proxy/health/roll", "proxy/health/barrier", "proxy/health/resize", "proxy/health/divert", "proxy/fault"},
	2:  {"ketama", "modulo", "proxy/serverlist", "proxy/wire/binary", "proxy/health"},
	3:  {"proxy/table"},
	4:  {"proxy/stats", "proxy/secure"},
	5:  {"proxy/link"},
	6:  {"proxy/upstream", "proxy/near"},
	7:  {"proxy/client", "proxy/routing", "proxy/watch"},
	8:  {"proxy/task", "config"},
	9:  {"proxy/failover", "proxy/counters", "proxy/replication", "proxy/guard", "proxy/tags"},
	10: {"proxy"},
	11: {"proxy/loop", "proxy/live", "proxy/admin"},
	12: {"internal/cli", "internal/top", "internal/tracefile", "internal/discover", "internal/inspect", "internal/remote", "internal/instance", "internal/demo", "internal/drill"},
	13: {"internal/command"},
	14: {"cmd/ringside"},
}

// apart are packages that no package of the layers imports, with what they may import:
// libraries for users, the benchmark, and helpers of tests.
var apart = map[string][]string{
	"recipes":                     nil,
	"recipes/meta":                nil,
	"recipes/examples/seeds":      nil,
	"cmd/ringbench":               {"internal/bench/..."},
	"internal/bench":              {"internal/bench/load", "internal/ports"},
	"internal/bench/load":         {"ketama", "ring"},
	"internal/bench/instructions": nil,
	"deploy":                      nil,
	"ring/ringtest":               {"ring"},
	"proxy/wire/wiretest":         nil,
	"proxy/conversation":          {"ring", "replicate", "proxy/..."},
	"internal/memnode":            {"proxy/wire"},
	"internal/archtest":           nil,
	"internal/ports":              nil,
	"internal/testenv":            {"proxy/wire", "internal/ports"},
	"internal/fleet":              nil,
	"internal/e2e":                nil,
	"internal/twin":               nil,
}

// exceptions are the allowed imports that do not go to a lower layer.
var exceptions = map[[2]string]string{
	{"proxy/replication", "proxy/failover"}:     "a replicated key without a usable replica is served like a key with one copy",
	{"proxy/guard", "proxy/failover"}:           "a guarded key whose server is out is asked for at its substitute server",
	{"proxy/tags", "proxy/guard"}:               "tagged values are stored as guarded items",
	{"proxy/admin", "proxy/live"}:               "the dashboard and the metrics show the state that live computes",
	{"internal/cli", "internal/top"}:            "the exit codes of all commands include those of top",
	{"internal/inspect", "internal/cli"}:        "flags and errors of all commands",
	{"internal/inspect", "internal/discover"}:   "check, plan and discover ask the sources of servers",
	{"internal/inspect", "internal/top"}:        "check draws with the terminal colors of top",
	{"internal/inspect", "internal/tracefile"}:  "check reports trace files that cannot be opened",
	{"internal/remote", "internal/cli"}:         "flags and errors of all commands",
	{"internal/remote", "internal/top"}:         "the command top",
	{"internal/remote", "internal/tracefile"}:   "the command trace reads trace files",
	{"internal/instance", "internal/cli"}:       "flags and errors of all commands",
	{"internal/instance", "internal/discover"}:  "an instance asks the sources of servers",
	{"internal/instance", "internal/inspect"}:   "serve prints what check prints",
	{"internal/instance", "internal/tracefile"}: "an instance writes trace files",
	{"internal/demo", "internal/cli"}:           "flags and errors of all commands",
	{"internal/demo", "internal/instance"}:      "the demo runs an instance in its own process",
	{"internal/demo", "internal/memnode"}:       "the demo runs small servers in its own process",
	{"internal/drill", "internal/cli"}:          "flags and errors of all commands",
	{"internal/drill", "internal/top"}:          "a drill draws with the terminal colors of top",
}

// modules are the packages of other modules that each package may import. Packages that
// are missing here import only the standard library and this module.
var modules = map[string][]string{
	"ring":                {"github.com/cespare/xxhash/v2", "github.com/zeebo/xxh3", "github.com/twmb/murmur3", "github.com/dgryski/go-jump"},
	"config":              {"gopkg.in/yaml.v3", "github.com/zeebo/xxh3"},
	"proxy/loop":          {"golang.org/x/sys"},
	"proxy/admin":         {"github.com/prometheus/..."},
	"internal/memnode":    {"github.com/hashicorp/golang-lru/v2"},
	"internal/top":        {"golang.org/x/term"},
	"internal/cli":        {"github.com/spf13/cobra", "github.com/spf13/pflag"},
	"internal/inspect":    {"github.com/spf13/cobra"},
	"internal/remote":     {"github.com/spf13/cobra"},
	"internal/instance":   {"github.com/spf13/cobra", "github.com/coreos/go-systemd/v22/daemon", "golang.org/x/sys"},
	"internal/demo":       {"github.com/bradfitz/gomemcache", "github.com/spf13/cobra"},
	"internal/drill":      {"github.com/spf13/cobra"},
	"internal/bench":      {"golang.org/x/sys"},
	"internal/bench/load": {"github.com/HdrHistogram/hdrhistogram-go", "github.com/prometheus/procfs", "golang.org/x/sys"},
	"internal/testenv":    {"github.com/bradfitz/gomemcache"},
	"recipes":             {"github.com/bradfitz/gomemcache"},
	"recipes/meta":        {"github.com/bradfitz/gomemcache"},
	"internal/command":    {"github.com/spf13/cobra"},
}

// sockets are packages that the engine must never import. net/netip is allowed, because
// its addresses are plain values.
var sockets = []string{"net/...", "syscall", "golang.org/x/sys/...", "os", "os/signal"}

// noSockets are the packages that must not import any of sockets: the engine and all
// its parts. withSockets are exceptions: the drivers, the control API, and helpers for
// tests.
var (
	noSockets   = []string{"replicate/...", "proxy/..."}
	withSockets = []string{"proxy/loop", "proxy/secure", "proxy/admin", "proxy/wire/wiretest", "proxy/conversation"}
)

func matches(pattern, name string) bool {
	below, ok := strings.CutSuffix(pattern, "/...")
	return pattern == name || ok && (name == below || strings.HasPrefix(name, below+"/"))
}

func anyMatches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, name) })
}

// listed is a package as printed by `go list`.
type listed struct {
	ImportPath, Dir, Doc      string
	Imports                   []string
	GoFiles, IgnoredGoFiles   []string
	TestGoFiles, XTestGoFiles []string
}

func (p listed) name() string {
	return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
}

// read caches the results of list by operating system.
var read = map[string][]listed{}

// list returns all packages of the module as built for an operating system.
func list(t *testing.T, system string) []listed {
	t.Helper()
	if all := read[system]; all != nil {
		return all
	}
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Dir,Doc,Imports,GoFiles,IgnoredGoFiles,TestGoFiles,XTestGoFiles", module+"/...")
	cmd.Env = append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0")
	var trouble bytes.Buffer
	cmd.Stderr = &trouble
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, trouble.String())
	}
	var all []listed
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if len(all) == 0 {
		t.Fatal("go list found no packages")
	}
	read[system] = all
	return all
}

var systems = []string{"linux", "darwin"}

// layerOf returns the layer of a package, or 0 if it is in none.
func layerOf(name string) int {
	return slices.IndexFunc(layers, func(in []string) bool { return slices.Contains(in, name) })
}

func TestImports(t *testing.T) {
	used := map[[2]string]bool{} // package and the allowance that its import needs
	for _, system := range systems {
		for _, p := range list(t, system) {
			if _, ok := apart[p.name()]; !ok && layerOf(p.name()) <= 0 {
				t.Errorf("%s is in no layer: add it to layers", p.name())
				continue
			}
			for _, imported := range p.Imports {
				used[[2]string{p.name(), checkImport(t, p, imported)}] = true
			}
		}
	}
	allowed := maps.Clone(modules)
	for name, imports := range apart {
		allowed[name] = slices.Concat(allowed[name], imports)
	}
	for pair := range exceptions {
		allowed[pair[0]] = append(slices.Clone(allowed[pair[0]]), pair[1])
	}
	for name, imports := range allowed {
		for _, pattern := range imports {
			if !used[[2]string{name, pattern}] {
				t.Errorf("%s does not import %s, which it may: remove it from the table", name, pattern)
			}
		}
	}
}

// checkImport checks one import of p. It returns the entry of apart, exceptions or modules
// that allows it, or "" if it needs none.
func checkImport(t *testing.T, p listed, imported string) (allowed string) {
	name := p.name()
	if anyMatches(noSockets, name) && !slices.Contains(withSockets, name) && anyMatches(sockets, imported) && imported != "net/netip" {
		t.Errorf("%s imports %s, but the engine must not use sockets and processes", name, imported)
	}
	first, _, _ := strings.Cut(imported, "/")
	switch {
	case strings.HasPrefix(imported, module+"/"):
		ours := strings.TrimPrefix(imported, module+"/")
		from, to := layerOf(name), layerOf(ours)
		if _, ok := exceptions[[2]string{name, ours}]; ok {
			return ours
		}
		if from > 0 && to > 0 && to < from {
			return ""
		}
		for _, pattern := range apart[name] {
			if matches(pattern, ours) {
				return pattern
			}
		}
		t.Errorf("%s (layer %d) imports %s (layer %d): a package imports only lower layers; move code, or add an exception with its reason", name, from, ours, to)
	case strings.Contains(first, "."): // paths of the standard library have no dot there
		for _, pattern := range modules[name] {
			if matches(strings.TrimSuffix(pattern, "/...")+"/...", imported) {
				return pattern
			}
		}
		t.Errorf("%s imports %s, which modules does not list", name, imported)
	}
	return ""
}

// notInArchitecture are packages that ARCHITECTURE.md omits: data, and helpers of
// tests.
var notInArchitecture = []string{"deploy", "ring/ringtest", "proxy/wire/wiretest", "proxy/conversation", "internal/archtest", "internal/testenv"}

// TestArchitectureHasTheLayers checks that the table of packages in ARCHITECTURE.md
// has every package once, with its layer.
func TestArchitectureHasTheLayers(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for n, packages := range layers {
		for _, name := range packages {
			want[name] = strconv.Itoa(n)
		}
	}
	for name := range apart {
		want[name] = ""
	}
	rows := regexp.MustCompile("(?m)^\\| ?(\\d*) \\| `([a-z0-9/]+)` \\| ").FindAllStringSubmatch(string(text), -1)
	for _, row := range rows {
		if layer, ok := want[row[2]]; !ok || layer != row[1] {
			t.Errorf("ARCHITECTURE.md lists %s in layer %q, this test in layer %q", row[2], row[1], layer)
		}
		delete(want, row[2])
	}
	for name := range want {
		if !slices.Contains(notInArchitecture, name) {
			t.Errorf("ARCHITECTURE.md has no row for %s in its table of packages", name)
		}
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	for _, system := range systems {
		for _, p := range list(t, system) {
			if len(p.GoFiles) > 0 && p.Doc == "" {
				t.Errorf("%s has no package comment", p.name())
			}
		}
	}
}

// TestOnlyTestsAblate checks that the product turns off no rule of the engine: outside tests,
// no file constructs a Set of package ablation.
func TestOnlyTestsAblate(t *testing.T) {
	for _, p := range list(t, systems[0]) {
		for _, file := range slices.Concat(p.GoFiles, p.IgnoredGoFiles) {
			text, err := os.ReadFile(filepath.Join(p.Dir, file))
			if err != nil {
				t.Error(err)
			} else if !strings.HasSuffix(file, "_test.go") && bytes.Contains(text, []byte("ablation.Set{")) {
				t.Errorf("%s constructs an ablation.Set: only tests may", path.Join(p.name(), file))
			}
		}
	}
}

// unlimitedLines are the functions that may write lines to the log without a limit, and why.
var unlimitedLines = map[string]string{
	"internal/instance.announce":     "at the start",
	"internal/instance.firstServers": "at the start",
	"internal/instance.start":        "at the start",
	"internal/instance.Command":      "at the start, or one line for half a queue of dropped lines",
	"internal/instance.confirm":      "once in a take-over",
	"internal/instance.drainClients": "at the end",
	"internal/instance.Stop":         "at the end",
	"internal/instance.Serve":        "at the end",
	"internal/instance.one":          "it has a limit",
	"proxy/client.LogSlow":           "it has a limit",
	"proxy/link.write":               "it is the limit",
}

// TestLinesOfTheLogAreLimited checks that no package of the product writes lines to the log that a client, a
// server, an instance, a source of servers or an operator can cause without a limit. Lines of the level
// DEBUG have none.
func TestLinesOfTheLogAreLimited(t *testing.T) {
	unused := maps.Clone(unlimitedLines)
	for _, p := range list(t, systems[0]) {
		if strings.HasPrefix(p.name(), "internal/bench") {
			continue
		}
		for _, file := range slices.Concat(p.GoFiles, p.IgnoredGoFiles) {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, file), nil, 0)
			if err != nil || strings.HasSuffix(file, "_test.go") {
				continue
			}
			for _, d := range f.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok {
					continue
				}
				name := p.name() + "." + fn.Name.Name
				ast.Inspect(fn, func(n ast.Node) bool {
					call, ok := n.(*ast.SelectorExpr)
					if !ok || !slices.Contains([]string{"Info", "Warn", "Error", "Log", "LogAttrs"}, call.Sel.Name) || !isLogger(call.X) {
						return true
					}
					if delete(unused, name); unlimitedLines[name] == "" {
						t.Errorf("%s in %s writes to the log without a limit: use LogLimited or LogOrder of package link", name, file)
					}
					return true
				})
			}
		}
	}
	for name := range unused {
		t.Errorf("%s writes no such line", name)
	}
}

// isLogger reports whether e is a logger, by its name.
func isLogger(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name == "log" || e.Name == "slog" || e.Name == "Log"
	case *ast.SelectorExpr:
		return e.Sel.Name == "log" || e.Sel.Name == "Log"
	}
	return false
}

func TestEveryFileSaysItsIntent(t *testing.T) {
	for _, p := range list(t, systems[0]) {
		for _, file := range slices.Concat(p.GoFiles, p.IgnoredGoFiles) {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, file), nil, parser.ParseComments)
			if err != nil {
				t.Error(err)
			} else if !saysIntent(f) {
				t.Errorf("%s has no line of intent: a comment under its package clause", path.Join(p.name(), file))
			}
		}
	}
}

// saysIntent reports whether a file has the package comment, or another comment about
// its purpose. That comment is between the package clause and the first declaration,
// and does not belong to the declaration. (Go attaches such a comment to the import.)
func saysIntent(f *ast.File) bool {
	if f.Doc != nil {
		return true
	}
	end := f.FileEnd
	var owned *ast.CommentGroup
	if len(f.Decls) > 0 {
		end = f.Decls[0].Pos()
		switch d := f.Decls[0].(type) {
		case *ast.FuncDecl:
			owned = d.Doc
		case *ast.GenDecl:
			if d.Tok != token.IMPORT {
				owned = d.Doc
			}
		}
	}
	return slices.ContainsFunc(f.Comments, func(c *ast.CommentGroup) bool {
		return c != owned && c.Pos() > f.Name.End() && c.Pos() < end
	})
}
