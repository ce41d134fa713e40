package memnode

// node_test.go: the node as a whole: listeners, limits, pausing, closing, and test
// suites of other projects.

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
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

func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "node.sock")
	n := startNode(t, Options{Network: "unix", Address: path})
	socket, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	fmt.Fprint(socket, "version\r\nquit\r\n")
	if got, err := io.ReadAll(socket); string(got) != "VERSION 1.6.18\r\n" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	startNode(t, Options{Network: "unix", Address: path}) // the earlier node has removed its socket
}

func TestRefusedOptions(t *testing.T) {
	busy := startNode(t, Options{})
	for want, o := range map[string]Options{
		"needs a path":                  {Network: "unix"},
		"MaxItem is 1000 bytes":         {MaxItem: 1000},
		"MaxItem is 512 bytes":          {MemoryLimit: 1024},
		"more than half of MemoryLimit": {MemoryLimit: 4096, MaxItem: 4096},
		"MaxConns is -1":                {MaxConns: -1},
		"cannot listen":                 {Network: "carrier pigeon"},
		"address already in use":        {Address: busy.Addr().String()},
	} {
		if n, err := Start(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", o, err, want)
			if n != nil {
				n.Close()
			}
		}
	}
}

func TestMaxConns(t *testing.T) {
	n := startNode(t, Options{MaxConns: 1})
	first := dial(t, n.Addr().String())
	first.ask("")
	second := dial(t, n.Addr().String())
	if got, err := io.ReadAll(second); string(got) != "ERROR Too many open connections\r\n" {
		t.Errorf("%q, %v", got, err)
	}
	if got := first.ask("stats\r\n"); !strings.Contains(got, "STAT rejected_connections 1\r\n") {
		t.Errorf("the refusal is not counted:\n%s", got)
	}
	first.Write([]byte("quit\r\n"))
	io.ReadAll(first)
	// The connection count drops soon, because the goroutine of that connection
	// ends on its own.
	for {
		third := dial(t, n.Addr().String())
		third.Write([]byte("version\r\n"))
		if line, _ := bufio.NewReader(third).ReadString('\n'); line == "VERSION 1.6.18\r\n" {
			return
		}
		third.Close()
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
