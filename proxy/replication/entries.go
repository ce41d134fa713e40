package replication

// This file records which keys one replica of a pool has wrong: the replica has missed a write to
// the key, or may have run one without an acknowledgement.
//
// There is one entry for each such key, in the list of its state. The package comment explains
// the states. At most DirtyKeys entries are dirty. If more keys become dirty, the replica has
// Overflowed. It then counts as dirty for all keys, and further missed writes are not recorded.
//
// The code in this file sends no requests and uses no clock. The files stale.go and resync.go do
// the work that a state requires.

import (
	"bytes"
	"container/list"
)

// DirtyKey is the entry of one key that a replica may have wrong.
type DirtyKey struct {
	Hash  uint64
	Key   []byte // the key without the prefix that the server's keys get after the server has rejected a flush
	There []byte // name of the key at the replica, which may be renamed; nil after the key was deleted there
	State State
	In    *list.Element // element of this entry in the list of all entries with the same State

	dirty       bool // the replica missed a write to the key, so the key is not read there
	Through     bool // the route has read_through: after a miss of this replica, a read asks the other replicas
	LateDeleted bool // a late delete has removed the key from the replica, perhaps after a repair in progress had stored it
	Overwrite   bool // the replica may have a value that the primary never had; a copy of the key replaces this value
	Failed      int  // number of failed attempts to copy the key
}

// State is what Ringside still has to do about a key that a replica may have wrong.
type State uint8

const (
	Known State = iota // nothing to do in the background: the key is dirty, and a read or a write will repair it
	ToDelete
	Deleting
	ToCopy
	Copying
	numStates
)

// entryTable has the entries of all keys that one replica may have wrong. Its owner is the loop
// that owns the keys.
type entryTable struct {
	Keys        map[uint64]*DirtyKey // the entries, by the hash of the key
	Lists       [numStates]list.List // the entries in Keys by state; each list has the order in which the entries got this state
	dirty       int                  // number of entries in Keys with dirty set
	Overflowed  bool                 // more than DirtyKeys keys were dirty, so no key is read at the replica until it has been flushed and has rejoined
	DeletesSent int                  // number of deletes of dirty keys that have been sent and have no reply yet
}

// DirtyKeys is the maximum number of dirty keys of one replica. It also limits how many
// of its keys wait for a repair.
const DirtyKeys = 16 << 10

// Put stores l as the entry of its key, in place of an earlier entry. A key that was dirty stays
// dirty.
func (m *entryTable) Put(l *DirtyKey) {
	if before := m.Keys[l.Hash]; before != nil {
		l.dirty, before.dirty = before.dirty, false
		m.Forget(before)
	}
	m.Keys[l.Hash] = l
	l.In = m.Lists[l.State].PushBack(l)
}

// Forget removes the entry l from the table.
func (m *entryTable) Forget(l *DirtyKey) {
	m.Lists[l.State].Remove(l.In)
	delete(m.Keys, l.Hash)
	m.SetDirty(l, false)
}

// Becomes changes the state of the entry l to s.
func (m *entryTable) Becomes(l *DirtyKey, s State) {
	m.Lists[l.State].Remove(l.In)
	l.State, l.In = s, m.Lists[s].PushBack(l)
}

// Rest ends the work on the key of l. It keeps the entry only if the key is dirty.
func (m *entryTable) Rest(l *DirtyKey) {
	if m.Becomes(l, Known); !l.dirty {
		m.Forget(l)
	}
}

// SetDirty sets whether the replica may have missed a write to the key of l. If too
// many keys are dirty already, it sets Overflowed instead.
func (m *entryTable) SetDirty(l *DirtyKey, dirty bool) {
	switch {
	case l.dirty == dirty:
	case !dirty:
		l.dirty = false
		m.dirty--
	case m.dirty >= DirtyKeys:
		m.Overflowed = true
	default:
		l.dirty = true
		m.dirty++
	}
}

// Dirty reports whether the replica may have missed a write to the key with this hash.
func (m *entryTable) Dirty(hash uint64) bool {
	l := m.Keys[hash]
	return m.Overflowed || l != nil && l.dirty
}

// Clean records that the key with this hash may be read at the replica. The entry stays if work
// is left to do.
func (m *entryTable) Clean(hash uint64) {
	if l := m.Keys[hash]; l != nil {
		if m.SetDirty(l, false); l.State == Known {
			m.Forget(l)
		}
	}
}

// Pending returns the entry of the key with this hash, if Ringside still has to repair the key;
// otherwise nil.
func (m *entryTable) Pending(hash uint64) *DirtyKey {
	if l := m.Keys[hash]; l != nil && l.State != Known {
		return l
	}
	return nil
}

// Waiting returns the number of keys that Ringside still has to repair at the replica.
func (m *entryTable) Waiting() int { return len(m.Keys) - m.Lists[Known].Len() }

// Missed returns the number of dirty keys: the replica may have missed a write to them.
func (m *entryTable) Missed() int { return m.dirty }

// MissedWrite records that the replica has missed a write to a key. The parameter there is the
// name of the key at the replica. through says whether the route has read_through.
func (m *entryTable) MissedWrite(hash uint64, key, there []byte, through bool) {
	if m.Overflowed {
		return
	}
	l := m.Keys[hash]
	if l == nil || l.State != ToDelete {
		l = &DirtyKey{Hash: hash, Key: bytes.Clone(key), State: ToDelete}
		m.Put(l)
	}
	m.SetDirty(l, true)
	l.There, l.Through = bytes.Clone(there), through
}

// HasLess reports whether the replica may lack a write that was acknowledged. Other replicas may
// then have the only good value, so they must not be flushed. A key with a write in doubt does
// not count, because the replica still has a value of that key. If it counted, a server that
// hangs could never be ejected, because all writes to it are in doubt. The key does count if it
// is also dirty, or if a late delete has removed it.
func (m *entryTable) HasLess() bool {
	for _, l := range m.Keys {
		if l.State != Known && (!l.Overwrite || l.LateDeleted || l.dirty) {
			return true
		}
	}
	return false
}

// StayDirty records that the replica can't store the value of a key. The key is not read at the
// replica until a write of the key succeeds there. If too many keys are dirty, nothing is recorded,
// and reads believe a miss of the replica.
func (m *entryTable) StayDirty(hash uint64, key []byte) {
	if m.Dirty(hash) || m.dirty >= DirtyKeys {
		return
	}
	l := m.Keys[hash]
	if l == nil {
		l = &DirtyKey{Hash: hash, Key: bytes.Clone(key)}
		m.Put(l)
	}
	m.SetDirty(l, true)
}

// Right records that the replica's value of the key with this hash is correct again, or removed.
// If a late delete has removed the value in between, the key still has to be copied.
func (m *entryTable) Right(hash uint64) {
	switch l := m.Keys[hash]; {
	case l == nil:
	case !l.LateDeleted || l.State != ToCopy:
		m.Forget(l)
	case l.Through:
		m.SetDirty(l, false)
	}
}

// GiveUp ends the background repair of the key of l. Reads that miss the key at the replica
// repair it later.
func (m *entryTable) GiveUp(l *DirtyKey) {
	if l.Through {
		m.SetDirty(l, false)
	}
	m.Rest(l)
}
