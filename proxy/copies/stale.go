package copies

// What the ledger says of single keys: a member missed a write to one, or may have run
// one that nobody has acknowledged. As soon as it answers again what it still has is
// deleted, and then the key is copied to it.

import (
	"bytes"
	"container/list"
	"encoding/base64"
	"slices"

	"ringside/proxy/health"
	"ringside/proxy/health/divert"
	"ringside/proxy/link"
	"ringside/proxy/routing"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// Entry is what the ledger says of one key of a member. There is one for each key that
// the member may have wrong; the doc of this package has its states.
type Entry struct {
	Hash  uint64
	Key   []byte // without the number of a member that refused to be flushed
	there []byte // its name at the member, see command.keyAt; nil once it is deleted
	State State
	in    *list.Element // of the list of its state

	dirty     bool // the member missed a write to it, so it is not read there
	Through   bool // the route asks other members for what this one misses (read_through)
	undone    bool // a late delete has taken it: a repair that was at work may have written before that
	overwrite bool // the member may have a value that the authority never had: a copy replaces it
	failed    int  // attempts to copy it, maxCopying at most
}

// State is what is to be done about a key.
type State uint8

const (
	known State = iota // nothing: it is dirty, and a read or a write will repair it
	ToDelete
	deleting
	ToCopy
	copying
	numStates
)

// Entries are those of one member.
type Entries struct {
	Keys        map[uint64]*Entry    // by hash
	lists       [numStates]list.List // of Keys, by state, in the order in which they came to it
	dirty       int                  // how many of Keys are
	overflowed  bool                 // more were than DirtyKeys: none is read before the member has been flushed on its way back
	deletesSent int                  // deletes that have no answer yet
}

const (
	DirtyKeys  = 16 << 10 // keys that are remembered for one member
	maxDeletes = 64       // deletes of stale keys that have no answer yet, for one member
	maxCopying = 5        // attempts to copy a key; after that it is left to the reads that miss it
)

// put makes l the entry of its key, which stays dirty if it was.
func (m *Entries) put(l *Entry) {
	if before := m.Keys[l.Hash]; before != nil {
		l.dirty, before.dirty = before.dirty, false
		m.forget(before)
	}
	m.Keys[l.Hash] = l
	l.in = m.lists[l.State].PushBack(l)
}

// forget takes the entry of a key out.
func (m *Entries) forget(l *Entry) {
	m.lists[l.State].Remove(l.in)
	delete(m.Keys, l.Hash)
	m.setDirty(l, false)
}

// becomes brings the entry of a key to another state.
func (m *Entries) becomes(l *Entry, s State) {
	m.lists[l.State].Remove(l.in)
	l.State, l.in = s, m.lists[s].PushBack(l)
}

// rest notes that nothing is to be done about the key of l any more.
func (m *Entries) rest(l *Entry) {
	if m.becomes(l, known); !l.dirty {
		m.forget(l)
	}
}

func (m *Entries) setDirty(l *Entry, dirty bool) {
	switch {
	case l.dirty == dirty:
	case !dirty:
		l.dirty = false
		m.dirty--
	case m.dirty >= DirtyKeys:
		m.overflowed = true
	default:
		l.dirty = true
		m.dirty++
	}
}

// Dirty reports whether the member may have missed a write to a key.
func (m *Entries) Dirty(hash uint64) bool {
	l := m.Keys[hash]
	return m.overflowed || l != nil && l.dirty
}

// clean notes that what the member has of a key may be read.
func (m *Entries) clean(hash uint64) {
	if l := m.Keys[hash]; l != nil {
		if m.setDirty(l, false); l.State == known {
			m.forget(l)
		}
	}
}

// pending is the entry of a key about which something is to be done; nil: there is none.
func (m *Entries) pending(hash uint64) *Entry {
	if l := m.Keys[hash]; l != nil && l.State != known {
		return l
	}
	return nil
}

// waiting is how many entries are pending.
func (m *Entries) waiting() int { return len(m.Keys) - m.lists[known].Len() }

// MissedWrite remembers that the member has missed a write to a key, whose name is there
// at the member.
func (m *Entries) MissedWrite(hash uint64, key, there []byte, through bool) {
	if m.overflowed {
		return
	}
	l := m.Keys[hash]
	if l == nil || l.State != ToDelete {
		l = &Entry{Hash: hash, Key: bytes.Clone(key), State: ToDelete}
		m.put(l)
	}
	m.setDirty(l, true)
	l.there, l.Through = bytes.Clone(there), through
}

// hasLess reports whether the member has less of a key than was acknowledged, so that no other
// may be flushed that may have it. Of a write that nobody has acknowledged it may have too
// much or too little, and not less than before: that is no reason, and would keep a server
// that hangs, whose writes are all in doubt, from being taken out. It is one where the
// member is dirty as well, or where what was sent behind the write has taken what it had.
func (m *Entries) hasLess() bool {
	for _, l := range m.Keys {
		if l.State != known && (!l.overwrite || l.undone || l.dirty) {
			return true
		}
	}
	return false
}

// Right notes that the member's copy of a key is right again, or gone. If a late delete
// has taken the copy meanwhile the key is still to be copied.
func (m *Entries) Right(hash uint64) {
	switch l := m.Keys[hash]; {
	case l == nil:
	case !l.undone || l.State != ToCopy:
		m.forget(l)
	case l.Through:
		m.setDirty(l, false)
	}
}

// deleteStale deletes at the member what it may. A key waits while a command has its line.
func (m *account) deleteStale(e *Copies) {
	limit, list := m.ledger.bp.Pool.Timeouts, &m.lists[ToDelete]
	for range list.Len() { // one that fails at once is at the end of the list again
		if list.Len() == 0 || m.deletesSent >= maxDeletes {
			return
		}
		l := list.Front().Value.(*Entry)
		if e.Lines[task.KeyLine(l.Hash)] != nil {
			list.MoveToBack(l.in)
			continue
		}
		m.becomes(l, deleting)
		m.deletesSent++
		line := append([]byte("md "), l.there...)
		if !wire.PlainKey(l.there) {
			line = append(base64.StdEncoding.AppendEncode([]byte("md "), l.there), " b"...)
		}
		e.Ask(m.server().Conns[0], &deletion{e, m, l}, 0, &limit, append(line, wire.CRLF...), true)
	}
}

// deletion is the delete of a stale key.
type deletion struct {
	e  *Copies
	m  *account
	of *Entry
}

func (d *deletion) Client() uint64 { return 0 }

func (d *deletion) Answered(_ int, r *upstream.Result) {
	e, m, l := d.e, d.m, d.of
	m.deletesSent--
	current := m.Keys[l.Hash] == l && l.State == deleting // if not, it was repaired meanwhile, or another write was missed
	deleted := r.Reply.Kind == wire.Deleted
	switch gone := r.Foreign || deleted || r.Reply.Kind == wire.NotFound; {
	case current && !gone:
		m.becomes(l, ToDelete)
	case current && l.Through:
		m.setDirty(l, false)
		m.Lost(e, *l, false)
	case current:
		m.rest(l)
	case deleted && m.pending(l.Hash) == nil: // the delete took a repair that had come on another connection
		m.Lost(e, *l, false)
	}
	if m.deletesSent == 0 {
		e.At(link.ResyncTimer, e.Now)
	}
}

// Lost notes that a delete has taken the member's copy of l's key. The key is queued to be
// copied again, or there would be a copy too few, unless repairs are off or too many keys
// wait. It is not read before that if it is dirty, or if its miss would be believed.
func (m *account) Lost(e *Copies, l Entry, dirty bool) {
	e.doubt()
	l = Entry{Hash: l.Hash, Key: bytes.Clone(l.Key), Through: l.Through, undone: l.undone, overwrite: l.overwrite, failed: l.failed}
	m.put(&l)
	if dirty || !l.Through {
		m.setDirty(&l, true)
	}
	switch {
	case m.ledger.rate == 0:
		m.rest(&l)
	case m.waiting() >= DirtyKeys:
		e.Count.RepairsDropped++
		m.rest(&l)
	default:
		m.becomes(&l, ToCopy)
		e.At(link.ResyncTimer, e.Now)
	}
}

// inDoubt notes that the member may have run a write, or may yet, that nobody has
// acknowledged. It is made like the others when it answers. dirty: it is not read before
// that.
func (m *account) inDoubt(e *Copies, l Entry, dirty bool) {
	if before := m.Keys[l.Hash]; before == nil || before.State != ToDelete { // else it surely has a stale value, which is deleted first
		m.Lost(e, l, dirty)
	}
}

// LateDeleted notes that what was sent behind a late mutation (see
// upstream/latedelete.go) has replaced something at a server: what the mutation left
// there, or what was written or copied there since on another connection. If the server
// is to have a copy of the key, it gets it anew.
func (e *Copies) LateDeleted(srv *upstream.Server, there []byte) {
	key := divert.Undivert(there)
	hash := e.Loops.HashKey(key)
	if len(e.Ledgers) == 0 || e.Loops.Owner(hash) != e.Tasks { // a write to copies would have been led here, by the owner of the key
		return
	}
	for rt, members := range e.homes(key) {
		at := slices.IndexFunc(members, func(m copyOf) bool { return m.Server == srv })
		if at < 0 {
			continue
		}
		m := members[at]
		m.notice(e)
		if !bytes.Equal(there, divert.AppendKey(nil, uint64(m.Pool.View.Renamed(m.Index)), key)) {
			continue // the server's keys have other names now, so nobody reads this one
		}
		if rt.Copies.ReadThrough && !srv.HasLateDelete(key) { // what it has from now on is another Ringside's, and may be the only copy
			m.clean(hash)
		}
		m.Lost(e, Entry{Hash: hash, Key: key, Through: rt.Copies.ReadThrough, undone: true, overwrite: at > 0}, false)
	}
}

// copyLost copies to the member the keys that it has lost, while there is room. A key
// waits while a command has its line, or while no member surely has it.
func (m *account) copyLost(e *Copies) {
	list, waiting := &m.lists[ToCopy], 0
	for range list.Len() {
		if list.Len() == 0 || waiting >= maxCopies || !m.hasRoom(e, background) { // as many bound what one wakeup looks at
			return
		}
		l := list.Front().Value.(*Entry)
		switch rt, from, to, later := m.sourceOf(e, l); {
		case later || rt != nil && e.Lines[task.KeyLine(l.Hash)] != nil:
			list.MoveToBack(l.in)
			waiting++
		case rt == nil || rt.Copies.RepairRate == 0: // the key belongs to others now, all have lost it, or the route wants no repairs
			m.giveUp(l)
		default:
			m.becomes(l, copying)
			e.Count.Repairs++
			e.copyKey(rt, bytes.Clone(l.Key), l.Hash, from, to, l.overwrite, true, nil)
		}
	}
}

// giveUp leaves a key to the reads that miss it.
func (m *Entries) giveUp(l *Entry) {
	if l.Through {
		m.setDirty(l, false)
	}
	m.rest(l)
}

// sourceOf finds the route on which the member keeps l's key, and another member that
// surely has what is to be copied. later: there may be one later. Without that and
// without a route there will be none: the key is not the member's any more, or all others
// have lost it too, or are in doubt as well and come behind this one.
func (m *account) sourceOf(e *Copies, l *Entry) (rt *routing.Route, from, to copyOf, later bool) {
	for home, members := range e.homes(l.Key) {
		at := slices.IndexFunc(members, func(o copyOf) bool { return o.account == m })
		if at < 0 {
			continue
		}
		doubted := 0
		for i, o := range members {
			theirs := o.pending(l.Hash)
			inDoubt := theirs != nil && theirs.overwrite && theirs.State >= ToCopy
			switch {
			case o.Server == m.server() || theirs != nil && theirs.State == ToCopy && !theirs.overwrite: // it has nothing
			case l.overwrite && inDoubt && i > at:
				doubted++
			case theirs != nil && !l.overwrite || o.Pool.View.Phase(o.Index) != health.In || o.Server.Down || o.Pool.View.Suspected(o.Index) || o.incomplete(e) || o.Dirty(l.Hash) && !(l.overwrite && inDoubt) || o.Server.HasLateDelete(l.Key):
				later = true
			default:
				return home, o, members[at], false
			}
		}
		if doubted > 0 && !later { // what it has is as good as what they have
			return nil, from, to, false
		}
	}
	return nil, from, to, later
}

// repairFailed notes that a copy of a key to the member has failed. If the ledger has
// asked for it, it is tried again.
func (m *account) repairFailed(e *Copies, hash uint64) {
	l := m.Keys[hash]
	if l == nil || l.State != copying {
		return
	}
	if l.failed++; l.failed < maxCopying {
		m.becomes(l, ToCopy)
		return
	}
	m.giveUp(l)
	e.Count.RepairsDropped++
}
