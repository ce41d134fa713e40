package replication

// This file copies a key from one replica to another. It has the limits for copies, and the
// command that makes one copy.

import (
	"time"

	"ringside/proxy/link"
	"ringside/proxy/routing"
	"ringside/proxy/task"
	"ringside/proxy/wire"
	"ringside/replicate"
)

const (
	maxCopies  = 64            // maximum number of copies in progress on one loop
	background = maxCopies / 2 // the ledger requests copies only while fewer than this number are in progress; the rest of maxCopies is for copies that reads request
)

// repair copies t's key from one replica to another in the background. If overwrite is
// set, the target loses its value even if the source has none. Repairs are not queued:
// the next command that sees the difference requests the repair again.
func (e *Replicator) repair(t *task.Task, hash uint64, from, to replica, overwrite bool) {
	switch {
	case t.Route.Copies.RepairRate == 0:
	case e.KeyFull(hash) || !to.hasRoom(e, maxCopies):
		e.Count.RepairsDropped++
	default:
		e.Count.Repairs++
		e.copyKey(t.Route, t.Key, hash, from, to, overwrite, false, nil)
	}
}

// hasRoom reports whether one more copy to the replica may start now. The loop must have fewer
// than `limit` copies in progress, and the replica must have a token. If the ledger has to wait for
// one (limit is background), hasRoom schedules the next call of tend.
func (m *replicaState) hasRoom(e *Replicator, limit int) bool {
	loops, _ := e.Loops.Count(e.Tasks)
	each := float64(m.ledger.rate) / float64(loops) // the rate is the limit of the whole process
	has := m.fill(e.Now, each)
	switch {
	case each == 0 || e.Copying >= limit: // when a copy ends, finish schedules the next call of tend
		return false
	case !has && limit == background:
		e.At(link.ResyncTimer, e.Now+max(int64((1-m.tokens)/each*1e9), int64(time.Millisecond)))
	}
	return has
}

// bucket is a token bucket. It holds the tokens of a tenth of a second, and one more.
type bucket struct {
	tokens   float64
	filledAt int64 // time at which tokens was computed
}

// fill adds the tokens since the last call, at `each` tokens per second, and reports whether there is one.
func (b *bucket) fill(now int64, each float64) bool {
	b.tokens = min(each/10+1, b.tokens+each*float64(now-b.filledAt)/1e9)
	b.filledAt = now
	return b.tokens >= 1
}

// copyKey copies a key from one replica to another, as a command with the rule replicate.Mend.
// The copy waits in the key's line like a write. Otherwise a delete could run between the read at
// the source and the write at the target, and the copy would restore the key. overwrite and take
// say what may be replaced at the target: see replicate.Mend. f is the resync that has requested
// the copy, or nil.
func (e *Replicator) copyKey(rt *routing.Route, key []byte, hash uint64, from, to replica, overwrite, take bool, f *resync) {
	c := &command{e: e, replicas: []replica{from, to}, isRepair: true, resync: f, rule: replicate.Mend(1, 0, overwrite, take), stage: e.stage}
	t := e.ownTask(rt, key, hash, c)
	e.Copying++
	to.tokens--
	if e.Claim(t) {
		t.Run(0, nil)
	}
}

// ownTask returns a task without a client, which runs the command c.
func (e *Replicator) ownTask(rt *routing.Route, key []byte, hash uint64, c *command) *task.Task {
	t := e.OwnTask(rt, wire.Get, key, hash, "mg", "")
	t.Rule = c
	t.Count()
	return t
}
