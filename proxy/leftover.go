package proxy

// What a member still has from before a write that it missed: it is deleted
// when the member answers again, and then the key is copied to it.

import (
	"bytes"
	"encoding/base64"
	"slices"

	"ringside/proxy/health"
	"ringside/proxy/wire"
)

// leftover is a key of which a member still has the value from before a write
// that it missed. This Ringside knows that; others would read it.
//
//	toDelete ► deleting ► toCopy ► copying ► forgotten
//
// Where misses are not asked of others it is forgotten after the delete, and
// stays dirty: its miss must not be believed.
type leftover struct {
	hash    uint64
	key     []byte // as other members know it
	there   []byte // as this one does
	through bool   // the route asks others for what the member doesn't have
	undone  bool   // the undo of a late write has deleted it: a repair under way may have come before
	state   leftState
	failed  int // attempts to copy it
}

type leftState uint8

const (
	toDelete leftState = iota
	deleting
	toCopy
	copying
)

const (
	maxLeaving = 64 // deletes of leftovers on their way to a member
	maxCopying = 5  // attempts to copy one
)

// leave remembers that member i missed a write to a key.
func (m *account) leave(hash uint64, key, there []byte, through bool) {
	if !m.dirty.Add(hash) {
		m.overfull = true
		return
	}
	l := m.left[hash]
	if l == nil || l.state != toDelete {
		l = m.put(&leftover{hash: hash, key: bytes.Clone(key)})
		m.queue(l)
	}
	l.there, l.through = bytes.Clone(there), through
}

// put makes l the leftover of its key. Queues still have the one before.
func (m *account) put(l *leftover) *leftover {
	if m.left == nil {
		m.left = map[uint64]*leftover{}
	}
	m.left[l.hash] = l
	return l
}

// queue puts l in the line of those to be deleted, or to be copied. One that is
// not the last of its key any more goes when a line has grown long: at least half
// of them are then.
func (m *account) queue(l *leftover) {
	line := &m.order
	if l.state == toCopy {
		line = &m.gone
	}
	if len(*line) >= 2*dirtyKeys {
		*line = slices.DeleteFunc(*line, func(q *leftover) bool { return !m.is(q, l.state) })
	}
	*line = append(*line, l)
}

// is says that l is still the leftover of its key, in the given state.
func (m *account) is(l *leftover, s leftState) bool { return m.left[l.hash] == l && l.state == s }

// clean says that the member's copy of a key is repaired or gone: unless that is
// to be copied which an undo has deleted since.
func (m *account) clean(hash uint64) {
	l := m.left[hash]
	kept := l != nil && l.undone && l.state == toCopy
	if !kept {
		delete(m.left, hash)
	}
	if !kept || l.through {
		m.dirty.Remove(hash)
	}
}

// tendLeft goes on with what the member has left of before, now that it answers.
func (m *account) tendLeft(e *Copies) {
	if len(m.left) == 0 {
		m.order, m.gone = nil, nil
	}
	if m.server().down {
		return
	}
	if len(m.order) > 0 {
		m.deleteLeft(e)
	}
	if len(m.gone) > 0 {
		m.copyGone(e)
	}
}

func (m *account) deleteLeft(e *Copies) {
	limit := m.of.lp.pool.Timeouts
	list := m.order
	busy := list[:0]
	m.order = nil // who is told at once may put one back
	for at, l := range list {
		if m.leaving >= maxLeaving {
			busy = append(busy, list[at:]...)
			break
		}
		if !m.is(l, toDelete) {
			continue
		}
		if e.keylines[keyLine(l.hash)] != nil {
			busy = append(busy, l)
			continue
		}
		l.state = deleting
		m.leaving++
		line := append([]byte("md "), l.there...)
		if !plainKey(l.there) {
			line = append(base64.StdEncoding.AppendEncode([]byte("md "), l.there), " b"...)
		}
		e.demand(m.server().conns[0], &leaving{e, m, l}, 0, &limit, append(line, wire.LineEnd...), true)
	}
	m.order = append(busy, m.order...)
}

// leaving is the delete of a leftover.
type leaving struct {
	e  *Copies
	m  *account
	of *leftover
}

func (d *leaving) Client() uint64 { return 0 }

func (d *leaving) Answered(_ int, r *Result) {
	e, m, l := d.e, d.m, d.of
	m.leaving--
	current := m.is(l, deleting) // if not, it is clean already, or has missed another write
	switch gone := r.Foreign || r.parsed(wire.Delete, wire.Meta, &e.rep) && (e.rep.Kind == wire.Deleted || e.rep.Kind == wire.NotFound); {
	case current && !gone:
		l.state = toDelete
		m.queue(l)
	case current && l.through:
		m.dirty.Remove(l.hash)
		m.lost(e, *l)
	case current:
		delete(m.left, l.hash)
	case gone && e.rep.Kind == wire.Deleted && m.left[l.hash] == nil: // what had been repaired, on another connection
		m.lost(e, *l)
	}
	if m.leaving == 0 {
		e.at(resyncTimer, e.now)
	}
}

// lost says that the member has lost its copy of l's key to a delete that undid
// what it had. It is copied to it again, for one copy alone is too few: unless
// repairs are off, or too many wait.
func (m *account) lost(e *Copies, l leftover) {
	delete(m.left, l.hash)
	if !l.through && !m.dirty.Add(l.hash) { // its miss must not be believed
		m.overfull = true
	}
	switch {
	case m.of.rate == 0:
	case len(m.left) >= dirtyKeys:
		e.count.RepairsDropped++
	default:
		l.key, l.there, l.state = bytes.Clone(l.key), nil, toCopy
		m.queue(m.put(&l))
		e.at(resyncTimer, e.now)
	}
}

// undid says that an undo behind a late mutation (see undo.go) has deleted
// something at a server: what the mutation had left, or what was written or
// copied there since, on another connection. Members that are to have a copy of
// the key get it anew.
func (e *Copies) undid(srv *Server, there []byte) {
	key := health.Undivert(there)
	hash := e.loops.HashKey(key)
	if len(e.ledgers) == 0 || e.loops.Owner(hash) != e.Tasks { // it was no write to copies, which the owner leads
		return
	}
	for rt, members := range e.homes(key) {
		at := slices.IndexFunc(members, func(m copyOf) bool { return m.srv == srv })
		if at < 0 {
			continue
		}
		m := members[at]
		if !bytes.Equal(there, health.AppendKey(nil, uint64(m.lp.view.Renamed(m.index)), key)) {
			continue // a name that is not in use any more
		}
		m.lost(e, leftover{hash: hash, key: key, through: rt.copies.ReadThrough, undone: true})
	}
}

// copyGone copies to the member what it has lost, as fast as repairs may be made.
// What nobody surely has, or somebody writes, waits.
func (m *account) copyGone(e *Copies) {
	list := m.gone
	m.gone = nil // a repair may end at once
	var wait []*leftover
	for at, l := range list {
		if !m.is(l, toCopy) {
			continue
		}
		if len(wait) >= maxMends { // enough for this time: the others go first then
			m.gone = append(m.gone, list[at:]...)
			break
		}
		rt, from, to, later := m.sourceOf(e, l)
		if !later && (rt == nil || rt.copies.RepairRate == 0) { // it is not the member's any more, or is not to be repaired
			delete(m.left, l.hash)
			continue
		}
		if later || e.keylines[keyLine(l.hash)] != nil {
			wait = append(wait, l)
			continue
		}
		if e.mends >= maxMends || !m.mayRepair(e, rt.copies.RepairRate) {
			e.at(resyncTimer, e.now+m.untilRepair(e, rt.copies.RepairRate))
			m.gone = append(m.gone, list[at:]...)
			break
		}
		l.state = copying
		e.count.Repairs++
		e.mend(rt, bytes.Clone(l.key), l.hash, from, to, false, nil)
	}
	m.gone = append(m.gone, wait...)
}

// sourceOf finds the route by which the member has l's key, and another member
// that surely has what it is to have of it. later says that there is none now;
// no route, that there never will be: all others have lost it too.
func (m *account) sourceOf(e *Copies, l *leftover) (rt *route, from, to copyOf, later bool) {
	for home, members := range e.homes(l.key) {
		at := slices.IndexFunc(members, func(o copyOf) bool { return o.account == m })
		if at < 0 {
			continue
		}
		for _, o := range members {
			theirs := o.left[l.hash]
			switch {
			case o.srv == m.server() || theirs != nil && theirs.state == toCopy: // it has nothing
			case theirs != nil || o.srv.down || o.lp.view.Suspected(o.index) || o.lacks(e) || o.dirty.Has(l.hash) || o.srv.mayCome(l.key):
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
	l := m.left[hash]
	if l == nil || l.state != copying {
		return
	}
	if l.failed++; l.failed >= maxCopying {
		delete(m.left, hash)
		e.count.RepairsDropped++
		return
	}
	l.state = toCopy
	m.queue(l)
}
