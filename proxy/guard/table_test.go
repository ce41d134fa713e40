package guard

// Tests of the number of entries that a missTable visits.

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/table"
)

// newGuarded returns a guarded route for a table.
func newGuarded() *routing.RouteGuard {
	return &routing.RouteGuard{GuardSettings: &table.GuardSettings{Lease: time.Second, LeaseMax: 10 * time.Second}, Learned: &stats.GuardStats{}}
}

// TestTableVisits fills a table with the misses of one client. Dropping an entry must
// not visit the client's other entries, whatever the reason: the client leaves, the
// table is full, or the misses are older than lease_max.
func TestTableVisits(t *testing.T) {
	const n = 10_000
	rt := newGuarded()
	fill := func(tb *missTable, c *missClient, from, to int, now int64, most int) {
		for i := from; i < to; i++ {
			tb.Record(Scope{}, c, fmt.Sprint("k", i), Seen{Event: At(rt, now), Hash: uint64(i), Route: rt}, most)
		}
	}
	within := func(t *testing.T, what string, tb *missTable, most int) {
		t.Helper()
		if tb.visits > most {
			t.Errorf("%s: visited %d entries, want at most %d", what, tb.visits, most)
		}
		tb.visits = 0
	}
	t.Run("leave", func(t *testing.T) {
		tb, c, other := newMissTable(), &missClient{ID: 1}, &missClient{ID: 2}
		fill(tb, c, 0, n, 0, n+1)
		tb.Record(Scope{}, other, "k0", Seen{Event: At(rt, 0), Route: rt}, n+1)
		busy := tb.Find(Scope{}, c, "k7")
		busy.CAS = 5
		if act, _ := tb.Apply(Scope{}, busy, Event{Kind: Set, LeaseMax: int64(rt.LeaseMax)}); act != Bind {
			t.Fatalf("act %d", act)
		}
		sets := []uint64{9, 11}
		var hashes []uint64
		for more, calls := true, 0; more; calls++ {
			var list []*Miss
			list, more = tb.DropClient(c, sets, 100)
			within(t, "one call", tb, 100)
			if calls > n/100 {
				t.Fatal("it does not end")
			}
			for _, m := range list {
				hashes = append(hashes, m.Hash)
			}
		}
		if len(hashes) != n-3 || !slices.IsSorted(hashes) || slices.Contains(hashes, 7) || slices.Contains(hashes, 9) || slices.Contains(hashes, 11) {
			t.Errorf("%d misses in the order %v…, want all but 3, the oldest first", len(hashes), hashes[:min(len(hashes), 20)])
		}
		if len(tb.misses) != 4 || len(tb.clients) != 1 {
			t.Errorf("%d misses of %d clients are left", len(tb.misses), len(tb.clients))
		}
		tb.Done(Scope{}, busy.Bind(5), Event{Outcome: Stored, CAS: 6}, busy.Via)
		if len(tb.misses) != 3 || c.entries.Load() != 2 {
			t.Errorf("%d misses are left after the set, %d of the client", len(tb.misses), c.entries.Load())
		}
		fill(tb, other, 0, 1, int64(time.Minute), n) // the two are older than lease_max
		if len(tb.misses) != 1 || c.entries.Load() != 0 {
			t.Errorf("%d misses are left after lease_max, %d of the client", len(tb.misses), c.entries.Load())
		}
	})
	t.Run("full", func(t *testing.T) {
		tb, c := newMissTable(), &missClient{}
		fill(tb, c, 0, 2*n, 0, n)
		within(t, "all", tb, n)
		if len(tb.misses) != n || c.entries.Load() != n || tb.Find(Scope{}, c, "k10000") == nil {
			t.Errorf("%d misses, %d of the client", len(tb.misses), c.entries.Load())
		}
	})
	t.Run("full of sets in flight", func(t *testing.T) {
		tb, c := newMissTable(), &missClient{}
		fill(tb, c, 0, n, 0, n)
		for _, m := range tb.misses {
			m.CAS = 5
			tb.Apply(Scope{}, m, Event{Kind: Set, LeaseMax: int64(rt.LeaseMax)})
		}
		if tb.oldest() != nil {
			t.Fatal("entries with a set in flight are in the list")
		}
		fill(tb, c, n, n+3, 0, n) // each of them drops the one before
		if len(tb.misses) != n+1 || tb.Find(Scope{}, c, "k10002") == nil {
			t.Errorf("%d misses", len(tb.misses))
		}
	})
	t.Run("age", func(t *testing.T) {
		tb, c := newMissTable(), &missClient{}
		fill(tb, c, 0, n, 0, n)
		for _, m := range tb.misses {
			tb.Won(m, false, 0)
		}
		late := int64(time.Minute)
		for i := 0; len(tb.misses) > i; i++ {
			before := len(tb.wins)
			fill(tb, c, n+i, n+i+1, late, n)
			within(t, "one miss", tb, agePiece)
			if ended := before - len(tb.wins); ended > agePiece {
				t.Fatalf("one miss ended %d leases", ended)
			}
			if i > n {
				t.Fatal("the old ones stay")
			}
		}
		if len(tb.wins) > 0 {
			t.Errorf("%d leases are left", len(tb.wins))
		}
	})
	t.Run("smaller", func(t *testing.T) { // after a reload
		tb, c := newMissTable(), &missClient{}
		fill(tb, c, 0, n, 0, n)
		for i := 0; len(tb.misses) > 10; i++ {
			fill(tb, c, n+i, n+i+1, 0, 10)
			within(t, "one miss", tb, agePiece)
		}
	})
}
