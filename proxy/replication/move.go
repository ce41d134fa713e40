package replication

// This file moves keys to other servers, because a reload has changed weights, servers, or the
// number of replicas: see handover.go. Before a command decides anything about a key, the key is
// moved away from its former servers.

import (
	"bytes"
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"time"

	"ringside/proxy/client"
	"ringside/proxy/health"
	"ringside/proxy/health/barrier"
	"ringside/proxy/health/resize"
	"ringside/proxy/link"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/replicate"
)

const (
	maxMoves  = 64 << 10                     // maximum number of moves that are remembered after their end
	moveAgain = int64(50 * time.Millisecond) // delay before a key is moved again after a failure
)

// byArrangement appends to list the replicas that a key has by the arrangement a. rt is the key's
// route in the present routing table. Servers that are not in the present routing table are
// omitted. A server that was not in the table in between has another Server object now.
func (e *Replicator) byArrangement(list []replica, a *arrangement, rt *routing.Route, key []byte) []replica {
	for _, h := range a.Holders(rt, key) {
		for _, bp := range e.Pools {
			same := func(srv *upstream.Server) bool {
				return srv.Target.SameAddress(h.Server.Target)
			}
			if i := slices.IndexFunc(bp.Servers, same); i >= 0 && bp.Pool.Name == h.Pool.Pool.Name && e.Ledgers[bp.Pool.Name] != nil {
				list = append(list, e.replicaAt(routing.Holder{Pool: bp, Index: i, Server: bp.Servers[i]}))
			}
		}
	}
	return list
}

// TakeCopies starts a handover if a reload has changed which servers keep which keys. It sets which pools have
// ledgers. It is called after the routes of a new routing table are bound.
func (e *Replicator) TakeCopies() {
	before := e.arranged
	e.arranged = newArrangement(e.Listeners)
	changes := before != nil && before.Print != e.arranged.Print
	joins := e.joins()
	begins := changes && !joins
	if begins {
		if e.handover == nil || e.handover.ended {
			e.Moving.Add(1)
		}
		h, tooMany := newHandover(before, e.handover)
		if e.handover = h; tooMany {
			e.LogOrder(slog.LevelWarn, "", "replicated keys have moved too often: their first servers are not asked any more")
		}
	}
	e.involve()
	e.arrange()
	if before == nil || changes && joins { // no key of a pool that joins its peers was served before
		e.learning, e.learned = len(e.Ledgers) > 0, 0
	}
	if !begins {
		return
	}
	e.learning = false
	e.enter()
	e.storeFormers()
	if e.Keepers.RunsKeepers {
		e.LogOrder(slog.LevelInfo, "", "replicated keys move to other servers when all instances have this configuration")
	}
}

// involve makes the pools and the routes with one copy take part in the handover if it concerns their keys: by one of two routing
// tables a key has replicas, and by the other it has them in another pool, or has one copy.
func (e *Replicator) involve() {
	if e.handover == nil {
		return
	}
	concerned := map[string]bool{}
	for _, a := range e.handover.Formers {
		for old, rt := range a.shared(e.Listeners) {
			for _, bp := range slices.Concat([]*routing.BoundPool{old.BoundPool, rt.BoundPool}, old.Also) {
				concerned[bp.Pool.Name] = true
			}
			if rt.HasOneCopy() && rt.Copies.Copies == 0 && rt.View != nil && rt.Tags == nil && rt.Source == nil {
				rt.HandOver(old.Copies)
			}
		}
	}
	for _, bp := range e.Pools {
		if bp.View != nil && concerned[bp.Pool.Name] {
			e.KeepLedger(bp)
		}
	}
}

// arrange drops the ledgers of pools without replicated keys that take part in no handover. It informs the keepers of which
// arrangement the pools of the other ledgers need, and sets the rates of repairs.
func (e *Replicator) arrange() {
	for name, w := range e.Ledgers {
		if !slices.Contains(e.Pools, w.bp) {
			w.stop()
			delete(e.Ledgers, name)
		}
	}
	deadline, joins := time.Duration(0), e.joins()
	for _, bp := range e.Pools {
		deadline = max(deadline, bp.Pool.Timeouts.Deadline)
	}
	for _, bp := range e.Pools {
		if bp.View == nil {
			continue
		}
		w, hash := e.Ledgers[bp.Pool.Name], uint64(barrier.None)
		bp.View.KeepReplicas(w != nil)
		if w != nil {
			hash, w.rate = e.arranged.Hash(), e.repairRate(bp)
			e.At(link.ResyncTimer, e.Now)
		}
		bp.View.Handover.Arrange(hash, deadline, joins)
	}
}

// joins reports whether a pool uses its peers' list instead of the configured one: see table.Table.Join.
func (e *Replicator) joins() bool {
	return slices.ContainsFunc(e.Pools, func(bp *routing.BoundPool) bool { return bp.Pool.Joins != nil })
}

// learn joins the handover of the peers, if this process was started in the middle of it. The keepers have then read the former lists from
// the servers. learn uses the routes of this process and their numbers of replicas.
func (e *Replicator) learn() {
	e.learning = false
	texts, count := map[string][][]byte{}, 0
	for name, w := range e.Ledgers {
		e.learning = e.learning || !w.bp.View.Learned()
		texts[name] = w.bp.View.Formers()
		count += len(texts[name])
	}
	if count == e.learned {
		return
	}
	e.learned = count
	var formers []*arrangement
	for back := maxFormers; back > 0; back-- { // the lists of several pools are of the same reload if they are equally far from the last one
		lists := map[string]*table.List{}
		for name, list := range texts {
			if i := len(list) - back; i >= 0 {
				lists[name], _ = e.Ledgers[name].bp.Pool.ReadList(list[i]) // the keeper has checked it
			}
		}
		if len(lists) > 0 {
			formers = append(formers, e.arranged.by(lists))
		}
	}
	if !slices.ContainsFunc(formers, func(a *arrangement) bool { return a.Print != e.arranged.Print }) {
		return // a reload has changed something else
	}
	if e.handover == nil {
		e.Moving.Add(1)
	}
	e.handover = &handover{Formers: formers, Serving: formers[len(formers)-1]}
	e.enter()
	e.storeFormers()
	if e.Keepers.RunsKeepers {
		e.LogOrder(slog.LevelInfo, "", "replicated keys move to other servers: this instance has learned their former servers from the servers, and moves them like its peers")
	}
}

// storeFormers informs the keepers of the former servers of the keys that move: see health.View.SetFormers.
func (e *Replicator) storeFormers() {
	for name, w := range e.Ledgers {
		w.bp.View.SetFormers(e.handover.texts(name, e.arranged))
	}
}

// stages returns, for each pool, the stage of the handover that all instances have reached.
func (e *Replicator) stages() (list []barrier.Stage, withheld bool) {
	for _, w := range e.Ledgers {
		is := w.bp.View.Handover.Status()
		list, withheld = append(list, is.Stage(e.arranged.Hash())), withheld || is != nil && is.Withheld
	}
	return list, withheld
}

// proceed enters the next stage of the handover when all instances have reached it.
func (e *Replicator) proceed() {
	if e.learning {
		e.learn()
	}
	h := e.handover
	if h == nil || h.Moving() || !h.Proceed(e.stages()) {
		return
	}
	if e.Ablation.Pause {
		h.Serving = nil
	}
	e.enter()
}

// pauses reports whether keys that are about to move to other replicas must not be changed now.
func (e *Replicator) pauses() bool {
	e.proceed()
	return e.handover.Pauses()
}

// unsettled returns 0 if a reload may apply another routing table now (see barrier.Status.Open). It otherwise returns
// the time until the next check. At the start, a reload waits until this process knows whether keys move. A reload also waits while keys with one copy are paused or not served. But it may be
// what ends such a stage, because it removes dead servers. So it does not wait if the stage is late.
func (e *Replicator) unsettled() time.Duration {
	for _, bp := range e.Pools {
		if bp.View == nil {
			continue
		}
		is := bp.View.Resize()
		if e.Ledgers[bp.Pool.Name] != nil && (e.learning || !bp.View.Handover.Status().Open()) || (is.Stage() == resize.Pause && !is.Announced || is.Stage() == resize.Clear) && !is.Late {
			return bp.Pool.Failover.Ping
		}
	}
	return 0
}

// enter starts a new stage of the handover, in which keys may have other replicas and other former
// servers.
func (e *Replicator) enter() {
	e.stage++
	e.moves = map[uint64]*move{}
	e.every(func(m *replicaState) bool {
		if m.left = false; e.handover.Moving() {
			m.markEmpty(e, false)
		}
		return true
	})
}

// every reports whether the function `is` returns true for all servers of all ledgers.
func (e *Replicator) every(is func(m *replicaState) bool) bool {
	for _, w := range e.Ledgers {
		for i := range w.Members {
			if !is(&w.Members[i]) {
				return false
			}
		}
	}
	return true
}

// leaves reports whether the server of m may now give up the keys that it must no longer keep.
// That is so when all servers have been filled with the keys that they must keep.
func (e *Replicator) leaves(m *replicaState) bool {
	return e.handover.Moving() && !m.left && e.every(func(o *replicaState) bool { return !o.Incomplete })
}

// endHandover ends the handover when all servers have exactly the keys that they should have. Other loops own other keys. So the handover
// goes on until they have moved theirs.
func (e *Replicator) endHandover() {
	h := e.handover
	if !h.Moving() || !h.ended && !e.every(func(m *replicaState) bool { return m.left && !m.Incomplete }) {
		return
	}
	last := false
	if !h.ended {
		h.ended = true
		last = e.Moving.Add(-1) == 0
	}
	if e.Moving.Load() > 0 {
		return
	}
	e.handover = nil
	e.enter()
	if last {
		e.storeFormers()
		e.LogOrder(slog.LevelInfo, "", "replicated keys have all moved to the servers of this configuration")
	}
	e.dismiss()
}

// dismiss ends the part that pools and routes without replicas have taken in a handover.
func (e *Replicator) dismiss() {
	copied := map[*routing.BoundPool]bool{}
	for _, l := range e.InOrder {
		for i := range l.Routes {
			switch rt := &l.Routes[i]; {
			case !rt.HasOneCopy():
				for _, bp := range append([]*routing.BoundPool{rt.BoundPool}, rt.Also...) {
					copied[bp] = true
				}
			case rt.Copies.Copies != 0:
				rt.HandOver(replicate.Policy{})
			}
		}
	}
	for name, w := range e.Ledgers {
		if !copied[w.bp] {
			w.stop()
			delete(e.Ledgers, name)
		}
	}
	e.arrange()
}

// formersOf returns the servers that may still have a key of rt from before a reload. The servers
// in holders, which keep the key now, are not among them.
func (e *Replicator) formersOf(rt *routing.Route, key []byte, holders []replica) (list []replica) {
	if e.handover == nil {
		return nil
	}
	var room [replicate.Max]replica
	for _, a := range e.handover.Formers {
		for _, f := range e.byArrangement(room[:0], a, rt, key) {
			if !holds(holders, f.Server) && !holds(list, f.Server) && !e.keeps(f.Server, key) {
				list = append(list, f)
			}
		}
	}
	return list
}

// keeps reports whether a route of the present routing table has a replica of the key on srv.
func (e *Replicator) keeps(srv *upstream.Server, key []byte) bool {
	defer func(room []replica) { e.holders = room }(e.holders) // the caller may still use e.holders, in a loop over routesOf
	e.holders = nil
	for _, replicas := range e.routesOf(key) {
		if holds(replicas, srv) {
			return true
		}
	}
	return false
}

// rebind sets t's route to that of the present routing table, because t may have been parked
// since before a reload. If the key has no such route any more, rebind fails t and returns false.
func (e *Replicator) rebind(t *task.Task) bool {
	if l := e.Listeners[t.Route.Listener]; l != nil {
		if rt := l.Fitting(append([]byte(t.Route.Strip), t.Key...)); rt != nil && rt.Strip == t.Route.Strip && rt.Copies.Copies != 0 {
			t.Route = rt
			return true
		}
	}
	t.Fail(client.Reconfigured, stats.Unavailable)
	e.Unclaim(t)
	return false
}

// awaitHandover parks t while a former server of its key may have the key, or while the key's
// replicas are about to change. It returns true if t is parked or has failed. For a read it is
// called after a miss. If a former server can't be asked, a read fails on routes with
// read_through; on other routes the result is false, and the client gets the miss.
func (e *Replicator) awaitHandover(t *task.Task, read bool) bool {
	e.proceed()
	if e.handover == nil || e.Ablation.Former {
		return false
	}
	holders := e.copiesOf(nil, t.Route, t.Key)
	if e.handover.Pauses() {
		if now := e.present(nil, t.Route, t.Key); !slices.EqualFunc(holders, now, func(a, b replica) bool { return a.Server == b.Server }) {
			stage := e.stage
			return e.await(t, "other servers are about to keep its key", func() bool { e.proceed(); return e.stage != stage })
		}
	}
	formers := e.formersOf(t.Route, t.Key, holders)
	m := e.moves[t.Hash]
	if m == moved || len(formers) == 0 {
		return false
	}
	const why = "a server that has kept the key before a reload can't be asked for it"
	command := task.CommandOf(t)
	discard := m != nil && m.over && len(m.refused) > 0 && !command.If && (command.Op == replicate.Set || command.Op == replicate.Delete && !command.Stale) // no server can take the value, and the command does not need it
	if m == nil || discard || m.over && e.Now >= m.again {
		m = e.move(t.Route, t.Key, t.Hash, formers, nil, discard)
	}
	switch {
	case m.over && !m.failed: // no former server had to be asked
		return false
	case m.over && read:
		if t.Route.Copies.ReadThrough {
			t.Fail(why, stats.Unavailable)
		}
		return t.Route.Copies.ReadThrough
	}
	return e.await(t, why, func() bool { return m.over && (read || e.Now >= m.again) })
}

// serveOneCopy serves t if its key has one copy in this stage of the handover, and reports whether it has done so. It passes t on to the handler
// of keys with one copy (Moving), because instances without the new routing table do that, too, and so do those that have ended the handover. First
// the key leaves its former servers. There are two exceptions, in which a rule with one replica serves t:
//
//   - In the pause, the server may have a tombstone of an instance that serves the key with replicas already.
//   - The server has missed a write to the key.
func (e *Replicator) serveOneCopy(t *task.Task) bool {
	h := e.handover
	if h == nil {
		if !t.Route.HasOneCopy() {
			return false
		}
		e.Unclaim(t) // the handover has ended since t was parked
		e.oneCopy.Handle(t)
		return true
	}
	e.proceed()
	rt := t.Route
	if h.Serving != nil {
		if old := h.Serving.route(rt, t.Key); old != nil {
			rt = old
		}
	}
	holders := e.copiesOf(nil, t.Route, t.Key)
	if !rt.HasOneCopy() || len(holders) != 1 {
		return false
	}
	own := holders[0]
	concerned := slices.ContainsFunc(h.Formers, func(a *arrangement) bool { return a.route(t.Route, t.Key) != nil })
	if concerned && own.Pool.View.Phase(own.Index) == health.In && (h.Pauses() || h.Serving == nil && (own.Overflowed || own.Dirty(t.Hash))) {
		return false
	}
	if reads := task.CommandOf(t).Reads(); e.expired(t) || !(reads && h.Pauses()) && e.awaitHandover(t, false) {
		return true
	}
	e.Unclaim(t)
	e.oneCopy.Handle(t)
	return true
}

// expired fails t if it has waited until its deadline, and reports whether it has.
func (e *Replicator) expired(t *task.Task) bool {
	if e.Now < t.Deadline {
		return false
	}
	t.Fail(cmp.Or(t.WaitReason, task.TooLong), stats.TimedOut)
	e.Unclaim(t)
	return true
}

// await parks t until the function `known` returns true, or until t's deadline. It always returns
// true.
func (e *Replicator) await(t *task.Task, why string, known func() bool) bool {
	t.WaitReason = why
	e.Park(t, t.Deadline, func() uint64 {
		if known() {
			return 1
		}
		return 0
	})
	return true
}

// move moves one key away from its former servers to the servers that should have it.
type move struct {
	e       *Replicator
	stage   uint64 // value of Replicator.stage when the move started
	rt      *routing.Route
	key     []byte
	hash    uint64
	formers []replica          // former servers of the key that have not been asked yet
	refused []*upstream.Server // servers that can't store the value, because it is too large: they get no copy
	discard bool               // the value is removed from the former servers without a copy
	failed  bool               // a former server did not reply, or a replica could not get the value
	over    bool
	again   int64   // earliest time at which the key may be moved again after a failure, on the loop's clock
	resync  *resync // the resync that has requested the move; nil: none
}

// moved is the move of every key that has left its former servers.
var moved = &move{over: true}

// move starts to move a key away from its former servers. The move does not wait in the key's
// line: it writes only on the condition of a cas, which protects newer values.
func (e *Replicator) move(rt *routing.Route, key []byte, hash uint64, formers []replica, f *resync, discard bool) *move {
	m := &move{e: e, stage: e.stage, rt: rt, key: bytes.Clone(key), hash: hash, formers: formers, resync: f, discard: discard}
	if len(e.moves) >= maxMoves {
		maps.DeleteFunc(e.moves, func(_ uint64, m *move) bool { return m.over })
	}
	e.moves[hash] = m
	m.next()
	return m
}

// next asks the next former server of the key, or ends the move.
func (m *move) next() {
	e := m.e
	for len(m.formers) > 0 && e.stage == m.stage {
		from := m.formers[0]
		m.formers = m.formers[1:]
		switch phase := from.Pool.View.Phase(from.Index); {
		case phase == health.Out || phase == health.Returning: // the server is flushed before it is read again, so the key on it is lost anyway
		case !from.reachable(e, m.key):
			m.failed = true
		default:
			m.ask(from)
			return
		}
	}
	m.over = true
	switch {
	case e.stage != m.stage:
	case m.failed:
		m.again = e.Now + moveAgain
	default:
		e.moves[m.hash] = moved
	}
	if m.resync != nil {
		m.resync.moved(e, !m.failed && e.stage == m.stage)
	}
	e.Soon(link.ParkedTimer)
}

// asked records the end of c, which was to move the key away from one former server. If the value is
// too large for some of the servers that should have it, the others get it: the key then has fewer
// replicas.
func (m *move) asked(c *command, ok bool) {
	for i, h := range c.replicas {
		if !ok && c.refused.Has(i) {
			m.refused = append(m.refused, h.Server)
		}
	}
	switch {
	case ok:
	case c.refused != 0:
		m.formers = slices.Insert(m.formers, 0, c.replicas[0])
	default:
		m.failed = true
	}
	m.next()
}

// reachable reports whether the server of m can be asked for key, and its value can be copied.
func (m *replica) reachable(e *Replicator, key []byte) bool {
	return !m.Server.Down && !m.Pool.View.Suspected(m.Index) && !m.Server.HasLateDelete(key) && m.canBeSource(e.Now)
}

// ask moves the key away from the former server `from`. If that server has missed a write to the
// key, its value is removed without a copy.
func (m *move) ask(from replica) {
	e := m.e
	c := &command{e: e, isRepair: true, move: m, replicas: []replica{from}, stage: e.stage}
	var to, away replicate.Mask
	dirty, lost := false, m.rt.HasOneCopy() // lost: the server of a key with one copy is out, so the key is lost
	for _, h := range e.copiesOf(nil, m.rt, m.key) {
		if len(c.replicas) == replicate.Max { // a rule has no room for more replicas; the others get the key by their resync
			break
		}
		bit := replicate.Mask(1) << len(c.replicas)
		switch phase := h.Pool.View.Phase(h.Index); {
		case phase == health.Out || phase == health.Returning:
			continue
		case slices.Contains(m.refused, h.Server):
			lost = false
			continue
		case h.reachable(e, m.key) && !h.Overflowed:
			to |= bit
			dirty = dirty || h.Dirty(m.hash)
		default:
			away |= bit
		}
		c.replicas, lost = append(c.replicas, h), false
	}
	if m.discard || lost || from.Overflowed || from.Dirty(m.hash) {
		to, away = 0, 0
	} else if to == 0 {
		m.failed = true
		m.next()
		return
	}
	c.rule = replicate.Move(to, away, 0, dirty)
	e.ownTask(m.rt, m.key, m.hash, c).Run(0, nil)
}
