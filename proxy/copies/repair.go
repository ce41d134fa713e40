package copies

// The repair of one key: the bounds that all repairs share, and the command that copies
// a key from one holder to another.

import (
	"time"

	"ringside/proxy/routing"
	"ringside/proxy/task"
	"ringside/proxy/wire"
	"ringside/replicate"
)

const maxRepairs = 64 // repairs at work in one loop

// repair copies t's key from one holder to another in the background. overwrite: what
// the second has goes even if the first has nothing. A repair that exceeds a bound is
// dropped, not queued: the next command that sees the difference asks for it again.
func (e *Copies) repair(t *task.Task, hash uint64, from, to copyOf, overwrite bool) {
	rate := t.Route.Copies.RepairRate
	if rate == 0 {
		return
	}
	if e.LineFull(task.KeyLine(hash)) || e.Repairing >= maxRepairs || !to.mayRepair(e, rate) {
		e.Count.RepairsDropped++
		return
	}
	e.Count.Repairs++
	e.copyKey(t.Route, t.Key, hash, from, to, overwrite, false, nil)
}

// mayRepair takes a token for one repair of the member, if there is one. The bucket
// holds what the rate brings in a tenth of a second.
func (m *account) mayRepair(e *Copies, rate int) bool {
	each := e.share(rate)
	m.tokens = min(each/10+1, m.tokens+each*float64(e.Now-m.filledAt)/1e9)
	m.filledAt = e.Now
	if m.tokens < 1 {
		return false
	}
	m.tokens--
	return true
}

// untilRepair is how many nanoseconds it takes until mayRepair reports true.
func (m *account) untilRepair(e *Copies, rate int) int64 {
	if rate == 0 {
		return int64(lookTime)
	}
	return max(int64((1-m.tokens)/e.share(rate)*1e9), int64(time.Millisecond))
}

// share is this loop's part of a rate, which is meant for the process.
func (e *Copies) share(rate int) float64 { return float64(rate) / float64(e.loopCount()) }

// copyKey copies a key from one holder to another, as a command by the rule
// replicate.Mend. It takes its turn among the writes on the key: if a delete came
// between the read at one and the write at the other, the copy would undo it. overwrite
// and take say what may be replaced there: see replicate.Mend. f is the resync that the
// copy is a part of, or nil.
func (e *Copies) copyKey(rt *routing.Route, key []byte, hash uint64, from, to copyOf, overwrite, take bool, f *resync) {
	t := &task.Task{Loop: e.Tasks, ClientLoop: e.Tasks, ClientDone: true, Route: rt, Op: wire.Get, Key: key, Hash: hash}
	t.Deadline = e.Now + int64(rt.Timeouts.Deadline)
	if !wire.PlainKey(key) {
		t.Req.Flags = wire.Base64
	}
	t.Raw = t.Meta("mg", key, "", nil)
	e.Wire.Next(t.Raw, &t.Req)
	t.Rule = &command{e: e, members: []copyOf{from, to}, isRepair: true, resync: f, rule: replicate.Mend(1, 0, overwrite, take)}
	t.Count()
	e.Repairing++
	if e.Claim(t, task.KeyLine(t.Hash)) {
		t.Run(0, nil)
	}
}
