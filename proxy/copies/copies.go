package copies

// Commands on keys of which a route keeps several copies: package replicate
// says whom to ask for what, this file asks it.

import (
	"bytes"
	"cmp"
	"container/heap"
	"strconv"

	"ringside/proxy/failover"
	"ringside/proxy/link"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
	"ringside/replicate"
)

// Copies is what one loop does for keys of which routes keep several copies.
type Copies struct {
	*task.Tasks
	Keepers *failover.Keepers
	Pools   []*routing.BoundPool // of the table

	Ledgers    map[string]*ledger // by the name of the pool
	graves     *replicate.Tombstones
	Mends      int      // repairs at work
	turn       uint64   // of reads that are spread
	lastChosen uint64   // cas given to all copies of a value
	holders    []copyOf // of a key that is being looked at
	Hedges     hedges   // reads that ask another member if they wait too long
}

// loopCount is how many loops share the rates of repairs.
func (e *Copies) loopCount() int {
	n, _ := e.Loops.Count(e.Tasks)
	return n
}

// command is the rule of a command on a key of several copies.
type command struct {
	e       *Copies
	rule    replicate.Rule
	members []copyOf
	asks    []copyAsk
	numbers uint64  // of the members when it began; strict: the answer counts only if they are still the same
	writes  bool    // it changes the key: others that do wait for it
	chosen  uint64  // the cas that all copies get, where servers take it
	buried  bool    // it is a delete
	mends   bool    // it is a repair: there is no client
	fill    *resync // that the repair is for
	undoing int     // deletes of what may be wrong that have not been answered
	settled replicate.Settlement
	token   []byte // the client's cas, as the authority knows it
	next    []replicate.Ask
}

// copyOf is one member of a key.
type copyOf struct {
	routing.Holder
	*account
	unreachable bool // it can't be reached and others may still read it: a write leaves it dirty
}

// missed are the keys that a member has missed a write to.
func (m *copyOf) missed() *replicate.DirtyKeys { return m.Dirty }

// copyAsk is one ask of the rule and what came of it.
type copyAsk struct {
	replicate.Ask
	op      wire.Op
	dialect wire.Dialect
	check   bool // the value is empty, or no number: it is being asked whether it is a stub
	checked bool // so of a number, once
	shown   bool // Ringside asked for the number, not the client
	got     upstream.Result
}

// Lead serves t, a command of a route that keeps copies. One loop does
// it for each key, so that writes come one after another and what is known of
// the key is in one place.
func (e *Copies) Lead(t *task.Task) bool {
	if t.Route.Copies.Copies == 0 {
		return false
	}
	e.lead(t)
	return true
}

func (e *Copies) lead(t *task.Task) {
	c := &command{e: e}
	command := task.CommandOf(t)
	c.writes = command.Op > replicate.Gats && command.Op != replicate.Debug || command.Vivify || command.Win
	c.buried = command.Op == replicate.Delete
	if c.writes && !e.Claim(t, task.KeyLine(t.Hash)) {
		return // it is led again when those before it are done
	}
	if e.Now >= t.Deadline {
		t.Fail(cmp.Or(t.WaitReason, task.TooLong), stats.TimedOut)
		e.Unclaim(t, task.KeyLine(t.Hash))
		return
	}
	c.members = e.copiesOf(nil, t.Route, t.Key)
	c.numbers = c.outages() // before the states: what changes meanwhile shows in the end
	states := make([]replicate.Member, len(c.members))
	served := false
	for i := range c.members {
		states[i] = c.stateOf(t, i, true)
		served = served || states[i].State != replicate.Out
	}
	for i := range c.members {
		if !served { // then those who answer are asked, whatever is thought of them
			states[i] = c.stateOf(t, i, false)
		}
	}
	if i := c.stranger(t, states); i >= 0 {
		c.awaitStranger(t, i)
		return
	}
	token, has := t.Token()
	if at := replicate.Authority(states); has && at >= 0 {
		c.token = strconv.AppendUint(nil, replicate.Open(token, c.identity(t, at)), 10)
	}
	e.lastChosen = max(e.lastChosen+1, uint64(e.Now)>>10)
	c.chosen = e.lastChosen
	e.turn++
	policy := t.Route.Copies
	if t.Route.Prefer != nil && policy.Read == replicate.First {
		policy.Read = replicate.Nearest // stateOf says who that is
	}
	c.rule = replicate.Begin(policy, command, states, e.turn)
	t.Rule = c
	t.Run(0, nil)
	if policy.Hedge > 0 && !c.writes && !t.ClientDone {
		heap.Push(&e.Hedges, hedge{t, c, e.Now + int64(policy.Hedge)})
		e.At(link.HedgeTimer, e.Hedges[0].At)
	}
}

// hedge is a read that asks one more member if it has no answer in time.
type hedge struct {
	t  *task.Task
	c  *command
	At int64
}

// hedges is a heap, the next one first.
type hedges []hedge

func (h hedges) Len() int { return len(h) }

func (h hedges) Less(i, j int) bool { return h[i].At < h[j].At }

func (h hedges) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

func (h *hedges) Push(x any) { *h = append(*h, x.(hedge)) }

func (h *hedges) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	(*h)[last] = hedge{} // the task may go
	*h = (*h)[:last]
	return x
}

// FireHedges lets the reads whose time has come ask one more member. One whose
// answer is coming waits on: another copy would only come behind it, and cost its
// bytes once more.
func (e *Copies) FireHedges() {
	for len(e.Hedges) > 0 && e.Hedges[0].At <= e.Now {
		h := heap.Pop(&e.Hedges).(hedge)
		if h.t.ClientDone || h.c.rule.Over() {
			continue
		}
		if h.At = e.LastOf(h.t) + int64(h.t.Route.Copies.Hedge); h.At > e.Now {
			heap.Push(&e.Hedges, h)
			continue
		}
		h.c.rule.Late()
		h.c.goOn(h.t)
		h.t.CatchUp()
	}
	if len(e.Hedges) > 0 {
		e.At(link.HedgeTimer, e.Hedges[0].At)
	}
}

func (c *command) Begin(t *task.Task) { c.goOn(t) }

// goOn sends what the rule wants asked, and settles when it knows how.
func (c *command) goOn(t *task.Task) {
	for c.next = c.rule.Next(c.next[:0]); len(c.next) > 0; c.next = c.rule.Next(c.next[:0]) {
		for _, ask := range c.next {
			id := len(c.asks)
			c.asks = append(c.asks, copyAsk{Ask: ask})
			t.Ask(id, c.members[ask.Member].Server, c.line(t, &c.asks[id]))
		}
	}
	s, ok := c.rule.Settled()
	if !ok {
		return
	}
	if !t.ClientDone {
		c.settle(t, s)
	}
	if c.rule.Over() {
		c.finish(t, s)
	}
}

func (c *command) Told(t *task.Task, id int, r *upstream.Result) {
	if id >= len(c.asks) {
		c.undone(t, &c.members[id-len(c.asks)], r)
		if c.undoing--; c.undoing == 0 && !c.mends {
			c.repair(t)
		}
		return
	}
	a := &c.asks[id]
	kind, value := c.outcome(t, a, r)
	counts := t.Op == wire.Incr || t.Op == wire.Decr
	if a.Deed == replicate.Forward && !a.check && (kind == replicate.Hit && t.Op <= wire.Gats && task.MayBeStub(t, &t.Loop.Rep) ||
		kind == replicate.ClientError && counts && !a.checked && !task.CommandOf(t).Vivify) {
		a.check, a.checked = true, counts
		a.got = t.Keep(r)
		t.Ask(id, c.members[a.Member].Server, t.Meta("mg", c.keyAt(t, a.Member), " v s", nil))
		return
	}
	if kind == replicate.Hit && a.check && task.Filled(t, &t.Loop.Rep) {
		a.check = false
		t.Ask(id, c.members[a.Member].Server, c.line(t, a))
		return
	}
	switch {
	case a.check && counts && kind == replicate.Miss: // a stub: the number is elsewhere, if anywhere
		kind = replicate.NotFound
		a.got = upstream.Result{Server: r.Server, Bytes: wire.AppendAnswer(nil, t.Raw, &t.Req, wire.NotFound)}
	case a.check && counts:
		kind = replicate.ClientError
	case kind == replicate.Miss && a.Deed == replicate.Forward && t.Op <= wire.Gats: // perhaps a stub: the client gets a miss
		a.got = upstream.Result{Server: r.Server, Bytes: []byte(wire.AnswerEnd)}
		if t.Req.Dialect == wire.Meta {
			a.got.Bytes = wire.AppendAnswer(nil, t.Raw, &t.Req, wire.Miss)
		}
	case !a.check:
		a.got = t.Keep(r)
	}
	c.rule.Told(id, replicate.Outcome{Kind: kind, Value: value})
	c.goOn(t)
}

// outcome is what an answer means for the rule.
func (c *command) outcome(t *task.Task, a *copyAsk, r *upstream.Result) (replicate.Kind, uint64) {
	rep := &t.Loop.Rep
	op, dialect := a.op, a.dialect
	if a.check {
		op, dialect = wire.Get, wire.Meta
	}
	switch {
	case r.Bytes == nil && r.Unsent:
		return replicate.Unsent, 0
	case !r.Parsed(op, dialect, rep):
		return replicate.InDoubt, 0
	}
	switch rep.Kind {
	case wire.Value:
		switch {
		case op == wire.Incr || op == wire.Decr:
			n, _ := strconv.ParseUint(string(bytes.TrimSpace(rep.Body.Of(r.Bytes))), 10, 64)
			return replicate.Number, n
		case dialect == wire.Meta && rep.Body.Len() == 0 && rep.Letters.Has('Z') && !task.CommandOf(t).Vivify:
			return replicate.Miss, 0 // a stub of some repair
		case a.Deed == replicate.Fetch && task.Expiring(r.Bytes, rep):
			return replicate.Miss, 0
		}
		return replicate.Hit, 0
	case wire.Header:
		switch {
		case a.Deed == replicate.Stub && (rep.Letters.Has('W') || rep.Letters.Has('Z') && empty(r.Bytes, rep)):
			return replicate.Miss, 0 // the stub of another Ringside serves as well: whoever fills it first
		case a.Deed == replicate.Extend:
			return replicate.Touched, 0
		}
		return replicate.Hit, 0
	case wire.End:
		return replicate.Miss, 0
	case wire.Miss:
		if a.Deed == replicate.Extend {
			return replicate.NotFound, 0
		}
		return replicate.Miss, 0
	case wire.Stored:
		return replicate.Stored, 0
	case wire.NotStored:
		return replicate.NotStored, 0
	case wire.Exists:
		return replicate.Exists, 0
	case wire.NotFound:
		return replicate.NotFound, 0
	case wire.Deleted:
		return replicate.Deleted, 0
	case wire.Touched:
		return replicate.Touched, 0
	case wire.Number:
		n, _ := strconv.ParseUint(string(bytes.TrimSpace(rep.Line.Of(r.Bytes))), 10, 64)
		return replicate.Number, n
	case wire.Item:
		return replicate.Hit, 0
	case wire.OK:
		return replicate.OK, 0
	case wire.ServerError:
		return replicate.ServerError, 0
	}
	return replicate.ClientError, 0
}

// empty says that an item has no bytes.
func empty(b []byte, rep *wire.Reply) bool {
	at, ok := wire.FlagArg(b, rep.MetaFlags, 's')
	return ok && string(at.Of(b)) == "0"
}

// settle tells the client.
func (c *command) settle(t *task.Task, s replicate.Settlement) {
	if s.Verdict == replicate.Answered && !c.sure(t, s) {
		switch e := c.e; {
		case !c.writes && c.rule.Over() && e.Now < t.Deadline: // by what is known now
			e.Runnable = append(e.Runnable, t)
			e.Soon(link.KeeperTimer)
		case !c.writes:
			t.Fail("what the server said is not sure any more", stats.Unavailable)
		default: // whoever has it has it from before anybody else decided
			t.Fail("not sure that everybody sees the write", stats.Unavailable)
		}
		return
	}
	switch s.Verdict {
	case replicate.Answered:
		a := &c.asks[s.Answer]
		if a.shown {
			hideNumber(&a.got, &t.Loop.Rep)
		}
		identity := c.identity(t, a.Member)
		t.Answer(&a.got, func(n uint64) uint64 { return replicate.Seal(n, identity) })
	case replicate.Absent:
		t.AnswerKind(task.Absence(t))
	case replicate.Held:
		t.WaitReason = "a server that keeps a copy of the key can't be reached, and it is not sure yet that nobody else reads there"
		if c.rule.Over() && t.Loop.Now < t.Deadline {
			t.Loop.Park(t, t.Deadline, c.outlook)
			return
		}
		t.Fail(t.WaitReason, stats.Unavailable)
	case replicate.Refused:
		t.Fail("no member of the key is in use", stats.Unavailable)
	default:
		why, o := "too few copies have taken the write", stats.ServerFault
		if s.Answer >= 0 && c.asks[s.Answer].got.Bytes != nil {
			t.Answer(&c.asks[s.Answer].got, nil)
			return
		}
		for i := range c.asks {
			if a := &c.asks[i].got; a.Bytes == nil && a.Why != "" {
				why, o = a.Why, a.Outcome
			}
		}
		t.Fail(why, o)
	}
}

// finish remembers what the command has left behind.
func (c *command) finish(t *task.Task, s replicate.Settlement) {
	e := c.e
	if !t.ClientDone { // it is parked
		return
	}
	c.settled = s
	t.Deadline = e.Now + int64(t.Route.Timeouts.Deadline) // of what follows
	for i, m := range c.members {
		switch missed := s.Dirty.Has(i) || m.unreachable && c.writes && c.took(); {
		case missed:
			m.Leave(t.Hash, t.Key, c.keyAt(t, i), t.Route.Copies.ReadThrough)
		case s.Clean.Has(i) && c.mends && s.Verdict != replicate.Answered: // it has nothing now, and is still to be copied
			if t.Route.Copies.ReadThrough { // else its miss must not be believed
				m.missed().Remove(t.Hash)
			}
		case s.Clean.Has(i):
			m.Clean(t.Hash)
		}
		if s.Undo.Has(i) {
			c.undoing++
			t.Ask(len(c.asks)+i, m.Server, t.Meta("md", c.keyAt(t, i), "", nil))
		}
	}
	if c.buried {
		e.graves.Add(t.Hash, e.Now+int64(graveTime))
	}
	if c.writes || c.mends {
		e.Unclaim(t, task.KeyLine(t.Hash))
	}
	if c.mends {
		if e.Mends == maxMends { // others may wait for that
			e.At(link.ResyncTimer, e.Now)
		}
		e.Mends--
		ok, to := s.Verdict == replicate.Answered, c.members[1]
		if c.fill != nil {
			c.fill.mended(e, c, ok)
		} else if !ok {
			to.notCopied(e, t.Hash)
		}
	} else if c.undoing == 0 {
		c.repair(t)
	}
}

// undone is told how an undo ended. Who has nothing more is no longer dirty, if
// misses are asked of others anyway: the key may be written through another
// Ringside now, and two dirty members would be emptied before they decide.
func (c *command) undone(t *task.Task, m *copyOf, r *upstream.Result) {
	if !t.Route.Copies.ReadThrough || !r.Parsed(wire.Delete, wire.Meta, &t.Loop.Rep) {
		return
	}
	if k := t.Loop.Rep.Kind; k == wire.Deleted || k == wire.NotFound {
		m.Clean(t.Hash)
		m.Lost(c.e, Stale{Hash: t.Hash, Key: t.Key, Through: true})
	}
}

// repair wants the members repaired that the command has found or left wrong,
// once nothing of it is under way.
func (c *command) repair(t *task.Task) {
	s := &c.settled
	if s.Source < 0 {
		return
	}
	for i, m := range c.members {
		if s.Repair.Has(i) {
			c.e.repair(t, t.Hash, c.members[s.Source], m, m.missed().Has(t.Hash))
		}
	}
}

// took says that some server may have carried the write out.
func (c *command) took() bool {
	for i := range c.asks {
		if a := &c.asks[i]; a.Deed.Mutates() && (a.got.Bytes != nil || !a.got.Unsent) {
			return true
		}
	}
	return false
}
