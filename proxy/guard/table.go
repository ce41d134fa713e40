package guard

// This file has missTable: all recorded misses of a loop.

import (
	"container/list"
	"slices"
	"time"

	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
)

// missTable has the misses of one loop.
//
// A client can have most of the entries. So every method except DropClient processes a limited
// number of entries. The caller of DropClient sets the limit.
type missTable struct {
	misses  map[key]*Miss
	clients map[*missClient]*list.List // the Miss records of each client, in the order in which they were created
	aged    list.List                  // the Miss records that are not Busy, in the order of their last change
	wins    []*leaseRecord             // granted leases, the oldest first; some of them may have ended
	visits  int                        // number of Miss records that drop and DropClient have processed, for leavePiece and for tests
}

// agePiece is how many Miss records, and how many leases, one call of age ends at most. Each call
// of Record adds at most one of each, so records and leases that are due do not pile up.
const agePiece = 32

// key identifies the Miss record of one key in one Scope.
type key struct {
	scope uint64 // number of the client connection; 0: the misses of the key belong to the whole process
	name  string
}

func keyOf(s Scope, c *missClient, name string) key {
	if s.AfterMiss {
		return key{0, name}
	}
	return key{c.ID, name}
}

// newMissTable returns an empty table.
func newMissTable() *missTable {
	return &missTable{misses: map[key]*Miss{}, clients: map[*missClient]*list.List{}}
}

// Find returns the Miss record of the key `name` in the scope of the client c, or nil.
func (t *missTable) Find(s Scope, c *missClient, name string) *Miss {
	return t.misses[keyOf(s, c, name)]
}

// Seen describes a miss that a client gets, and the item that its get has found.
type Seen struct {
	missOrigin
	Event // its kind is Missed
	Hash  uint64
	Route *routing.RouteGuard
}

// At returns an Event without a kind: it has the time `now`, and the lease times of the route rt.
func At(rt *routing.RouteGuard, now int64) Event {
	return Event{Now: now, Lease: int64(rt.Learned.Lease(rt.Lease)), LeaseMax: int64(rt.LeaseMax)}
}

// Record records a miss that a client gets, and returns the Miss record of the key. The parameter
// `most` is the maximum number of records; if there are more, it drops the oldest ones. It
// returns nil if the scope is Pooled.
func (t *missTable) Record(s Scope, c *missClient, name string, seen Seen, most int) *Miss {
	if s.Pooled {
		return nil
	}
	k := keyOf(s, c, name)
	m := t.misses[k]
	if m == nil {
		m = &Miss{key: k, Hash: seen.Hash, Route: seen.Route}
		if t.misses[k] = m; !s.AfterMiss {
			t.own(m, c)
			c.count(1, seen.Hash)
		}
		seen.Route.Learned.Misses.Add(1)
	}
	oldest := m.tagsRead
	if m.N > 0 && !m.missOrigin.same(&seen.missOrigin) {
		m.KeyMisses, _, _ = Decide(s, m.KeyMisses, Event{Kind: Unplaced, Now: m.Last, LeaseMax: int64(seen.Route.LeaseMax)})
	}
	fits := !s.one() && m.N > 0 && m.CAS == seen.CAS
	if fits && oldest.differ(&seen.tagsRead) {
		m.Mixed, fits = m.Last+seen.Lease, false
	}
	m.KeyMisses, _, _ = Decide(s, m.KeyMisses, seen.Event)
	if m.missOrigin, m.Route = seen.missOrigin, seen.Route; fits {
		m.tagsRead = oldest
	}
	m.Win.End(false)
	m.Win = nil
	t.relink(m)
	t.age(seen.Now)
	// Only agePiece records are dropped at a time, because a reload may have lowered the maximum
	// by much.
	for over := min(len(t.misses)-most, agePiece); over > 0 && t.oldest() != nil && t.oldest() != m; over-- {
		t.oldest().Route.Learned.Count(stats.GuardForgotten)
		t.drop(t.oldest())
	}
	return m
}

// Won records that the client with the newest miss of m is the lease holder of the key.
func (t *missTable) Won(m *Miss, strike bool, now int64) {
	m.Win = &leaseRecord{Strike: strike, at: now, route: m.Route}
	t.wins = append(t.wins, m.Win)
}

// Apply applies the event ev to m, by Decide. It removes m from the table if m has no miss
// without a set, and no set in flight.
func (t *missTable) Apply(s Scope, m *Miss, ev Event) (act Act, cas uint64) {
	m.KeyMisses, act, cas = Decide(s, m.KeyMisses, ev)
	switch {
	case m.N == 0 && !m.Busy:
		t.drop(m)
	case m.Busy:
		t.unlink(m)
	}
	return act, cas
}

// boundSet is a set that is sent with the cas of the item that an earlier miss has seen. The
// server stores the set only if the item still has that cas.
type boundSet struct {
	*Miss
	missOrigin
	CAS  uint64
	Wins bool // the client of the set is the lease holder
}

// Bind returns the set to send after Decide has returned Bind. The server stores the set only if
// the item still has the given cas.
func (m *Miss) Bind(cas uint64) *boundSet { return &boundSet{m, m.missOrigin, cas, m.Won} }

// Done ends the set b after its reply, which arrived on a connection with the given epoch. It
// returns the sets that have waited for b.
func (t *missTable) Done(s Scope, b *boundSet, ev Event, epoch upstream.ConnEpoch) (waiting []*task.Task) {
	m := b.Miss
	ev.Kind, ev.Bound = SetDone, b.CAS
	if !m.missOrigin.same(&b.missOrigin) { // the newest miss has seen an item of another server process, where another item may have the same cas
		ev.Bound = ^uint64(0)
	}
	before := m.CAS
	m.KeyMisses, _, _ = Decide(s, m.KeyMisses, ev)
	if m.CAS != before && m.N > 0 {
		m.Via, m.Placeholder = epoch, false
		m.Win.End(true)
		m.Win = nil
	}
	waiting, m.waiting = m.waiting, nil
	switch {
	case m.N == 0:
		t.drop(m)
	case t.has(m):
		t.relink(m)
	}
	return waiting
}

// oldest returns the Miss record that has not changed for the longest time, of those that are not
// Busy; nil: there is none.
func (t *missTable) oldest() *Miss {
	if first := t.aged.Front(); first != nil {
		return first.Value.(*Miss)
	}
	return nil
}

// relink makes m the newest in the list of the Miss records that are not Busy. A Busy record is
// not in the list, because it is needed when its set is done.
func (t *missTable) relink(m *Miss) {
	if t.unlink(m); !m.Busy {
		m.aged = t.aged.PushBack(m)
	}
}

// unlink removes m from the list of the Miss records that are not Busy, if it is in this list.
func (t *missTable) unlink(m *Miss) {
	if m.aged != nil {
		t.aged.Remove(m.aged)
		m.aged = nil
	}
}

// own adds m to the list of the Miss records of the client c.
func (t *missTable) own(m *Miss, c *missClient) {
	if t.clients[c] == nil {
		t.clients[c] = list.New()
	}
	m.Client, m.owned = c, t.clients[c].PushBack(m)
}

// disown removes m from the list of the Miss records of its client, if it is in such a list.
func (t *missTable) disown(m *Miss) {
	if m.owned == nil {
		return
	}
	of := t.clients[m.Client]
	of.Remove(m.owned)
	if m.owned = nil; of.Len() == 0 {
		delete(t.clients, m.Client)
	}
}

// has reports whether m is in the table.
func (t *missTable) has(m *Miss) bool { return t.misses[m.key] == m }

// drop removes the Miss record m from the table.
func (t *missTable) drop(m *Miss) {
	if !t.has(m) {
		return
	}
	t.visits++
	delete(t.misses, m.key)
	t.unlink(m)
	t.disown(m)
	if m.Client != nil {
		m.Client.count(-1, m.Hash)
	}
	m.Route.Learned.Misses.Add(-1)
}

// age drops Miss records that are older than lease_max, and ends leases without a set after their
// lease time. Decide disregards a miss that is too old, so age may drop it late.
func (t *missTable) age(now int64) {
	for range agePiece {
		m := t.oldest()
		if m == nil || now-m.Last <= int64(m.Route.LeaseMax) {
			break
		}
		m.Win.End(false)
		t.drop(m)
	}
	for range agePiece {
		if len(t.wins) == 0 {
			return
		}
		w := t.wins[0]
		if !w.over && now-w.at < int64(time.Second)*leaseSeconds(w.route) {
			return
		}
		w.End(false)
		t.wins[0] = nil
		t.wins = t.wins[1:]
	}
}

// DropClient drops Miss records of a client with a closed connection, and returns them. It
// processes at most `most` records; more reports whether there are others. It keeps a record if a
// set of the key is in flight, or if the hash of the key is in the sorted parameter `sets`. A
// record that is kept ends with its set, or after lease_max.
func (t *missTable) DropClient(c *missClient, sets []uint64, most int) (dropped []*Miss, more bool) {
	for ; most > 0 && t.clients[c] != nil; most-- {
		m := t.clients[c].Front().Value.(*Miss)
		if _, pending := slices.BinarySearch(sets, m.Hash); m.Busy || pending {
			t.visits++
			t.disown(m)
		} else {
			dropped = append(dropped, m)
			t.drop(m)
		}
	}
	return dropped, t.clients[c] != nil
}
