package e2e

// The guard on keys of several copies.

import (
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// guardedCopies is guarded with two copies of each key.
func guardedCopies(servers []*memcached, settings, more string) string {
	return front(servers, "failover: {ping: 200ms, lease: 2s, eject_after: 50ms}") +
		"routes:\n  - {pool: main, replicas: 2, copies_on: server" + more + ", guard: " + settings + "}\n"
}

// TestGuardCopiesLateSets deletes keys while clients rebuild them, through another
// Ringside: what they have read before is never read again, at whichever copy.
func TestGuardCopiesLateSets(t *testing.T) {
	for _, read := range []string{"first", "spread"} {
		t.Run(read, func(t *testing.T) {
			t.Parallel()
			servers := startMemcacheds(t, 3)
			config := guardedCopies(servers, "true", ", read: "+read)
			a := dial(t, startRingside(t, "auto", config).address)
			b := dial(t, startRingside(t, "portable", config).address)
			for i := range 1000 {
				key := fmt.Sprint("k", i)
				if i%2 == 1 { // there is an old value
					b.store(key, "old")
					b.ask("delete "+key, "DELETED")
				}
				a.misses(key)
				b.question("delete " + key)
				if answer := a.set(key, "late"); answer == "STORED" {
					t.Fatalf("%s: a set that came after a delete is answered STORED", key)
				}
				for range 3 { // the second is of another copy; who asks again for what it is to rebuild misses at once
					if got, _ := b.get(key); got[key] == "late" {
						t.Fatalf("%s: a set that came after a delete was stored", key)
					}
				}
			}
		})
	}
}

// TestGuardCopiesHerd lets many clients meet missing keys through two Ringsides, and then
// kills a server: what was made is read from the other copy, and made once more at most
// by each Ringside.
func TestGuardCopiesHerd(t *testing.T) {
	servers := startMemcacheds(t, 3)
	config := guardedCopies(servers, "{wait: 1500ms}", "")
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
	var over atomic.Bool
	time.AfterFunc(300*time.Millisecond, func() { servers[0].signal(t, syscall.SIGKILL) })
	time.AfterFunc(4*time.Second, func() { over.Store(true) })
	round(8, func() bool { time.Sleep(5 * time.Millisecond); return over.Load() })
	for k := range keys {
		if n := o.rounds[fmt.Sprint("page", k)]; n > 1+len(rs) {
			t.Errorf("page%d was made %d times, want at most %d: once, and once more by each Ringside when a server was killed", k, n, 1+len(rs))
		}
	}
	t.Logf("made: %v", o.rounds)
}
