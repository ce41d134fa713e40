package memnode

// node_test.go: the node as a whole: limits, closing, and test
// suites of other projects.

import (
	"fmt"
	"net"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"ringside/internal/testenv"
)

func TestMemccapable(t *testing.T) {
	n := startNode(t, Options{})
	host, port, _ := net.SplitHostPort(n.Addr().String())
	out, err := exec.Command("memccapable", "-h", host, "-p", port, "-a").CombinedOutput()
	if passed := strings.Count(string(out), "[pass]"); err != nil || passed != 27 {
		t.Errorf("%d of 27 tests passed, %v (is libmemcached-tools installed?)\n%s", passed, err, out)
	}
}

func TestLargeMaxItem(t *testing.T) {
	if _, err := Start(Options{MemoryLimit: 4096, MaxItem: 4096}); err == nil || !strings.Contains(err.Error(), "more than half of MemoryLimit") {
		t.Error(err)
	}
}

// TestClose checks that Close ends everything, whatever the connections are doing.
func TestClose(t *testing.T) {
	before := runtime.NumGoroutine()
	n, err := Start(Options{})
	if err != nil {
		t.Fatal(err)
	}
	idle, waiting, deaf := dial(t, n.Addr().String()), dial(t, n.Addr().String()), dial(t, n.Addr().String())
	idle.ask("")
	waiting.ask("")
	fmt.Fprintf(waiting, "set k 0 0 100\r\nhalf of")
	fmt.Fprintf(deaf, "set k 0 0 1000000\r\n%s\r\n", strings.Repeat("v", 1000000))
	for range 50 { // it never reads, so the node's send blocks
		fmt.Fprint(deaf, "get k\r\n")
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	if err := n.Close(); err != nil {
		t.Error("closed twice:", err)
	}
	if _, err := net.Dial("tcp", n.Addr().String()); err == nil {
		t.Error("it still listens")
	}
	for end := time.Now().Add(testenv.Hang); runtime.NumGoroutine() > before; {
		if time.Now().After(end) {
			stacks := make([]byte, 1<<16)
			t.Fatalf("goroutines left:\n%s", stacks[:runtime.Stack(stacks, true)])
		}
		time.Sleep(time.Millisecond)
	}
}

// TestConcurrent runs clients that compete for one key. It is most useful with
// -race.
func TestConcurrent(t *testing.T) {
	const clients, rounds = 8, 200
	n := startNode(t, Options{})
	dial(t, n.Addr().String()).ask("set n 0 0 1\r\n0\r\nset c 0 0 1\r\n0\r\n")
	var all sync.WaitGroup
	for range clients {
		c := dial(t, n.Addr().String())
		all.Go(func() {
			version := regexp.MustCompile(` (\d+)\r\n(\d+)`)
			for range rounds {
				c.ask("incr n 1\r\nmg n v c t N30 h l\r\nappend log 0 0 1\r\nx\r\nstats\r\n")
				for {
					m := version.FindStringSubmatch(c.ask("gets c\r\n"))
					var number int
					fmt.Sscan(m[2], &number)
					next := fmt.Sprint(number + 1)
					if c.ask(fmt.Sprintf("cas c 0 0 %d %s\r\n%s\r\n", len(next), m[1], next)) == "STORED\r\n" {
						break
					}
				}
			}
		})
	}
	all.Wait()
	want := fmt.Sprint(clients * rounds)
	for _, key := range []string{"n", "c"} {
		if got := dial(t, n.Addr().String()).ask("get " + key + "\r\n"); !strings.Contains(got, "\r\n"+want+"\r\n") {
			t.Errorf("%s is %q, want %s: a step was lost", key, got, want)
		}
	}
}

func TestStats(t *testing.T) {
	n := startNode(t, Options{MemoryLimit: 8 << 20, Version: "1.4.0"})
	c := dial(t, n.Addr().String())
	c.ask("set k 0 0 3\r\nabc\r\nget k nothing\r\n")
	line := regexp.MustCompile(`^(STAT \S+ \S+|END)$`)
	for topic, want := range map[string]string{
		"":         "STAT version 1.4.0",
		"settings": "STAT maxbytes 8388608",
		"items":    "STAT items:1:number 1",
		"slabs":    "STAT active_slabs 1",
		"sizes":    "STAT sizes_status disabled",
	} {
		got := c.ask("stats " + topic + "\r\n")
		for _, l := range strings.Split(strings.TrimSuffix(got, "\r\n"), "\r\n") {
			if !line.MatchString(l) {
				t.Errorf("stats %s has the line %q", topic, l)
			}
		}
		if !strings.Contains(got, want+"\r\n") || !strings.HasSuffix(got, "\r\nEND\r\n") {
			t.Errorf("stats %s lacks %q or its end:\n%s", topic, want, got)
		}
	}
	if got := c.ask("stats reset\r\nstats\r\n"); !strings.HasPrefix(got, "RESET\r\n") || !strings.Contains(got, "STAT get_hits 0\r\n") || !strings.Contains(got, "STAT curr_items 1\r\n") {
		t.Errorf("after stats reset:\n%s", got)
	}
}
