package copies

// Stale keys: what a member still has from before a write that it missed is deleted as
// soon as the member answers again, and then the key is copied to it.

import (
	"bytes"
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

// StaleKey is a key of which a member still has the value from before a write that it
// missed. This Ringside knows that and does not read it, but others do: so it is deleted
// before anything else. The doc of this package has its states.
type StaleKey struct {
	Hash      uint64
	Key       []byte // without the number of a member that refused to be flushed
	there     []byte // its name at the member, see command.keyAt; nil once it is deleted
	Through   bool   // the route asks other members for what this one misses (read_through)
	undone    bool   // a late delete has taken it: a repair that was at work may have written before that
	overwrite bool   // the member may have a value that the authority never had: a copy replaces it
	state     StaleState
	failed    int // attempts to copy it, maxCopying at most
}

type StaleState uint8

const (
	ToDelete StaleState = iota
	deleting
	ToCopy
	copying
)

const (
	maxDeletes = 64 // deletes of stale keys that have no answer yet, for one member
	maxCopying = 5  // attempts to copy a key; after that it is left to the reads that miss it
)

// MissedWrite remembers that the member has missed a write to a key, whose name is there
// at the member.
func (m *account) MissedWrite(hash uint64, key, there []byte, through bool) {
	if !m.Dirty.Add(hash) {
		m.overflowed = true
		return
	}
	l := m.StaleKeys[hash]
	if l == nil || l.state != ToDelete {
		l = m.put(&StaleKey{Hash: hash, Key: bytes.Clone(key)})
		m.queue(l)
	}
	l.there, l.Through = bytes.Clone(there), through
}

// put makes l the entry of its key. The queues keep the entry before, which is out of
// date from now on: to look for it would cost a walk for every write.
func (m *account) put(l *StaleKey) *StaleKey {
	if m.StaleKeys == nil {
		m.StaleKeys = map[uint64]*StaleKey{}
	}
	m.StaleKeys[l.Hash] = l
	return l
}

// queue appends l to the queue of its state. Entries that are out of date are removed when
// a queue has grown to twice the keys that can be remembered: then at least half of it
// are, so the walk costs each entry a constant.
func (m *account) queue(l *StaleKey) {
	line := &m.DeleteQueue
	if l.state == ToCopy {
		line = &m.CopyQueue
	}
	if len(*line) >= 2*DirtyKeys {
		*line = slices.DeleteFunc(*line, func(q *StaleKey) bool { return !m.Is(q, l.state) })
	}
	*line = append(*line, l)
}

// hasLess reports whether the member has less of a key than was acknowledged, so that no other
// may be flushed that may have it. Of a write that nobody has acknowledged it may have too
// much or too little, and not less than before: that is no reason, and would keep a server
// that hangs, whose writes are all in doubt, from being taken out. It is one where the
// member is dirty as well, or where what was sent behind the write has taken what it had.
func (m *account) hasLess() bool {
	for hash, l := range m.StaleKeys {
		if !l.overwrite || l.undone || m.Dirty.Has(hash) {
			return true
		}
	}
	return false
}

// Is reports whether l is still the entry of its key, and in state s.
func (m *account) Is(l *StaleKey, s StaleState) bool { return m.StaleKeys[l.Hash] == l && l.state == s }

// Clean notes that the member's copy of a key is right again, or gone. If a late delete
// has taken the copy meanwhile the key is still to be copied.
func (m *account) Clean(hash uint64) {
	l := m.StaleKeys[hash]
	kept := l != nil && l.undone && l.state == ToCopy
	if !kept {
		delete(m.StaleKeys, hash)
	}
	if !kept || l.Through {
		m.Dirty.Remove(hash)
	}
}

// mendStale deletes and copies what it may of the member's stale keys, if the server is
// up.
func (m *account) mendStale(e *Copies) {
	if len(m.StaleKeys) == 0 {
		m.DeleteQueue, m.CopyQueue = nil, nil
	}
	if m.server().Down {
		return
	}
	if len(m.DeleteQueue) > 0 {
		m.deleteStale(e)
	}
	if len(m.CopyQueue) > 0 {
		m.copyLost(e)
	}
}

func (m *account) deleteStale(e *Copies) {
	limit := m.ledger.bp.Pool.Timeouts
	list := m.DeleteQueue
	busy := list[:0]
	m.DeleteQueue = nil // a delete that fails at once is queued again meanwhile
	for at, l := range list {
		if m.deletesSent >= maxDeletes {
			busy = append(busy, list[at:]...)
			break
		}
		if !m.Is(l, ToDelete) {
			continue
		}
		if e.Lines[task.KeyLine(l.Hash)] != nil {
			busy = append(busy, l)
			continue
		}
		l.state = deleting
		m.deletesSent++
		line := append([]byte("md "), l.there...)
		if !wire.PlainKey(l.there) {
			line = append(base64.StdEncoding.AppendEncode([]byte("md "), l.there), " b"...)
		}
		e.Ask(m.server().Conns[0], &deletion{e, m, l}, 0, &limit, append(line, wire.CRLF...), true)
	}
	m.DeleteQueue = append(busy, m.DeleteQueue...)
}

// deletion is the delete of a stale key.
type deletion struct {
	e  *Copies
	m  *account
	of *StaleKey
}

func (d *deletion) Client() uint64 { return 0 }

func (d *deletion) Answered(_ int, r *upstream.Result) {
	e, m, l := d.e, d.m, d.of
	m.deletesSent--
	current := m.Is(l, deleting) // if not, it was repaired meanwhile, or another write was missed
	deleted := r.Reply.Kind == wire.Deleted
	switch gone := r.Foreign || deleted || r.Reply.Kind == wire.NotFound; {
	case current && !gone:
		l.state = ToDelete
		m.queue(l)
	case current && l.Through:
		m.Dirty.Remove(l.Hash)
		m.Lost(e, *l)
	case current:
		delete(m.StaleKeys, l.Hash)
	case deleted && m.StaleKeys[l.Hash] == nil: // the delete took a repair that had come on another connection
		m.Lost(e, *l)
	}
	if m.deletesSent == 0 {
		e.At(link.ResyncTimer, e.Now)
	}
}

// Lost notes that a delete has taken the member's copy of l's key. The key is queued to be
// copied again, or there would be a copy too few, unless repairs are off or too many keys
// wait.
func (m *account) Lost(e *Copies, l StaleKey) {
	delete(m.StaleKeys, l.Hash)
	if !l.Through && !m.Dirty.Add(l.Hash) { // or its miss would be believed
		m.overflowed = true
	}
	switch {
	case m.ledger.rate == 0:
	case len(m.StaleKeys) >= DirtyKeys:
		e.Count.RepairsDropped++
	default:
		l.Key, l.there, l.state = bytes.Clone(l.Key), nil, ToCopy
		m.queue(m.put(&l))
		e.At(link.ResyncTimer, e.Now)
	}
}

// inDoubt notes that the member may have run a write, or may yet, that nobody has
// acknowledged. It is made like the others when it answers. dirty: it is not read before
// that.
func (m *account) inDoubt(e *Copies, l StaleKey, dirty bool) {
	if before := m.StaleKeys[l.Hash]; before != nil && before.state == ToDelete {
		return // it surely has a stale value, which is deleted first
	}
	if dirty && !m.Dirty.Add(l.Hash) {
		m.overflowed = true
	}
	m.Lost(e, l)
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
		if !bytes.Equal(there, divert.AppendKey(nil, uint64(m.Pool.View.Renamed(m.Index)), key)) {
			continue // the server's keys have other names now, so nobody reads this one
		}
		if rt.Copies.ReadThrough && !srv.HasLateDelete(key) { // what it has from now on is another Ringside's, and may be the only copy
			m.Dirty.Remove(hash)
		}
		m.Lost(e, StaleKey{Hash: hash, Key: key, Through: rt.Copies.ReadThrough, undone: true, overwrite: at > 0})
	}
}

// copyLost copies to the member the keys that it has lost, as fast as its rate allows. A
// key waits while a command has its line, or while no member surely has it.
func (m *account) copyLost(e *Copies) {
	list := m.CopyQueue
	m.CopyQueue = nil // a repair that fails at once queues its key again meanwhile
	var wait []*StaleKey
	for at, l := range list {
		if !m.Is(l, ToCopy) {
			continue
		}
		if len(wait) >= maxRepairs { // bounds what one wakeup looks at; next time these are behind the others
			m.CopyQueue = append(m.CopyQueue, list[at:]...)
			break
		}
		rt, from, to, later := m.sourceOf(e, l)
		if !later && (rt == nil || rt.Copies.RepairRate == 0) { // the key belongs to others now, all have lost it, or the route wants no repairs
			delete(m.StaleKeys, l.Hash)
			if l.Through {
				m.Dirty.Remove(l.Hash)
			}
			continue
		}
		if later || e.Lines[task.KeyLine(l.Hash)] != nil {
			wait = append(wait, l)
			continue
		}
		if e.Repairing >= maxRepairs || !m.mayRepair(e, rt.Copies.RepairRate) {
			e.At(link.ResyncTimer, e.Now+m.untilRepair(e, rt.Copies.RepairRate))
			m.CopyQueue = append(m.CopyQueue, list[at:]...)
			break
		}
		l.state = copying
		e.Count.Repairs++
		e.copyKey(rt, bytes.Clone(l.Key), l.Hash, from, to, l.overwrite, true, nil)
	}
	m.CopyQueue = append(m.CopyQueue, wait...)
}

// sourceOf finds the route on which the member keeps l's key, and another member that
// surely has what is to be copied. later: there may be one later. Without that and
// without a route there will be none: the key is not the member's any more, or all others
// have lost it too, or are in doubt as well and come behind this one.
func (m *account) sourceOf(e *Copies, l *StaleKey) (rt *routing.Route, from, to copyOf, later bool) {
	for home, members := range e.homes(l.Key) {
		at := slices.IndexFunc(members, func(o copyOf) bool { return o.account == m })
		if at < 0 {
			continue
		}
		doubted := 0
		for i, o := range members {
			theirs := o.StaleKeys[l.Hash]
			inDoubt := theirs != nil && theirs.overwrite && theirs.state >= ToCopy
			switch {
			case o.Server == m.server() || theirs != nil && theirs.state == ToCopy && !theirs.overwrite: // it has nothing
			case l.overwrite && inDoubt && i > at:
				doubted++
			case theirs != nil && !l.overwrite || o.Pool.View.Phase(o.Index) != health.In || o.Server.Down || o.Pool.View.Suspected(o.Index) || o.incomplete(e) || o.Dirty.Has(l.Hash) && !(l.overwrite && inDoubt) || o.Server.HasLateDelete(l.Key):
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

// repairFailed notes that a repair of a key has failed. If it was for a stale key it is
// tried again.
func (m *account) repairFailed(e *Copies, hash uint64) {
	l := m.StaleKeys[hash]
	if l == nil || l.state != copying {
		return
	}
	if l.failed++; l.failed >= maxCopying {
		delete(m.StaleKeys, hash)
		if l.Through {
			m.Dirty.Remove(hash)
		}
		e.Count.RepairsDropped++
		return
	}
	l.state = ToCopy
	m.queue(l)
}
