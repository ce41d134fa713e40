package e2e

// This file accounts for every command in the code blocks of README.md and docs/: which test executes
// it, or why no test does.

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"ringside/internal/testenv"
)

// followedPages are the pages of which a test executes all blocks of sh, in their order.
var followedPages = []string{"quickstart.md", "upgrade.md", "from-mcrouter.md", "from-twemproxy.md"}

// shownCommand is a command in a block of a page.
type shownCommand struct {
	command string
	place   string
	run     string // what is executed, if it is not the command itself: names are filled in, and endless commands end
	output  string // a pattern that the output matches
}

// shownCommands are the commands in other blocks. TestPagesCommands executes those with the place own
// or demo: own is the configuration file of README.md, and demo is a running ringside demo. Others have
// the test that executes them, or the reason why none does.
var shownCommands = []shownCommand{
	{command: "./ringside check -c ringside.yaml", place: "own", output: `10\.0\.0\.2`},
	{command: "./ringside route -c ringside.yaml KEY", place: "own", output: `KEY`},
	{command: "./ringside serve -c ringside.yaml", place: "own", run: "./ringside serve -c ringside.yaml & until ./ringside health; do sleep 0.1; done"},
	{command: "./ringside reload -c ringside.yaml", place: "own"},
	{command: "ringside plan new.yaml", place: "own", run: "(cat ringside.yaml; echo '      - 10.0.0.3:11211') > new.yaml; ringside plan new.yaml", output: `of the keys move`},

	{command: "go run ./cmd/ringside demo", place: "demo", run: "ringside demo > demo.out & until grep Ctrl-C demo.out; do sleep 0.1; done", output: `Ctrl-C`},
	{command: `php -r '$m = new Memcached; $m->addServer("127.0.0.1", 11211); $m->set("greeting", "hello"); echo $m->get("greeting"), "\n";'`, place: "demo", output: `hello`},
	{command: "./ringside drill --fault hang", place: "demo", run: "ringside drill --fault hang --for 3s", output: `(?i)hang`},
	{command: "ringside drill --fault hang --for 10s", place: "demo", run: "ringside drill --fault hang --for 3s", output: `(?i)hang`},
	{command: "ringside server list", place: "demo", output: `demo3`},
	{command: "ringside server drain NAME", place: "demo", run: "ringside server drain demo1 && ringside server restore demo1", output: `demo1`},
	{command: "ringside clients", place: "demo", output: `ADDRESS`},
	{command: "ringside trace 'home:*'", place: "demo", run: "ringside trace 'home:*' --for 1s", output: `0 events`},
	{command: "ringside tag invalidate user:7 posts", place: "demo", output: `demo3 +yes`},
	{command: "ringside demo --herd", place: "demo", output: `pages rebuilt`},
	{command: "ringside demo --tags", place: "demo", output: `900 pages are found`},

	{command: "ringside reload", place: "it needs a pool with another list of servers; TestResizeFlush"},
	{command: "ringside drill", place: "it needs minutes; TestDrillOnDemo"},
	{command: "ringside drill --through ADDR,...", place: "it needs two instances; TestDrillThroughSeveral"},
	{command: "ringside discover dnssrvnoa+_memcached._tcp.mc.prod.svc.cluster.local -c /etc/ringside/ringside.yaml", place: "it needs a cluster; TestDiscoveryByDNS"},
	{command: "go build -o ringside ./cmd/ringside", place: "all tests of this package build the program"},
	{command: "./ringside demo", place: "it is that of README.md"},
	{command: "apt install ./ringside_NUMBER_amd64.deb", place: "it would install on this machine; TestDebianPackage unpacks the package, and TestRelease of deploy/release checks it"},
	{command: "tar xzf ringside_NUMBER_linux_amd64.tar.gz", place: "TestRelease of deploy/release unpacks the archives"},
	{command: "go run ./cmd/ringbench run -scenarios ac -also 'near=bin/ringside routes: [{pool: main, near: {keys: all}}]'", place: "it needs an idle machine; TestRun of cmd/ringbench"},
	{command: "go mod edit -replace ringside=../ringside", place: "TestRename of deploy/release builds a program that imports the recipes"},
	{command: "go get ringside/recipes", place: "as the line before"},
	{command: "go test ./recipes/... -run Seeds -v", place: "it is a test"},
	{command: "go generate ./recipes/examples/seeds", place: "it needs minutes, and writes the page"},
}

var commandLine = regexp.MustCompile(`^(?:\$ )?((?:\./)?(?:ringside|go|make|php|memcached|apt|tar|kubectl|helm|curl|npm) .*)$`)

// TestPagesCommandsAreKnown checks that a test executes each command of README.md and docs/, or that
// shownCommands has the reason why not.
func TestPagesCommandsAreKnown(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, file := range append(pages, "../../README.md", "../../docs/benchmarks/README.md") {
		page, err := filepath.Rel("../../docs", file)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range passages(t, page) {
			if page == "tls.md" || p.language == "sh" && slices.Contains(followedPages, page) {
				continue // TestTLSPage, and the tests that call followed
			}
			if p.language == "sh" {
				t.Errorf("%s: no test executes the block of sh under %q", page, p.heading)
			}
			if p.language != "" {
				continue
			}
			for line := range strings.Lines(p.text) {
				m := commandLine.FindStringSubmatch(strings.TrimSpace(line))
				if m == nil {
					continue
				}
				command := regexp.MustCompile(`\s{2,}#? ?.*| # .*`).ReplaceAllString(m[1], "")
				seen[command] = true
				if !slices.ContainsFunc(shownCommands, func(c shownCommand) bool { return c.command == command }) {
					t.Errorf("%s: no test executes %q, and shownCommands has no reason", page, command)
				}
			}
		}
	}
	for _, c := range shownCommands {
		if !seen[c.command] {
			t.Errorf("no page has %q", c.command)
		}
	}
}

// TestPagesCommands executes the commands of shownCommands in a network namespace.
func TestPagesCommands(t *testing.T) {
	testenv.OnlyFull(t, "the drills and the demos need half a minute; TestPagesQuickstart executes the most important commands")
	t.Parallel()
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	n, _ := startFirstNamespace(t)
	for _, place := range []string{"own", "demo"} {
		t.Run(place, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.Symlink(binary, filepath.Join(dir, "ringside")); err != nil {
				t.Fatal(err)
			}
			var script strings.Builder
			script.WriteString("set -eu -o pipefail\nPATH=$PWD:$PATH\n")
			for _, p := range passages(t, "../README.md") {
				if place == "own" && p.language == "yaml" {
					script.WriteString("cat > ringside.yaml <<'END OF FILE'\n" + p.text + "END OF FILE\n")
				}
			}
			var outputs []string
			for _, c := range shownCommands {
				if c.place != place {
					continue
				}
				if c.run == "" {
					c.run = c.command
				}
				script.WriteString("echo '>>>'\n" + c.run + "\n")
				outputs = append(outputs, c.output)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 5*patience)
			defer cancel()
			shell := []string{"unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c", script.String()}
			cmd := exec.CommandContext(ctx, need(t, n.enter[0]), append(n.enter[1:], shell...)...)
			cmd.Dir, cmd.WaitDelay = dir, time.Second
			var complaints strings.Builder
			cmd.Stderr = &complaints
			out, err := cmd.Output()
			parts := strings.Split(string(out), ">>>\n")[1:]
			if err != nil || len(parts) != len(outputs) {
				t.Fatalf("%v after %d of %d commands\n%s\n%s", err, len(parts), len(outputs), out, complaints.String())
			}
			for i, want := range outputs {
				if !regexp.MustCompile(want).MatchString(parts[i]) {
					t.Errorf("want %s in the output of command %d:\n%s", want, i+1, parts[i])
				}
			}
		})
	}
}
