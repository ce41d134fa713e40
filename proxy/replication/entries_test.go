package replication_test

import (
	"fmt"
	"testing"

	"ringside/proxy/conversation"
	"ringside/proxy/replication"
)

// TestEntriesAreBounded makes a replica miss writes to keys that are repaired in
// between, again and again. It also loses other keys, while no repair runs. There must
// be one entry for each key, and at most DirtyKeys dirty ones.
func TestEntriesAreBounded(t *testing.T) {
	s := conversation.New(t)
	s.Line("pool main servers=s1,s2")
	s.Line("route - main copies=2")
	s.Begin()
	m := &s.Engine.Ledgers["main"].Members[0]
	const kept = 100 // keys that stay
	for i := range 10 * replication.DirtyKeys {
		key := fmt.Appendf(nil, "key%d", i%kept)
		m.MissedWrite(uint64(i%kept), key, key, true)
		key = fmt.Appendf(nil, "passing%d", i)
		m.MissedWrite(uint64(kept+i), key, key, true)
		m.Right(uint64(kept + i))
		m.Lost(&s.Engine.Replicator, replication.DirtyKey{Hash: uint64(1<<32 + i%kept), Key: []byte("copied"), Through: true}, false)
	}
	count := map[replication.State]int{}
	for _, l := range m.Keys {
		count[l.State]++
	}
	if len(m.Keys) != 2*kept || count[replication.ToDelete] != kept || count[replication.ToCopy] != kept {
		t.Errorf("%d keys, by state %v, want %d of each", len(m.Keys), count, kept)
	}
	for i := range 2 * replication.DirtyKeys {
		m.Lost(&s.Engine.Replicator, replication.DirtyKey{Hash: uint64(1<<32 + i), Key: []byte("copied"), Through: true}, false)
	}
	if n := len(m.Keys); n != replication.DirtyKeys || s.Engine.Count.RepairsDropped == 0 {
		t.Errorf("%d keys, %d dropped, want %d and some", n, s.Engine.Count.RepairsDropped, replication.DirtyKeys)
	}
	for i := range 2 * replication.DirtyKeys {
		m.MissedWrite(uint64(1<<33+i), []byte("more"), []byte("more"), true)
	}
	if n := len(m.Keys); n > 2*replication.DirtyKeys || !m.Dirty(1<<34) {
		t.Errorf("%d keys, want %d at most; a key that it never heard of is dirty: %v", n, 2*replication.DirtyKeys, m.Dirty(1<<34))
	}
}

// TestEntriesStayDirty checks that a replica that has missed a write to a key is not
// read for that key until it is repaired. This must hold in all states of its entry.
func TestEntriesStayDirty(t *testing.T) {
	s := conversation.New(t)
	s.Line("pool main servers=s1,s2")
	s.Line("route - main copies=2")
	s.Begin()
	m := &s.Engine.Ledgers["main"].Members[0]
	key := []byte("key")
	m.MissedWrite(1, key, key, false)
	m.Lost(&s.Engine.Replicator, replication.DirtyKey{Hash: 1, Key: key, Through: true}, false)
	if !m.Dirty(1) {
		t.Error("a key that it has lost is not dirty any more")
	}
	m.MissedWrite(1, key, key, true)
	if m.Right(1); m.Dirty(1) || len(m.Keys) != 0 {
		t.Error("a key that is right is dirty still")
	}
	if m.Lost(&s.Engine.Replicator, replication.DirtyKey{Hash: 2, Key: key}, false); !m.Dirty(2) {
		t.Error("a key whose miss would be believed is not dirty")
	}
}

// TestOverflowedDecides checks that an overflowed replica, which is dirty for all keys,
// is still the primary. Other instances don't know of the missed writes, and count
// there. So it must get the value of another replica before it counts.
func TestOverflowedDecides(t *testing.T) {
	s := conversation.New(t)
	s.Line("pool main servers=s1,s2")
	s.Line("route - main copies=2 through repair=0")
	s.Begin()
	s.Line("s1 runs 7")
	s.Line("s2 runs 8")
	s.Engine.Ledgers["main"].Members[1].Overflowed = true
	for _, line := range []string{
		`c1 > incr a2 1`,
		`s2 < mg a2 s f c`, `s2 > HD s1 f0 c4`,
		`s1 < mg a2 v f t s c`, `s1 > VA 1 f0 t-1 s1 c9\r\n5`,
		`s2 < ms a2 1 C4 F0 T0\r\n5`, `s2 > HD`,
		`s1 < mg a2 s f c`, `s1 > HD s1 f0 c9`,
		`s2 < incr a2 1`, `s2 > 6`,
	} {
		s.Line(line)
	}
}
