package proxy

// Commands on keys of which a route keeps several copies: package replicate
// says whom to ask for what, this file asks it.

import (
	"bytes"
	"cmp"
	"container/heap"
	"strconv"

	"ringside/proxy/wire"
	"ringside/replicate"
)

// Copies is what one loop does for keys of which routes keep several copies.
type Copies struct {
	*Tasks
	keepers *Keepers
	pools   []*livePool // of the table

	ledgers    map[string]*ledger // by the name of the pool
	graves     *replicate.Tombstones
	mends      int      // repairs at work
	turn       uint64   // of reads that are spread
	lastChosen uint64   // cas given to all copies of a value
	holders    []copyOf // of a key that is being looked at
	hedges     hedges   // reads that ask another member if they wait too long
}

// loopCount is how many loops share the rates of repairs.
func (e *Copies) loopCount() int {
	n, _ := e.loops.Count(e.Tasks)
	return n
}

// copied is the rule of a command on a key of several copies.
type copied struct {
	e       *Copies
	rule    replicate.Rule
	members []copyOf
	asks    []copyAsk
	numbers uint64   // of the members when it began; strict: the answer counts only if they are still the same
	writes  bool     // it changes the key: others that do wait for it
	chosen  uint64   // the cas that all copies get, where servers take it
	buried  bool     // it is a delete
	mends   bool     // it is a repair: there is no client
	fill    *filling // that the repair is for
	undoing int      // deletes of what may be wrong that have not been answered
	settled replicate.Settlement
	token   []byte // the client's cas, as the authority knows it
	next    []replicate.Ask
}

// copyOf is one member of a key.
type copyOf struct {
	holder
	*account
	unreachable bool // it can't be reached and others may still read it: a write leaves it dirty
}

// missed are the keys that a member has missed a write to.
func (m *copyOf) missed() *replicate.DirtyKeys { return m.dirty }

// copyAsk is one ask of the rule and what came of it.
type copyAsk struct {
	replicate.Ask
	op      wire.Op
	dialect wire.Dialect
	check   bool // the value is empty, or no number: it is being asked whether it is a stub
	checked bool // so of a number, once
	shown   bool // Ringside asked for the number, not the client
	got     Result
}

// Lead serves t, a command of a route that keeps copies. One loop does
// it for each key, so that writes come one after another and what is known of
// the key is in one place.
func (e *Copies) Lead(t *task) bool {
	if t.rt.copies.Copies == 0 {
		return false
	}
	e.lead(t)
	return true
}

func (e *Copies) lead(t *task) {
	c := &copied{e: e}
	command := commandOf(t)
	c.writes = command.Op > replicate.Gats && command.Op != replicate.Debug || command.Vivify || command.Win
	c.buried = command.Op == replicate.Delete
	if c.writes && !e.claim(t, keyLine(t.hash)) {
		return // it is led again when those before it are done
	}
	if e.now >= t.deadline {
		t.fail(cmp.Or(t.waited, tooLong), TimedOut)
		e.unclaim(t, keyLine(t.hash))
		return
	}
	c.members = e.copiesOf(nil, t.rt, t.key)
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
	token, has := t.token()
	if at := replicate.Authority(states); has && at >= 0 {
		c.token = strconv.AppendUint(nil, replicate.Open(token, c.identity(t, at)), 10)
	}
	e.lastChosen = max(e.lastChosen+1, uint64(e.now)>>10)
	c.chosen = e.lastChosen
	e.turn++
	policy := t.rt.copies
	if t.rt.prefer != nil && policy.Read == replicate.First {
		policy.Read = replicate.Nearest // stateOf says who that is
	}
	c.rule = replicate.Begin(policy, command, states, e.turn)
	t.rule = c
	t.run(0, nil)
	if policy.Hedge > 0 && !c.writes && !t.over {
		heap.Push(&e.hedges, hedge{t, c, e.now + int64(policy.Hedge)})
		e.at(hedgeTimer, e.hedges[0].at)
	}
}

// hedge is a read that asks one more member if it has no answer in time.
type hedge struct {
	t  *task
	c  *copied
	at int64
}

// hedges is a heap, the next one first.
type hedges []hedge

func (h hedges) Len() int           { return len(h) }
func (h hedges) Less(i, j int) bool { return h[i].at < h[j].at }
func (h hedges) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *hedges) Push(x any)        { *h = append(*h, x.(hedge)) }

func (h *hedges) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	(*h)[last] = hedge{} // the task may go
	*h = (*h)[:last]
	return x
}

// hurry lets the reads whose time has come ask one more member.
func (e *Copies) hurry() {
	for len(e.hedges) > 0 && e.hedges[0].at <= e.now {
		if h := heap.Pop(&e.hedges).(hedge); !h.t.over && !h.c.rule.Over() {
			h.c.rule.Late()
			h.c.goOn(h.t)
			h.t.catchUp()
		}
	}
	if len(e.hedges) > 0 {
		e.at(hedgeTimer, e.hedges[0].at)
	}
}

func (c *copied) begin(t *task) { c.goOn(t) }

// goOn sends what the rule wants asked, and settles when it knows how.
func (c *copied) goOn(t *task) {
	for c.next = c.rule.Next(c.next[:0]); len(c.next) > 0; c.next = c.rule.Next(c.next[:0]) {
		for _, ask := range c.next {
			id := len(c.asks)
			c.asks = append(c.asks, copyAsk{Ask: ask})
			t.ask(id, c.members[ask.Member].srv, c.line(t, &c.asks[id]))
		}
	}
	s, ok := c.rule.Settled()
	if !ok {
		return
	}
	if !t.over {
		c.settle(t, s)
	}
	if c.rule.Over() {
		c.finish(t, s)
	}
}

func (c *copied) told(t *task, id int, r *Result) {
	if id >= len(c.asks) {
		c.undone(t, &c.members[id-len(c.asks)], r)
		if c.undoing--; c.undoing == 0 && !c.mends {
			c.repair(t)
		}
		return
	}
	a := &c.asks[id]
	kind, value := c.outcome(t, a, r)
	counts := t.op == wire.Incr || t.op == wire.Decr
	if a.Deed == replicate.Forward && !a.check && (kind == replicate.Hit && t.op <= wire.Gats && mayBeStub(t, &t.e.rep) ||
		kind == replicate.ClientError && counts && !a.checked && !commandOf(t).Vivify) {
		a.check, a.checked = true, counts
		a.got = t.keep(r)
		t.ask(id, c.members[a.Member].srv, t.meta("mg", c.keyAt(t, a.Member), " v s", nil))
		return
	}
	if kind == replicate.Hit && a.check && t.e.rep.Body.Len() > 0 { // a stub that has been filled since
		a.check = false
		t.ask(id, c.members[a.Member].srv, c.line(t, a))
		return
	}
	switch {
	case a.check && counts && kind == replicate.Miss: // a stub: the number is elsewhere, if anywhere
		kind = replicate.NotFound
		a.got = Result{srv: r.srv, bytes: wire.AppendAnswer(nil, t.raw, &t.req, wire.NotFound)}
	case a.check && counts:
		kind = replicate.ClientError
	case kind == replicate.Miss && a.Deed == replicate.Forward && t.op <= wire.Gats: // perhaps a stub: the client gets a miss
		a.got = Result{srv: r.srv, bytes: []byte(wire.AnswerEnd)}
		if t.req.Dialect == wire.Meta {
			a.got.bytes = wire.AppendAnswer(nil, t.raw, &t.req, wire.Miss)
		}
	case !a.check:
		a.got = t.keep(r)
	}
	c.rule.Told(id, replicate.Outcome{Kind: kind, Value: value})
	c.goOn(t)
}

// outcome is what an answer means for the rule.
func (c *copied) outcome(t *task, a *copyAsk, r *Result) (replicate.Kind, uint64) {
	rep := &t.e.rep
	op, dialect := a.op, a.dialect
	if a.check {
		op, dialect = wire.Get, wire.Meta
	}
	switch {
	case r.bytes == nil && r.Unsent:
		return replicate.Unsent, 0
	case !r.parsed(op, dialect, rep):
		return replicate.InDoubt, 0
	}
	switch rep.Kind {
	case wire.Value:
		switch {
		case op == wire.Incr || op == wire.Decr:
			n, _ := strconv.ParseUint(string(bytes.TrimSpace(rep.Body.Of(r.bytes))), 10, 64)
			return replicate.Number, n
		case dialect == wire.Meta && rep.Body.Len() == 0 && rep.Letters.Has('Z') && !commandOf(t).Vivify:
			return replicate.Miss, 0 // a stub of some repair
		case a.Deed == replicate.Fetch && dying(r.bytes, rep):
			return replicate.Miss, 0
		}
		return replicate.Hit, 0
	case wire.Header:
		switch {
		case a.Deed == replicate.Stub && (rep.Letters.Has('W') || rep.Letters.Has('Z') && empty(r.bytes, rep)):
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
		n, _ := strconv.ParseUint(string(bytes.TrimSpace(rep.Line.Of(r.bytes))), 10, 64)
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
func (c *copied) settle(t *task, s replicate.Settlement) {
	if s.Verdict == replicate.Answered && !c.sure(t, s) {
		switch e := c.e; {
		case !c.writes && c.rule.Over() && e.now < t.deadline: // by what is known now
			e.turns = append(e.turns, t)
			e.soon(keeperTimer)
		case !c.writes:
			t.fail("what the server said is not sure any more", Unavailable)
		default: // whoever has it has it from before anybody else decided
			t.fail("not sure that everybody sees the write", Unavailable)
		}
		return
	}
	switch s.Verdict {
	case replicate.Answered:
		a := &c.asks[s.Answer]
		if a.shown {
			hideNumber(&a.got, &t.e.rep)
		}
		identity := c.identity(t, a.Member)
		t.settle(&a.got, func(n uint64) uint64 { return replicate.Seal(n, identity) })
	case replicate.Absent:
		t.say(absence(t))
	case replicate.Held:
		t.waited = "a server that keeps a copy of the key can't be reached, and it is not sure yet that nobody else reads there"
		if c.rule.Over() && t.e.now < t.deadline {
			t.e.park(t, c.outlook)
			return
		}
		t.fail(t.waited, Unavailable)
	case replicate.Refused:
		t.fail("no member of the key is in use", Unavailable)
	default:
		why, o := "too few copies have taken the write", ServerFault
		if s.Answer >= 0 && c.asks[s.Answer].got.bytes != nil {
			t.settle(&c.asks[s.Answer].got, nil)
			return
		}
		for i := range c.asks {
			if a := &c.asks[i].got; a.bytes == nil && a.Why != "" {
				why, o = a.Why, a.Outcome
			}
		}
		t.fail(why, o)
	}
}

// finish remembers what the command has left behind.
func (c *copied) finish(t *task, s replicate.Settlement) {
	e := c.e
	if !t.over { // it is parked
		return
	}
	c.settled = s
	t.deadline = e.now + int64(t.rt.pool.Timeouts.Deadline) // of what follows
	for i, m := range c.members {
		switch missed := s.Dirty.Has(i) || m.unreachable && c.writes && c.took(); {
		case missed:
			m.leave(t.hash, t.key, c.keyAt(t, i), t.rt.copies.ReadThrough)
		case s.Clean.Has(i) && c.mends && s.Verdict != replicate.Answered: // it has nothing now, and is still to be copied
			if t.rt.copies.ReadThrough { // else its miss must not be believed
				m.missed().Remove(t.hash)
			}
		case s.Clean.Has(i):
			m.clean(t.hash)
		}
		if s.Undo.Has(i) {
			c.undoing++
			t.ask(len(c.asks)+i, m.srv, t.meta("md", c.keyAt(t, i), "", nil))
		}
	}
	if c.buried {
		e.graves.Add(t.hash, e.now+int64(graveTime))
	}
	if c.writes || c.mends {
		e.unclaim(t, keyLine(t.hash))
	}
	if c.mends {
		if e.mends == maxMends { // others may wait for that
			e.at(resyncTimer, e.now)
		}
		e.mends--
		ok, to := s.Verdict == replicate.Answered, c.members[1]
		if c.fill != nil {
			c.fill.mended(e, c, ok)
		} else if !ok {
			to.notCopied(e, t.hash)
		}
	} else if c.undoing == 0 {
		c.repair(t)
	}
}

// undone is told how an undo ended. Who has nothing more is no longer dirty, if
// misses are asked of others anyway: the key may be written through another
// Ringside now, and two dirty members would be emptied before they decide.
func (c *copied) undone(t *task, m *copyOf, r *Result) {
	if !t.rt.copies.ReadThrough || !r.parsed(wire.Delete, wire.Meta, &t.e.rep) {
		return
	}
	if k := t.e.rep.Kind; k == wire.Deleted || k == wire.NotFound {
		m.clean(t.hash)
		m.lost(c.e, leftover{hash: t.hash, key: t.key, through: true})
	}
}

// repair wants the members repaired that the command has found or left wrong,
// once nothing of it is under way.
func (c *copied) repair(t *task) {
	s := &c.settled
	if s.Source < 0 {
		return
	}
	for i, m := range c.members {
		if s.Repair.Has(i) {
			c.e.repair(t, t.hash, c.members[s.Source], m, m.missed().Has(t.hash))
		}
	}
}

// took says that some server may have carried the write out.
func (c *copied) took() bool {
	for i := range c.asks {
		if a := &c.asks[i]; a.Deed.Mutates() && (a.got.bytes != nil || !a.got.Unsent) {
			return true
		}
	}
	return false
}
