package seeds

// The table: every scheme as printed, as corrected, and as corrected while a
// server is killed and restarted.

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"ringside/internal/memnode"
	"ringside/internal/testenv"
	"ringside/recipes"
)

var page = flag.String("page", "", "write the table to this file, as the page of docs")

var ctx = context.Background()

func TestMain(m *testing.M) {
	flag.Parse()
	status := m.Run()
	testenv.Clean()
	os.Exit(status)
}

// row is a row of the table.
type row struct {
	seeds, scheme      string
	printed, corrected string
	kill               string // name of the load with the kill test results of this row
}

// scheme returns rows. It fails the test if an article's version works or ours
// does not.
type scheme func(t *testing.T, s *setting) []row

// setting is what a scheme runs on.
type setting struct {
	through *memcache.Client // client of a Ringside instance with three servers
	r       *testenv.Ringside
	names   int
	rules   [][]string // where each of crc32Rules places keys
}

// store returns a store through Ringside with keys that nothing else uses.
func (s *setting) store() *recipes.Store {
	s.names++
	return &recipes.Store{Client: s.through, Prefix: fmt.Sprintf("s%d:", s.names)}
}

// stage is a memcached in this process with a clock that the test moves.
type stage struct {
	mc  *memcache.Client
	mu  sync.Mutex
	now time.Time
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{now: time.Date(2026, 11, 22, 12, 0, 17, 0, time.UTC)}
	node, err := memnode.Start(memnode.Options{Now: s.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { node.Close() })
	s.mc = testenv.Client(t, node.Addr().String())
	return s
}

func (s *stage) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

func (s *stage) sleep(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(d)
}

func (s *stage) store() *recipes.Store { return &recipes.Store{Client: s.mc, Now: s.Now} }

func must[V any](v V, err error) V {
	if err != nil {
		panic(err)
	}
	return v
}

// is compares a result with the one that the table claims.
func is[V comparable](t *testing.T, what string, got, want V) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// each runs do in n goroutines and waits for all of them.
func each(n int, do func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { do(i) })
	}
	all.Wait()
}

// rounds makes goroutines run in lockstep: each waits in step until all have
// reached it. It forces a race to happen.
type rounds struct {
	mu      sync.Mutex
	turn    *sync.Cond
	n, here int
	round   int
}

func newRounds(n int) *rounds {
	r := &rounds{n: n}
	r.turn = sync.NewCond(&r.mu)
	return r
}

func (r *rounds) step() {
	r.mu.Lock()
	defer r.mu.Unlock()
	round := r.round
	if r.here++; r.here == r.n {
		r.here = 0
		r.round++
		r.turn.Broadcast()
	}
	for r.round == round {
		r.turn.Wait()
	}
}

// paced is a client that delays the result of each get until all other callers have
// finished theirs. So all callers read before one of them writes.
type paced struct {
	recipes.Client
	r *rounds
}

func (p paced) Get(key string) (*memcache.Item, error) {
	i, err := p.Client.Get(key)
	p.r.step()
	return i, err
}

func TestSeeds(t *testing.T) {
	servers := []*testenv.Memcached{testenv.StartMemcached(t), testenv.StartMemcached(t), testenv.StartMemcached(t)}
	r := testenv.StartRingside(t, servers)
	r.Calm(t)
	killed := throughAKill(t, r, servers)
	s := &setting{through: testenv.Client(t, r.Address), r: r}
	var rows []row
	for _, run := range []scheme{keys, placement, locks, counters, views, periods, rebuilds, tags, logs, arrays, tables, rowsOfServers} {
		rows = append(rows, run(t, s)...)
	}
	show(os.Stdout, s, rows, killed)
	if *page == "" {
		current(t, rows)
	} else {
		if err := errors.Join(os.MkdirAll(filepath.Dir(*page), 0o755), os.WriteFile(*page, []byte(markdown(s, rows, killed)), 0o644)); err != nil {
			t.Error(err)
		}
	}
}

// current checks that the page in docs has the schemes of this test, as printed
// and as corrected. It ignores the last columns, which differ from run to run.
func current(t *testing.T, rows []row) {
	text, err := os.ReadFile("../../../docs/recipes.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if line := "| " + strings.Join(r.cells(nil)[:3], " | ") + " |"; !strings.Contains(string(text), line) {
			t.Errorf("docs/recipes.md lacks this line; `go generate ./recipes/examples/seeds` writes it:\n%s", line)
		}
	}
}

const head = "scheme\tas printed\tcorrected\tthrough a kill, one replica\tthrough a kill, two replicas\n"

func (r row) cells(killed map[string][2]string) []string {
	k := killed[r.kill]
	for i := range k {
		if k[i] == "" {
			k[i] = "–"
		}
	}
	return []string{r.scheme + " (" + r.seeds + ")", r.printed, r.corrected, k[0], k[1]}
}

// show prints the table for a terminal.
func show(to *os.File, s *setting, rows []row, killed map[string][2]string) {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, head)
	for _, r := range rows {
		fmt.Fprintln(w, strings.Join(r.cells(killed), "\t"))
	}
	fmt.Fprint(w, "\n"+rulesHead)
	for _, r := range s.rules {
		fmt.Fprintln(w, strings.Join(r, "\t"))
	}
	w.Flush()
}

const rulesHead = "client\tdistribution\tuser:0\tpage|#|0\t" + zeroKey + "\tuser:0, first server of weight 2\n"

// markdown returns the page of docs.
func markdown(s *setting, rows []row, killed map[string][2]string) string {
	var b strings.Builder
	b.WriteString(introduction)
	b.WriteString("| " + strings.ReplaceAll(strings.TrimSpace(head), "\t", " | ") + " |\n|---|---|---|---|---|\n")
	for _, r := range rows {
		b.WriteString("| " + strings.Join(r.cells(killed), " | ") + " |\n")
	}
	b.WriteString("\n## crc32 % n, eight times\n\nEleven servers, 10.0.0.11 to 10.0.0.1 in this order; `ringside route -c FILE KEY` with these distributions:\n\n")
	b.WriteString("| " + strings.ReplaceAll(strings.ReplaceAll(strings.TrimSpace(rulesHead), "|", "\\|"), "\t", " | ") + " |\n|---|---|---|---|---|---|\n")
	for _, r := range s.rules {
		b.WriteString("| " + strings.Join(r, " | ") + " |\n")
	}
	return b.String()
}

const introduction = `# Recipes: the schemes of four articles, as printed and corrected

Ringside began with four articles on memcached: a paper on caching (HighLoad++ 2008), a post with its chapters on counters, a post on data
structures (and a translation of its first half), and a post on a distributed counter. Their schemes are good, but many contain mistakes
that only appear under load. The package [recipes](../recipes/doc.go) implements corrected versions. The package
[recipes/examples/seeds](../recipes/examples/seeds) implements the schemes as printed.

The module ringside cannot be downloaded. To use the recipes in an application, clone this repository beside the application, run these commands, and
import "ringside/recipes":

    go mod edit -replace ringside=../ringside
    go get ringside/recipes

A test generates this page, with a Ringside instance in front of three memcached 1.6.18 servers:

    go test ./recipes/... -run Seeds -v      # prints the table
    go generate ./recipes/examples/seeds     # writes this page

How to read the table:

- The columns "as printed" and "corrected" show races that the test schedules. Their results are the same in every run.
- In the last two columns, the server of the scheme's key is killed during the load. With two replicas, it is the primary. It is ejected, and rejoins
  empty. These figures differ from run to run.
- A call is "sure" if it succeeded. A call that returned an error may have taken effect or not.
- The S-numbers identify the schemes within the project.
- A loop that "never ends" was stopped after 1,000 rounds.

Other tests cover a value that a Python program writes and a PHP program reads, and a PHP site with sessions. In both, a
server is killed: ` + "`go test ./internal/e2e -run 'TestBroadcast|TestSite'`" + `.

`
