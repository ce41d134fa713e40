package replication

// This file records which keys one replica of a pool has wrong: it missed a write
// to the key, or may have run one without an acknowledgement.
//
// There is one entry for each such key, in the list of its state. The states are
// explained in package replication. At most DirtyKeys entries are dirty. If more would be,
// the replica has Overflowed. It then counts as dirty for all keys, and further missed
// writes are not recorded.
//
// The package sends no requests and uses no clock. The files stale.go and resync.go do the work
// that a state requires.

import (
	"bytes"
	"container/list"
)

// DirtyKey is the entry of one key that the replica may have wrong.
type DirtyKey struct {
	Hash  uint64
	Key   []byte // the plain key, even if the server has rejected a flush and its keys are renamed
	There []byte // name of the key at the replica, which may be renamed; nil after the key was deleted there
	State State
	In    *list.Element // element in the list of its state

	dirty       bool // the replica missed a write to the key, so the key is not read there
	Through     bool // after a miss the route asks other replicas (read_through)
	LateDeleted bool // a late delete has removed the key from the replica, perhaps after a repair in progress had stored it
	Overwrite   bool // the replica may have a value that the primary never had; a copy replaces it
	Failed      int  // number of failed attempts to copy the key
}

// State is what has to be done about a key.
type State uint8

const (
	Known State = iota // nothing to do in the background: the key is dirty, and a read or a write will repair it
	ToDelete
	Deleting
	ToCopy
	Copying
	numStates
)

// entryTable has the entries of one replica. Its owner is the loop of the ledger.
type entryTable struct {
	Keys        map[uint64]*DirtyKey // by hash
	Lists       [numStates]list.List // Keys by state, each list in the order in which the entries entered the state
	dirty       int                  // number of dirty Keys
	Overflowed  bool                 // more than DirtyKeys were dirty: no key is read at the replica until it has been flushed and has rejoined
	DeletesSent int                  // number of deletes without a reply
}

// DirtyKeys is the maximum number of dirty keys of one replica. It also limits how many
// of its keys wait for a repair.
const DirtyKeys = 16 << 10

// Put sets l as the entry of its key. The key stays dirty if it was.
func (m *entryTable) Put(l *DirtyKey) {
	if before := m.Keys[l.Hash]; before != nil {
		l.dirty, before.dirty = before.dirty, false
		m.Forget(before)
	}
	m.Keys[l.Hash] = l
	l.In = m.Lists[l.State].PushBack(l)
}

// Forget removes the entry of a key.
func (m *entryTable) Forget(l *DirtyKey) {
	m.Lists[l.State].Remove(l.In)
	delete(m.Keys, l.Hash)
	m.SetDirty(l, false)
}

// Becomes changes the state of the entry of a key.
func (m *entryTable) Becomes(l *DirtyKey, s State) {
	m.Lists[l.State].Remove(l.In)
	l.State, l.In = s, m.Lists[s].PushBack(l)
}

// Rest records that there is nothing more to do about the key of l. It keeps the entry
// only if the key is dirty.
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

// Dirty reports whether the replica may have missed a write to a key.
func (m *entryTable) Dirty(hash uint64) bool {
	l := m.Keys[hash]
	return m.Overflowed || l != nil && l.dirty
}

// Clean records that the replica's value of a key may be read.
func (m *entryTable) Clean(hash uint64) {
	if l := m.Keys[hash]; l != nil {
		if m.SetDirty(l, false); l.State == Known {
			m.Forget(l)
		}
	}
}

// Pending returns the entry of a key with work left to do, or nil.
func (m *entryTable) Pending(hash uint64) *DirtyKey {
	if l := m.Keys[hash]; l != nil && l.State != Known {
		return l
	}
	return nil
}

// Waiting returns the number of pending entries.
func (m *entryTable) Waiting() int { return len(m.Keys) - m.Lists[Known].Len() }

// Missed returns the number of keys that the replica has missed a write to.
func (m *entryTable) Missed() int { return m.dirty }

// MissedWrite records that the replica has missed a write to a key. The parameter there is the name
// of the key at the replica.
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

// HasLess reports whether the replica has less of a key than was acknowledged. If so, no other
// replica may be flushed, because it may have the key. A key whose write is only in doubt does not
// count, because the replica still has a value of that key. If it counted, a server that hangs
// could never be ejected, because all writes to it are in doubt. The key does count if it is also
// dirty, or if a late delete has removed it.
func (m *entryTable) HasLess() bool {
	for _, l := range m.Keys {
		if l.State != Known && (!l.Overwrite || l.LateDeleted || l.dirty) {
			return true
		}
	}
	return false
}

// Right records that the replica's value of a key is correct again, or gone. If a late
// delete has removed the value in between, the key still has to be copied.
func (m *entryTable) Right(hash uint64) {
	switch l := m.Keys[hash]; {
	case l == nil:
	case !l.LateDeleted || l.State != ToCopy:
		m.Forget(l)
	case l.Through:
		m.SetDirty(l, false)
	}
}

// GiveUp stops the repair of a key. Reads that miss the key repair it.
func (m *entryTable) GiveUp(l *DirtyKey) {
	if l.Through {
		m.SetDirty(l, false)
	}
	m.Rest(l)
}
