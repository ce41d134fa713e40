package copies

// What a member still has from before a write that it missed: it is deleted
// when the member answers again, and then the key is copied to it.

import (
	"bytes"
	"encoding/base64"
	"slices"

	"ringside/proxy/health"
	"ringside/proxy/link"
	"ringside/proxy/routing"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// Stale is a key of which a member still has the value from before a write
// that it missed. This Ringside knows that; others would read it.
//
//	toDelete ► deleting ► toCopy ► copying ► forgotten
//
// Where misses are not asked of others it is forgotten after the delete, and
// stays dirty: its miss must not be believed.
type Stale struct {
	Hash    uint64
	Key     []byte // as other members know it
	there   []byte // as this one does
	Through bool   // the route asks others for what the member doesn't have
	undone  bool   // what went behind a late write has replaced it: a repair under way may have come before
	over    bool   // it may have something else than the authority, which goes
	state   StaleState
	failed  int // attempts to copy it
}

type StaleState uint8

const (
	ToDelete StaleState = iota
	deleting
	ToCopy
	copying
)

const (
	maxLeaving = 64 // deletes of leftovers on their way to a member
	maxCopying = 5  // attempts to copy one
)

// Leave remembers that member i missed a write to a key.
func (m *account) Leave(hash uint64, key, there []byte, through bool) {
	if !m.Dirty.Add(hash) {
		m.overfull = true
		return
	}
	l := m.Left[hash]
	if l == nil || l.state != ToDelete {
		l = m.put(&Stale{Hash: hash, Key: bytes.Clone(key)})
		m.queue(l)
	}
	l.there, l.Through = bytes.Clone(there), through
}

// put makes l the leftover of its key. Queues still have the one before.
func (m *account) put(l *Stale) *Stale {
	if m.Left == nil {
		m.Left = map[uint64]*Stale{}
	}
	m.Left[l.Hash] = l
	return l
}

// queue puts l in the line of those to be deleted, or to be copied. One that is
// not the last of its key any more goes when a line has grown long: at least half
// of them are then.
func (m *account) queue(l *Stale) {
	line := &m.Order
	if l.state == ToCopy {
		line = &m.Gone
	}
	if len(*line) >= 2*DirtyKeys {
		*line = slices.DeleteFunc(*line, func(q *Stale) bool { return !m.Is(q, l.state) })
	}
	*line = append(*line, l)
}

// Is says that l is still the leftover of its key, in the given state.
func (m *account) Is(l *Stale, s StaleState) bool { return m.Left[l.Hash] == l && l.state == s }

// Clean says that the member's copy of a key is repaired or gone: unless that is
// to be copied which an undo has deleted since.
func (m *account) Clean(hash uint64) {
	l := m.Left[hash]
	kept := l != nil && l.undone && l.state == ToCopy
	if !kept {
		delete(m.Left, hash)
	}
	if !kept || l.Through {
		m.Dirty.Remove(hash)
	}
}

// tendLeft goes on with what the member has left of before, now that it answers.
func (m *account) tendLeft(e *Copies) {
	if len(m.Left) == 0 {
		m.Order, m.Gone = nil, nil
	}
	if m.server().Down {
		return
	}
	if len(m.Order) > 0 {
		m.deleteLeft(e)
	}
	if len(m.Gone) > 0 {
		m.copyGone(e)
	}
}

func (m *account) deleteLeft(e *Copies) {
	limit := m.of.bp.Pool.Timeouts
	list := m.Order
	busy := list[:0]
	m.Order = nil // who is told at once may put one back
	for at, l := range list {
		if m.leaving >= maxLeaving {
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
		m.leaving++
		line := append([]byte("md "), l.there...)
		if !wire.PlainKey(l.there) {
			line = append(base64.StdEncoding.AppendEncode([]byte("md "), l.there), " b"...)
		}
		e.Ask(m.server().Conns[0], &deletion{e, m, l}, 0, &limit, append(line, wire.LineEnd...), true)
	}
	m.Order = append(busy, m.Order...)
}

// deletion is the delete of a leftover.
type deletion struct {
	e  *Copies
	m  *account
	of *Stale
}

func (d *deletion) Client() uint64 { return 0 }

func (d *deletion) Answered(_ int, r *upstream.Result) {
	e, m, l := d.e, d.m, d.of
	m.leaving--
	current := m.Is(l, deleting) // if not, it is clean already, or has missed another write
	switch gone := r.Foreign || r.Parsed(wire.Delete, wire.Meta, &e.Rep) && (e.Rep.Kind == wire.Deleted || e.Rep.Kind == wire.NotFound); {
	case current && !gone:
		l.state = ToDelete
		m.queue(l)
	case current && l.Through:
		m.Dirty.Remove(l.Hash)
		m.Lost(e, *l)
	case current:
		delete(m.Left, l.Hash)
	case gone && e.Rep.Kind == wire.Deleted && m.Left[l.Hash] == nil: // what had been repaired, on another connection
		m.Lost(e, *l)
	}
	if m.leaving == 0 {
		e.At(link.ResyncTimer, e.Now)
	}
}

// Lost says that the member has lost its copy of l's key to a delete that undid
// what it had. It is copied to it again, for one copy alone is too few: unless
// repairs are off, or too many wait.
func (m *account) Lost(e *Copies, l Stale) {
	delete(m.Left, l.Hash)
	if !l.Through && !m.Dirty.Add(l.Hash) { // its miss must not be believed
		m.overfull = true
	}
	switch {
	case m.of.rate == 0:
	case len(m.Left) >= DirtyKeys:
		e.Count.RepairsDropped++
	default:
		l.Key, l.there, l.state = bytes.Clone(l.Key), nil, ToCopy
		m.queue(m.put(&l))
		e.At(link.ResyncTimer, e.Now)
	}
}

// doubt says that the member may have run a write that nobody has acknowledged, or
// may yet: it is made like the others when it answers. dirty: it is not read
// before.
func (m *account) doubt(e *Copies, l Stale, dirty bool) {
	if before := m.Left[l.Hash]; before != nil && before.state == ToDelete {
		return // that it surely missed a write is worse
	}
	if dirty && !m.Dirty.Add(l.Hash) {
		m.overfull = true
	}
	m.Lost(e, l)
}

// LateDeleted says that what went behind a late mutation (see
// upstream/latedelete.go) has replaced something at a server: what the mutation had
// left, or what was written or copied there since, on another connection. Members
// that are to have a copy of the key get it anew.
func (e *Copies) LateDeleted(srv *upstream.Server, there []byte) {
	key := health.Undivert(there)
	hash := e.Loops.HashKey(key)
	if len(e.Ledgers) == 0 || e.Loops.Owner(hash) != e.Tasks { // it was no write to copies, which the owner leads
		return
	}
	for rt, members := range e.homes(key) {
		at := slices.IndexFunc(members, func(m copyOf) bool { return m.Server == srv })
		if at < 0 {
			continue
		}
		m := members[at]
		if !bytes.Equal(there, health.AppendKey(nil, uint64(m.Pool.View.Renamed(m.Index)), key)) {
			continue // a name that is not in use any more
		}
		m.Lost(e, Stale{Hash: hash, Key: key, Through: rt.Copies.ReadThrough, undone: true, over: at > 0})
	}
}

// copyGone copies to the member what it has lost, as fast as repairs may be made.
// What nobody surely has, or somebody writes, waits.
func (m *account) copyGone(e *Copies) {
	list := m.Gone
	m.Gone = nil // a repair may end at once
	var wait []*Stale
	for at, l := range list {
		if !m.Is(l, ToCopy) {
			continue
		}
		if len(wait) >= maxMends { // enough for this time: the others go first then
			m.Gone = append(m.Gone, list[at:]...)
			break
		}
		rt, from, to, later := m.sourceOf(e, l)
		if !later && (rt == nil || rt.Copies.RepairRate == 0) { // it is not the member's any more, or is not to be repaired
			delete(m.Left, l.Hash)
			if l.Through {
				m.Dirty.Remove(l.Hash)
			}
			continue
		}
		if later || e.Lines[task.KeyLine(l.Hash)] != nil {
			wait = append(wait, l)
			continue
		}
		if e.Mends >= maxMends || !m.mayRepair(e, rt.Copies.RepairRate) {
			e.At(link.ResyncTimer, e.Now+m.untilRepair(e, rt.Copies.RepairRate))
			m.Gone = append(m.Gone, list[at:]...)
			break
		}
		l.state = copying
		e.Count.Repairs++
		e.mend(rt, bytes.Clone(l.Key), l.Hash, from, to, l.over, true, nil)
	}
	m.Gone = append(m.Gone, wait...)
}

// sourceOf finds the route by which the member has l's key, and another member
// that surely has what it is to have of it. later says that there is none now;
// no route, that there never will be: all others have lost it too.
func (m *account) sourceOf(e *Copies, l *Stale) (rt *routing.Route, from, to copyOf, later bool) {
	for home, members := range e.homes(l.Key) {
		at := slices.IndexFunc(members, func(o copyOf) bool { return o.account == m })
		if at < 0 {
			continue
		}
		for _, o := range members {
			theirs := o.Left[l.Hash]
			switch {
			case o.Server == m.server() || theirs != nil && theirs.state == ToCopy && !theirs.over: // it has nothing
			case theirs != nil && !l.over || o.Pool.View.Phase(o.Index) != health.In || o.Server.Down || o.Pool.View.Suspected(o.Index) || o.lacks(e) || o.Dirty.Has(l.Hash) || o.Server.HasLateDelete(l.Key):
				later = true
			default:
				return home, o, members[at], false
			}
		}
	}
	return nil, from, to, later
}

// notCopied says that a repair of a key has failed: if it was for a leftover, it
// is tried again.
func (m *account) notCopied(e *Copies, hash uint64) {
	l := m.Left[hash]
	if l == nil || l.state != copying {
		return
	}
	if l.failed++; l.failed >= maxCopying {
		delete(m.Left, hash)
		if l.Through {
			m.Dirty.Remove(hash)
		}
		e.Count.RepairsDropped++
		return
	}
	l.state = ToCopy
	m.queue(l)
}
