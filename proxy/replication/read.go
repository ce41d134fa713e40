package replication

// This file decides which replica a get may read without a task, and when: see directReader.Conn.

import (
	"ringside/proxy/routing"
	"ringside/proxy/upstream"
	"ringside/replicate"
)

// nextOf returns the server to read key from first, on a route that does not always read the
// first server in the key's order.
func (e *Replicator) nextOf(rt *routing.Route, key []byte) *upstream.Server {
	var room [replicate.Max]routing.Holder
	list := rt.Holders(room[:0], key)
	if len(list) == 0 {
		return nil
	}
	if rt.Copies.Read == replicate.Spread {
		e.turn++
		return list[e.turn%uint64(len(list))].Server
	}
	for _, h := range list {
		if rt.IsNear(h) {
			return h.Server
		}
	}
	return list[0].Server
}

// ownsClean reports whether this loop owns a key, and no replica of the key has missed a write.
func (e *Replicator) ownsClean(rt *routing.Route, key []byte) bool {
	hash := e.Loops.HashKey(key)
	if e.Loops.Owner(hash) != e.Tasks {
		return false
	}
	e.holders = e.copiesOf(e.holders[:0], rt, key)
	for i := range e.holders {
		if m := &e.holders[i]; m.Dirty(hash) || m.Server.HasLateDelete(key) {
			return false
		}
	}
	return true
}

// disableDirectReads makes all loops read replicated keys by tasks, until enableDirectReads is
// called. Only the loop that owns a key still reads it directly, if the key is clean. It is called when a replica has missed a write or may run one late, before the write is
// answered.
func (e *Replicator) disableDirectReads() {
	if !e.doubts {
		e.doubts = true
		e.Doubtful.Add(1)
	}
}

// enableDirectReads withdraws this loop's objection to direct reads, which are gets that one replica
// answers without a task. It does so only if no replica may have a key wrong (the ledgers have no
// entries), and no late delete is in progress. Direct reads begin again when no loop objects.
func (e *Replicator) enableDirectReads() {
	if e.doubts && e.LateDeletes == 0 && e.every(func(m *replicaState) bool { return !m.Overflowed && len(m.Keys) == 0 }) {
		e.doubts = false
		e.Doubtful.Add(-1)
	}
}
