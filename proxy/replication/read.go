package replication

// This file decides which replica a get may read without a task, and when: see direct.go.

import (
	"ringside/proxy/routing"
	"ringside/proxy/table"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/replicate"
)

// Copied returns e. The handler of a client's connection has this method, so that a directReader
// finds the Replicator of the client's loop.
func (e *Replicator) Copied() *Replicator { return e }

// ReadAt returns the connection on which a client may read key without a task, at the replica
// that is read first. It returns nil if a task is needed. hash is the hash of the key as servers
// know it. owner is the first server in the key's order.
//
// A value of that replica is a valid reply, unless the process knows of a write that the replica
// has missed or may still run. Another loop may own the key and know of such a write. That loop
// calls disableDirectReads before it answers the write. So for a read that is sent after the
// reply to the write, ReadAt returns nil.
func (e *Replicator) ReadAt(client uint64, rt *routing.Route, owner *upstream.Server, key []byte, hash uint64) *upstream.Conn {
	if !rt.AllIn() || e.handover != nil || e.Doubtful.Load() > 0 && !(e.Loops.Owner(hash) == e.Tasks && e.clean(rt, key, hash)) {
		return nil
	}
	srv := owner
	if !rt.ReadsFirst() {
		srv = e.nextOf(rt, key)
	}
	if srv == nil {
		return nil
	}
	c, _, _ := srv.Pick(client, false)
	return c
}

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

// clean reports whether no replica of a key has missed a write. The caller must be the
// loop that owns the key.
func (e *Replicator) clean(rt *routing.Route, key []byte, hash uint64) bool {
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
	if !e.doubts || e.LateDeletes > 0 {
		return
	}
	for _, w := range e.Ledgers {
		for i := range w.Members {
			if m := &w.Members[i]; m.Overflowed || len(m.Keys) > 0 {
				return
			}
		}
	}
	e.doubts = false
	e.Doubtful.Add(-1)
}

// continueRead returns the rule of a task that continues a get. r is the result of the get at the
// server `from`. The task does not ask this server again.
func continueRead(r *upstream.Result, from table.Target) task.Rule {
	return &command{first: r, firstFrom: from}
}
