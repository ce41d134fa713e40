package instance

// Tests of the log lines about limits that are reached.

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"ringside/config"
	"ringside/proxy/stats"
	"ringside/proxy/table"
)

func TestBoundLog(t *testing.T) {
	var out bytes.Buffer
	b := boundLog{slog.New(slog.NewTextHandler(&out, nil)), map[string]*saidBound{}}
	start := time.Now()
	at := func(seconds int, is stats.Bounds) string {
		out.Reset()
		b.check(is, start.Add(time.Duration(seconds)*time.Second))
		return out.String()
	}
	if got := at(0, stats.Bounds{}); got != "" {
		t.Errorf("nothing was reached: %s", got)
	}
	if got := at(1, stats.Bounds{Clients: 500}); !strings.Contains(got, "limits.clients reached\" count=500\n") {
		t.Errorf("the first is said at once: %s", got)
	}
	for i := 2; i < 11; i++ {
		if got := at(i, stats.Bounds{Clients: uint64(500 + i)}); got != "" {
			t.Errorf("after %d s: %s", i, got)
		}
	}
	if got := at(11, stats.Bounds{Clients: 510}); !strings.Contains(got, "count=10\n") || strings.Count(got, "\n") != 1 {
		t.Errorf("ten seconds on, those since are said: %s", got)
	}
	if got := at(30, stats.Bounds{Clients: 510}); got != "" {
		t.Errorf("it was not reached again: %s", got)
	}
	got := at(60, stats.Bounds{Clients: 510, Descriptors: 1, Output: 2, Unfinished: 5, Memory: 3, Values: 4, TooLarge: 6, Servers: map[string]stats.ServerBounds{
		"a": {Queue: 1}, "b": {Queue: 7, Shed: 1}, "c": {Queue: 7}}})
	for _, want := range []string{"raise the limit of open files (ulimit -n, LimitNOFILE), or lower limits.clients\" count=1\n", "limits.output_hard reached\" count=2\n",
		"limits.unfinished reached\" count=5\n", "closed: limits.memory reached\" count=3\n", "values rejected: limits.memory reached\" count=4\n", "longer than limits.value; raise it if the servers accept more (memcached -I)\" count=6\n",
		"the queue of a server is full\" count=15 most_at=b\n", "requests to servers rejected: limits.memory reached\" count=1 most_at=b\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("it lacks %q:\n%s", want, got)
		}
	}
	if strings.Count(got, "\n") != 8 {
		t.Errorf("eight bounds, a line each:\n%s", got)
	}
}

func TestFilesBeside(t *testing.T) {
	server := func(n int) table.Target {
		return table.Target{Network: "tcp", Address: fmt.Sprint("10.0.0.", n, ":11211")}
	}
	one := &table.Pool{Connections: 1, Servers: []table.Target{server(1), server(2)}}
	two := &table.Pool{Connections: 4, Servers: []table.Target{server(2)}}
	all := &table.Table{Pools: []*table.Pool{one, two}, Listeners: make([]table.Listener, 2)}
	f, err := config.Parse("f", []byte("listen: :1\npools: {m: {distribution: ketama, servers: [dns+a:1, dnssrv+b, file+/c]}}"))
	if err != nil {
		t.Fatal(err)
	}
	for files, ofAdmin := range map[int]int{1 << 20: 256 + 16, 1024: 128, 200: 32} {
		if got, want := filesBeside(f, all, 3, files), 32+ofAdmin+3*(8+64)+2*2*3+3*(2+5)+3+16+3; got != want {
			t.Errorf("with %d files: %d, want %d", files, got, want)
		}
	}
}

// TestLogLinesWait checks that the log of an instance waits for its reader without delaying its writer, drops what is too
// much, and says so.
func TestLogLinesWait(t *testing.T) {
	r, w := io.Pipe()
	var q *lineQueue
	q = newLineQueue(w, func(n uint64) { fmt.Fprintf(q, "%d dropped\n", n) })
	for i := range mostLines + 500 {
		fmt.Fprintf(q, "line %d\n", i)
	}
	lines, dropped := bufio.NewScanner(r), 0
	n := 0
	for dropped == 0 && lines.Scan() {
		if _, err := fmt.Sscanf(lines.Text(), "%d dropped", &dropped); err != nil {
			n++
		}
	}
	if n+dropped != mostLines+500 || dropped < 499 {
		t.Errorf("%d lines were written and %d dropped", n, dropped)
	}
	go q.close()
	go io.Copy(io.Discard, r)
	<-q.written
}
