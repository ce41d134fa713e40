// Package entries remembers, for one member of a pool, which keys it has wrong: it missed a
// write to one, or may have run one that nobody has acknowledged.
//
// There is one entry for a key, in the list of its state: the doc of package copies has the
// states that it passes through. At most DirtyKeys entries are dirty. If more would be, the
// member has Overflowed: it counts as dirty for all keys, and no more missed writes are remembered.
//
// It asks no server and knows no time. Package copies does what a state wants done.
package entries

import (
	"bytes"
	"container/list"
)

// Entry is what the ledger says of one key of a member. There is one for each key that
// the member may have wrong.
type Entry struct {
	Hash  uint64
	Key   []byte // without the number of a member that refused to be flushed
	There []byte // its name at the member, which may have such a number; nil once it is deleted
	State State
	In    *list.Element // of the list of its state

	dirty       bool // the member missed a write to it, so it is not read there
	Through     bool // the route asks other members for what this one misses (read_through)
	LateDeleted bool // a late delete has taken it: a repair that was at work may have written before that
	Overwrite   bool // the member may have a value that the authority never had: a copy replaces it
	Failed      int  // attempts to copy it
}

// State is what is to be done about a key.
type State uint8

const (
	Known State = iota // nothing: it is dirty, and a read or a write will repair it
	ToDelete
	Deleting
	ToCopy
	Copying
	numStates
)

// Table is the entries of one member.
type Table struct {
	Keys        map[uint64]*Entry    // by hash
	Lists       [numStates]list.List // of Keys, by state, in the order in which they came to it
	dirty       int                  // how many of Keys are
	Overflowed  bool                 // more were than DirtyKeys: none is read before the member has been flushed on its way back
	DeletesSent int                  // deletes that have no answer yet
}

// DirtyKeys are how many keys are remembered for one member.
const DirtyKeys = 16 << 10

// Put makes l the entry of its key, which stays dirty if it was.
func (m *Table) Put(l *Entry) {
	if before := m.Keys[l.Hash]; before != nil {
		l.dirty, before.dirty = before.dirty, false
		m.Forget(before)
	}
	m.Keys[l.Hash] = l
	l.In = m.Lists[l.State].PushBack(l)
}

// Forget takes the entry of a key out.
func (m *Table) Forget(l *Entry) {
	m.Lists[l.State].Remove(l.In)
	delete(m.Keys, l.Hash)
	m.SetDirty(l, false)
}

// Becomes brings the entry of a key to another state.
func (m *Table) Becomes(l *Entry, s State) {
	m.Lists[l.State].Remove(l.In)
	l.State, l.In = s, m.Lists[s].PushBack(l)
}

// Rest notes that nothing is to be done about the key of l any more. It is known on only if
// it is dirty.
func (m *Table) Rest(l *Entry) {
	if m.Becomes(l, Known); !l.dirty {
		m.Forget(l)
	}
}

// SetDirty notes whether the member may have missed a write to the key of l. Where too many
// are dirty already the whole member is: Overflowed.
func (m *Table) SetDirty(l *Entry, dirty bool) {
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

// Dirty reports whether the member may have missed a write to a key.
func (m *Table) Dirty(hash uint64) bool {
	l := m.Keys[hash]
	return m.Overflowed || l != nil && l.dirty
}

// Clean notes that what the member has of a key may be read.
func (m *Table) Clean(hash uint64) {
	if l := m.Keys[hash]; l != nil {
		if m.SetDirty(l, false); l.State == Known {
			m.Forget(l)
		}
	}
}

// Pending is the entry of a key about which something is to be done; nil: there is none.
func (m *Table) Pending(hash uint64) *Entry {
	if l := m.Keys[hash]; l != nil && l.State != Known {
		return l
	}
	return nil
}

// Waiting is how many entries are pending.
func (m *Table) Waiting() int { return len(m.Keys) - m.Lists[Known].Len() }

// Missed is how many keys the member has missed a write to, and must not be read there.
func (m *Table) Missed() int { return m.dirty }

// MissedWrite remembers that the member has missed a write to a key, whose name is there
// at the member.
func (m *Table) MissedWrite(hash uint64, key, there []byte, through bool) {
	if m.Overflowed {
		return
	}
	l := m.Keys[hash]
	if l == nil || l.State != ToDelete {
		l = &Entry{Hash: hash, Key: bytes.Clone(key), State: ToDelete}
		m.Put(l)
	}
	m.SetDirty(l, true)
	l.There, l.Through = bytes.Clone(there), through
}

// HasLess reports whether the member has less of a key than was acknowledged: then no other
// member may be flushed, which may have it. A member that is only in doubt may have run a
// write that nobody has acknowledged, and has no less than before. That is no reason, and
// would keep a server that hangs, whose writes are all in doubt, from being taken out. But
// it has less if it is dirty as well, or if a late delete has taken what it had.
func (m *Table) HasLess() bool {
	for _, l := range m.Keys {
		if l.State != Known && (!l.Overwrite || l.LateDeleted || l.dirty) {
			return true
		}
	}
	return false
}

// Right notes that the member's copy of a key is right again, or gone. If a late delete
// has taken the copy meanwhile the key is still to be copied.
func (m *Table) Right(hash uint64) {
	switch l := m.Keys[hash]; {
	case l == nil:
	case !l.LateDeleted || l.State != ToCopy:
		m.Forget(l)
	case l.Through:
		m.SetDirty(l, false)
	}
}

// GiveUp leaves a key to the reads that miss it.
func (m *Table) GiveUp(l *Entry) {
	if l.Through {
		m.SetDirty(l, false)
	}
	m.Rest(l)
}
