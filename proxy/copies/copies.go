package copies

// Commands on keys of which a route keeps several copies: package replicate
// says whom to ask for what, this file asks it.

import (
	"bytes"
	"cmp"
	"container/heap"
	"strconv"
	"time"

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
	Mends      int                // repairs at work
	turn       uint64             // of reads that are spread
	lastChosen uint64             // cas given to all copies of a value
	holders    []copyOf           // of a key that is being looked at
	Hedges     hedges             // reads that ask another member if they wait too long
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
	mends   bool    // it is a repair: there is no client
	fill    *resync // that the repair is for
	spared  bool    // the authority has a set in doubt, and its own answer decides
	token   []byte  // the client's cas, as the authority knows it
	void    []int   // asks that were not sent, since their cas is worth nothing any more

	authority int
	next      []replicate.Ask
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
	ours    bool  // it is spelled by Ringside: its answer is not in the client's words
	shown   byte  // the flag that Ringside has added, and the client has not asked for
	at      int64 // when it was sent
	kind    replicate.Kind
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
	if c.writes && t.Req.Letters.Has('E') && t.Req.Dialect == wire.Meta {
		t.Reject(wire.AppendClientError(nil, "flag E chooses the cas, which is each copy's own on this route: leave it out"))
		return
	}
	if c.writes && !e.Claim(t, task.KeyLine(t.Hash)) {
		return // it is led again when those before it are done
	}
	if e.Now >= t.Deadline {
		t.Fail(cmp.Or(t.WaitReason, task.TooLong), stats.TimedOut)
		e.Unclaim(t, task.KeyLine(t.Hash))
		return
	}
	if t.Op.Stores() && string(t.Req.ClientFlags.Of(t.Raw)) == wire.MarkFlags {
		t.Refuse("these flags are Ringside's own")
		command = task.CommandOf(t)
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
	c.authority = replicate.Authority(states)
	if token, has := t.Token(); has && c.authority >= 0 {
		c.token = strconv.AppendUint(nil, replicate.Open(token, c.identity(t, c.authority)), 10)
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
		e.later(hedge{t, c, hedged, e.Now + int64(policy.Hedge)})
	}
}

// hedge is a read that asks one more member if it has no answer in time, or a
// command that waits for whoever has left a mark.
type hedge struct {
	t   *task.Task
	c   *command
	ask int // the Wait; or hedged
	At  int64
}

const (
	hedged   = -1
	apart    = 10 * time.Millisecond // what the answers of two members may be apart without a second look
	markWait = 2 * apart
)

func (e *Copies) later(h hedge) {
	heap.Push(&e.Hedges, h)
	e.At(link.HedgeTimer, e.Hedges[0].At)
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

// FireHedges lets the reads whose time has come ask one more member, and the
// commands go on that have waited. A read whose answer is coming waits on: another
// copy would only come behind it, and cost its bytes once more.
func (e *Copies) FireHedges() {
	for len(e.Hedges) > 0 && e.Hedges[0].At <= e.Now {
		h := heap.Pop(&e.Hedges).(hedge)
		switch {
		case h.ask != hedged:
			h.t.Open--
			h.c.rule.Told(h.ask, replicate.Outcome{Kind: replicate.OK})
		case h.t.ClientDone || h.c.rule.Over():
			continue
		default:
			if h.At = e.LastOf(h.t) + int64(h.t.Route.Copies.Hedge); h.At > e.Now {
				heap.Push(&e.Hedges, h)
				continue
			}
			h.c.rule.Late()
		}
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
			c.send(t, ask)
		}
		for _, id := range c.void {
			c.rule.Told(id, replicate.Outcome{Kind: replicate.Exists})
		}
		c.void = c.void[:0]
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

// send sends one ask. A cas that a connection has brought which has ended since
// may be another process's.
func (c *command) send(t *task.Task, ask replicate.Ask) {
	id := len(c.asks)
	c.asks = append(c.asks, copyAsk{Ask: ask, at: c.e.Now})
	switch ask.Deed {
	case replicate.Wait:
		t.Open++
		c.e.later(hedge{t, c, id, c.e.Now + int64(markWait)})
		return
	case replicate.Join, replicate.Count, replicate.Check, replicate.Remark, replicate.Fill, replicate.Store, replicate.Drop:
		if c.asks[ask.Guard].got.Void() {
			c.asks[id].kind = replicate.Exists
			c.void = append(c.void, id)
			return
		}
	}
	t.Ask(id, c.members[ask.Member].Server, c.line(t, &c.asks[id]))
}

func (c *command) Told(t *task.Task, id int, r *upstream.Result) {
	a := &c.asks[id]
	o := c.outcome(t, a, r)
	a.kind = o.Kind
	a.got = t.Keep(r)
	o.Late = c.e.Now-a.at > int64(apart)
	c.rule.Told(id, o)
	if o.Kind == replicate.InDoubt {
		r.Behind = c.behind(t, a)
	}
	c.goOn(t)
}

// behind is what goes behind an ask that may run late. A claim, and what builds on
// one, can do nothing when its mark is gone. A set that nobody has answered is
// left alone at the authority, unless everybody is to be sure: what was there
// before may be all there is. Others get a mark.
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

// outcome is what an answer means for the rule.
func (c *command) outcome(t *task.Task, a *copyAsk, r *upstream.Result) (o replicate.Outcome) {
	rep := &t.Loop.Rep
	switch {
	case r.Bytes == nil && r.Unsent:
		o.Kind = replicate.Unsent
		return
	case !r.Parsed(a.op, a.dialect, rep):
		o.Kind = replicate.InDoubt
		return
	}
	number := func(at wire.Span) {
		o.Kind = replicate.Number
		o.Value, _ = strconv.ParseUint(string(bytes.TrimSpace(at.Of(r.Bytes))), 10, 64)
	}
	flag := func(letter byte) string {
		at, _ := wire.FlagArg(r.Bytes, rep.MetaFlags, letter)
		return string(at.Of(r.Bytes))
	}
	if o.Kind = kinds[rep.Kind]; o.Kind == 0 {
		o.Kind = replicate.ClientError
	}
	switch {
	case a.op == wire.Incr || a.op == wire.Decr:
		if rep.Kind == wire.Value {
			number(rep.Body)
		} else if rep.Kind == wire.Number {
			number(rep.Line)
		}
	case a.op > wire.Gats:
	case o.Kind == replicate.Hit && (string(rep.ClientFlags.Of(r.Bytes)) == wire.MarkFlags || flag('f') == wire.MarkFlags):
		o.Kind = replicate.Marked
	case a.Deed == replicate.Extend && o.Kind == replicate.Hit:
		o.Kind = replicate.Touched
	case a.Deed == replicate.Extend && o.Kind == replicate.Miss:
		o.Kind = replicate.NotFound
	case a.Deed == replicate.Fetch && task.Expiring(r.Bytes, rep):
		o.Kind = replicate.Miss
	case a.Deed == replicate.Check && c.asks[a.Guard].Deed == replicate.Forward: // a set: its cas is not known
		if o.Kind == replicate.Hit && (c.asks[a.Guard].got.Void() || !bytes.Equal(rep.Body.Of(r.Bytes), t.Body())) {
			o.Kind = replicate.Exists
		}
	case (a.Deed == replicate.Check || a.Deed == replicate.Review) && o.Kind == replicate.Hit && (flag('c') != c.arg(t, a.Guard, 'c') || c.asks[a.Guard].got.Void()):
		o.Kind = replicate.Exists
	}
	switch a.Deed {
	case replicate.Look, replicate.Review, replicate.Preview:
		r.Parsed(a.op, a.dialect, rep)
		o.Value, _ = strconv.ParseUint(flag('s'), 10, 64)
		if a.Deed == replicate.Preview {
			o.Value = after(t, r.Bytes, rep, o.Value)
		}
	}
	return o
}

// kinds are what replies mean by themselves.
var kinds = [wire.NumKinds]replicate.Kind{
	wire.Value: replicate.Hit, wire.Header: replicate.Hit, wire.Item: replicate.Hit, wire.End: replicate.Miss, wire.Miss: replicate.Miss,
	wire.Stored: replicate.Stored, wire.NotStored: replicate.NotStored, wire.Exists: replicate.Exists, wire.NotFound: replicate.NotFound,
	wire.Deleted: replicate.Deleted, wire.Touched: replicate.Touched, wire.OK: replicate.OK, wire.ServerError: replicate.ServerError,
}

// said is what the client hears of an ask that was not in its words.
var said = map[replicate.Kind]wire.Kind{
	replicate.Stored: wire.Stored, replicate.NotStored: wire.NotStored, replicate.Exists: wire.Exists, replicate.NotFound: wire.NotFound,
}

// settle tells the client.
func (c *command) settle(t *task.Task, s replicate.Settlement) {
	told := s.Verdict == replicate.Answered || s.Verdict == replicate.Done || s.Verdict == replicate.Absent && c.rule.Asked()
	if told && !c.sure(t, s) {
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
		if k, ok := said[a.kind]; ok && (a.ours || a.Deed != replicate.Forward && a.Deed != replicate.Store) {
			t.AnswerKind(k)
			return
		}
		a.hide(&t.Loop.Rep)
		identity := c.identity(t, a.Member)
		t.Answer(&a.got, func(n uint64) uint64 { return replicate.Seal(n, identity) })
	case replicate.Done:
		t.AnswerKind(wire.Deleted)
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
	through := t.Route.Copies.ReadThrough
	t.Deadline = e.Now + int64(t.Route.Timeouts.Deadline) // of what follows
	for i, m := range c.members {
		doubt := s.Undo.Has(i) || s.Over.Has(i)
		switch missed := s.Dirty.Has(i) || m.unreachable && c.writes && c.took(); {
		case doubt && c.spared && i == c.authority: // its answer decides
		case doubt && !c.mends:
			m.doubt(e, Stale{Hash: t.Hash, Key: t.Key, Through: through, over: i != c.authority}, s.Dirty.Has(i))
		case missed:
			m.Leave(t.Hash, t.Key, c.keyAt(t, i), through)
		case s.Clean.Has(i) && c.mends && s.Verdict != replicate.Answered: // it has nothing now, and is still to be copied
			if through { // else its miss must not be believed
				m.missed().Remove(t.Hash)
			}
		case s.Clean.Has(i):
			m.Clean(t.Hash)
		}
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
	} else {
		c.repair(t, &s)
	}
}

// repair wants the members repaired that the command has found or left wrong,
// once nothing of it is under way.
func (c *command) repair(t *task.Task, s *replicate.Settlement) {
	if s.Source < 0 {
		return
	}
	for i, m := range c.members {
		if s.Repair.Has(i) && !s.Undo.Has(i) && !s.Over.Has(i) {
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
