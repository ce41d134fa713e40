package copies

// Which copy a get may ask without a task, and when: see package direct.

import (
	"ringside/proxy/routing"
	"ringside/proxy/table"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/replicate"
)

// Copied is what the loop of a client does for copies.
func (e *Copies) Copied() *Copies { return e }

// ReadAt is the connection by which a client reads key, which has that hash as servers know it, at
// the copy that is read first, without a task; nil: a task is needed. owner is the server that
// the key belongs to.
//
// A value there is the answer while nobody in the process knows of a write that the copy has
// missed, or may run yet: that is for the loop that leads the key to know, which may be another
// one. It says so before the write is answered (doubt), so who reads behind a write that was
// acknowledged sees it.
func (e *Copies) ReadAt(client uint64, rt *routing.Route, owner *upstream.Server, key []byte, hash uint64) *upstream.Conn {
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

// nextOf is the copy of key that is read first where that is not always the same.
func (e *Copies) nextOf(rt *routing.Route, key []byte) *upstream.Server {
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

// clean reports whether no copy of a key has missed a write, as far as this loop knows, which
// leads the key.
func (e *Copies) clean(rt *routing.Route, key []byte, hash uint64) bool {
	e.holders = e.copiesOf(e.holders[:0], rt, key)
	for i := range e.holders {
		if m := &e.holders[i]; m.Dirty(hash) || m.Server.HasLateDelete(key) {
			return false
		}
	}
	return true
}

// doubt tells the other loops, before what made it known is answered, that a member has missed
// a write or may run one late. Tend takes that back.
func (e *Copies) doubt() {
	if !e.doubts {
		e.doubts = true
		e.Doubtful.Add(1)
	}
}

// reassure takes doubt back, if nothing is left to be known of any member.
func (e *Copies) reassure() {
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

// TakesOver is the rule of a task that takes over from a get: r is what the copy at from
// has answered, or why it has not, and the copy is not asked again.
func TakesOver(r *upstream.Result, from table.Target) task.Rule {
	return &command{first: r, firstFrom: from}
}
