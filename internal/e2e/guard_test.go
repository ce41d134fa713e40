package e2e

// This file tests the guard: one rebuild at a time, for clients that know only get, set
// and delete.

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// patientGuard are guard settings with which no wait or lease expires, however busy the
// machine is.
const patientGuard = "wait: 19s, lease: 1h, lease_max: 1h"

// guarded returns front's configuration with one route, which has a guard with these
// settings.
func guarded(servers []*memcached, settings string) string {
	return front(servers) + "routes:\n  - {pool: main, guard: " + settings + "}\n"
}

// count returns the sum of a metric over its labels.
func (r *ringside) count(t testing.TB, metric string) (sum int) {
	t.Helper()
	_, text := r.page(t, "/metrics")
	for _, m := range regexp.MustCompile(`(?m)^`+metric+`(?:\{.*\})? (\S+)$`).FindAllStringSubmatch(text, -1) {
		n, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += int(n)
	}
	return sum
}

// origin is a slow source of values. It counts rebuilds.
type origin struct {
	cost             time.Duration
	mu               sync.Mutex
	at, most, rounds map[string]int
}

func newOrigin(cost time.Duration) *origin {
	return &origin{cost: cost, at: map[string]int{}, most: map[string]int{}, rounds: map[string]int{}}
}

func (o *origin) rebuild(key string) string {
	o.mu.Lock()
	o.at[key]++
	o.rounds[key]++
	o.most[key] = max(o.most[key], o.at[key])
	n := o.rounds[key]
	o.mu.Unlock()
	time.Sleep(o.cost)
	o.mu.Lock()
	o.at[key]--
	o.mu.Unlock()
	return fmt.Sprintf("%s/%d", key, n)
}

// TestGuardHerd has many clients read one missing key, through one instance and through
// four. Only one client must rebuild it.
func TestGuardHerd(t *testing.T) {
	t.Parallel()
	for _, ringsides := range []int{1, 4} {
		t.Run(fmt.Sprint(ringsides), func(t *testing.T) {
			t.Parallel()
			servers := startMemcacheds(t, 2)
			var rs []*ringside
			for range ringsides {
				rs = append(rs, startRingside(t, "auto", guarded(servers, "{"+patientGuard+"}")))
			}
			o := newOrigin(300 * time.Millisecond)
			for round := range 3 {
				key := fmt.Sprint("page", round)
				var all sync.WaitGroup
				for i := range 50 {
					all.Add(1)
					go func() {
						defer all.Done()
						c := dial(t, rs[i%ringsides].address)
						got, _ := c.get(key)
						if got[key] == "" {
							c.store(key, o.rebuild(key))
							return
						}
						if want := key + "/1"; got[key] != want {
							t.Errorf("%s holds %q, want %q", key, got[key], want)
						}
					}()
				}
				all.Wait()
				if n := o.rounds[key]; n != 1 {
					t.Errorf("%s was rebuilt %d times by 50 clients", key, n)
				}
			}
			wins := 0
			for _, r := range rs {
				wins += r.count(t, "ringside_guard_leases_total")
			}
			if wins != 3 {
				t.Errorf("%d wins, want 3", wins)
			}
		})
	}
}

// TestGuardWinnerDies closes the connection of the client that holds the lease. One of
// the waiting clients must get the lease at once.
func TestGuardWinnerDies(t *testing.T) {
	t.Parallel()
	r := startRingside(t, "auto", guarded(startMemcacheds(t, 1), "{"+patientGuard+"}"))
	first := dial(t, r.address)
	first.misses("k")
	var told atomic.Int64
	var all sync.WaitGroup
	for range 5 {
		all.Add(1)
		go func() {
			defer all.Done()
			c := dial(t, r.address)
			if got, _ := c.get("k"); got["k"] == "" {
				told.Add(1)
				c.store("k", "v")
			}
		}()
	}
	eventually(t, "five wait", func() bool { return r.count(t, "ringside_guard_waiting") == 5 })
	first.Close()
	all.Wait()
	if n := told.Load(); n != 1 {
		t.Errorf("%d clients were told to rebuild when the first had gone, want 1", n)
	}
}

// TestGuardLateSets deletes keys through one instance while a client of another one
// rebuilds them. The outdated value must not be stored.
func TestGuardLateSets(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"", "stale: 1h, ", "clients: shared, ", "clients: pooled, sets: after_miss, "} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			settings := "{" + kind + patientGuard + "}"
			servers := startMemcacheds(t, 2)
			a := dial(t, startRingside(t, "auto", guarded(servers, settings)).address)
			b := dial(t, startRingside(t, "auto", guarded(servers, settings)).address)
			for i := range 1000 {
				key := fmt.Sprint("k", i)
				if i%2 == 1 { // so that the key has an old value
					b.misses(key)
					b.store(key, "old")
					b.ask("delete "+key, "DELETED")
				}
				a.misses(key)
				b.question("delete " + key)
				if answer := a.set(key, "late"); answer == "STORED" {
					t.Fatalf("%s: a set that came after a delete is answered STORED", key)
				}
				if got, _ := b.get(key); got[key] == "late" {
					t.Fatalf("%s: a set that came after a delete was stored", key)
				}
			}
		})
	}
}

// TestGuardAdds has many clients add a key that they missed. Only one add must be stored.
func TestGuardAdds(t *testing.T) {
	t.Parallel()
	servers := startMemcacheds(t, 1)
	for _, wait := range []string{"400ms", "off"} { // clients that stopped waiting add the key too
		r := startRingside(t, "auto", guarded(servers, "{wait: "+wait+"}"))
		for round := range 5 {
			key := fmt.Sprint("add", wait, round)
			var stored, missed atomic.Int64
			var all sync.WaitGroup
			for range 20 {
				all.Add(1)
				go func() {
					defer all.Done()
					c := dial(t, r.address)
					if got, _ := c.get(key); got[key] != "" {
						return
					}
					missed.Add(1)
					if c.question(fmt.Sprintf("add %s 0 0 1\r\nx", key)) == "STORED" {
						stored.Add(1)
					}
				}()
			}
			all.Wait()
			if stored.Load() != 1 {
				t.Errorf("wait %s: %d of %d adds were stored, want 1", wait, stored.Load(), missed.Load())
			}
		}
	}
}

// TestGuardStale reads a value while it is rebuilt. Only the client that rebuilds it
// misses; the others read the old value without waiting.
func TestGuardStale(t *testing.T) {
	t.Parallel()
	r := startRingside(t, "auto", guarded(startMemcacheds(t, 1), "{stale: 1h, "+patientGuard+"}"))
	a, b := dial(t, r.address), dial(t, r.address)
	a.ask("set k 7 3600 3\r\nold", "STORED")
	a.ask("delete k", "DELETED")
	a.ask("delete k", "NOT_FOUND")
	a.ask("append k 0 0 1\r\nx", "NOT_STORED")
	a.ask("touch k 5", "NOT_FOUND")
	a.misses("k") // a gets the lease
	b.holds("k", "old")
	b.ask("incr k 1", "NOT_FOUND")
	a.store("k", "new")
	b.holds("k", "new")
	if n := r.count(t, "ringside_guard_stale_served_total"); n != 1 {
		t.Errorf("%d old values were served, want 1", n)
	}
}

// TestGuardClients runs the checks of real clients of all languages on a guarded route.
// They must pass as on a plain route. It leaves out clients that get a key, delete it and
// set it in a check: the guard does not store such a set.
func TestGuardClients(t *testing.T) {
	t.Parallel()
	unordered, _ := split(clients)
	unordered = slices.DeleteFunc(unordered, func(c client) bool { return c.name == "python-memcache" || c.name == "bmemcached" })
	runClients(t, startRingside(t, "auto", guarded(startMemcacheds(t, 3), "{wait: off}")).address, unordered)
}
