package copies

// The copier: what bounds the copies of keys from one holder to another, and the command
// that makes one.

import (
	"time"

	"ringside/proxy/link"
	"ringside/proxy/routing"
	"ringside/proxy/task"
	"ringside/proxy/wire"
	"ringside/replicate"
)

const (
	maxCopies  = 64            // copies at work in one loop
	background = maxCopies / 2 // of these, those that the ledger asks for: the others are for reads
)

// repair copies t's key from one holder to another in the background. overwrite: what
// the second has goes even if the first has nothing. There is no queue for it: the next
// command that sees the difference asks again, if the key still matters to somebody.
func (e *Copies) repair(t *task.Task, hash uint64, from, to copyOf, overwrite bool) {
	switch {
	case t.Route.Copies.RepairRate == 0:
	case e.LineFull(task.KeyLine(hash)) || !to.hasRoom(e, maxCopies):
		e.Count.RepairsDropped++
	default:
		e.Count.Repairs++
		e.copyKey(t.Route, t.Key, hash, from, to, overwrite, false, nil)
	}
}

// hasRoom reports whether one more copy to the member may begin now: the loop has fewer
// than limit at work, and the member has a token. The bucket holds what the rate brings
// in a tenth of a second. Where the ledger waits for room (limit is background), tend is
// called again when there may be some.
func (m *account) hasRoom(e *Copies, limit int) bool {
	loops, _ := e.Loops.Count(e.Tasks)
	each := float64(m.ledger.rate) / float64(loops) // the rate is meant for the process
	m.tokens = min(each/10+1, m.tokens+each*float64(e.Now-m.filledAt)/1e9)
	m.filledAt = e.Now
	switch {
	case each == 0 || e.Copying >= limit: // finish calls tend
		return false
	case m.tokens < 1 && limit == background:
		e.At(link.ResyncTimer, e.Now+max(int64((1-m.tokens)/each*1e9), int64(time.Millisecond)))
	}
	return m.tokens >= 1
}

// copyKey copies a key from one holder to another, as a command by the rule
// replicate.Mend. It takes its turn among the writes on the key: if a delete came
// between the read at one and the write at the other, the copy would undo it. overwrite
// and take say what may be replaced there: see replicate.Mend. f is the resync that the
// copy is a part of, or nil.
func (e *Copies) copyKey(rt *routing.Route, key []byte, hash uint64, from, to copyOf, overwrite, take bool, f *resync) {
	c := &command{e: e, members: []copyOf{from, to}, isRepair: true, resync: f, rule: replicate.Mend(1, 0, overwrite, take), stage: e.stage}
	t := e.ownTask(rt, key, hash, c)
	e.Copying++
	to.tokens--
	if e.Claim(t, task.KeyLine(t.Hash)) {
		t.Run(0, nil)
	}
}

// ownTask makes a task of c, which no client waits for.
func (e *Copies) ownTask(rt *routing.Route, key []byte, hash uint64, c *command) *task.Task {
	t := &task.Task{Loop: e.Tasks, ClientLoop: e.Tasks, ClientDone: true, Route: rt, Op: wire.Get, Key: key, Hash: hash}
	t.Deadline = e.Now + int64(rt.Timeouts.Deadline)
	if !wire.PlainKey(key) {
		t.Req.Flags = wire.Base64
	}
	t.Raw = t.Meta("mg", key, "", nil)
	e.Wire.Next(t.Raw, &t.Req)
	t.Rule = c
	t.Count()
	return t
}
