package e2e

// This file tests the guard under many faults at once: several instances with several
// loops, deletes, slow rebuilds, clients that disconnect, and a server that is killed.

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestGuardStorm checks every value read: it must not be older than the last delete of
// its key that was acknowledged before the get was sent.
func TestGuardStorm(t *testing.T) {
	t.Parallel()
	const keys, clients, rounds = 8, 24, 150
	servers := startMemcacheds(t, 2)
	var rs []*ringside
	for range 3 {
		rs = append(rs, startRingside(t, "auto", guarded(servers, "{wait: 100ms}")+"engine: {loops: 2}\n"))
	}
	var origin, least [keys]atomic.Int64 // version in the database; lowest version that may be read
	var begun, stored, read, missed, deleted atomic.Int64
	client := func(seed uint64) {
		random := rand.New(rand.NewPCG(13, seed))
		c := dial(t, rs[random.IntN(len(rs))].address)
		for range rounds {
			begun.Add(1)
			k := random.IntN(keys)
			key := fmt.Sprint("storm", k)
			switch n := random.IntN(100); {
			case n < 3: // disconnects, perhaps while it holds a lease
				c.Close()
				c = dial(t, rs[random.IntN(len(rs))].address)
			case n < 12:
				v := origin[k].Add(1)
				if answer := c.question("delete " + key); answer == "DELETED" || answer == "NOT_FOUND" {
					deleted.Add(1)
					for old := least[k].Load(); old < v && !least[k].CompareAndSwap(old, v); old = least[k].Load() {
					}
				}
			default:
				atLeast := least[k].Load()
				got, _ := c.get(key)
				if value, hit := got[key]; hit {
					read.Add(1)
					if v, err := strconv.ParseInt(value, 10, 64); err != nil || v < atLeast {
						t.Errorf("%s is %q, deleted at %d", key, value, atLeast)
					}
					continue
				}
				missed.Add(1)
				v := origin[k].Load()
				time.Sleep(time.Duration(random.IntN(30)) * time.Millisecond)
				if c.set(key, fmt.Sprint(v)) == "STORED" {
					stored.Add(1)
				}
			}
		}
	}
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() { client(uint64(i)) })
	}
	for i := range int64(3) { // the server restarts empty, and its cas tokens start at one again
		eventually(t, "clients do a part of their work", func() bool { return begun.Load() >= (i+1)*clients*rounds/4 })
		servers[0].Kill()
		servers[0].restart(t)
	}
	all.Wait()
	t.Logf("%d values read, %d misses, %d sets, %d deletes", read.Load(), missed.Load(), stored.Load(), deleted.Load())
	if read.Load() == 0 || deleted.Load() == 0 {
		t.Error("nothing was read, or deleted")
	}
	refused := 0
	for _, r := range rs {
		refused += r.count(t, "ringside_guard_refused_total")
	}
	if refused == 0 {
		t.Error("no set came too late: the storm was none")
	}
}
