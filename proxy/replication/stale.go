package replication

// This file repairs single keys that a replica has wrong. Once the replica answers again, its
// value of a dirty key is deleted, and then the key is copied to it.

import (
	"bytes"
	"encoding/base64"
	"slices"

	"ringside/proxy/health"
	"ringside/proxy/health/divert"
	"ringside/proxy/link"
	"ringside/proxy/routing"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

const (
	maxDeletes = 64 // maximum number of deletes of dirty keys in flight at one replica
	maxCopying = 5  // maximum number of attempts to copy a key; after these, only a read that misses the key repairs it
)

// deleteStale deletes dirty keys at the replica. A key waits while a command has claimed its
// line. A key also waits while no other replica of it is filled and in use. Another instance may
// have written the key since, so this replica could have the only value.
func (m *replicaState) deleteStale(e *Replicator) {
	limit, list := m.ledger.bp.Pool.Timeouts, &m.Lists[ToDelete]
	for range list.Len() { // each entry is tried once: an entry that fails at once is at the end of the list again
		if list.Len() == 0 || m.DeletesSent >= maxDeletes {
			return
		}
		l := list.Front().Value.(*DirtyKey)
		if e.KeyBusy(l.Hash) || !m.canLoseCopy(e, l.Key) {
			list.MoveToBack(l.In)
			continue
		}
		m.Becomes(l, Deleting)
		m.DeletesSent++
		line := append([]byte("md "), l.There...)
		if wire.NeedsBase64(l.There) {
			line = append(base64.StdEncoding.AppendEncode([]byte("md "), l.There), " b"...)
		}
		e.Ask(m.server().Conns[0], &deletion{e, m, l}, 0, &limit, append(line, wire.CRLF...), true)
	}
}

// canLoseCopy reports whether the replica's value of the key may be removed: another replica is
// filled and in use, or no other replica exists.
func (m *replicaState) canLoseCopy(e *Replicator, key []byte) bool {
	others := false
	for _, replicas := range e.routesOf(key) {
		for _, o := range replicas {
			if o.Server == m.server() {
				continue
			}
			if others = true; o.filled(e) {
				return true
			}
		}
	}
	return !others
}

// filled reports whether the server of m is in use and lacks only keys with an entry in the
// ledger, as far as this process knows.
func (m *replica) filled(e *Replicator) bool {
	return m.Pool.View.Phase(m.Index) == health.In && !m.Server.Down && !m.Pool.View.Suspected(m.Index) && !m.incomplete(e)
}

// deletion is a delete of a dirty key at one replica, and receives its reply.
type deletion struct {
	e  *Replicator
	m  *replicaState
	of *DirtyKey
}

func (d *deletion) Answered(_ int, r *upstream.Result) {
	e, m, l := d.e, d.m, d.of
	m.DeletesSent--
	current := m.Keys[l.Hash] == l && l.State == Deleting // false: the key was repaired since the delete was sent, or the replica has missed another write
	deleted := r.Reply.Kind == wire.Deleted
	switch gone := r.Foreign || deleted || r.Reply.Kind == wire.NotFound; {
	case current && !gone:
		m.Becomes(l, ToDelete)
	case current && l.Through:
		m.SetDirty(l, false)
		m.Lost(e, *l, false)
	case current:
		m.Rest(l)
	case deleted && m.Pending(l.Hash) == nil: // the delete may have removed a value that a repair has stored since, on another connection
		m.Lost(e, *l, false)
	}
	if m.DeletesSent == 0 {
		e.At(link.ResyncTimer, e.Now)
	}
}

// Lost records that a delete has removed the replica's value of l's key, and queues the key to be
// copied again. It is not queued if repairs are off or too many keys wait. Until the copy, the
// key is not read at this replica if dirty is set, or if the route would believe a miss of it.
func (m *replicaState) Lost(e *Replicator, l DirtyKey, dirty bool) {
	e.disableDirectReads()
	l = DirtyKey{Hash: l.Hash, Key: bytes.Clone(l.Key), Through: l.Through, LateDeleted: l.LateDeleted, Overwrite: l.Overwrite, Failed: l.Failed}
	m.Put(&l)
	if dirty || !l.Through {
		m.SetDirty(&l, true)
	}
	switch {
	case m.ledger.rate == 0:
		m.Rest(&l)
	case m.Waiting() >= DirtyKeys:
		e.Count.RepairsDropped++
		m.Rest(&l)
	default:
		m.Becomes(&l, ToCopy)
		e.At(link.ResyncTimer, e.Now)
	}
}

// inDoubt records that the replica may have run a write to l's key, or may still run it, although
// no reply has arrived. The key is repaired once the replica answers. If dirty is set, the key is
// not read at the replica before the repair.
func (m *replicaState) inDoubt(e *Replicator, l DirtyKey, dirty bool) {
	if before := m.Keys[l.Hash]; before == nil || before.State != ToDelete { // in state ToDelete the replica has missed an earlier write, and the key must be deleted there first
		m.Lost(e, l, dirty)
	}
}

// LateDeleted records that a late delete (see upstream/latedelete.go) has removed the key `there`
// on srv. It has removed the value of the write that had timed out, or a value that was stored
// since on another connection. If srv should have a replica of the key, the key is copied again.
func (e *Replicator) LateDeleted(srv *upstream.Server, there []byte) {
	key := divert.Undivert(there)
	hash := e.Loops.HashKey(key)
	if len(e.Ledgers) == 0 || e.Loops.Owner(hash) != e.Tasks { // only the loop that owns the key has sent writes to its replicas
		return
	}
	for rt, replicas := range e.routesOf(key) {
		at := slices.IndexFunc(replicas, func(m replica) bool { return m.Server == srv })
		if at < 0 {
			continue
		}
		m := replicas[at]
		m.notice(e)
		if !bytes.Equal(there, divert.AppendKey(nil, uint64(m.Pool.View.Renamed(m.Index)), key)) {
			continue // the server's keys have been renamed since, so the name `there` is never read
		}
		if rt.Copies.ReadThrough && !srv.HasLateDelete(key) { // no late delete of the key is left, so a value there is the write of another instance, and may be the only copy
			m.Clean(hash)
		}
		m.Lost(e, DirtyKey{Hash: hash, Key: key, Through: rt.Copies.ReadThrough, LateDeleted: true, Overwrite: at > 0}, false)
	}
}

// copyLost copies to the replica the keys that are in state ToCopy, while hasRoom allows it. A
// key waits while a command on it has claimed its line, or while no replica surely has the value.
func (m *replicaState) copyLost(e *Replicator) {
	list, waiting := &m.Lists[ToCopy], 0
	for range list.Len() {
		if list.Len() == 0 || waiting >= maxCopies || !m.hasRoom(e, background) { // the limit on waiting keys bounds the work of one wakeup
			return
		}
		l := list.Front().Value.(*DirtyKey)
		switch rt, from, to, later := m.sourceOf(e, l); {
		case later || rt != nil && e.KeyBusy(l.Hash):
			list.MoveToBack(l.In)
			waiting++
		case rt == nil || rt.Copies.RepairRate == 0: // there is no source: the server does not keep the key any more, or no other replica has it; or the route has no repairs
			m.GiveUp(l)
		default:
			m.Becomes(l, Copying)
			e.Count.Repairs++
			e.copyKey(rt, bytes.Clone(l.Key), l.Hash, from, to, l.Overwrite, true, nil)
		}
	}
}

// sourceOf finds the route on which the replica keeps l's key, and another replica that surely
// has the value to copy. If there is none now but may be one later, it returns later = true.
// There will never be one in three cases:
//
//   - The replica should not have the key any more.
//   - All other replicas have lost the key, too.
//   - The write is in doubt at all other replicas that have the key, and these are after
//     this replica in the key's order.
func (m *replicaState) sourceOf(e *Replicator, l *DirtyKey) (rt *routing.Route, from, to replica, later bool) {
	for home, replicas := range e.routesOf(l.Key) {
		at := slices.IndexFunc(replicas, func(o replica) bool { return o.replicaState == m })
		if at < 0 {
			continue
		}
		doubted := 0
		for i, o := range replicas {
			theirs := o.Pending(l.Hash)
			inDoubt := theirs != nil && theirs.Overwrite && theirs.State >= ToCopy
			switch {
			case o.Server == m.server() || theirs != nil && theirs.State == ToCopy && !theirs.Overwrite: // o is this replica itself, or has lost the key and has no value to copy
			case l.Overwrite && inDoubt && i > at:
				doubted++
			case theirs != nil && !l.Overwrite || !o.filled(e) || o.Dirty(l.Hash) && !(l.Overwrite && inDoubt) || o.Server.HasLateDelete(l.Key):
				later = true
			default:
				return home, o, replicas[at], false
			}
		}
		if doubted > 0 && !later { // the write is in doubt at each other replica that has the key, so none has a more reliable value than this replica
			return nil, from, to, false
		}
	}
	return nil, from, to, later
}

// repairFailed records that a copy of the key with this hash to the replica has failed. If the
// ledger has requested the copy, it is tried again, up to maxCopying times. It is not tried again if
// the value is too large for the server (refused).
func (m *replicaState) repairFailed(e *Replicator, hash uint64, refused bool) {
	l := m.Keys[hash]
	if l == nil || l.State != Copying {
		return
	}
	if l.Failed++; l.Failed < maxCopying && !refused {
		m.Becomes(l, ToCopy)
		return
	}
	m.GiveUp(l)
	e.Count.RepairsDropped++
}
