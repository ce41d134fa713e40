package copies

// Commands on keys of which a route keeps several copies: package replicate says
// what to ask whom, and this file asks, tells it the answers, and answers the client.

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"sync/atomic"

	"ringside/proxy/copies/entries"
	"ringside/proxy/copies/handover"
	"ringside/proxy/failover"
	"ringside/proxy/link"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/task"
	"ringside/proxy/task/deed"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
	"ringside/replicate"
	"ringside/replicate/castoken"
)

// Copies is what one loop does for keys of which routes keep several copies.
type Copies struct {
	*task.Tasks
	Keepers *failover.Keepers
	Pools   []*routing.BoundPool // all of the table, in its order

	Ledgers    map[string]*ledger    // by the name of the pool
	Copying    int                   // copies of keys at work, maxCopies at most
	Doubtful   *atomic.Int32         // how many loops of the process have doubts; all share it
	Moving     *atomic.Int32         // how many loops have a handover; all share it
	doubts     bool                  // this loop knows, or has of late, of a write that a member has missed or may run late: see doubt
	turn       uint64                // counts commands: where reads are spread the members take turns
	lastChosen uint64                // the last cas that was chosen for all copies of a value; it only grows
	holders    []copyOf              // scratch of homes: the holders that it yields
	Unbound    bool                  // tests leave out what Command.Bound is for
	Unasked    bool                  // tests ask no former holder before they decide
	Unpaused   bool                  // tests leave out the pause of a handover
	Unseen     bool                  // tests leave out what Command.Conditional is for
	arranged   *handover.Arrangement // who holds which keys by the present table
	handover   *handover.Handover    // nil: all keys are where the table wants them
	stage      uint64                // of the handover; another number when keys may have other holders
	left       map[uint64]struct{}   // hashes of keys that have left their former holders
	moves      map[uint64]*move      // by hash, those that are at work or have failed
}

// command is a command on a key of several copies, or a repair of one: the task.Rule
// that carries out a replicate.Rule.
type command struct {
	e       *Copies // of the loop that leads it
	rule    replicate.Rule
	members []copyOf        // holders of the key, in the order that rule knows them by
	asks    []copyAsk       // all that were made, by their number
	next    []replicate.Ask // scratch of advance
	room    struct {        // of these, as many as a command on two copies needs that meets nothing special
		members [2]copyOf
		asks    [2]copyAsk
		next    [2]replicate.Ask
	}

	phases     uint64         // phaseNumbers when it began; strict: if they have changed the answer does not count
	authority  int            // index in members; -1: there is none
	gone       replicate.Mask // members that it has left out, and that miss it
	writes     bool           // it changes the key, so it has the key's line
	chosen     uint64         // the cas that all copies are given, where their servers let it be chosen
	token      []byte         // the client's cas token, as the authority knows it; nil: there is none
	spared     bool           // the authority has not answered a set, and nothing is sent behind it there: see behind
	voidGuards []int          // asks that were not sent, because the cas that guards them may be another process's

	first     *upstream.Result // what came of a get that asked a copy without a task, and is not to ask it again; nil: there was none
	firstFrom table.Target     // that copy

	stage    uint64  // of the handover, when it was made
	isRepair bool    // there is no client
	move     *move   // that the repair is a part of; nil: of none
	resync   *resync // that the repair is a part of; nil: of none
}

// copyAsk is one ask of the rule, and what came of it.
type copyAsk struct {
	replicate.Ask
	op        wire.Op
	dialect   wire.Dialect
	respelled bool           // its line is Ringside's own, so its answer can't be shown to the client as it is
	added     byte           // the meta flag that Ringside has added to the client's; 0: none
	at        int64          // when it was sent, on the loop's clock
	kind      replicate.Kind // what the answer means; 0: there is none yet
	result    upstream.Result
}

// Lead serves t if its route keeps copies. The loop that leads it is the only one of
// the process that leads commands on its key.
func (e *Copies) Lead(t *task.Task) bool {
	if t.Route.Copies.Copies == 0 {
		return false
	}
	e.lead(t)
	return true
}

func (e *Copies) lead(t *task.Task) {
	c := &command{e: e}
	c.asks, c.next = c.room.asks[:0], c.room.next[:0]
	if before, ok := t.Rule.(*command); ok && !t.ClientDone {
		c.first, c.firstFrom = before.first, before.firstFrom
	}
	command := task.CommandOf(t)
	command.Bound = !e.Unbound
	c.writes = command.Op > replicate.Gats && command.Op != replicate.Debug || command.Vivify || command.Win
	if c.writes && t.Req.Letters.Has('E') && t.Req.Dialect == wire.Meta {
		t.Reject(wire.AppendClientError(nil, "flag E chooses the cas, which is each copy's own on this route: leave it out"))
		return
	}
	if e.handover != nil && !e.rebind(t) {
		return
	}
	if c.writes && !e.Claim(t, task.KeyLine(t.Hash)) {
		return // Lead is called again when the line of the key comes to t
	}
	if e.Now >= t.Deadline {
		t.Fail(cmp.Or(t.WaitReason, task.TooLong), stats.TimedOut)
		e.Unclaim(t, task.KeyLine(t.Hash))
		return
	}
	if t.Op.Stores() && wire.SameFlags(t.Req.ClientFlags.Of(t.Raw), wire.MarkFlags) {
		t.Refuse("these flags are Ringside's own")
		command = task.CommandOf(t)
	}
	if e.proceed(); !command.Reads() && e.awaitHandover(t, false) {
		return
	}
	c.stage = e.stage
	c.members = e.copiesOf(c.room.members[:0], t.Route, t.Key)
	c.phases = c.phaseNumbers() // before the states are read: another loop may publish new phases in between
	states := make([]replicate.Member, len(c.members), replicate.Max)
	served := false
	for i := range c.members {
		c.members[i].notice(e)
		states[i] = c.stateOf(t, i, true)
		switch states[i].State {
		case replicate.Out, replicate.Gone, replicate.Suspect, replicate.Leaving:
		default:
			served = true
		}
	}
	for i := range c.members {
		if !served { // nobody is left to serve the key: then a server that is only suspected is asked
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
	command.Conditional = !e.Unseen && slices.ContainsFunc(c.members, func(m copyOf) bool { return m.Pool.Pool.Failover.Strict })
	c.authority = replicate.Authority(states)
	if token, has := t.Token(); has && c.authority >= 0 {
		c.token = strconv.AppendUint(nil, castoken.Open(token, c.identity(t, c.authority)), 10)
	}
	e.lastChosen = max(e.lastChosen+1, uint64(e.Now)>>10)
	c.chosen = e.lastChosen
	e.turn++
	policy := t.Route.Copies
	switch {
	case command.Op == replicate.Gets && e.handover.Pauses(): // else it would give the authority what another has
		command.Op, policy.Read = replicate.Get, replicate.First
	case t.Route.Prefer != nil && policy.Read == replicate.First:
		policy.Read = replicate.Nearest // stateOf sets Near for the preferred pool
	}
	c.rule = replicate.Begin(policy, command, states, e.turn)
	t.Rule = c
	t.Run(0, nil)
	if policy.Hedge > 0 && !c.writes && !t.ClientDone {
		c.hedge(t, e.Now+int64(policy.Hedge))
	}
}

// lateAfter is when an answer is late: a write may have come between it and those of other
// members.
const lateAfter = deed.MarkWait / 2

// hedge lets a read that has no answer by then ask one more member (a hedged request). One
// of whose answer bytes have come within the last hedge time waits longer: another answer
// would come after it, and cost the same bytes once more.
func (c *command) hedge(t *task.Task, at int64) {
	c.e.After(at, func() {
		if t.ClientDone || c.rule.Over() {
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
	if c.isRepair && c.stage != c.e.stage { // its key may have other holders by now
		c.finish(t, replicate.Settlement{Verdict: replicate.Unmet, Source: -1})
		return
	}
	c.advance(t)
}

// advance sends what the rule wants asked now, answers the client once the rule has
// settled, and finishes when the rule is over. An ask that can't be sent is told at
// once, which may make the rule want others: hence the loop.
func (c *command) advance(t *task.Task) {
	for c.next = c.rule.Next(c.next[:0]); len(c.next) > 0; c.next = c.rule.Next(c.next[:0]) {
		for _, ask := range c.next {
			c.send(t, ask)
		}
		for _, id := range c.voidGuards {
			c.rule.Told(id, replicate.Outcome{Kind: replicate.Exists})
		}
		c.voidGuards = c.voidGuards[:0]
	}
	s, ok := c.rule.Settled()
	if !ok {
		return
	}
	if s.Dirty|s.Undo|s.Overwrite != 0 {
		c.e.doubt()
	}
	if !t.ClientDone {
		c.settle(t, s)
	}
	if c.rule.Over() {
		c.finish(t, s)
	}
}

// send sends one ask. It does not send one that is guarded by a cas on a connection that may
// lead to another process than has told it, in which the same number belongs to another item.
// Nor does it fetch from who does not lend, nor let a delete begin again
// behind its deadline: the marks of its first round may be gone by then, so that somebody
// has got the lock that was deleted, which a second round would take.
func (c *command) send(t *task.Task, ask replicate.Ask) {
	id := ask.Number
	var guard *upstream.Via
	c.asks = append(c.asks[:id], copyAsk{Ask: ask, at: c.e.Now})
	switch ask.Deed {
	case replicate.Wait:
		t.Open++
		c.e.After(c.e.Now+int64(deed.MarkWait), func() {
			t.Open--
			c.rule.Told(id, replicate.Outcome{Kind: replicate.OK})
			c.advance(t)
			t.CatchUp()
		})
		return
	case replicate.Join, replicate.Count, replicate.Check, replicate.Remark, replicate.Fill, replicate.Store, replicate.Drop:
		guard = &c.asks[ask.Guard].result.Via
		if c.ofSet(t, ask.Guard) && !guard.Void() { // values are compared, and whether that is so still
			guard = nil
		}
	case replicate.Look, replicate.Bury:
		if t.Op == wire.Delete && !t.ClientDone && t.Loop.Moment() >= t.Deadline {
			t.Knows(id, &upstream.Result{Server: c.members[ask.Member].Server, Failure: upstream.Failure{Why: task.TooLong, Outcome: stats.TimedOut, Unsent: true}})
			return
		}
	}
	srv := c.members[ask.Member].Server
	if ask.Deed == replicate.Fetch && (!c.members[ask.Member].lends(t.Loop.Moment()) || ask.Member == c.authority && c.handedOver(t)) {
		t.Knows(id, &upstream.Result{Server: srv, Failure: upstream.Failure{Why: "what the server said is not sure any more", Outcome: stats.Unavailable, Unsent: true}})
		return
	}
	line := c.line(t, &c.asks[id])
	if c.first != nil && ask.Deed == replicate.Forward && srv.Target == c.firstFrom && c.members[ask.Member].Pool.View.Renamed(c.members[ask.Member].Index) == 0 {
		c.first.Server = srv // this loop's
		t.Knows(id, c.first)
		c.first = nil
		return
	}
	if !t.AskParsed(t.ClientDone, id, srv, line, guard) {
		c.asks[id].kind = replicate.Exists
		c.voidGuards = append(c.voidGuards, id)
	}
}

func (c *command) Told(t *task.Task, id int, r *upstream.Result) {
	a := &c.asks[id]
	o := c.outcome(t, a, r)
	a.kind = o.Kind
	c.countMarks(t, a)
	a.result = t.Keep(r)
	o.Late = c.e.Now-a.at > int64(lateAfter)
	c.rule.Told(id, o)
	if o.Kind == replicate.InDoubt {
		r.Behind = c.behind(t, a)
	}
	c.advance(t)
}

// countMarks counts, for the metrics, what the answer to a says of marks. One is disturbed
// that the command has left itself, and that is gone when it is to be ended.
func (c *command) countMarks(t *task.Task, a *copyAsk) {
	by := [wire.NumOps]stats.MarkUser{wire.Delete: stats.MarkDelete, wire.Add: stats.MarkAdd}[t.Op]
	if c.isRepair {
		by = stats.MarkRepair
	}
	marks, guard := &c.e.Count.Marks, &c.asks[a.Guard]
	gone := a.kind == replicate.Exists || a.kind == replicate.NotFound
	switch {
	case a.kind == replicate.Marked:
		marks[stats.MarkMet][by]++
	case a.kind == replicate.Stored && a.Deed.LeavesMark() && (a.Deed != replicate.Remark || guard.Deed == replicate.Look && guard.kind == replicate.Hit):
		marks[stats.MarkMade][by]++
	case a.kind == replicate.Stored && a.Deed == replicate.Remark && !guard.Deed.LeavesMark():
		marks[stats.MarkReplaced][by]++
	case a.kind == replicate.Stored && a.Deed == replicate.Fill && guard.kind == replicate.Marked:
		marks[stats.MarkTaken][by]++
	case gone && guard.Deed.LeavesMark() && (a.Deed >= replicate.Remark && a.Deed <= replicate.Drop):
		marks[stats.MarkDisturbed][by]++
	}
}

// behind is what is sent behind an ask that has timed out and may still run. A claim,
// or a write that builds on one or on a look, needs nothing: it can't run when what was
// there then is gone. A set without a condition needs a mark behind it, which replaces what
// it leaves. The authority is spared that in relaxed mode if no copy has stored the value:
// the mark would take the old value, which may be the only one.
func (c *command) behind(t *task.Task, a *copyAsk) upstream.Behind {
	switch a.Deed {
	case replicate.Forward, replicate.Put:
	default:
		return upstream.Nothing
	}
	if strict := c.members[a.Member].Pool.Pool.Failover.Strict; !strict && a.Member == c.authority {
		c.spared = true
		for i := range c.asks {
			c.spared = c.spared && c.asks[i].kind != replicate.Stored
		}
		if c.spared {
			return upstream.Nothing
		}
	}
	return upstream.Behind(markTime(t))
}

// outcome is what the answer r to a means for the rule.
func (c *command) outcome(t *task.Task, a *copyAsk, r *upstream.Result) (o replicate.Outcome) {
	rep := &r.Reply
	if o.Kind = deed.Kind(a.Deed, r); rep.Kind == wire.NoReply {
		return
	}
	number := func(at wire.Span) {
		o.Kind = replicate.Number
		o.Value, _ = strconv.ParseUint(string(bytes.TrimSpace(at.Of(r.Bytes))), 10, 64)
	}
	switch {
	case a.op == wire.Incr || a.op == wire.Decr:
		if rep.Kind == wire.Value {
			number(rep.Body)
		} else if rep.Kind == wire.Number {
			number(rep.Line)
		}
	case a.op > wire.Gats:
	case a.Deed == replicate.Extend && o.Kind == replicate.Hit:
		o.Kind = replicate.Touched
	case a.Deed == replicate.Extend && o.Kind == replicate.Miss:
		o.Kind = replicate.NotFound
	case a.Deed == replicate.Fetch && o.Kind == replicate.Hit && stub(r):
		o.Kind = replicate.Miss
	case a.Deed == replicate.Check && c.ofSet(t, a.Guard): // its cas is not known
		if o.Kind == replicate.Hit && (c.asks[a.Guard].result.Void() || !bytes.Equal(rep.Body.Of(r.Bytes), t.Body())) {
			o.Kind = replicate.Exists
		}
	case (a.Deed == replicate.Check || a.Deed == replicate.Review) && o.Kind == replicate.Hit && (deed.Arg(r, 'c') != deed.Arg(&c.asks[a.Guard].result, 'c') || c.asks[a.Guard].result.Void()):
		o.Kind = replicate.Exists
	}
	switch a.Deed {
	case replicate.Weigh:
		token, _ := strconv.ParseUint(string(c.token), 10, 64)
		there, _ := strconv.ParseUint(deed.Arg(r, 'c'), 10, 64)
		if o.Kind == replicate.Hit && token > there {
			o.Kind = replicate.Exists
		} else if token == there {
			o.Value = 1
		}
	case replicate.Look, replicate.Review, replicate.Preview:
		o.Value, _ = strconv.ParseUint(deed.Arg(r, 's'), 10, 64)
		if a.Deed == replicate.Preview {
			o.Value = after(t, r.Bytes, rep, o.Value)
		}
	case replicate.Fetch:
		if t.Op == wire.Incr || t.Op == wire.Decr {
			o.Value, _ = strconv.ParseUint(string(bytes.TrimSpace(rep.Body.Of(r.Bytes))), 10, 64)
		} else if o.Kind == replicate.Hit && bytes.Equal(rep.Body.Of(r.Bytes), t.Body()) || o.Kind == replicate.Miss && c.expired(t) {
			o.Value = 1
		}
	}
	return o
}

// stub says that a server's answer shows what the guard, or a client's mg N, leaves
// there while a value is rebuilt. No other server is to have that.
func stub(r *upstream.Result) bool {
	return r.Reply.Body.Len() == 0 && deed.Arg(r, 'f') == "0" && (r.Reply.Letters.Has('W') || r.Reply.Letters.Has('Z'))
}

// replyTo is what the client is answered for an outcome of an ask that was not in its
// own words.
var replyTo = map[replicate.Kind]wire.Kind{
	replicate.Stored: wire.Stored, replicate.NotStored: wire.NotStored, replicate.Exists: wire.Exists, replicate.NotFound: wire.NotFound,
}

// settle answers the client as the rule has settled, unless the answer is not sure any
// more. A read that is not sure is led again with what is known now. A write can't be:
// it may have been carried out.
func (c *command) settle(t *task.Task, s replicate.Settlement) {
	told := s.Verdict == replicate.Answered || s.Verdict == replicate.Done || s.Verdict == replicate.Absent && c.rule.Asked()
	if told && !c.sure(t, s) {
		switch e := c.e; {
		case !c.writes && c.rule.Over() && e.Now < t.Deadline:
			e.LeadAgain(t)
		case !c.writes:
			t.Fail("what the server said is not sure any more", stats.Unavailable)
		default:
			t.Fail("not sure that everybody sees the write", stats.Unavailable)
		}
		return
	}
	if told && !c.writes && (s.Verdict == replicate.Absent || c.asks[s.Answer].kind == replicate.Miss) {
		if c.rule.Over() && c.e.awaitHandover(t, true) || !c.rule.Over() && c.e.handover != nil {
			return
		}
	}
	switch s.Verdict {
	case replicate.Answered:
		a := &c.asks[s.Answer]
		if k, ok := replyTo[a.kind]; ok && (a.respelled || a.Deed != replicate.Forward && a.Deed != replicate.Store) {
			if k == wire.NotFound { // memcached answers NOT_STORED to a replace of a key that is gone
				k = task.Absence(t)
			}
			t.AnswerKind(k)
			return
		}
		deed.Hide(&a.result, a.op, a.dialect, a.added)
		var token task.Token
		if rep := &a.result.Reply; rep.Unique.Len() > 0 || rep.Letters.Has('c') {
			identity := c.identity(t, a.Member)
			token = func(n uint64) uint64 {
				if t.Op == wire.Get && a.Member != c.authority { // a binary client's read of another member: its cas would decide nothing at the authority
					return wire.NoMatch
				}
				return castoken.Seal(n, identity)
			}
		}
		t.Answer(&a.result, token)
	case replicate.Done:
		t.AnswerKind(wire.Deleted)
	case replicate.Absent:
		t.AnswerKind(task.Absence(t))
	case replicate.Held:
		t.WaitReason = "a server that keeps a copy of the key can't be reached, and it is not sure yet that nobody else reads there"
		if c.rule.Over() && t.Loop.Now < t.Deadline {
			t.Loop.Park(t, t.Deadline, func() uint64 { return c.outlook(t) })
			return
		}
		t.Fail(t.WaitReason, stats.Unavailable)
	case replicate.Refused:
		t.Fail("no member of the key is in use", stats.Unavailable)
	default:
		why, o := "too few copies have taken the write", stats.ServerFault
		if t.Op <= wire.Gats {
			why, o = "no copy that answers has the key, and one that can't be asked may have it", stats.Unavailable
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

// finish notes in the ledger which members have missed the write or are in doubt, gives
// up the key's line, and asks for repairs. No ask of the command is open any more.
func (c *command) finish(t *task.Task, s replicate.Settlement) {
	e := c.e
	if !t.ClientDone { // it is parked or runnable: Lead begins it anew
		return
	}
	through := t.Route.Copies.ReadThrough
	t.Deadline = e.Now + int64(t.Route.Timeouts.Deadline) // of the deletes and repairs that follow
	if n := c.rule.Rounds(); n > 0 && t.Op == wire.Delete {
		e.Count.DeleteRounds[min(n, stats.MaxDeleteRounds)-1]++
	}
	handed := c.rule.Asked() && c.handedOver(t)
	if handed { // it becomes like who decides now, which is before it; what others have missed they have missed
		behind := ^(replicate.Mask(1)<<c.authority - 1)
		s = replicate.Settlement{Verdict: replicate.Unmet, Dirty: s.Dirty & behind, Undo: s.Undo & behind, Overwrite: s.Overwrite&behind | 1<<c.authority, Source: -1}
	}
	for i, m := range c.members {
		doubt, missed := s.Undo.Has(i) || s.Overwrite.Has(i), s.Dirty.Has(i)
		if doubt || missed {
			m.notice(e)
		}
		switch {
		case doubt && c.spared && i == c.authority: // it is left as it is: see behind
		case doubt && !c.isRepair:
			m.inDoubt(e, entries.Entry{Hash: t.Hash, Key: t.Key, Through: through, Overwrite: i != c.authority || handed}, s.Dirty.Has(i))
		case missed && s.Verdict == replicate.Unmet && m.ledger.rate > 0: // what it has may be all that is left
			m.inDoubt(e, entries.Entry{Hash: t.Hash, Key: t.Key, Through: through, Overwrite: true}, true)
		case missed:
			m.MissedWrite(t.Hash, t.Key, c.keyAt(t, i), through)
		case s.Clean.Has(i) && c.isRepair && s.Verdict != replicate.Answered: // it was deleted there, and is yet to be copied
			if through { // else its miss would be believed
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
		if e.Copying == background { // the ledger may wait for the room
			e.At(link.ResyncTimer, e.Now)
		}
		e.Copying--
		ok, to := s.Verdict == replicate.Answered, c.members[1]
		if c.resync != nil {
			c.resync.repaired(e, c, ok)
		} else if !ok {
			to.repairFailed(e, t.Hash)
		}
	} else {
		c.repair(t, &s)
	}
}

// repair asks for repairs of the members that the command has found or left different.
// Those in doubt are repaired from the ledger, when they answer again.
func (c *command) repair(t *task.Task, s *replicate.Settlement) {
	if s.Source < 0 || c.e.pauses() || c.stage != c.e.stage { // they may not be its holders any more
		return
	}
	for i, m := range c.members {
		if s.Repair.Has(i) && !s.Undo.Has(i) && !s.Overwrite.Has(i) {
			c.e.repair(t, t.Hash, c.members[s.Source], m, m.Dirty(t.Hash))
		}
	}
}
