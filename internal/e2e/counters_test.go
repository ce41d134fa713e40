package e2e

// This file tests counters that are created by their first increment.

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// count sends n increments of key over one connection to address. It returns how many
// replies were numbers, and how many were errors.
func count(address, key string, n int, stop <-chan struct{}) (counted, unsure int, err error) {
	c, err := dialError(address)
	if err != nil {
		return 0, 0, err
	}
	defer c.Close()
	r := bufio.NewReader(c)
	for range n {
		select {
		case <-stop:
			return counted, unsure, nil
		default:
		}
		c.SetDeadline(time.Now().Add(patience))
		if _, err := io.WriteString(c, "incr "+key+" 1\r\n"); err != nil {
			return counted, unsure, err
		}
		line, err := r.ReadString('\n')
		if err != nil {
			return counted, unsure, err
		}
		if _, err := strconv.ParseUint(strings.TrimSuffix(line, "\r\n"), 10, 64); err == nil {
			counted++
		} else if unsure++; !strings.HasPrefix(line, "SERVER_ERROR ") {
			return counted, unsure, fmt.Errorf("incr got %q", line)
		}
	}
	return counted, unsure, nil
}

// countAll runs count in several concurrent clients, spread over fronts.
func countAll(t testing.TB, fronts []*ringside, key string, clients, each int, stop <-chan struct{}) (counted, unsure int) {
	t.Helper()
	var wg sync.WaitGroup
	var mu sync.Mutex
	for i := range clients {
		wg.Go(func() {
			n, m, err := count(fronts[i%len(fronts)].address, key, each, stop)
			mu.Lock()
			defer mu.Unlock()
			counted, unsure = counted+n, unsure+m
			if err != nil {
				t.Errorf("client %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	return counted, unsure
}

// TestFirstViews has 1,000 clients increment a new counter at the same time. One case
// does so through two instances that write a counter with two replicas.
func TestFirstViews(t *testing.T) {
	t.Parallel()
	const copies = ", replicas: 2, replicas_on: server"
	const views = 300 // they run one after another within the deadline, also on a busy machine
	for _, c := range []struct {
		name, route string
		ringsides   int
	}{{"one replica", "", 2}, {"two replicas", copies, 1}, {"two replicas of two", copies, 2}} {
		t.Run(c.name, func(t *testing.T) {
			config := front(startMemcacheds(t, 3)) + fmt.Sprintf("routes: [{pool: main, autocreate: {initial: 5, ttl: 1h}%s}]\n", c.route)
			var fronts []*ringside
			for range c.ringsides {
				fronts = append(fronts, startRingside(t, "auto", config))
			}
			for page := range 3 {
				key := fmt.Sprint("page", page)
				counted, unsure := countAll(t, fronts, key, views, 1, nil)
				if counted != views {
					t.Fatalf("%d were counted and %d were not answered, want all of %d", counted, unsure, views)
				}
				for _, r := range fronts {
					dial(t, r.address).within(key, 5+counted, unsure)
				}
			}
		})
	}
}

// within checks that a counter shows at least counted, and at most counted plus unsure.
func (c *conn) within(key string, counted, unsure int) {
	c.t.Helper()
	values, end := c.get(key)
	shown, err := strconv.Atoi(values[key])
	if err != nil {
		c.t.Fatalf("the counter is gone: %q %q", values, end)
	}
	if shown < counted || shown > counted+unsure {
		c.t.Errorf("%d is shown, want %d that were counted and at most %d that were not answered", shown, counted, unsure)
	}
}

// TestCountersThroughAKill kills the primary of a counter with two replicas, while
// clients of two instances count from its creation on. Every acknowledged increment must
// be counted, and none twice.
func TestCountersThroughAKill(t *testing.T) {
	t.Parallel()
	for _, consistency := range []string{"strict", "relaxed"} {
		t.Run(consistency, func(t *testing.T) { countThroughAKill(t, consistency) })
	}
}

func countThroughAKill(t testing.TB, consistency string) {
	servers := startMemcacheds(t, 3)
	config := front(servers, "failover: {mode: rehash, lease: 1s, ping: 250ms, eject_after: {refused: 50ms, silent: 1m}, wait: 4s, consistency: "+consistency+"}", unhurriedReturn) +
		"routes: [{pool: main, autocreate: on, replicas: 2, replicas_on: server}]\n"
	fronts := []*ringside{startRingside(t, "auto", config), startRingside(t, "auto", config)}
	const key = "views"
	first := fronts[0].members(t, servers, key)[key][0]
	watcher := dial(t, fronts[1].address)
	shown := func() int {
		values, _ := watcher.get(key)
		n, _ := strconv.Atoi(values[key])
		return n
	}
	more := func() {
		t.Helper()
		goal := shown() + 100
		eventually(t, "the counter grows", func() bool { return shown() >= goal })
	}
	stop := make(chan struct{})
	var clients sync.WaitGroup
	var counted, unsure int
	clients.Go(func() { counted, unsure = countAll(t, fronts, key, 16, 1_000_000, stop) })
	end := sync.OnceFunc(func() { close(stop); clients.Wait() })
	defer end()
	more()
	first.Kill()
	for _, r := range fronts {
		eventually(t, "the server is out", func() bool { return r.phase(first.address) == "OUT" })
	}
	more()
	end()
	watcher.within(key, counted, unsure)
}

// TestBufferedCounters counts through four instances that buffer increments. All
// increments must reach the server, including those buffered in an instance at shutdown.
// An instance that is killed may lose those of the last interval. No increment may be
// counted twice.
func TestBufferedCounters(t *testing.T) {
	t.Parallel()
	server := startMemcached(t)
	config := front([]*memcached{server}) + "engine: {loops: 2}\nroutes: [{pool: main, autocreate: on, buffer: {every: 500ms}}]\n"
	var fronts []*ringside
	for range 4 {
		fronts = append(fronts, startRingside(t, "auto", config))
	}
	behind := dial(t, server.address)
	arrives := func(key string, want int) {
		t.Helper()
		for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
			values, _ := behind.get(key)
			if values[key] == strconv.Itoa(want) {
				return
			} else if time.Now().After(end) {
				t.Fatalf("the server has %q of %s, want %d", values[key], key, want)
			}
		}
	}
	if counted, unsure := countAll(t, fronts, "total", 64, 200, nil); counted != 64*200 {
		t.Fatalf("%d were counted and %d not answered, want all of %d", counted, unsure, 64*200)
	}
	arrives("total", 64*200)

	ending := fronts[3]
	if counted, _ := countAll(t, fronts[3:], "ending", 8, 100, nil); counted != 800 {
		t.Fatalf("%d were counted, want 800", counted)
	}
	ending.signal(t, syscall.SIGTERM)
	if status := ending.wait(t); status != 0 {
		t.Fatalf("it ended with status %d", status)
	}
	arrives("ending", 800)

	// One connection, so that the count is known up to the kill. Increments that were
	// flushed by then must stay. The conversation counters-buffer covers how long
	// increments wait for a flush.
	c := dial(t, fronts[0].address)
	counted := 0
	add := func() {
		t.Helper()
		c.send("incr killed 1\r\n")
		counted++
		if line := c.line(); line != strconv.Itoa(counted) {
			t.Fatalf("increment %d got %q: the estimate of one instance alone is exact", counted, line)
		}
	}
	has := func() int {
		values, _ := behind.get("killed")
		n, _ := strconv.Atoi(values["killed"])
		return n
	}
	for range 3 {
		goal := counted + 100
		eventually(t, "increments are flushed while more come", func() bool { add(); return has() >= goal })
	}
	flushed := has()
	fronts[0].Kill()
	if n := has(); n < flushed || n > counted {
		t.Errorf("the server has %d, want at least the %d it had before the kill and at most the %d counted", n, flushed, counted)
	} else {
		t.Logf("%d were counted, %d are lost", counted, counted-n)
	}
}
