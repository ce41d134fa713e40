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
func (m *wholeness) leave(hash uint64, key, there []byte, through bool) {
	if !m.dirty.Add(hash) {
		m.overfull = true
		return
	}
	l := m.left[hash]
	if l == nil || l.state != toDelete {
		l = m.put(&leftover{hash: hash, key: bytes.Clone(key)})
		m.order = append(m.order, l)
	}
	l.there, l.through = bytes.Clone(there), through
}

// put makes l the leftover of its key. Queues still have the one before.
func (m *wholeness) put(l *leftover) *leftover {
	if m.left == nil {
		m.left = map[uint64]*leftover{}
	}
	m.left[l.hash] = l
	return l
}

// is says that l is still the leftover of its key, in the given state.
func (m *wholeness) is(l *leftover, s leftState) bool { return m.left[l.hash] == l && l.state == s }

// clean says that the member's copy of a key is repaired or gone: unless that is
// to be copied which an undo has deleted since.
func (m *wholeness) clean(hash uint64) {
	l := m.left[hash]
	kept := l != nil && l.undone && l.state == toCopy
	if !kept {
		delete(m.left, hash)
	}
	if !kept || l.through {
		m.dirty.Remove(hash)
	}
}

// tendLeft goes on with what member i has left of before, now that it answers.
func (lp *livePool) tendLeft(e *Engine, i int) {
	m := &lp.whole.members[i]
	if len(m.left) == 0 {
		m.order, m.gone = nil, nil
	}
	if lp.servers[i].down {
		return
	}
	if len(m.order) > 0 {
		lp.deleteLeft(e, i)
	}
	if len(m.gone) > 0 {
		lp.copyGone(e, i)
	}
}

func (lp *livePool) deleteLeft(e *Engine, i int) {
	m, srv := &lp.whole.members[i], lp.servers[i]
	limit := lp.pool.Timeouts
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
		if e.keylines[l.hash] != nil {
			busy = append(busy, l)
			continue
		}
		l.state = deleting
		m.leaving++
		line := append([]byte("md "), l.there...)
		if !plainKey(l.there) {
			line = append(base64.StdEncoding.AppendEncode([]byte("md "), l.there), " b"...)
		}
		e.demand(srv.conns[0], &leaving{lp, i, l}, 0, &limit, append(line, lineEnd...))
	}
	m.order = append(busy, m.order...)
}

// leaving is the delete of a leftover.
type leaving struct {
	lp *livePool
	i  int
	of *leftover
}

func (d *leaving) answered(e *Engine, _ int, r *answer) {
	m, l := &d.lp.whole.members[d.i], d.of
	m.leaving--
	current := m.is(l, deleting) // if not, it is clean already, or has missed another write
	switch gone := r.foreign || r.parsed(wire.Delete, wire.Meta, &e.rep) && (e.rep.Kind == wire.Deleted || e.rep.Kind == wire.NotFound); {
	case current && !gone:
		l.state = toDelete
		m.order = append(m.order, l)
	case current && l.through:
		m.dirty.Remove(l.hash)
		d.lp.lost(e, d.i, *l)
	case current:
		delete(m.left, l.hash)
	case gone && e.rep.Kind == wire.Deleted && m.left[l.hash] == nil: // what had been repaired, on another connection
		d.lp.lost(e, d.i, *l)
	}
	if m.leaving == 0 {
		e.refillBy(e.now)
	}
}

// lost says that member i has lost its copy of l's key to a delete that undid
// what it had. It is copied to it again, for one copy alone is too few: unless
// repairs are off, or too many wait.
func (lp *livePool) lost(e *Engine, i int, l leftover) {
	m := &lp.whole.members[i]
	delete(m.left, l.hash)
	if !l.through && !m.dirty.Add(l.hash) { // its miss must not be believed
		m.overfull = true
	}
	switch {
	case lp.whole.rate == 0:
	case len(m.left) >= dirtyKeys:
		e.count.RepairsDropped++
	default:
		if len(m.gone) >= 2*dirtyKeys { // at least half of them are not the last of their key
			m.gone = slices.DeleteFunc(m.gone, func(l *leftover) bool { return !m.is(l, toCopy) })
		}
		l.key, l.there, l.state = bytes.Clone(l.key), nil, toCopy
		m.gone = append(m.gone, m.put(&l))
		e.refillBy(e.now)
	}
}

// undid says that an undo behind a late mutation (see undo.go) has deleted
// something at a server: what the mutation had left, or what was written or
// copied there since, on another connection. Members that are to have a copy of
// the key get it anew.
func (e *Engine) undid(srv *Server, there []byte) {
	key := health.Undivert(there)
	hash := hashOf(key)
	if len(e.copied) == 0 || e.Shared.owner(hash) != e { // it was no write to copies, which the owner leads
		return
	}
	for rt, members := range e.homes(key) {
		at := slices.IndexFunc(members, func(m copyOf) bool { return m.srv == srv })
		if at < 0 {
			continue
		}
		lp, i := members[at].lp, members[at].index
		if !bytes.Equal(there, health.AppendKey(nil, uint64(lp.watch.seen[i].renamed.Load()), key)) {
			continue // a name that is not in use any more
		}
		lp.lost(e, i, leftover{hash: hash, key: key, through: rt.copies.ReadThrough, undone: true})
	}
}

// mayCome says whether a server may have, or be about to have for a moment, what
// a late mutation of key leaves: its undo is not answered.
func (srv *Server) mayCome(key []byte) bool {
	in := func(c *Conn) bool {
		if c.undos == 0 || c.srv != srv {
			return false
		}
		for a := c.head; a != nil; a = a.next {
			if a.undo && bytes.Equal(health.Undivert(a.key), key) {
				return true
			}
		}
		return false
	}
	return srv.e.undos > 0 && (slices.ContainsFunc(srv.conns, in) || slices.ContainsFunc(srv.e.zombies, in))
}

// copyGone copies to member i what it has lost, as fast as repairs may be made.
// What nobody surely has, or somebody writes, waits.
func (lp *livePool) copyGone(e *Engine, i int) {
	m := &lp.whole.members[i]
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
		rt, from, to, later := lp.sourceOf(e, i, l)
		if !later && (rt == nil || rt.copies.RepairRate == 0) { // it is not the member's any more, or is not to be repaired
			delete(m.left, l.hash)
			continue
		}
		if later || e.keylines[l.hash] != nil {
			wait = append(wait, l)
			continue
		}
		if e.mends >= maxMends || !lp.mayRepair(e, i, rt.copies.RepairRate) {
			e.refillBy(e.now + lp.untilRepair(e, i, rt.copies.RepairRate))
			m.gone = append(m.gone, list[at:]...)
			break
		}
		l.state = copying
		e.count.Repairs++
		e.mend(rt, bytes.Clone(l.key), l.hash, from, to, false, nil)
	}
	m.gone = append(m.gone, wait...)
}

// sourceOf finds the route by which member i has l's key, and another member
// that surely has what it is to have of it. later says that there is none now;
// no route, that there never will be: all others have lost it too.
func (lp *livePool) sourceOf(e *Engine, i int, l *leftover) (rt *route, from, to copyOf, later bool) {
	for home, members := range e.homes(l.key) {
		at := slices.IndexFunc(members, func(m copyOf) bool { return m.srv == lp.servers[i] && m.lp.whole == lp.whole })
		if at < 0 {
			continue
		}
		for _, m := range members {
			theirs := m.lp.whole.members[m.index].left[l.hash]
			switch {
			case m.srv == lp.servers[i] || theirs != nil && theirs.state == toCopy: // it has nothing
			case theirs != nil || m.srv.down || m.lp.watch.seen[m.index].suspected() || m.lp.lacks(e, m.index) || m.missed().Has(l.hash) || m.srv.mayCome(l.key):
				later = true
			default:
				return home, m, members[at], false
			}
		}
	}
	return nil, from, to, later
}

// notCopied says that a repair of a key has failed: if it was for a leftover, it
// is tried again.
func (m *wholeness) notCopied(e *Engine, hash uint64) {
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
	m.gone = append(m.gone, l)
}
