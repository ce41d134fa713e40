package e2e

// This file tests the guard on keys with replicas.

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ringside/internal/testenv"
)

// guardedCopies returns guarded's configuration with two replicas of each key. A server
// that refuses connections is ejected at once; a slow one is not.
func guardedCopies(servers []*memcached, settings, more string) string {
	return front(servers, "failover: {ping: 200ms, lease: 2s, eject_after: {refused: 50ms, silent: 1m}}") +
		"routes:\n  - {pool: main, replicas: 2, replicas_on: server" + more + ", guard: " + settings + "}\n"
}

// TestGuardCopiesLateSets deletes keys through one instance while a client of another one
// rebuilds them. The outdated value must not be read from any replica.
func TestGuardCopiesLateSets(t *testing.T) {
	t.Parallel()
	for _, read := range []string{"first", "spread"} {
		t.Run(read, func(t *testing.T) {
			t.Parallel()
			servers := startMemcacheds(t, 3)
			config := guardedCopies(servers, "{"+patientGuard+"}", ", read: "+read)
			a := dial(t, startRingside(t, "auto", config).address)
			b := dial(t, startRingside(t, "portable", config).address)
			keys := 250
			if testenv.Full() {
				keys = 1000
			}
			for i := range keys {
				key := fmt.Sprint("k", i)
				if i%2 == 1 { // so that the key has an old value
					b.store(key, "old")
					b.ask("delete "+key, "DELETED")
				}
				a.misses(key)
				b.question("delete " + key)
				if answer := a.set(key, "late"); answer == "STORED" {
					t.Fatalf("%s: a set that came after a delete is answered STORED", key)
				}
				for range 3 { // the second get reads another replica; a repeated get by the lease holder misses at once
					if got, _ := b.get(key); got[key] == "late" {
						t.Fatalf("%s: a set that came after a delete was stored", key)
					}
				}
			}
		})
	}
}

// TestGuardCopiesHerd has many clients of two instances read missing keys, and then kills
// a server. A rebuilt value is then read from the other replica. Each instance may
// rebuild a page at most once more.
func TestGuardCopiesHerd(t *testing.T) {
	t.Parallel()
	servers := startMemcacheds(t, 3)
	config := guardedCopies(servers, "{"+patientGuard+"}", "")
	rs := []*ringside{startRingside(t, "auto", config), startRingside(t, "auto", config)}
	o := newOrigin(200 * time.Millisecond)
	read := func(c *conn, key string) {
		got, _ := c.get(key)
		if got[key] == "" {
			c.store(key, o.rebuild(key))
		}
	}
	const keys = 12
	round := func(clients int, until func() bool) {
		var all sync.WaitGroup
		for i := range clients {
			all.Add(1)
			go func() {
				defer all.Done()
				c := dial(t, rs[i%2].address)
				for n := i; ; n++ {
					for k := range keys {
						read(c, fmt.Sprint("page", (k+n)%keys))
					}
					if until() {
						return
					}
				}
			}()
		}
		all.Wait()
	}
	round(20, func() bool { return true })
	for k := range keys {
		if n := o.rounds[fmt.Sprint("page", k)]; n != 1 {
			t.Errorf("page%d was made %d times by 20 clients, want once", k, n)
		}
	}
	// Clients continue to read for some rounds after all instances have ejected the
	// server.
	var rounds, enough atomic.Int64
	enough.Store(math.MaxInt64)
	var killing sync.WaitGroup
	killing.Go(func() {
		eventually(t, "clients read", func() bool { return rounds.Load() > 50 })
		servers[0].Kill()
		for _, r := range rs {
			eventually(t, "the server is out", func() bool { return r.phase(servers[0].address) == "OUT" })
		}
		enough.Store(rounds.Load() + 200)
	})
	round(8, func() bool {
		time.Sleep(5 * time.Millisecond)
		return rounds.Add(1) > enough.Load() || t.Failed()
	})
	killing.Wait()
	for k := range keys {
		if n := o.rounds[fmt.Sprint("page", k)]; n > 1+len(rs) {
			t.Errorf("page%d was made %d times, want at most %d: once, and once more by each instance when a server was killed", k, n, 1+len(rs))
		}
	}
	t.Logf("made: %v", o.rounds)
}
