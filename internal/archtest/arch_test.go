package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "ringside"

// room lists what a package may import besides the standard library. A pattern that
// ends in /... matches a package and all packages below it.
type room struct {
	path  string   // path of the package, without the module
	ours  []string // packages of this module, or patterns
	outer []string // other modules
}

// house is the table of ARCHITECTURE.md. A package that is missing fails the test, so a
// new package needs a row with its allowed imports.
var house = []room{
	{"ring", nil, []string{"github.com/cespare/xxhash/v2", "github.com/zeebo/xxh3", "github.com/twmb/murmur3", "github.com/dgryski/go-jump"}},
	{"ketama", []string{"ring"}, nil},
	{"modulo", []string{"ring"}, nil},
	{"replicate", nil, nil},
	{"replicate/castoken", nil, nil},
	{"proxy/wire", nil, nil},
	{"proxy/wire/frame", []string{"proxy/wire"}, nil},
	{"proxy/health/roll", nil, nil},
	{"proxy/health/divert", nil, nil},
	{"proxy/health/process", nil, nil},
	{"proxy/health/tally", nil, nil},
	{"proxy/health/meta", []string{"proxy/health/roll", "proxy/health/divert"}, nil},
	{"proxy/health/barrier", nil, nil},
	{"proxy/health", []string{"proxy/health/roll", "proxy/health/process", "proxy/health/tally", "proxy/health/meta", "proxy/health/barrier"}, nil},
	{"proxy/fault", nil, nil},
	{"proxy/tags/stamp", nil, nil},
	{"proxy/table", []string{"proxy/health/divert", "ring", "replicate", "proxy/health", "proxy/tags/stamp"}, nil},
	{"proxy/stats", []string{"proxy/watch/why", "proxy/wire", "proxy/health", "proxy/table", "proxy/tags/stamp"}, nil},
	{"proxy/link", []string{"proxy/wire", "proxy/stats"}, nil},
	{"proxy/upstream/names", []string{"proxy/wire"}, nil},
	{"proxy/upstream", []string{"proxy/health/divert", "proxy/wire", "proxy/health", "proxy/table", "proxy/stats", "proxy/link", "proxy/upstream/names"}, nil},
	{"proxy/near", []string{"proxy/wire", "proxy/table", "proxy/stats", "proxy/link"}, nil},
	{"proxy/client", []string{"proxy/near", "proxy/wire", "proxy/wire/frame", "proxy/table", "proxy/stats", "proxy/link", "proxy/upstream"}, nil},
	{"proxy/routing", []string{"proxy/near", "proxy/watch/why", "ring", "replicate", "proxy/health", "proxy/table", "proxy/stats", "proxy/upstream"}, nil},
	{"proxy/task", []string{"proxy/health/divert", "proxy/watch/why", "replicate", "proxy/wire", "proxy/table", "proxy/stats", "proxy/link", "proxy/upstream", "proxy/client", "proxy/routing"}, nil},
	{"proxy/task/deed", []string{"replicate", "proxy/wire", "proxy/upstream", "proxy/task"}, nil},
	{"proxy/failover", []string{"proxy/task/deed", "replicate", "proxy/health/divert", "proxy/health/process", "proxy/wire", "proxy/health", "proxy/table", "proxy/stats", "proxy/link", "proxy/upstream", "proxy/routing", "proxy/task"}, nil},
	{"proxy/copies/handover", []string{"proxy/health/barrier", "proxy/routing"}, nil},
	{"proxy/copies/entries", nil, nil},
	{"proxy/copies", []string{"replicate/castoken", "proxy/task/deed", "proxy/copies/entries", "proxy/copies/handover", "proxy/health/barrier", "proxy/health/divert", "replicate", "proxy/wire", "proxy/health", "proxy/table", "proxy/stats", "proxy/link", "proxy/upstream", "proxy/routing", "proxy/task", "proxy/failover"}, nil},
	{"proxy/copies/direct", []string{"proxy/wire", "proxy/stats", "proxy/upstream", "proxy/client", "proxy/routing", "proxy/copies"}, nil},
	{"proxy/counters", []string{"proxy/wire", "proxy/table", "proxy/stats", "proxy/link", "proxy/upstream", "proxy/routing", "proxy/task"}, nil},
	{"proxy/guard/item", []string{"proxy/wire", "proxy/routing", "proxy/tags/stamp"}, nil},
	{"proxy/guard/misses", []string{"proxy/stats", "proxy/upstream", "proxy/routing", "proxy/tags/stamp", "proxy/guard/item"}, nil},
	{"proxy/guard/copied", []string{"proxy/health/divert", "proxy/wire", "proxy/upstream", "proxy/routing", "proxy/guard/misses"}, nil},
	{"proxy/guard", []string{"proxy/guard/copied", "proxy/health/divert", "proxy/wire", "proxy/health", "proxy/table", "proxy/stats", "proxy/link", "proxy/upstream", "proxy/client", "proxy/routing", "proxy/task", "proxy/failover", "proxy/tags/stamp", "proxy/guard/item", "proxy/guard/misses"}, nil},
	{"proxy/guard/fast", []string{"proxy/wire", "proxy/stats", "proxy/upstream", "proxy/client", "proxy/routing", "proxy/tags/stamp", "proxy/guard", "proxy/guard/item"}, nil},
	{"proxy/tags", []string{"proxy/health/divert", "proxy/wire", "proxy/health", "proxy/stats", "proxy/upstream", "proxy/client", "proxy/routing", "proxy/task", "proxy/guard", "proxy/guard/fast", "proxy/tags/stamp"}, nil},
	{"proxy/watch/why", nil, nil},
	{"proxy/watch", []string{"proxy/watch/why", "proxy/wire", "proxy/stats", "proxy/upstream"}, nil},
	{"proxy/near/serve", []string{"proxy/near", "proxy/watch", "proxy/wire", "proxy/stats", "proxy/link", "proxy/client", "proxy/routing", "proxy/task"}, nil},
	{"proxy", []string{"proxy/health/divert", "proxy/health/meta", "proxy/health/roll", "ring", "proxy/near", "proxy/near/serve", "proxy/watch/why", "proxy/wire", "proxy/health", "proxy/table", "proxy/stats", "proxy/link", "proxy/upstream", "proxy/watch", "proxy/client", "proxy/routing", "proxy/task", "proxy/failover", "proxy/copies", "proxy/copies/direct", "proxy/counters", "proxy/guard", "proxy/tags"}, nil},
	{"proxy/loop/pace", nil, nil},
	{"proxy/loop", []string{"proxy", "proxy/fault", "proxy/table", "proxy/link", "proxy/loop/pace"}, []string{"golang.org/x/sys"}},
	{"proxy/live/routes", []string{"replicate", "proxy", "proxy/table", "proxy/stats"}, nil},
	{"proxy/live/trace", []string{"proxy", "proxy/watch", "proxy/watch/why"}, nil},
	{"proxy/live", []string{"proxy/live/routes", "ring", "proxy", "proxy/watch", "proxy/watch/why", "proxy/wire", "proxy/health", "proxy/health/roll", "proxy/table", "proxy/stats"}, nil},
	{"proxy/admin/page", nil, nil},
	{"proxy/admin/metrics", []string{"proxy", "proxy/live", "proxy/watch/why", "proxy/wire", "proxy/health", "proxy/table", "proxy/stats"}, nil},
	{"proxy/admin", []string{"proxy", "proxy/link", "proxy/admin/page", "proxy/admin/metrics", "proxy/live", "proxy/live/trace", "proxy/watch", "proxy/fault", "proxy/health", "proxy/table", "proxy/stats"}, []string{"github.com/prometheus/..."}},
	{"config", []string{"proxy/watch", "proxy/health/divert", "ring", "ketama", "modulo", "replicate", "proxy/health", "proxy/table", "proxy/tags/stamp"}, []string{"gopkg.in/yaml.v3", "github.com/zeebo/xxh3"}},
	{"internal/memnode", nil, []string{"github.com/hashicorp/golang-lru/v2"}},
	{"internal/tracefile", []string{"config", "proxy/live", "proxy/live/trace", "proxy/watch"}, nil},
	{"internal/top", []string{"proxy/admin", "proxy/live", "proxy/live/routes", "proxy/live/trace"}, []string{"golang.org/x/sys"}},
	{"internal/cli", []string{"config", "proxy/admin", "proxy/live", "proxy/table", "internal/top"}, []string{"github.com/spf13/cobra", "github.com/spf13/pflag"}},
	{"internal/inspect", []string{"config", "proxy/table", "replicate", "ring", "internal/cli", "internal/top", "internal/tracefile"}, []string{"github.com/spf13/cobra"}},
	{"internal/remote", []string{"proxy/admin", "proxy/health", "proxy/live", "proxy/live/trace", "proxy/watch", "internal/cli", "internal/top", "internal/tracefile"}, []string{"github.com/spf13/cobra"}},
	{"internal/instance", []string{"config", "proxy", "proxy/admin", "proxy/fault", "proxy/live", "proxy/live/trace", "proxy/loop", "proxy/loop/pace", "proxy/stats", "proxy/table", "internal/cli", "internal/inspect", "internal/tracefile"}, []string{"github.com/spf13/cobra", "github.com/coreos/go-systemd/v22/daemon", "golang.org/x/sys"}},
	{"internal/demo", []string{"config", "internal/cli", "internal/instance", "internal/memnode"}, []string{"github.com/spf13/cobra"}},
	{"internal/drill", []string{"config", "proxy/admin", "proxy/fault", "proxy/live", "internal/cli", "internal/demo", "internal/top"}, []string{"github.com/spf13/cobra"}},
	{"internal/bench/proc", nil, []string{"golang.org/x/sys"}},
	{"internal/bench/slow", nil, nil},
	{"internal/bench/instructions", nil, nil},
	{"internal/bench/load", []string{"internal/bench/proc"}, []string{"github.com/HdrHistogram/hdrhistogram-go", "golang.org/x/sys"}},
	{"internal/bench/report", []string{"internal/bench/load"}, nil},
	{"internal/bench/peers", []string{"internal/bench/report"}, []string{"golang.org/x/sys"}},
	{"internal/bench", []string{"internal/bench/..."}, []string{"golang.org/x/sys"}},
	{"recipes", nil, []string{"github.com/bradfitz/gomemcache"}},
	{"recipes/meta", nil, []string{"github.com/bradfitz/gomemcache"}},
	{"recipes/examples/seeds", []string{"recipes"}, []string{"github.com/bradfitz/gomemcache"}},
	{"cmd/ringbench", []string{"internal/bench/..."}, nil},
	{"cmd/ringside", []string{"internal/cli", "internal/inspect", "internal/remote", "internal/instance", "internal/demo", "internal/drill"}, []string{"github.com/spf13/cobra"}},

	// Data and tests.
	{"deploy", nil, nil},
	{"ring/ringtest", []string{"ring"}, nil},
	{"proxy/wire/wiretest", nil, nil},
	{"proxy/conversation", []string{"proxy/tags/stamp", "proxy/health/barrier", "replicate", "ring", "proxy", "proxy/wire", "proxy/health", "proxy/table", "proxy/stats", "proxy/link", "proxy/upstream", "proxy/failover"}, nil},
	{"proxy/wire/wiretest/older", []string{"proxy/wire"}, nil},
	{"internal/archtest", nil, nil},
	{"internal/testenv", nil, nil},
	{"internal/fleet", nil, nil},
	{"internal/e2e", nil, nil},
	{"internal/twin", nil, nil},
	{"recipes/internal/rig", []string{"internal/testenv"}, []string{"github.com/bradfitz/gomemcache"}},
}

// sockets are packages that the engine must never import. net/netip is allowed, because
// its addresses are plain values.
var sockets = []string{"net/...", "syscall", "golang.org/x/sys/...", "os", "os/signal"}

// noSockets are the packages that must not import any of sockets: the engine and all
// its parts. withSockets are exceptions: the drivers, the control API, and helpers for
// tests.
var (
	noSockets   = []string{"replicate/...", "proxy/..."}
	withSockets = []string{"proxy/loop", "proxy/admin", "proxy/wire/wiretest", "proxy/conversation"}
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

func TestImports(t *testing.T) {
	used := map[[2]string]bool{} // by package and the entry of its row that allows the import
	for _, system := range systems {
		for _, p := range list(t, system) {
			i := slices.IndexFunc(house, func(r room) bool { return r.path == p.name() })
			if i < 0 {
				t.Errorf("%s is not in the table of this test: say there what it may import", p.name())
				continue
			}
			for _, imported := range p.Imports {
				used[[2]string{p.name(), checkImport(t, house[i], p, imported)}] = true
			}
		}
	}
	for _, r := range house {
		for _, allowed := range slices.Concat(r.ours, r.outer) {
			if !used[[2]string{r.path, allowed}] {
				t.Errorf("%s does not import %s, which it may: take that out of the table", r.path, allowed)
			}
		}
	}
}

// checkImport returns the pattern of r that allows p's import, or "" after it has
// reported an error.
func checkImport(t *testing.T, r room, p listed, imported string) (allowed string) {
	if anyMatches(noSockets, p.name()) && !slices.Contains(withSockets, p.name()) && anyMatches(sockets, imported) && imported != "net/netip" {
		t.Errorf("%s imports %s: it must know nothing of sockets and processes", p.name(), imported)
	}
	first, _, _ := strings.Cut(imported, "/")
	switch {
	case first == module:
		ours := strings.TrimPrefix(imported, module+"/")
		for _, m := range r.ours {
			if matches(m, ours) {
				return m
			}
		}
		t.Errorf("%s imports %s; of ours it may import %v", p.name(), ours, r.ours)
	case strings.Contains(first, "."): // paths of the standard library have no dot there
		for _, m := range r.outer {
			if matches(strings.TrimSuffix(m, "/...")+"/...", imported) {
				return m
			}
		}
		t.Errorf("%s imports %s; of others it may import %v", p.name(), imported, r.outer)
	}
	return ""
}

// notInArchitecture are packages that ARCHITECTURE.md omits: data, and helpers of
// tests.
var notInArchitecture = []string{"deploy", "ring/ringtest", "proxy/wire/wiretest", "proxy/wire/wiretest/older", "proxy/conversation", "internal/archtest", "internal/testenv", "recipes/internal/rig"}

// TestArchitectureHasTheTable checks that the table of packages in ARCHITECTURE.md
// agrees with house. The table uses the last element of a package's path. Packages that
// only tests use are not checked.
func TestArchitectureHasTheTable(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range house {
		_, row, ok := strings.Cut(string(text), "\n| `"+r.path+"` | ")
		if !ok {
			if !slices.Contains(notInArchitecture, r.path) {
				t.Errorf("ARCHITECTURE.md has no row for %s in its table of packages", r.path)
			}
			continue
		}
		row, _, _ = strings.Cut(row, " |\n")
		sentence, imports, _ := strings.Cut(row, " | ")
		if strings.HasSuffix(sentence, "(tests only)") || strings.Contains(imports, "below it") {
			continue
		}
		unnamed := slices.Concat(r.ours, r.outer)
		for word := range strings.SplitSeq(imports, ", ") {
			i := slices.IndexFunc(unnamed, func(p string) bool {
				return p == word || strings.HasSuffix(p, "/"+word) || slices.Contains(r.outer, p) && strings.Contains(p, "/"+word)
			})
			if i >= 0 {
				unnamed = slices.Delete(unnamed, i, i+1)
			} else if word != "std" {
				t.Errorf("ARCHITECTURE.md lets %s import %s, which this test does not", r.path, word)
			}
		}
		if len(unnamed) > 0 {
			t.Errorf("ARCHITECTURE.md does not say that %s may import %v", r.path, unnamed)
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
