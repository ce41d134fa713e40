package replication

// Running a command on a key with several replicas. Package replicate decides what to
// send. This file sends it, records the outcomes, and replies to the client.

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"sync/atomic"

	"ringside/proxy/ablation"
	"ringside/proxy/failover"
	"ringside/proxy/link"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
	"ringside/replicate"
)

// Replicator runs the commands of one loop on keys with several replicas. Only its loop
// may use it, except for the shared counters.
type Replicator struct {
	*task.Tasks
	Keepers *failover.Keepers
	Pools   []*routing.BoundPool // all pools of the routing table, in its order

	Ledgers    map[string]*ledger  // by the name of the pool
	Copying    int                 // number of copies in progress, at most maxCopies
	Doubtful   *atomic.Int32       // number of loops whose field doubts is true; shared by all loops
	Moving     *atomic.Int32       // number of loops whose handover is not complete; shared by all loops
	doubts     bool                // a replica may have missed a write, or may run one late: see disableDirectReads
	turn       uint64              // counts commands; replicas are read in turn if reads are spread
	lastChosen uint64              // the last cas that was chosen for all replicas of a value; it only grows
	holders    []replica           // scratch space of routesOf, which yields it
	Ablation   ablation.Set        // rules that tests turn off
	arranged   *arrangement        // which servers keep which keys, by the present routing table
	handover   *handover           // nil: all keys are where the routing table wants them
	stage      uint64              // of the handover; increases whenever the replicas of a key may change
	left       map[uint64]struct{} // hashes of keys that have left their former servers
	moves      map[uint64]*move    // by hash: moves in progress or failed
}

// command is a command on a key with several replicas, or a repair of such a key. It
// is the task.Rule that carries out a replicate.Rule.
type command struct {
	e        *Replicator // the Replicator of the loop that owns the key
	rule     replicate.Rule
	replicas []replica       // the replicas of the key, in the order of the rule
	asks     []copyAsk       // all asks of the rule, by number
	next     []replicate.Ask // scratch space of advance
	room     struct {        // initial storage of the slices: enough for a plain command on two replicas
		replicas [2]replica
		asks     [2]copyAsk
		next     [2]replicate.Ask
	}

	phases     uint64         // phaseNumbers at the start; in strict mode the reply does not count if they have changed
	primary    int            // index of the primary in replicas; -1: there is none
	gone       replicate.Mask // replicas that the command has skipped, so they miss the write
	writes     bool           // the command may change the key, so it runs alone: it has claimed the key's line
	chosen     uint64         // the cas for all replicas, if their servers support the meta flag E
	token      []byte         // the client's cas token, as a cas of the primary; nil: there is none
	spared     bool           // the primary has not answered a set, and no tombstone was sent after the set: see command.behind
	voidGuards []int          // numbers of asks that were not sent, because their cas may have been assigned by another process

	first     *upstream.Result // result of a get that was sent without a task, so its replica is not asked again; nil: none
	firstFrom table.Target     // the replica that has sent the reply in first

	stage    uint64  // stage of the handover when the command was created
	isRepair bool    // the command is a repair, without a client
	move     *move   // the move that the repair belongs to; nil: none
	resync   *resync // the resync that the repair belongs to; nil: none
}

// copyAsk is one ask of the rule, and its outcome.
type copyAsk struct {
	replicate.Ask
	op        wire.Op
	dialect   wire.Dialect
	respelled bool           // the request differs from the client's, so its reply must be translated for the client
	added     byte           // the meta flag that was added to the client's flags; 0: none
	at        int64          // when it was sent, on the loop's clock
	kind      replicate.Kind // meaning of the reply; 0: there is none yet
	result    upstream.Result
}

// Handle serves t if the keys of its route have several replicas. The loop that owns the
// key is the only one of the process that runs commands on it.
func (e *Replicator) Handle(t *task.Task) bool {
	if t.Route.Copies.Copies == 0 {
		return false
	}
	e.run(t)
	return true
}

func (e *Replicator) run(t *task.Task) {
	c := &command{e: e}
	c.asks, c.next = c.room.asks[:0], c.room.next[:0]
	if before, ok := t.Rule.(*command); ok && !t.ClientDone {
		c.first, c.firstFrom = before.first, before.firstFrom
	}
	command := task.CommandOf(t)
	command.Bound = !e.Ablation.Rest
	c.writes = command.Op > replicate.Gats && command.Op != replicate.Debug || command.Vivify || command.Win
	if c.writes && t.Req.Letters.Has('E') && t.Req.Dialect == wire.Meta {
		t.Reject(wire.AppendClientError(nil, "flag E sets the cas token, which differs between the replicas of a key on this route: leave it out"))
		return
	}
	if e.handover != nil && !e.rebind(t) {
		return
	}
	if c.writes && !e.Claim(t, task.KeyLine(t.Hash)) {
		return // Handle is called again when t is first in the line of the key
	}
	if e.Now >= t.Deadline {
		t.Fail(cmp.Or(t.WaitReason, task.TooLong), stats.TimedOut)
		e.Unclaim(t, task.KeyLine(t.Hash))
		return
	}
	if t.Op.Stores() && wire.SameFlags(t.Req.ClientFlags.Of(t.Raw), wire.TombstoneFlags) {
		t.Refuse("these flags are Ringside's own")
		command = task.CommandOf(t)
	}
	if e.proceed(); !command.Reads() && e.awaitHandover(t, false) {
		return
	}
	c.stage = e.stage
	c.replicas = e.copiesOf(c.room.replicas[:0], t.Route, t.Key)
	c.phases = c.phaseNumbers() // before the states are read, because another loop may publish new phases in between
	states := make([]replicate.Replica, len(c.replicas), replicate.Max)
	served := false
	for i := range c.replicas {
		c.replicas[i].notice(e)
		states[i] = c.stateOf(t, i, true)
		switch states[i].State {
		case replicate.Out, replicate.Gone, replicate.Suspect, replicate.Leaving:
		default:
			served = true
		}
	}
	for i := range c.replicas {
		if !served { // no other replica can serve the key, so a server that is only suspected is used
			states[i] = c.stateOf(t, i, false)
		}
		if states[i].State == replicate.Gone {
			c.gone |= 1 << i
		}
	}
	if i := c.unidentified(t, states); i >= 0 {
		c.awaitIdentity(t, i)
		return
	}
	command.Conditional = !e.Ablation.Sight && slices.ContainsFunc(c.replicas, func(m replica) bool { return m.Pool.Pool.Failover.Strict })
	c.primary = replicate.Authority(states)
	if token, has := t.Token(); has && c.primary >= 0 {
		c.token = strconv.AppendUint(nil, openToken(token, c.identity(t, c.primary)), 10)
	}
	e.lastChosen = max(e.lastChosen+1, uint64(e.Now)>>10)
	c.chosen = e.lastChosen
	e.turn++
	policy := t.Route.Copies
	switch {
	case command.Op == replicate.Gets && e.handover.Pauses(): // a gets that misses at the primary would copy the value of another replica there
		command.Op, policy.Read = replicate.Get, replicate.First
	case t.Route.Prefer != nil && policy.Read == replicate.First:
		policy.Read = replicate.Nearest // command.stateOf sets Replica.Near for replicas of the preferred pool, and Nearest reads these first
	}
	c.rule = replicate.Begin(policy, command, states, e.turn)
	t.Rule = c
	t.Run(0, nil)
	if policy.Hedge > 0 && !c.writes && !t.ClientDone {
		c.hedge(t, e.Now+int64(policy.Hedge))
	}
}

// lateAfter is the time after which a reply is late: a write may have run between it
// and the replies of other replicas.
const lateAfter = task.MarkWait / 2

// hedge sends a hedged request: if a read has no reply at the time `at`, it asks one
// more replica. It waits longer while bytes of a reply arrive. Another reply would then
// arrive later, and cost the same bytes again.
func (c *command) hedge(t *task.Task, at int64) {
	c.e.After(at, func() {
		if t.ClientDone || c.rule.IsDone() {
			return
		}
		if at := c.e.LastOf(t) + int64(t.Route.Copies.Hedge); at > c.e.Now {
			c.hedge(t, at)
			return
		}
		c.rule.Hedge()
		c.advance(t)
		t.CatchUp()
	})
}

func (c *command) Begin(t *task.Task) {
	if c.isRepair && c.stage != c.e.stage { // the key may have other replicas since the repair was created
		c.finish(t, replicate.Settlement{Verdict: replicate.Unmet, Source: -1})
		return
	}
	c.advance(t)
}

// advance sends the asks that the rule wants now. It answers the client once the rule
// has settled, and finishes when the rule is over. An ask that can't be sent has its
// outcome at once, so the rule may want more asks: hence the loop.
func (c *command) advance(t *task.Task) {
	for c.next = c.rule.Next(c.next[:0]); len(c.next) > 0; c.next = c.rule.Next(c.next[:0]) {
		for _, ask := range c.next {
			c.send(t, ask)
		}
		for _, id := range c.voidGuards {
			c.rule.HandleOutcome(id, replicate.Outcome{Kind: replicate.Exists})
		}
		c.voidGuards = c.voidGuards[:0]
	}
	s, ok := c.rule.Settled()
	if !ok {
		return
	}
	if s.Dirty|s.Undo|s.Overwrite != 0 {
		c.e.disableDirectReads()
	}
	if !t.ClientDone {
		c.settle(t, s)
	}
	if c.rule.IsDone() {
		c.finish(t, s)
	}
}

// send sends one ask, except in three cases, in which it reports the outcome at once.
//
//   - The ask is guarded by a cas, and the connection may reach another process than
//     the one that assigned the cas. There the same number belongs to another item.
//   - It is a Fetch from a replica that can't be the source of a repair.
//   - It would start a delete again after its deadline. The tombstones of its first
//     round may have expired, so another client may hold the lock that was deleted. A
//     second round would delete that lock.
func (c *command) send(t *task.Task, ask replicate.Ask) {
	id := ask.Number
	var guard *upstream.ConnEpoch
	c.asks = append(c.asks[:id], copyAsk{Ask: ask, at: c.e.Now})
	switch ask.Step {
	case replicate.Wait:
		t.Open++
		c.e.After(c.e.Now+int64(task.MarkWait), func() {
			t.Open--
			c.rule.HandleOutcome(id, replicate.Outcome{Kind: replicate.OK})
			c.advance(t)
			t.CatchUp()
		})
		return
	case replicate.Join, replicate.Count, replicate.Check, replicate.RefreshTombstone, replicate.Fill, replicate.Store, replicate.Drop:
		guard = &c.asks[ask.Guard].result.ConnEpoch
		if c.ofSet(t, ask.Guard) && !guard.HasEnded() { // a Check after a set compares values, not cas; outcome checks the connection again
			guard = nil
		}
	case replicate.Look, replicate.PlaceTombstone:
		if t.Op == wire.Delete && !t.ClientDone && t.Loop.Moment() >= t.Deadline {
			t.InjectResult(id, &upstream.Result{Server: c.replicas[ask.Replica].Server, Failure: upstream.Failure{Why: task.TooLong, Outcome: stats.TimedOut, Unsent: true}})
			return
		}
	}
	srv := c.replicas[ask.Replica].Server
	if ask.Step == replicate.Fetch && (!c.replicas[ask.Replica].canBeSource(t.Loop.Moment()) || ask.Replica == c.primary && c.handedOver(t)) {
		t.InjectResult(id, &upstream.Result{Server: srv, Failure: upstream.Failure{Why: "what the server said is not sure any more", Outcome: stats.Unavailable, Unsent: true}})
		return
	}
	line := c.line(t, &c.asks[id])
	if c.first != nil && ask.Step == replicate.Forward && srv.Target == c.firstFrom && c.replicas[ask.Replica].Pool.View.Renamed(c.replicas[ask.Replica].Index) == 0 {
		c.first.Server = srv // the server object of this loop
		t.InjectResult(id, c.first)
		c.first = nil
		return
	}
	if !t.AskParsed(t.ClientDone, id, srv, line, guard) {
		c.asks[id].kind = replicate.Exists
		c.voidGuards = append(c.voidGuards, id)
	}
}

func (c *command) HandleReply(t *task.Task, id int, r *upstream.Result) {
	a := &c.asks[id]
	o := c.outcome(t, a, r)
	a.kind = o.Kind
	c.countMarks(t, a)
	a.result = t.Keep(r)
	o.Late = c.e.Now-a.at > int64(lateAfter)
	c.rule.HandleOutcome(id, o)
	if o.Kind == replicate.InDoubt {
		r.LateAction = c.behind(t, a)
	}
	c.advance(t)
}

// countMarks counts, for the metrics, what the reply to a says about tombstones. A
// tombstone of the command itself is disturbed if it is gone when the command wants to
// replace or remove it.
func (c *command) countMarks(t *task.Task, a *copyAsk) {
	by := [wire.NumOps]stats.TombstoneUser{wire.Delete: stats.TombstoneOfDelete, wire.Add: stats.TombstoneOfAdd}[t.Op]
	if c.isRepair {
		by = stats.TombstoneOfRepair
	}
	marks, guard := &c.e.Count.Marks, &c.asks[a.Guard]
	gone := a.kind == replicate.Exists || a.kind == replicate.NotFound
	switch {
	case a.kind == replicate.Marked:
		marks[stats.TombstoneMet][by]++
	case a.kind == replicate.Stored && a.Step.LeavesTombstone() && (a.Step != replicate.RefreshTombstone || guard.Step == replicate.Look && guard.kind == replicate.Hit):
		marks[stats.TombstoneMade][by]++
	case a.kind == replicate.Stored && a.Step == replicate.RefreshTombstone && !guard.Step.LeavesTombstone():
		marks[stats.TombstoneReplaced][by]++
	case a.kind == replicate.Stored && a.Step == replicate.Fill && guard.kind == replicate.Marked:
		marks[stats.TombstoneTaken][by]++
	case gone && guard.Step.LeavesTombstone() && (a.Step >= replicate.RefreshTombstone && a.Step <= replicate.Drop):
		marks[stats.TombstoneDisturbed][by]++
	}
}

// behind returns what to send after a request (ask) that has timed out and may still run. Nothing
// is sent after a claim (an add of a tombstone), or after a write that depends on the cas of an
// item: it can't run after that item is gone. An unconditional set needs a tombstone after it,
// which replaces the value if the set is stored late. In relaxed mode the primary gets no tombstone
// if no replica has stored the value. The tombstone would remove the old value, which may be the
// only one.
func (c *command) behind(t *task.Task, a *copyAsk) upstream.LateAction {
	switch a.Step {
	case replicate.Forward, replicate.Put:
	default:
		return upstream.Nothing
	}
	if strict := c.replicas[a.Replica].Pool.Pool.Failover.Strict; !strict && a.Replica == c.primary {
		c.spared = true
		for i := range c.asks {
			c.spared = c.spared && c.asks[i].kind != replicate.Stored
		}
		if c.spared {
			return upstream.Nothing
		}
	}
	return upstream.LateAction(tombstoneTTL(t))
}

// outcome translates r, the reply to the ask a, for the rule.
func (c *command) outcome(t *task.Task, a *copyAsk, r *upstream.Result) (o replicate.Outcome) {
	rep := &r.Reply
	if o.Kind = task.OutcomeKind(a.Step, r); rep.Kind == wire.NoReply {
		return
	}
	number := func(at wire.Span) {
		o.Kind = replicate.Number
		o.Value, _ = strconv.ParseUint(string(bytes.TrimSpace(at.Of(r.Bytes))), 10, 64)
	}
	value := o.Kind == replicate.Hit || o.Kind == replicate.Expiring
	switch {
	case a.op == wire.Incr || a.op == wire.Decr:
		if rep.Kind == wire.Value {
			number(rep.Body)
		} else if rep.Kind == wire.Number {
			number(rep.Line)
		}
	case a.op > wire.Gats:
	case a.Step == replicate.Extend && o.Kind == replicate.Hit:
		o.Kind = replicate.Touched
	case a.Step == replicate.Extend && o.Kind == replicate.Miss:
		o.Kind = replicate.NotFound
	case a.Step == replicate.Fetch && value && isPlaceholder(r):
		o.Kind, value = replicate.Miss, false
	case a.Step == replicate.Check && c.ofSet(t, a.Guard): // the cas of the set is not known
		if o.Kind == replicate.Hit && (c.asks[a.Guard].result.HasEnded() || !bytes.Equal(rep.Body.Of(r.Bytes), t.Body())) {
			o.Kind = replicate.Exists
		}
	case (a.Step == replicate.Check || a.Step == replicate.Review) && o.Kind == replicate.Hit && (task.Arg(r, 'c') != task.Arg(&c.asks[a.Guard].result, 'c') || c.asks[a.Guard].result.HasEnded()):
		o.Kind = replicate.Exists
	}
	switch a.Step {
	case replicate.CompareVersion:
		token, _ := strconv.ParseUint(string(c.token), 10, 64)
		there, _ := strconv.ParseUint(task.Arg(r, 'c'), 10, 64)
		if o.Kind == replicate.Hit && token > there {
			o.Kind = replicate.Exists
		} else if token == there {
			o.Value = 1
		}
	case replicate.Look, replicate.Review, replicate.Preview:
		o.Value, _ = strconv.ParseUint(task.Arg(r, 's'), 10, 64)
		if a.Step == replicate.Preview {
			o.Value = after(t, r.Bytes, rep, o.Value)
		}
	case replicate.Fetch:
		if t.Op == wire.Incr || t.Op == wire.Decr {
			o.Value, _ = strconv.ParseUint(string(bytes.TrimSpace(rep.Body.Of(r.Bytes))), 10, 64)
		} else if value && bytes.Equal(rep.Body.Of(r.Bytes), t.Body()) || o.Kind == replicate.Miss && c.expired(t) {
			o.Value = 1
		}
	}
	return o
}

// isPlaceholder reports whether r shows the placeholder that the guard, or a client's mg N, stores
// while a value is rebuilt. A placeholder must not be copied to other servers.
func isPlaceholder(r *upstream.Result) bool {
	return r.Reply.Body.Len() == 0 && task.Arg(r, 'f') == "0" && (r.Reply.Letters.Has('W') || r.Reply.Letters.Has('Z'))
}

// replyTo translates the outcome of a request that was not the client's own one to the
// client's reply.
var replyTo = map[replicate.Kind]wire.Kind{
	replicate.Stored: wire.Stored, replicate.NotStored: wire.NotStored, replicate.Exists: wire.Exists, replicate.NotFound: wire.NotFound,
}

// settle answers the client with the result of the rule, unless the result no longer
// counts. A read then starts again with the new states. A write can't, because it may
// have run.
func (c *command) settle(t *task.Task, s replicate.Settlement) {
	told := s.Verdict == replicate.Answered || s.Verdict == replicate.Done || s.Verdict == replicate.Absent && c.rule.Asked()
	if told && !c.sure(t, s) {
		switch e := c.e; {
		case !c.writes && c.rule.IsDone() && e.Now < t.Deadline:
			e.DispatchAgain(t)
		case !c.writes:
			t.Fail("what the server said is not sure any more", stats.Unavailable)
		default:
			t.Fail("not sure that everybody sees the write", stats.Unavailable)
		}
		return
	}
	if told && !c.writes && (s.Verdict == replicate.Absent || c.asks[s.Answer].kind == replicate.Miss) {
		if c.rule.IsDone() && c.e.awaitHandover(t, true) || !c.rule.IsDone() && c.e.handover != nil {
			return
		}
	}
	switch s.Verdict {
	case replicate.Answered:
		a := &c.asks[s.Answer]
		if k, ok := replyTo[a.kind]; ok && (a.respelled || a.Step != replicate.Forward && a.Step != replicate.Store) {
			if k == wire.NotFound { // memcached answers NOT_STORED to a replace of a missing key
				k = task.MissKind(t)
			}
			t.AnswerKind(k)
			return
		}
		task.Hide(&a.result, a.op, a.dialect, a.added)
		var token task.Token
		if rep := &a.result.Reply; rep.Unique.Len() > 0 || rep.Letters.Has('c') {
			identity := c.identity(t, a.Replica)
			token = func(n uint64) uint64 {
				if t.Op == wire.Get && a.Replica != c.primary { // a binary client's read of another replica: a cas of it has no meaning at the primary
					return wire.NoMatch
				}
				return sealToken(n, identity)
			}
		}
		t.Answer(&a.result, token)
	case replicate.Done:
		t.AnswerKind(wire.Deleted)
	case replicate.Absent:
		t.AnswerKind(task.MissKind(t))
	case replicate.Held:
		t.WaitReason = "a server with a replica of the key can't be reached, and other instances may still read there"
		if c.rule.IsDone() && t.Loop.Now < t.Deadline {
			t.Loop.Park(t, t.Deadline, func() uint64 { return c.outlook(t) })
			return
		}
		t.Fail(t.WaitReason, stats.Unavailable)
	case replicate.Refused:
		t.Fail("no replica of the key is in use", stats.Unavailable)
	default:
		why, o := "too few replicas have stored the write", stats.ServerFault
		if t.Op <= wire.Gats {
			why, o = "no replica that replied has the key, and one that can't be reached may have it", stats.Unavailable
		}
		if s.Answer >= 0 && c.asks[s.Answer].result.Bytes != nil {
			t.Answer(&c.asks[s.Answer].result, nil)
			return
		}
		for i := range c.asks {
			if a := &c.asks[i].result; a.Bytes == nil && a.Why != "" {
				why, o = a.Why, a.Outcome
			}
		}
		t.Fail(why, o)
	}
}

// finish records in the ledger which replicas have missed the write or are in doubt. It
// releases the key's line and requests repairs. The command has no open asks then.
func (c *command) finish(t *task.Task, s replicate.Settlement) {
	e := c.e
	if !t.ClientDone { // the task is parked or runnable: Handle starts it again
		return
	}
	through := t.Route.Copies.ReadThrough
	t.Deadline = e.Now + int64(t.Route.Timeouts.Deadline) // for the deletes and repairs that follow
	if n := c.rule.Rounds(); n > 0 && t.Op == wire.Delete {
		e.Count.DeleteRounds[min(n, stats.MaxDeleteRounds)-1]++
	}
	handed := c.rule.Asked() && c.handedOver(t)
	if handed { // a replica before c.primary is the primary now, and c.primary is repaired from it. The replicas after c.primary stay dirty if they missed the write
		behind := ^(replicate.Mask(1)<<c.primary - 1)
		s = replicate.Settlement{Verdict: replicate.Unmet, Dirty: s.Dirty & behind, Undo: s.Undo & behind, Overwrite: s.Overwrite&behind | 1<<c.primary, Source: -1}
	}
	for i, m := range c.replicas {
		doubt, missed := s.Undo.Has(i) || s.Overwrite.Has(i), s.Dirty.Has(i)
		if doubt || missed {
			m.notice(e)
		}
		switch {
		case doubt && c.spared && i == c.primary: // the primary keeps its value: see command.behind
		case doubt && !c.isRepair:
			m.inDoubt(e, DirtyKey{Hash: t.Hash, Key: t.Key, Through: through, Overwrite: i != c.primary || handed}, s.Dirty.Has(i))
		case missed && s.Verdict == replicate.Unmet && m.ledger.rate > 0: // the replica may have the only value left
			m.inDoubt(e, DirtyKey{Hash: t.Hash, Key: t.Key, Through: through, Overwrite: true}, true)
		case missed:
			m.MissedWrite(t.Hash, t.Key, c.keyAt(t, i), through)
		case s.Clean.Has(i) && c.isRepair && s.Verdict != replicate.Answered: // the key was deleted at the replica, and must still be copied to it
			if through { // the key stays dirty, because a miss of this replica would count
				m.Clean(t.Hash)
			}
		case s.Clean.Has(i):
			m.Right(t.Hash)
		}
	}
	if c.writes || c.isRepair {
		e.Unclaim(t, task.KeyLine(t.Hash))
	}
	if c.move != nil {
		c.move.failed = c.move.failed || s.Verdict != replicate.Answered
		c.move.next()
	} else if c.isRepair {
		if e.Copying == background { // the ledger may wait for room
			e.At(link.ResyncTimer, e.Now)
		}
		e.Copying--
		ok, to := s.Verdict == replicate.Answered, c.replicas[1]
		if c.resync != nil {
			c.resync.repaired(e, c, ok)
		} else if !ok {
			to.repairFailed(e, t.Hash)
		}
	} else {
		c.repair(t, &s)
	}
}

// repair requests repairs of the replicas that differ after the command. The ledger
// repairs replicas in doubt, once they answer again.
func (c *command) repair(t *task.Task, s *replicate.Settlement) {
	if s.Source < 0 || c.e.pauses() || c.stage != c.e.stage { // the servers of c.replicas may no longer keep the key
		return
	}
	for i, m := range c.replicas {
		if s.Repair.Has(i) && !s.Undo.Has(i) && !s.Overwrite.Has(i) {
			c.e.repair(t, t.Hash, c.replicas[s.Source], m, m.Dirty(t.Hash))
		}
	}
}
