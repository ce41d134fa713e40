package archtest

// Mutants: for each package a mistake that its tests must find.

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ringside/internal/testenv"
)

// mutant is a mistake in a package: new replaces old in file, which must contain old
// exactly once.
type mutant struct{ pkg, file, old, new string }

// mutants contains at least one mistake for each package that has tests. After a
// refactoring, choose another line that only a working test notices.
var mutants = []mutant{
	{"config", "values.go", `n.tag != "!!int" || err != nil || v < int64(least)`, `n.tag != "!!int" || err != nil || v <= int64(least)`},
	{"internal/discover", "elasticache.go", `if at == "" {`, `if at != "" {`},
	{"internal/inspect", "check.go", `if p.Failover.Mode == table.FailFast && f.Ejects(p.Name) && !p.Unknown {`, `if p.Failover.Mode == table.FailFast && !f.Ejects(p.Name) && !p.Unknown {`},
	{"internal/memnode", "store.go", "if exptime < 0 {", "if exptime > 0 {"},
	{"internal/top", "draw.go", "if width < leastWidth ||", "if width > leastWidth ||"},
	{"internal/tracefile", "traces.go", "if s.Dropped > 0 {", "if s.Dropped < 0 {"},
	{"ketama", "ketama.go", "len(points) == 0 && len(servers) > 0", "len(points) == 0 && len(servers) > 1"},
	{"proxy/serverlist", "list.go", "if d.Allowed && now.Sub(d.Since) >= o.Keep {", "if now.Sub(d.Since) >= o.Keep {"},
	{"modulo", "modulo.go", "if r.Repeat {", "if !r.Repeat {"},
	{"proxy", "dispatch.go", "if r.Flags&wire.TooLarge != 0 {", "if r.Flags&wire.TooLarge == 0 {"},
	{"proxy/admin", "control.go", "return o.String() == name", "return o.String() != name"},
	{"proxy/admin", "text.go", "if len(labels) == 0 {", "if len(labels) != 0 {"},
	{"proxy/client", "inorder.go", "out != nil && !o.IsTurn(i)", "out != nil && o.IsTurn(i)"},
	{"proxy/replication", "stale.go", "|| !m.canLoseCopy(e, l.Key)", "|| m.canLoseCopy(e, l.Key)"},
	{"proxy/replication", "handover.go", "h != nil && h.paused", "h != nil && !h.paused"},
	{"proxy/counters", "create.go", "if t.Route.Autocreate == nil {", "if t.Route.Autocreate != nil {"},
	{"proxy/failover", "single.go", "task.NeedsValue(t) && !l.checked", "task.NeedsValue(t) && l.checked"},
	{"proxy/fault", "fault.go", "return f.ID == id", "return f.ID != id"},
	{"proxy/guard", "read.go", "case s.HasLease() && !l.Hide:", "case s.HasLease() && l.Hide:"},
	{"proxy/health", "keeper.go", "PhaseOf(s.n) == Warming", "PhaseOf(s.n) != Warming"},
	{"proxy/health/barrier", "barrier.go", "if now < b.Since+b.deadline || !replicated() {", "if now < b.Since+b.deadline {"},
	{"proxy/health/resize", "resize.go", "if !replicated(0) {", "if false && !replicated(0) {"},
	{"proxy/health/divert", "divert.go", "string(key[:len(Reserved)]) == Reserved", "string(key[:len(Reserved)]) != Reserved"},
	{"proxy/health", "meta.go", `f[0] != "VA"`, `f[0] == "VA"`},
	{"proxy/health", "process.go", "return p.PID == q.PID &&", "return p.PID != q.PID &&"},
	{"proxy/health/roll", "roll.go", "len(value) > MostBytes ||", "len(value) < MostBytes ||"},
	{"proxy/health", "tally.go", "now-t.seenAt < 3*every/2", "now-t.seenAt > 3*every/2"},
	{"proxy/link", "memory.go", "if io.FreeMemory() >= int64(n) {", "if io.FreeMemory() >= 0 {"},
	{"proxy/live", "health.go", "if h.Level != Good {", "if h.Level == Good {"},
	{"proxy/live", "routes_compare.go", "if of.Hits > 0 {", "if of.Hits == 0 {"},
	{"proxy/live", "follow.go", "list[i].Letter == r.Letter", "list[i].Letter != r.Letter"},
	{"proxy/loop", "fault.go", "case !state.Hang && !state.Partition && wait == 0:", "case wait == 0:"},
	{"proxy/loop", "pace.go", "if m.rate*100 < rate*(100+m.gain) {", "if m.rate*100 > rate*(100+m.gain) {"},
	{"proxy/near", "store.go", "s.io.Now-v.Asked >= s.life()", "s.io.Now-v.Asked < s.life()"},
	{"proxy/routing", "generation.go", "string(key[:len(r.Prefix)]) == r.Prefix", "string(key[:len(r.Prefix)]) != r.Prefix"},
	{"proxy/secure", "conn.go", "case err == io.EOF && c.pipe.cut:", "case err == io.EOF && !c.pipe.cut:"},
	{"proxy/stats", "merge.go", `classOf(st.name); st.class != noClass {`, `classOf(st.name); st.class == noClass {`},
	{"proxy/table", "pattern.go", "key = key[at+len(text):]", "key = key[at:]"},
	{"proxy/tags", "invalidate.go", "if n.open--; n.open > 0 {", "if n.open--; n.open > 1 {"},
	{"proxy/tags/stamp", "head.go", "value[0] != magic", "value[0] == magic"},
	{"proxy/task", "line.go", "|| !l.begins(l.queue[0])", "|| l.begins(l.queue[0])"},
	{"proxy/upstream", "expire.go", "if srv.timeouts >= srv.downAfter &&", "if srv.timeouts > srv.downAfter &&"},
	{"proxy/upstream", "names_check.go", "if n.keys[at-1] != found {", "if n.keys[at-1] == found {"},
	{"proxy/watch", "sketch.go", "if h == hash && bytes.Equal(", "if h != hash && bytes.Equal("},
	{"proxy/watch/missreason", "recorder.go", "if e.missed == 0 || now-e.missed > longest {", "if e.missed != 0 || now-e.missed > longest {"},
	{"proxy/wire", "next.go", `if nl > 1 && buf[nl-1] == '\r' {`, `if nl > 1 && buf[nl-1] != '\r' {`},
	{"proxy/wire/binary", "frame.go", "if len(buf) < HeadSize {", "if len(buf) <= HeadSize {"},
	{"recipes", "lock.go", "!l.s.now().Before(x.until)", "l.s.now().Before(x.until)"},
	{"recipes/meta", "meta.go", "if len(replies) != len(keys) {", "if len(replies) == len(keys) {"},
	{"replicate", "rule.go", "if r.verdict == Unmet {", "if r.verdict != Unmet {"},
	{"proxy/replication", "castoken.go", "h = ring.Mix(ring.Mix(h) + n)", "h = ring.Mix(ring.Mix(h) - n)"},
	{"ring", "circle.go", "if c.seek == AtOrBefore {", "if c.seek != AtOrBefore {"},
}

// noMutant are the packages that need no mutant.
var noMutant = []string{
	// Commands, benchmarks and examples, which are tested as programs.
	"cmd/...", "internal/bench/...", "internal/cli", "internal/command", "internal/demo", "internal/drill", "internal/instance", "internal/remote", "recipes/examples/seeds",
	// Data, and helpers of tests.
	"proxy/ablation", "proxy/event", "deploy", "ring/ringtest", "proxy/wire/wiretest", "proxy/conversation", "internal/archtest", "internal/ports", "internal/testenv", "internal/fleet", "internal/e2e", "internal/twin",
}

// TestEveryPackageHasAMutant checks the list of mutants against the packages and their files.
func TestEveryPackageHasAMutant(t *testing.T) {
	for _, p := range slices.Concat(slices.Concat(layers...), slices.Collect(maps.Keys(apart))) {
		has := slices.ContainsFunc(mutants, func(m mutant) bool { return m.pkg == p })
		if none := anyMatches(noMutant, p); has == none {
			t.Errorf("%s: is in mutants: %t, is in noMutant: %t", p, has, none)
		}
	}
	for _, m := range mutants {
		if _, err := m.source(); err != nil {
			t.Error(err)
		}
	}
}

// TestMutantsAreFound runs the tests of each mutant's package, which must fail.
func TestMutantsAreFound(t *testing.T) {
	if !testenv.Full() {
		return
	}
	for _, m := range mutants {
		t.Run(strings.ReplaceAll(m.pkg, "/", "."), func(t *testing.T) { // -run interprets a slash as a separator of levels
			source, err := m.source()
			if err != nil {
				t.Fatal(err)
			}
			if out, found := m.test(t, source); !found {
				t.Errorf("the tests of %s pass with %q in place of %q in %s:\n%s", m.pkg, m.new, m.old, m.file, out)
			}
		})
	}
}

// path returns the file of m as the go command names it.
func (m mutant) path() (string, error) {
	return filepath.Abs(filepath.Join(root, filepath.FromSlash(m.pkg), m.file))
}

// source returns the file of m with the mistake.
func (m mutant) source() (string, error) {
	path, err := m.path()
	if err != nil {
		return "", err
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(b), m.old); n != 1 {
		return "", fmt.Errorf("%s/%s has %q %d times: a mutant needs a text that is there once", m.pkg, m.file, m.old, n)
	}
	return strings.Replace(string(b), m.old, m.new, 1), nil
}

// test runs the tests of m's package with the text `source` in place of m's file. It does not
// change the tree, because the go command reads that text through an overlay. The result
// found is true if the tests fail, so they detect the mutant.
func (m mutant) test(t *testing.T, source string) (out []byte, found bool) {
	path, err := m.path()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	mutated, overlay := filepath.Join(dir, m.file), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {path: mutated}})
	if err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{mutated: source, overlay: string(replace)} {
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "test", "-short", "-failfast", "-count=1", "-vet=off", "-timeout=5m", "-overlay", overlay, "./"+m.pkg)
	cmd.Dir = root
	out, err = cmd.CombinedOutput()
	if strings.Contains(string(out), "[build failed]") || strings.Contains(string(out), "[setup failed]") {
		t.Fatalf("%s with %q in place of %q does not build:\n%s", m.pkg, m.new, m.old, out)
	}
	return out, err != nil
}
