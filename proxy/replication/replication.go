package replication

// This file runs a command on a key with several replicas. Package replicate decides what to
// send. This file sends it, records the outcomes, and replies to the client.

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"sync/atomic"

	"ringside/proxy/ablation"
	"ringside/proxy/failover"
	"ringside/proxy/health/divert"
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

	Ledgers    map[string]*ledger             // what each server of a pool is missing, by the name of the pool
	Copying    int                            // number of copies in progress, at most maxCopies
	Doubtful   *atomic.Int32                  // number of loops with doubts set; shared by all loops
	Moving     *atomic.Int32                  // number of loops that have not completed the handover; shared by all loops
	doubts     bool                           // a replica may have missed a write to a key of this loop, or may run one late: see disableDirectReads
	turn       uint64                         // number of commands so far; it selects the replica of a read, if the route spreads reads
	holders    []replica                      // scratch space of routesOf: the slice that it yields
	Ablation   ablation.Set                   // rules that tests turn off
	arranged   *arrangement                   // which servers keep which keys, by the present routing table
	learning   bool                           // this process has just started, and a pool may still learn from which servers keys move: see learn
	learned    int                            // number of former lists that this loop has got so far, of all pools
	handover   *handover                      // the handover in progress; nil: all keys are on the servers where the routing table wants them
	stage      uint64                         // counter that increases whenever a handover may change the replicas of a key
	moves      map[uint64]*move               // moves of keys in this handover, by the hash of the key
	resizeKeys map[string]*stats.ResizeKeys   // by pool
	walks      map[string]*walk               // by pool: the work on its servers that the stage of a resize requires
	rates      map[string]*bucket             // for each server that loses keys with one copy by a resize, or of a source, how many may leave it now: see mayMove
	fills      map[string]*stats.FillCounters // by pool that fills from another one
	oneCopy    task.Handler                   // serves keys with one copy: see OneCopy
}

// command runs a command on a key with several replicas, or a repair of such a key. It is the
// task.Rule that sends the asks of a replicate.Rule.
type command struct {
	e        *Replicator // the Replicator of the loop that owns the key
	rule     replicate.Rule
	replicas []replica       // the replicas of the key, in the order in which the rule numbers them
	asks     []copyAsk       // all asks that the rule has made, by their number
	next     []replicate.Ask // scratch space of advance
	room     struct {        // initial storage of the slices replicas, asks and next: enough for a plain command on two replicas
		replicas [2]replica
		asks     [2]copyAsk
		next     [2]replicate.Ask
		states   [replicate.Max]replicate.Replica
	}

	phases     uint64         // sum of the replicas' phase numbers at the start; in strict mode the reply does not count if the sum has changed
	primary    int            // index of the primary in replicas; -1: there is none
	gone       replicate.Mask // replicas that the command skips, because no server of their pool answers. They miss the write
	writes     bool           // the command may change the key, so it runs alone: it has claimed the key's line
	token      []byte         // the client's cas token, translated to a cas of the primary; nil: the client has sent no token
	since      int            // number of the first ask since goOn; the replies before it no longer show what the replicas have
	waits      bool           // the command is an add that goOn could not continue yet
	spared     bool           // the primary has not answered a set, and got no tombstone after the set: see command.behind
	voidGuards []int          // numbers of asks that were not sent, because another process may have assigned the cas that they depend on

	refused   replicate.Mask   // replicas of a copy with a server that can't store the value, because it is too large: see refuses
	weighed   bool             // the size of the present value is known, because t is an append or prepend: see weighing
	size      int              // size in bytes of the value that t extends, if weighed is set
	first     *upstream.Result // reply to a get that was sent before the task, so the task does not ask its server again; nil: none
	firstFrom table.Target     // the server that has sent the reply in first

	stage    uint64  // value of Replicator.stage when the command was created
	isRepair bool    // the command is a repair, without a client
	move     *move   // the move that the repair belongs to; nil: none
	resync   *resync // the resync that the repair belongs to; nil: none
	moving   *moving // the key has one copy and moves to another server; nil: it has replicas
}

// copyAsk is one ask of the rule: a request to one replica, with its outcome.
type copyAsk struct {
	replicate.Ask
	op        wire.Op
	dialect   wire.Dialect
	respelled bool           // the request is not the client's own one, or has another form, so its reply must be translated for the client
	added     byte           // the meta flag that Ringside has added to the client's flags; 0: none
	limited   bool           // the request is a read of a source that exceeds its rate, so it is not sent: see fill.go
	at        int64          // when the request was sent, on the loop's clock
	kind      replicate.Kind // meaning of the reply; 0: there is no reply yet
	result    upstream.Result
}

const ownFlags = "these client flags are reserved for Ringside"

// Handle serves t if the keys of its route have several replicas. The loop that owns the
// key is the only one of the process that runs commands on it.
func (e *Replicator) Handle(t *task.Task) {
	c := &command{e: e}
	c.asks, c.next = c.room.asks[:0], c.room.next[:0]
	if before, ok := t.Rule.(*command); ok && !t.ClientDone {
		if before.waits {
			before.resume(t)
			return
		}
		c.first, c.firstFrom = before.first, before.firstFrom
		c.weighed, c.size = before.weighed, before.size
	}
	if e.handover != nil && !e.rebind(t) || e.serveOneCopy(t) {
		return
	}
	command := task.CommandOf(t)
	c.writes = command.Op > replicate.Gats && command.Op != replicate.Debug || command.Vivify || command.Win
	if c.writes && t.Req.Letters.Has('E') && t.Req.Dialect == wire.Meta {
		t.Reject(wire.AppendClientError(nil, "flag E sets the cas token, which differs between the replicas of a key on this route: leave it out"))
		return
	}
	if why := flagError(t); why != "" && !(t.Op == wire.Delete && command.Stale && !unknownToAll(&t.Req)) { // md with x is sent as it is: see task.CommandOf
		t.Reject(wire.AppendClientError(nil, why))
		return
	}
	takesOwn := t.Op.Stores() && wire.SameFlags(t.Req.ClientFlags.Of(t.Raw), wire.TombstoneFlags)
	if takesOwn && (command.Op != replicate.Set || command.If || command.Stale || t.IsStep()) { // the command might store nothing, so its rejection removes nothing
		t.Reject(wire.AppendClientError(nil, ownFlags))
		return
	}
	if c.writes && !e.Claim(t) {
		return // another command has claimed the key: Handle is called again when t is first in the line of the key
	}
	if e.expired(t) {
		return
	}
	if takesOwn {
		t.Refuse(wire.AppendClientError(nil, ownFlags))
		command = task.CommandOf(t)
	}
	if e.proceed(); !command.Reads() && e.awaitHandover(t, false) {
		return
	}
	c.stage = e.stage
	c.replicas = e.copiesOf(c.room.replicas[:0], t.Route, t.Key)
	if i := slices.IndexFunc(c.replicas, func(m replica) bool { return m.Server.LacksCas() }); c.writes && i >= 0 { // a write needs replies with a cas
		t.Reject(c.replicas[i].Server.AppendNoCas(nil, "replicas"))
		e.Unclaim(t)
		return
	}
	strict := !e.Ablation.Sight && slices.ContainsFunc(c.replicas, func(m replica) bool { return m.Pool.Pool.Failover.Strict })
	if line := c.tooLarge(t, strict); line != nil {
		if t.Op != wire.Set {
			t.Reject(line)
			e.Unclaim(t)
			return
		}
		t.Refuse(line)
		command = task.CommandOf(t)
	}
	states := c.room.states[:len(c.replicas)]
	c.look(t, states)
	if !c.weighed && (t.Op == wire.Append || t.Op == wire.Prepend) && c.sizesDiffer() {
		t.Rule = &weighing{c, states}
		t.Run(0, nil)
		return
	}
	if t.Op == wire.Delete && command.Stale && c.lacks(t, states) {
		return
	}
	if i := c.unidentified(t, states); i >= 0 {
		c.awaitIdentity(t, i)
		return
	}
	command.Conditional, command.Expires = strict, c.expired(t)
	if token, has := t.Token(); has && c.primary >= 0 {
		c.token = strconv.AppendUint(nil, openToken(token, c.identity(t, c.primary)), 10)
	}
	e.turn++
	policy := t.Route.Copies
	switch {
	case command.Op == replicate.Gets && e.handover.Pauses(): // in a pause nothing may be copied, but a gets that misses at the primary would copy the value of another replica to the primary
		command.Op, policy.Read = replicate.Get, replicate.First
	case t.Route.Prefer != nil && policy.Read == replicate.First:
		policy.Read = replicate.Nearest // command.stateOf sets Replica.Near for replicas of the preferred pool, and Nearest reads these first
	}
	c.rule.Begin(policy, command, states, e.turn)
	t.Rule = c
	t.Run(0, nil)
}

// newCommand returns a command on a key with one copy, without its rule.
func (e *Replicator) newCommand(mv *moving, replicas ...replica) *command {
	c := &command{e: e, moving: mv, primary: -1, stage: e.stage}
	c.asks, c.next = c.room.asks[:0], c.room.next[:0]
	c.replicas = append(c.room.replicas[:0], replicas...)
	return c
}

// look stores the present states of the replicas in states. It records their phases and the primary.
func (c *command) look(t *task.Task, states []replicate.Replica) {
	c.phases = c.phaseNumbers() // the phase numbers are read before the states, because another loop may publish new phases in between
	served := false
	for i := range c.replicas {
		c.replicas[i].notice(c.e)
		states[i] = c.stateOf(t, i, true)
		switch states[i].State {
		case replicate.Out, replicate.Gone, replicate.Suspect, replicate.Leaving:
		default:
			served = true
		}
	}
	c.gone = 0
	for i := range c.replicas {
		if !served { // no replica can serve the key, so servers that are only suspected are used too
			states[i] = c.stateOf(t, i, false)
		}
		if states[i].State == replicate.Gone {
			c.gone |= 1 << i
		}
	}
	c.primary = replicate.Authority(states)
}

// goOn continues an add that was stored, with the present states of the replicas. It returns
// Answered if the rule has new asks, Held if the task waits for other states, and Unmet if the add
// can't go on: see replicate.Rule.Continue.
func (c *command) goOn(t *task.Task) replicate.Verdict {
	e := c.e
	if c.moving != nil || t.Loop != e.Tasks || e.Now >= t.Deadline || e.pauses() || c.stage != e.stage || !c.rule.IsDone() {
		return replicate.Unmet
	}
	states := make([]replicate.Replica, len(c.replicas), replicate.Max)
	c.look(t, states)
	v := c.rule.Continue(t.Route.Copies, states)
	switch v {
	case replicate.Answered:
		c.since = len(c.asks)
	case replicate.Held:
		c.waits = true
		e.Park(t, t.Deadline, func() uint64 { return c.outlook(t) })
	}
	return v
}

// resume continues an add that has waited since goOn.
func (c *command) resume(t *task.Task) {
	c.waits = false
	switch c.goOn(t) {
	case replicate.Answered:
		t.Run(0, nil)
		return
	case replicate.Unmet:
		t.Fail(unsure, stats.Unavailable)
	}
	s, _ := c.rule.Settled()
	c.finish(t, s)
}

const unsure = "other instances may not see the write"

// lateAfter is the time after which a reply counts as late. Another command may then have run
// between this reply and the replies of other replicas.
const lateAfter = task.MarkWait / 2

func (c *command) Begin(t *task.Task) {
	if c.isRepair && c.stage != c.e.stage { // the key may have other replicas since the repair was created
		c.finish(t, replicate.Settlement{Verdict: replicate.Unmet, Source: -1})
		return
	}
	c.advance(t)
}

// advance sends the asks that the rule wants now. It answers the client once the rule has a
// result, and calls finish when the rule is done. If an ask can't be sent, its outcome is known
// at once. The rule may then want more asks, so advance repeats this in a loop.
func (c *command) advance(t *task.Task) {
	for c.next = c.rule.Next(c.next[:0]); len(c.next) > 0; c.next = c.rule.Next(c.next[:0]) {
		if !c.goesOn() {
			if _, settled := c.rule.Settled(); !settled {
				c.stop(t)
				return
			}
		}
		if c.moving != nil && !c.moving.create && c.rule.Concludes() {
			t.SetPreparing(false)
		}
		for _, ask := range c.next {
			c.send(t, ask)
		}
		if c.moving != nil {
			c.moving.acted = c.rule.Acted()
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
	if c.moving == nil && s.Dirty|s.Undo|s.Overwrite != 0 {
		c.e.disableDirectReads()
	}
	if !t.ClientDone && c.settle(t, s) {
		c.advance(t)
		return
	}
	if c.rule.IsDone() {
		c.finish(t, s)
	}
}

// send sends one ask, except in two cases. In these it does not send the request, and reports
// the outcome at once.
//
//   - The ask must not be sent now: see command.refusal.
//   - The ask is guarded by a cas, and the connection may reach another process than
//     the one that assigned the cas. In that process the same cas belongs to another item.
func (c *command) send(t *task.Task, ask replicate.Ask) {
	id := ask.Number
	var guard *upstream.ConnEpoch
	c.asks = append(c.asks[:id], copyAsk{Ask: ask, at: c.e.Now})
	switch ask.Step {
	case replicate.Wait:
		t.Open++
		c.e.After(c.e.Now+int64(task.MarkWait), func() {
			t.Open--
			if c.moving != nil && !t.ClientDone && c.e.Now >= t.Deadline { // the placeholder of another command is still there
				t.Fail(cmp.Or(t.WaitReason, task.TooLong), stats.TimedOut)
				t.CatchUp()
				return
			}
			c.rule.HandleOutcome(id, replicate.Outcome{Kind: replicate.OK})
			c.advance(t)
			t.CatchUp()
		})
		return
	}
	srv := c.replicas[ask.Replica].Server
	if why, o := c.refusal(t, ask); why != "" {
		t.InjectResult(id, &upstream.Result{Server: srv, Failure: upstream.Failure{Why: why, Outcome: o, Unsent: true}})
		return
	}
	switch ask.Step {
	case replicate.Join, replicate.Check, replicate.RefreshTombstone, replicate.Fill, replicate.Store, replicate.Drop:
		guard = &c.asks[ask.Guard].result.ConnEpoch
		if !guard.HasEnded() && c.ofSet(t, ask.Guard) || c.asks[ask.Guard].kind == 0 { // a Check after a set compares values and not cas, and the function outcome checks the process. A Check right after an append, and a tombstone in place of the client's token, depend on no earlier reply
			guard = nil
		}
	case replicate.Forward:
		if c.moving != nil && c.token != nil {
			guard = t.SeenOn()
		}
	}
	line := c.line(t, &c.asks[id])
	if c.e.Ablation.Leaves && c.moving != nil && !c.isRepair && (ask.Step == replicate.Remove || c.filling() && ask.Step == replicate.PlaceTombstone) {
		r := &upstream.Result{Server: srv}
		if r.SetAnswer(wire.Delete, wire.Meta, []byte("NF\r\n")); c.filling() {
			r.SetAnswer(wire.Set, wire.Meta, []byte("HD\r\n"))
		}
		t.InjectResult(id, r)
		return
	}
	if c.first != nil && ask.Step == replicate.Forward && srv.Target == c.firstFrom && bytes.Equal(c.keyAt(t, ask.Replica), t.Key) {
		c.first.Server = srv // the get before the task may have used the server object of another loop
		t.InjectResult(id, c.first)
		c.first = nil
		return
	}
	limits := t.Limits()
	if c.filling() && ask.Replica == fillSource {
		if c.moving.found != nil {
			t.InjectResult(id, c.moving.found)
			return
		}
		var ok bool
		if limits, ok = c.askSource(t, &c.asks[id]); !ok {
			t.InjectResult(id, &upstream.Result{Server: srv, Failure: upstream.Failure{Outcome: stats.Unavailable, Unsent: true}})
			return
		}
	}
	switch sent := t.AskParsed(limits, t.ClientDone, id, srv, line, guard); {
	case sent:
	case ask.Step == replicate.Forward:
		r := &upstream.Result{Server: srv}
		r.SetAnswer(c.asks[id].op, c.asks[id].dialect, []byte("EX\r\n"))
		t.InjectResult(id, r)
	default:
		c.asks[id].kind = replicate.Exists
		c.voidGuards = append(c.voidGuards, id)
	}
}

// NeedsValue reports whether the value in a reply is needed. That of a plain get is only for the client.
func (c *command) NeedsValue(t *task.Task, _ int) bool {
	return c.moving != nil || !c.rule.IsPlainGet() || t.AwaitsReply()
}

func (c *command) HandleReply(t *task.Task, id int, r *upstream.Result) {
	a := &c.asks[id]
	o := c.outcome(t, a, r)
	a.kind = o.Kind
	if c.filling() && a.Replica == fillSource {
		c.countSource(a, r)
	} else if !c.filling() || a.Replica == fillOwner {
		c.countMarks(t, a)
	}
	if c.refuses(a, r) {
		c.refused |= 1 << a.Replica
	}
	if a.result = t.Keep(r); t.ClientDone && !c.NeedsValue(t, id) {
		t.Forget(&a.result)
	}
	o.Late = c.e.Now-a.at > int64(lateAfter)
	c.rule.HandleOutcome(id, o)
	switch {
	case o.Kind != replicate.InDoubt:
	case c.moving == nil:
		r.LateAction = c.behind(t, a)
	case c.moving.fills && a.Replica == fillMark: // a late mark does no harm, but its removal could remove the mark of another command
		r.LateAction = upstream.Nothing
	}
	c.advance(t)
}

// countMarks counts, for the metrics, what the reply to the ask a says about tombstones. A
// tombstone of this command counts as disturbed if it is gone when the command replaces or
// removes it.
func (c *command) countMarks(t *task.Task, a *copyAsk) {
	by := [wire.NumOps]stats.TombstoneUser{wire.Delete: stats.TombstoneOfDelete, wire.Add: stats.TombstoneOfAdd}[t.Op]
	if c.isRepair {
		by = stats.TombstoneOfRepair
	}
	marks, guard := &c.e.Count.Marks, &c.asks[a.Guard]
	if a.Guard == a.Number { // the client's token stands for a look that has found the item
		guard = &copyAsk{Ask: replicate.Ask{Step: replicate.Look}, kind: replicate.Hit}
	}
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

// behind returns what to send after the request a, which has timed out and may still run. Nothing
// is sent after a claim, because its tombstone expires. Nothing is sent after a write on the
// condition of a cas either, because this write fails once the item is gone. An unconditional
// write needs a tombstone after it, which replaces the value if the write runs late. In relaxed
// mode the primary gets no tombstone if no replica has stored the value. The tombstone would
// remove the old value, which may be the only one.
func (c *command) behind(t *task.Task, a *copyAsk) upstream.LateAction {
	if a.Step != replicate.Forward {
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

// outcome translates r, the reply to the ask a, to the outcome that the rule expects.
func (c *command) outcome(t *task.Task, a *copyAsk, r *upstream.Result) (o replicate.Outcome) {
	rep := &r.Reply
	if o.Kind = task.OutcomeKind(a.Step, r); rep.Kind == wire.NoReply {
		return
	}
	number := func(at wire.Span) {
		o.Kind = replicate.Number
		o.Value, _ = strconv.ParseUint(string(bytes.TrimSpace(at.Of(r.Bytes))), 10, 64)
	}
	value := o.Kind == replicate.Hit || o.Kind == replicate.Expiring || o.Kind == replicate.Stale
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
	case c.filling() && a.Replica == fillSource && value && (task.HasPlaceholder(r) || rep.Letters.Has('X')):
		o.Kind = replicate.Miss
	case a.Step == replicate.Check && c.ofSet(t, a.Guard): // the reply to the client's set has shown no cas, so the Check compares the value
		if o.Kind == replicate.Hit && (c.asks[a.Guard].result.HasEnded() || !bytes.Equal(rep.Body.Of(r.Bytes), t.Body())) {
			o.Kind = replicate.Exists
		}
	case a.Step == replicate.Check && o.Kind == replicate.Hit && (task.Cas(r) != task.Cas(&c.asks[a.Guard].result) || c.asks[a.Guard].result.HasEnded()):
		o.Kind = replicate.Exists
	}
	switch a.Step {
	case replicate.Look, replicate.Check, replicate.Preview:
		o.Value, _ = strconv.ParseUint(task.Arg(r, 's'), 10, 64)
		if a.Step == replicate.Look && t.Op == wire.Cas {
			token, _ := strconv.ParseUint(string(c.token), 10, 64)
			there, _ := strconv.ParseUint(task.Arg(r, 'c'), 10, 64)
			o.Value = uint64(cmp.Compare(token, there) + 1)
		} else if a.Step == replicate.Preview {
			o.Value = after(t, r.Bytes, rep, o.Value)
		}
	case replicate.Fetch:
		switch {
		case o.Kind == replicate.Miss:
			if c.expired(t) {
				o.Value = 1
			}
		case t.Op == wire.Incr || t.Op == wire.Decr:
			o.Value, _ = strconv.ParseUint(string(bytes.TrimSpace(rep.Body.Of(r.Bytes))), 10, 64)
		case value && !rep.Letters.Has('X') && bytes.Equal(rep.Body.Of(r.Bytes), t.Body()):
			o.Value = 1
		}
	}
	return o
}

// replyTo is the kind of reply that a client gets for the outcome of a request that was not the
// client's own one.
var replyTo = map[replicate.Kind]wire.Kind{
	replicate.Stored: wire.Stored, replicate.NotStored: wire.NotStored, replicate.Exists: wire.Exists, replicate.NotFound: wire.NotFound,
	replicate.Deleted: wire.Deleted, replicate.Touched: wire.Touched,
}

// settle answers the client with the result of the rule, unless the result no longer counts. A
// read then starts again with the new states of the replicas, and so does an add that was
// rejected. An add that was stored goes on. No other write can start again, because it may have
// run. settle returns true if the rule has new asks.
func (c *command) settle(t *task.Task, s replicate.Settlement) bool {
	told := s.Verdict == replicate.Answered || s.Verdict == replicate.Done || s.Verdict == replicate.Absent && c.rule.Asked()
	if c.moving != nil && c.proceedToCreate(t, s) {
		return !t.ClientDone
	}
	if told && !c.sure(t, s) {
		switch e := c.e; {
		case (!c.writes || c.rejected(t, s)) && c.rule.IsDone() && e.Now < t.Deadline:
			e.Ready(t)
		case !c.writes:
			t.Fail(unconfirmed, stats.Unavailable)
		case c.rule.Withdraw():
			t.Fail(unsure+": the key was deleted", stats.Unavailable)
			return true
		default:
			switch c.goOn(t) {
			case replicate.Answered:
				return true
			case replicate.Unmet:
				t.Fail(unsure, stats.Unavailable)
			}
		}
		return false
	}
	if c.moving == nil && told && !c.writes && (s.Verdict == replicate.Absent || c.asks[s.Answer].kind == replicate.Miss) {
		if c.rule.IsDone() && c.e.awaitHandover(t, true) || !c.rule.IsDone() && c.e.handover != nil {
			return false
		}
	}
	switch s.Verdict {
	case replicate.Answered:
		a := &c.asks[s.Answer]
		if k, ok := replyTo[a.kind]; ok && a.respelled {
			if k == wire.NotFound { // a replace of a missing key: memcached replies NOT_STORED
				k = task.MissKind(t)
			}
			t.AnswerKind(k)
			return false
		}
		if a.result.NoValue { // the client has gone
			t.Answer(&a.result, nil)
			return false
		}
		task.Hide(&a.result, a.op, a.dialect, a.added)
		if c.readsSource(t, a) {
			c.keepFound(t, a)
		}
		var token task.Token
		if rep := &a.result.Reply; c.moving != nil {
			token = func(n uint64) uint64 {
				if t.Op == wire.Get && a.Replica != 0 { // as below: a cas of the old owner has no meaning at the new one
					return wire.NoMatch
				}
				return divert.TagCas(n, c.moving.tag)
			}
		} else if rep.Unique.Len() > 0 || rep.Letters.Has('c') {
			identity := c.identity(t, a.Replica)
			token = func(n uint64) uint64 {
				if t.Op == wire.Get && a.Replica != c.primary { // a read by a binary client at another replica: its cas has no meaning at the primary, so the client gets one that never matches
					return wire.NoMatch
				}
				return sealToken(n, identity)
			}
		}
		t.Answer(&a.result, token)
		if !c.NeedsValue(t, s.Answer) {
			t.Forget(&a.result)
		}
	case replicate.Done:
		t.AnswerKind(wire.Deleted)
	case replicate.Absent:
		t.AnswerKind(task.MissKind(t))
	case replicate.Held:
		t.WaitReason = "a server with a replica of the key can't be reached, and other instances may still read there"
		if c.rule.IsDone() && t.Loop.Now < t.Deadline {
			t.Loop.Park(t, t.Deadline, func() uint64 { return c.outlook(t) })
			return false
		}
		t.Fail(t.WaitReason, stats.Unavailable)
	case replicate.Refused:
		why, began := "no replica of the key is in use", t.Deadline-int64(t.Route.Timeouts.Deadline)
		if t.Op <= wire.Gats && c.awaitsLease() {
			if c.awaitLease(t, began+int64(t.Route.Timeouts.Request)) { // a process that has no lease for longer is probably cut off
				return false
			}
			why = uncertain
		}
		t.Fail(why, stats.Unavailable)
	default:
		why, o := "too few replicas have stored the write", stats.ServerFault
		if t.Op <= wire.Gats && c.awaitsLease() {
			if c.awaitLease(t, t.Deadline) {
				return false
			}
			why, o = uncertain, stats.Unavailable
		} else if t.Op <= wire.Gats {
			why, o = "no replica that replied has the key, and one that can't be reached may have it", stats.Unavailable
		} else if c.since > 0 {
			why, o = unsure, stats.Unavailable
		}
		if s.Answer >= 0 && c.asks[s.Answer].result.Bytes != nil {
			t.Answer(&c.asks[s.Answer].result, nil)
			return false
		}
		if c.filling() {
			why, o = "the key could not be copied from server "+c.replicas[fillSource].Server.Label()+" of pool "+c.replicas[fillSource].Pool.Pool.Name, stats.Unavailable
		}
		for i := range c.asks {
			if a := &c.asks[i].result; a.Bytes == nil && a.Why != "" {
				why, o = a.Why, a.Outcome
			}
		}
		t.Fail(why, o)
	}
	return false
}

// rejected reports whether t is an add that a replica has rejected, and that has changed nothing.
func (c *command) rejected(t *task.Task, s replicate.Settlement) bool {
	return t.Op == wire.Add && s.Answer >= 0 && c.asks[s.Answer].kind == replicate.NotStored
}

// finish ends a command after its last ask has an outcome. It records in the ledger which
// replicas have missed the write, or may run it late. It releases the key's line and requests
// repairs.
func (c *command) finish(t *task.Task, s replicate.Settlement) {
	e := c.e
	if !t.ClientDone { // the client has no reply yet, because the task is parked or runnable: Handle starts it again
		return
	}
	if c.moving != nil {
		c.endMoving(t, s, true)
		return
	}
	through := t.Route.Copies.ReadThrough
	t.Deadline = e.Now + int64(t.Route.Timeouts.Deadline) // the deletes and repairs that follow get a new deadline
	if n := c.rule.Rounds(); n > 0 && t.Op == wire.Delete {
		e.Count.DeleteRounds[min(n, stats.MaxDeleteRounds)-1]++
	}
	handed := c.rule.Asked() && c.handedOver(t)
	if handed { // another replica is the primary now, and c.primary is repaired from it; the replicas after c.primary stay dirty if they missed the write
		behind := ^(replicate.Mask(1)<<c.primary - 1)
		s = replicate.Settlement{Verdict: replicate.Unmet, Dirty: s.Dirty & behind, Undo: s.Undo & behind, Overwrite: s.Overwrite&behind | 1<<c.primary, Source: -1}
	}
	for i, m := range c.replicas {
		doubt, missed := s.Undo.Has(i) || s.Overwrite.Has(i), s.Dirty.Has(i)
		if doubt || missed {
			m.notice(e)
		}
		switch {
		case doubt && c.spared && i == c.primary: // the write is in doubt, but the primary keeps its value and is not repaired: see command.behind
		case doubt && !c.isRepair:
			m.inDoubt(e, DirtyKey{Hash: t.Hash, Key: t.Key, Through: through, Overwrite: i != c.primary || handed}, s.Dirty.Has(i))
		case missed && s.Verdict == replicate.Unmet && m.ledger.rate > 0: // no replica may have stored the write, so this replica may have the only value left: its value is not deleted
			m.inDoubt(e, DirtyKey{Hash: t.Hash, Key: t.Key, Through: through, Overwrite: true}, true)
		case missed:
			m.MissedWrite(t.Hash, t.Key, c.keyAt(t, i), through)
		case s.Clean.Has(i) && c.isRepair && s.Verdict != replicate.Answered: // the repair has deleted the key at the replica, but could not copy it
			if through { // on other routes the key stays dirty, because a miss of this replica would be believed
				m.Clean(t.Hash)
			}
		case s.Clean.Has(i):
			m.Right(t.Hash)
		}
		if c.refused.Has(i) && !through {
			m.StayDirty(t.Hash, t.Key)
		}
	}
	if c.writes || c.isRepair {
		e.Unclaim(t)
	}
	if c.move != nil {
		c.move.asked(c, s.Verdict == replicate.Answered)
	} else if c.isRepair {
		if e.Copying == background { // the ledger may have waited for the end of a copy
			e.At(link.ResyncTimer, e.Now)
		}
		e.Copying--
		ok, to := s.Verdict == replicate.Answered, c.replicas[1]
		if c.resync != nil {
			c.resync.repaired(e, c, ok)
		} else if !ok {
			to.repairFailed(e, t.Hash, c.refused != 0)
		}
	} else {
		c.repair(t, &s)
	}
}

// repair requests repairs of the replicas that differ after the command. Replicas with a write in
// doubt are left to the ledger, which repairs them once they answer again.
func (c *command) repair(t *task.Task, s *replicate.Settlement) {
	if s.Source < 0 || c.e.pauses() || c.stage != c.e.stage { // during a pause, and after a new stage of the handover, the servers of c.replicas may no longer keep the key
		return
	}
	size := 0
	if s.Answer >= 0 {
		size = c.asks[s.Answer].result.Reply.Body.Len()
	}
	for i, m := range c.replicas {
		if s.Repair.Has(i) && !c.refused.Has(i) && !s.Undo.Has(i) && !s.Overwrite.Has(i) && !m.Server.KnownToExceed(len(t.Key), size, false) {
			c.e.repair(t, t.Hash, c.replicas[s.Source], m, m.Dirty(t.Hash))
		}
	}
}
