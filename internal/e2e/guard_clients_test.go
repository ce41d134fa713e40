package e2e

// This file tests the guard with clients of other languages, which do not know about it.

import (
	"context"
	"flag"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// herdClients is set by make soak, which measures. The tests only check that it works.
var herdClients = flag.Int("herd", 0, "clients that read one page on a guarded route, for half a minute; 0: a few, for a moment")

// herd describes how many clients read a page, and how.
type herd struct {
	clients   int // a quarter of them in each language
	time      time.Duration
	cost      time.Duration // duration of a rebuild
	ttl       int           // expiry of the page in seconds
	ringsides []int
}

func usualHerd() herd {
	if *herdClients == 0 {
		return herd{clients: 12, time: 1800 * time.Millisecond, cost: 200 * time.Millisecond, ttl: 1, ringsides: []int{4}}
	}
	return herd{clients: *herdClients, time: 30 * time.Second, cost: 500 * time.Millisecond, ttl: 2, ringsides: []int{1, 4}}
}

// unhurriedPool sets timeouts that a busy machine does not exceed.
const unhurriedPool = "timeouts: {connect: 2m, request: 2m, deadline: 2m}"

// crowd collects what the clients of one page did.
type crowd struct {
	mu    sync.Mutex
	made  [][2]float64 // start and end of each rebuild, in Unix seconds
	reads []float64    // read times in ms
}

// atOnce returns the largest number of concurrent rebuilds.
func (c *crowd) atOnce() (most int) {
	for _, a := range c.made {
		n := 0
		for _, b := range c.made {
			if b[0] <= a[0] && a[0] < b[1] {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// rounds returns the number of rebuilds, counting overlapping ones as one.
func (c *crowd) rounds() (n int) {
	slices.SortFunc(c.made, func(a, b [2]float64) int { return int(a[0]*1000) - int(b[0]*1000) })
	end := 0.0
	for _, m := range c.made {
		if m[0] >= end {
			n++
		}
		end = max(end, m[1])
	}
	return n
}

func (c *crowd) String() string {
	slices.Sort(c.reads)
	if len(c.reads) == 0 {
		return fmt.Sprintf("made %d times", len(c.made))
	}
	at := func(part float64) float64 { return c.reads[int(part*float64(len(c.reads)-1))] }
	return fmt.Sprintf("made %d times in %d rounds, %d at once; %d reads, p50 %.2f ms, p99 %.2f ms, longest %.0f ms",
		len(c.made), c.rounds(), c.atOnce(), len(c.reads), at(0.5), at(0.99), at(1))
}

// gather runs clients of four languages that read one page. The clients of each language
// connect to another one of rs.
func (h herd) gather(t testing.TB, rs []*ringside, key string) *crowd {
	t.Helper()
	c := &crowd{}
	var all sync.WaitGroup
	for i, run := range [][]string{{"/usr/bin/python3", "herd.py"}, {"ruby", "herd.rb"}, {"php", "herd.php"}} {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), h.time+2*time.Minute)
			defer cancel()
			p := exec.CommandContext(ctx, run[0], append(run[1:], rs[i%len(rs)].address, key, fmt.Sprint(h.clients/4),
				fmt.Sprint(h.time.Seconds()), fmt.Sprint(h.cost.Seconds()), fmt.Sprint(h.ttl))...)
			p.Dir = filepath.Join("testdata", "herd")
			out, err := p.CombinedOutput()
			if err != nil {
				t.Errorf("%v: %v\n%s", run, err, out)
			}
			c.add(t, string(out))
		})
	}
	for range h.clients / 4 {
		all.Go(func() { c.add(t, h.read(t, rs[3%len(rs)], key)) })
	}
	all.Wait()
	return c
}

// read is a Go client that does the same as herd.py and returns the same output.
func (h herd) read(t testing.TB, r *ringside, key string) string {
	var said strings.Builder
	k := dial(t, r.address)
	var reads []string
	for until := time.Now().Add(h.time); time.Now().Before(until); {
		before := time.Now()
		if got, _ := k.get(key); got[key] != "" {
			reads = append(reads, fmt.Sprint(float64(time.Since(before))/1e6))
			time.Sleep(50 * time.Millisecond)
			continue
		}
		begun := time.Now()
		time.Sleep(h.cost)
		made := time.Now()
		k.ask(fmt.Sprintf("set %s 0 %d 4\r\npage", key, h.ttl), "STORED")
		fmt.Fprintf(&said, "made %.6f %.6f\n", float64(begun.UnixNano())/1e9, float64(made.UnixNano())/1e9)
	}
	return said.String() + "read " + strings.Join(reads, " ") + "\n"
}

// add parses the output of a program.
func (c *crowd) add(t testing.TB, said string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for line := range strings.Lines(said) {
		var numbers []float64
		words := strings.Fields(line)
		for _, w := range words[min(1, len(words)):] {
			n, err := strconv.ParseFloat(w, 64)
			if err != nil {
				t.Errorf("a client says %q", line)
				return
			}
			numbers = append(numbers, n)
		}
		switch {
		case len(words) == 3 && words[0] == "made":
			c.made = append(c.made, [2]float64{numbers[0], numbers[1]})
		case len(words) > 0 && words[0] == "read":
			c.reads = append(c.reads, numbers...)
		default:
			t.Errorf("a client says %q", line)
		}
	}
}

// TestGuardOfClients runs clients of four languages, which know only get and set, on one
// page. With a guard, one client at a time rebuilds the page; without one, several do.
func TestGuardOfClients(t *testing.T) {
	if *herdClients == 0 {
		t.Parallel()
	}
	h := usualHerd()
	for _, ringsides := range h.ringsides {
		config := front(startMemcacheds(t, 2), unhurriedPool) + `routes:
  - {prefix: "plain:", pool: main}
  - {prefix: "guarded:", pool: main, guard: {wait: 110s, lease: 1h, lease_max: 1h}}
  - {prefix: "stale:", pool: main, guard: {wait: 110s, lease: 1h, lease_max: 1h, stale: 1h}}
`
		var rs []*ringside
		for range ringsides {
			rs = append(rs, startRingside(t, "auto", config))
		}
		for _, key := range []string{"plain:page", "guarded:page", "stale:page"} {
			t.Run(fmt.Sprintf("%d %s", ringsides, key), func(t *testing.T) {
				if *herdClients == 0 {
					t.Parallel()
				}
				guarded := !strings.HasPrefix(key, "plain:")
				for end := time.Now().Add(patience); ; {
					c := h.gather(t, rs, key)
					t.Log(c)
					if guarded && c.atOnce() > 1 {
						t.Errorf("%d clients made it at once", c.atOnce())
					}
					// Without overlapping reads a round shows nothing, so it is repeated.
					if len(c.made) > 0 && len(c.reads) > 0 && (guarded || c.atOnce() > 1) || t.Failed() {
						break
					}
					if time.Now().After(end) {
						t.Fatal("nobody has made it, or read it, or without a guard only one client made it at a time")
					}
				}
			})
		}
	}
}

// TestGuardDjango runs threads of a Django application that call get_or_set for a missing
// key. It gets the key, creates the value and adds it. Only one add must be stored.
func TestGuardDjango(t *testing.T) {
	t.Parallel()
	r := startRingside(t, "auto", guarded(startMemcacheds(t, 2), "{wait: off}"))
	p := exec.CommandContext(t.Context(), "/usr/bin/python3", filepath.Join("testdata", "herd", "getorset.py"), r.address, "k", "20")
	out, err := p.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	values := map[string]int{}
	for line := range strings.Lines(string(out)) {
		values[strings.TrimSpace(line)]++
	}
	if values["stored"] != 1 || len(values) != 2 {
		t.Errorf("want one add that is stored, and one value for all:\n%s", out)
	}
}
