package replication

// This file runs commands on keys with one copy while they move to other servers, because all
// instances change to another list of servers (package health/resize). The rule is
// replicate.Relocate. It asks the new owner and the old owner of the key like two replicas.

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"ringside/proxy/health"
	"ringside/proxy/health/divert"
	"ringside/proxy/health/resize"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
	"ringside/replicate"
)

// Moving is the handler of commands on unreplicated keys. It serves keys that move, and keys of a pool that
// fills from another one. It passes all others to the next handler.
type Moving struct {
	*Replicator
	Other task.Handler
}

// moving is what a command of Moving needs in addition. Replica 0 of the command is the new owner of the
// key, and replica 1 is its old owner.
type moving struct {
	n      uint32                    // number of the stage in which the command began
	gen    uint64                    // generation of the pool's view then
	names  [3][]byte                 // names of the key at the replicas
	tag    uint64                    // number in the cas tokens of the client: see divert.TagCas
	away   bool                      // the new owner is out, so its substitute server takes its place
	both   bool                      // the old owner gets requests
	second replicate.Command         // if creates is set: the client's command, which follows when the key has moved
	create bool                      // the client's command creates a missing key. First the key moves
	acted  bool                      // a request was sent that other clients may notice: see replicate.Rule.Acted
	copies bool                      // a read may cause a copy of the value to the new owner
	fills  bool                      // the key does not move, but its pool fills from another one: see fill.go
	found  *upstream.Result          // reply of the source to the read before: a copy stores this value. nil: the source is asked
	ended  func(c *command, ok bool) // called at the end of a command without a client
}

// OneCopy returns the handler of keys with one copy. The handler other gets those that do not move.
func (e *Replicator) OneCopy(other task.Handler) Moving {
	m := Moving{Replicator: e, Other: other}
	e.oneCopy = m
	return m
}

// mostPlaceholder is the longest lifetime of a placeholder, in seconds. A command that takes longer finds it
// gone, and begins again.
const mostPlaceholder = resize.PlaceholderLife

// Handle serves t.
func (m Moving) Handle(t *task.Task) {
	if t.Route.Source != nil {
		m.fill(t)
		return
	}
	s, is := t.Route.ServingBy(t.Key)
	if c := task.CommandOf(t); s >= resize.Moving || s == resize.Turning && c.Reads() && c.Op != replicate.Gets { // a gets moves its key
		m.relocate(t, s, is)
		return
	}
	m.Other.Handle(t)
}

// relocate runs t, a command on a key that moves, in the state by.
func (e *Replicator) relocate(t *task.Task, s resize.Service, by resize.Status) {
	if e.unfit(t) {
		return
	}
	command := task.CommandOf(t)
	c, wait, why := e.movingCommand(t.Route.BoundPool, by, t.Key)
	reads := command.Reads()
	switch until := t.Deadline - int64(t.Route.Timeouts.Deadline) + int64(t.Route.Pool.Failover.Wait); {
	case why == "":
	case reads || !wait || e.Now >= until:
		t.Fail(why, stats.Unavailable)
		return
	default:
		e.Park(t, until, t.Route.View.Gen)
		return
	}
	mv := c.moving
	if t.Op.Stores() && t.Op != wire.Set && c.replicas[0].Server.ExceedsItem(len(mv.names[0]), t.Req.Body.Len(), wire.ClientFlags(t.Req.ClientFlags.Of(t.Raw)) != 0) { // sent as an ms, it would remove the item
		t.Reject(wire.AppendServerError(nil, "object too large for cache"))
		return
	}
	owner := &c.replicas[1]
	old := replicate.Asked
	switch phase := owner.Pool.View.Phase(owner.Index); {
	case s == resize.Cooling, phase != health.In && phase != health.Leaving: // a server that was out is flushed before it is in use again, so it has nothing
		old = replicate.Empty
	case s == resize.Settling:
		old = replicate.Emptied
	case phase == health.In:
	case reads: // other instances may know that the old owner is out, and may have written without emptying it
		old = replicate.Emptied
	case e.Now < t.Deadline-int64(t.Route.Timeouts.Deadline)+int64(t.Route.Pool.Failover.Wait):
		e.Park(t, t.Deadline-int64(t.Route.Timeouts.Deadline)+int64(t.Route.Pool.Failover.Wait), t.Route.View.Gen)
		return
	default:
		t.Fail("server "+owner.Server.Label()+", which may have the key, is not in use", stats.Unavailable)
		return
	}
	if old == replicate.Asked && t.Route.Tags != nil && reads && command.Op == replicate.Get { // the versions of the tags are known at the new owner only
		old = replicate.Emptied
	}
	mv.both = old != replicate.Empty && (old == replicate.Asked || !reads)
	mv.copies = old == replicate.Asked && s != resize.Turning
	c.openMoved(t, command.Op)
	if mv.away && !t.Rewrite(t.ShortLived(t.Route.Pool.Failover.SubstituteTTL)...) {
		return
	}
	c.writes = !reads
	if !c.holdsLeases(t.Loop.Moment()) {
		t.Fail(uncertain, stats.Unavailable)
		return
	}
	is := command
	if (command.Vivify || command.Win) && old != replicate.Empty {
		mv.create, mv.second, is = true, command, replicate.Command{Op: replicate.Gets}
	}
	c.rule = replicate.Relocate(is, old)
	t.Rule = c
	t.SetPreparing(true)
	t.Run(0, nil)
}

// openMoved sets the cas to send for the cas token of t, which executes op on a key that moves or is filled.
func (c *command) openMoved(t *task.Task, op replicate.Op) {
	if token, has := t.Token(); has && op != replicate.Add { // memcached ignores the token of an add
		cas, ok := divert.UntagCas(token, c.moving.tag)
		if !ok { // the token is of another time, server, or name of the key
			cas = wire.NoMatch
		}
		c.token = strconv.AppendUint(nil, cas, 10)
	}
}

// flagError returns the error for a meta command with flags that its servers would not check, or would reject too late: after the tombstones
// of the command are stored, or after the old owner is emptied. It returns "" for all other commands.
func flagError(t *task.Task) string {
	if t.Op.Stores() && t.Req.Dialect == wire.Meta && t.Req.UnknownFlags() {
		return "invalid flag"
	}
	return t.UncheckedFlags()
}

// unfit ends t if it has flags that the server would reject after the old owner is emptied, or if its deadline has
// passed.
func (e *Replicator) unfit(t *task.Task) bool {
	switch why := flagError(t); {
	case why != "":
		t.Reject(wire.AppendClientError(nil, why))
	case e.Now >= t.Deadline:
		t.Fail(cmp.Or(t.WaitReason, task.TooLong), stats.TimedOut)
	default:
		return false
	}
	return true
}

// movingCommand returns a command on a key that moves, in the state is, without its rule. If the key can't be served, why
// is the reason, and wait says whether that may change soon.
func (e *Replicator) movingCommand(bp *routing.BoundPool, is resize.Status, key []byte) (c *command, wait bool, why string) {
	w := bp.View
	mv := &moving{n: is.N, gen: w.Gen()}
	to := bp.Arrival(is, key)
	from, next := bp.Ends(is)
	_, _, before := from.Pool.Place.Locate(key)
	if to.Owner < 0 || before < 0 {
		return nil, false, routing.NoServer
	}
	switch r := to.Route; {
	case r.Role != health.In:
		return nil, true, "server " + next.Servers[to.Owner].Label() + ", to which the key moves, is not in use"
	case w.Suspected(r.First.Server):
		return nil, false, "server " + bp.Server(r.First.Server).Label() + " is not in use: " + w.SuspectWhy(r.First.Server)
	default:
		before = from.InView(before)
		mv.away, mv.tag = r.First.Diverted, to.Tag
		mv.names = [3][]byte{divert.AppendKey(nil, r.First.Number, key), divert.AppendKey(nil, uint64(w.Renamed(before)), key)}
		c = e.newCommand(mv, movingReplica(bp, r.First.Server), movingReplica(bp, before))
		c.phases = c.phaseNumbers()
		return c, false, ""
	}
}

func movingReplica(bp *routing.BoundPool, i int) replica {
	bp.Server(i).LearnItemSize() // see relocate
	return replica{Holder: routing.Holder{Pool: bp, Index: i, Server: bp.Server(i)}}
}

// holdsLeases reports whether this process has leases on the servers that a command on a key that moves uses.
func (c *command) holdsLeases(now int64) bool {
	return c.replicas[0].leased(now) && (!c.moving.both || c.replicas[1].leased(now))
}

// goesOn reports whether the stage in which the command began has not ended.
func (c *command) goesOn() bool {
	return c.moving == nil || c.moving.fills || c.replicas[0].Pool.View.Resize().Compatible(c.moving.n)
}

// drop removes the placeholder of a command that ends before its last request.
func (c *command) drop(t *task.Task) {
	if c.isRepair || !c.rule.HasTombstone() {
		return
	}
	claim := &c.asks[0].result
	if conn, _, _ := c.replicas[0].Server.Pick(t.Asker, true); conn != nil && conn.IsSameProcess(claim.ConnEpoch) {
		c.e.Ask(conn, upstream.Ignore, 0, &t.Route.Timeouts, task.StepRequest(t, replicate.Drop, c.moving.names[0], task.CasFlag(claim), 0), true)
	}
}

// stop ends a command on a key that moves, because its stage has ended. It begins again if it has had no
// effect.
func (c *command) stop(t *task.Task) {
	c.drop(t)
	switch {
	case c.isRepair || t.ClientDone:
		c.endMoving(t, replicate.Settlement{Verdict: replicate.Unmet, Source: -1}, false)
	case !c.moving.acted && c.e.Now < t.Deadline:
		t.Loop.Ready(t)
	default:
		t.Fail("the key moves to another server: try again", stats.Unavailable)
	}
}

// surely reports whether the client may get the reply of a command on a key that moves. With strict
// consistency, the leases on its servers must be valid, and its stage and their phases must not have
// changed.
func (c *command) surely(t *task.Task) bool {
	bp := c.replicas[0].Pool
	if !bp.Pool.Failover.Strict {
		return true
	}
	return c.holdsLeases(t.Loop.Moment()) && c.goesOn() && c.phases == c.phaseNumbers() && (!c.moving.away || bp.View.Gen() == c.moving.gen)
}

// proceedToCreate runs the client's command that creates a missing key, when the key has moved or neither
// owner had it. It reports whether it did.
func (c *command) proceedToCreate(t *task.Task, s replicate.Settlement) bool {
	if !c.moving.create || s.Verdict != replicate.Absent {
		return false
	}
	c.moving.create, c.moving.acted = false, false
	if t.Op == wire.Append || t.Op == wire.Prepend || !c.rule.OldIsEmpty() {
		why := "the key moves to another server: try again"
		if c.moving.fills {
			why = "the key is missing, or the source of the pool can't say whether it is"
		}
		t.Fail(why, stats.Unavailable)
		return true
	}
	c.asks = c.asks[:0]
	if c.moving.fills {
		c.rule = replicate.FillFrom(c.moving.second, replicate.Empty)
	} else {
		c.rule = replicate.Relocate(c.moving.second, replicate.Empty)
	}
	return true
}

// endMoving ends a command on a key that moves, after its last ask has an outcome.
func (c *command) endMoving(t *task.Task, s replicate.Settlement, ok bool) {
	mv := c.moving
	switch {
	case mv.ended != nil:
		ended := mv.ended
		mv.ended = nil
		ended(c, ok && s.Verdict == replicate.Answered)
	case s.Repair != 0 && mv.fills:
		c.e.copyFound(t, c)
	case s.Repair != 0 && mv.copies && !mv.away && c.goesOn() && !(s.Answer >= 0 && task.HasPlaceholder(&c.asks[s.Answer].result)):
		c.e.moveKey(t.Route, t.Key, c.replicas, mv)
	}
}

// moveKey copies the value of a key to its new owner after a read has found it at the old owner, unless
// many keys move already. It is the backfill of a key that moves.
func (e *Replicator) moveKey(rt *routing.Route, key []byte, replicas []replica, of *moving) {
	loops, _ := e.Loops.Count(e.Tasks)
	if e.Copying >= maxCopies || !e.mayMove(replicas[1].Pool.Pool.Name, replicas[1].Index, replicas[1].Pool.Pool.MoveRate(), loops+1) { // the walk has a share of its own
		return
	}
	e.Copying++
	mv := &moving{n: of.n, gen: of.gen, names: of.names, both: true}
	mv.ended = func(c *command, ok bool) {
		e.Copying--
		if ok && slices.ContainsFunc(c.asks, func(a copyAsk) bool { return a.Step == replicate.Fill }) {
			e.countKeys(c.replicas[0].Pool.Pool.Name).Copied++
		}
	}
	e.runMove(rt, key, replicas, mv, replicate.Mend(0, 1, false, false))
}

// runMove runs a rule that moves or copies a key, without a client.
func (e *Replicator) runMove(rt *routing.Route, key []byte, replicas []replica, mv *moving, rule replicate.Rule) {
	c := e.newCommand(mv, replicas...)
	c.isRepair, c.rule = true, rule
	e.ownTask(rt, key, e.Loops.HashKey(key), c).Run(0, nil)
}

// mayMove reports whether one more key may leave server i of a pool now, or be read from server i of its source. rate
// is the number of keys in a second. This caller has one of `shares` equal shares
// of the rate.
func (e *Replicator) mayMove(pool string, i, rate, shares int) bool {
	b := stats.Entry(&e.rates, fmt.Sprint(pool, " ", i, " ", shares))
	if !b.fill(e.Now, float64(rate)/float64(shares)) {
		return false
	}
	b.tokens--
	return true
}
