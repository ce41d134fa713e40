package failover

// This file copies a value from a key's substitute server to its own server, which has rejoined
// empty (phase WARM).

import (
	"ringside/proxy/health"
	"ringside/proxy/stats"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/replicate"
)

// backfill copies one key from its substitute server (Interim) to its own server (First). The
// replication rule replicate.Mend decides its requests. It first stores a placeholder at the own
// server, which guards the copy: a delete removes the placeholder and a write replaces it. So a
// value stored there in between stays, and a deleted key stays deleted.
//
//	own         ms k 0 ME F<M> T1 c    stores a placeholder; if there is an item already: mg k s f c
//	substitute  mg key' v f t s c
//	own         ms k C F T             or md k C if there is nothing to copy
//
// A request that stores a placeholder may time out and run late. No late delete follows it: the delete
// could remove the value of another client, such as a lock that was granted. The placeholder replaces
// nothing, and expires (health.PlaceholderLife).
type backfill struct {
	t      *task.Task
	l      *Spot
	then   func(FillOutcome) // called when the backfill has ended; nil: no command waits for the backfill, which then leaves placeholders of other backfills alone
	rule   replicate.Rule    // decides the requests; its server 0 is the key's own server, and its server 1 the substitute server
	asks   []fillAsk         // the requests of the backfill so far, by their number
	hollow bool              // the key's own server has a placeholder of the guard
	late   bool              // the backfill was no longer allowed (MayFill) when it was to store its placeholder, or when the reply about the placeholder arrived
}

// fillAsk is one request of a backfill, and its reply.
type fillAsk struct {
	replicate.Ask
	result upstream.Result
}

// FillOutcome is the outcome of a backfill: the copy of a key from its substitute server to its own
// server.
type FillOutcome uint8

const (
	fillUnsure  FillOutcome = iota // a server did not reply
	FillThere                      // the key is at its own server, by this backfill or another write
	FillNowhere                    // neither the key's own server nor the substitute server has the key
	FillForeign                    // the substitute server does not have the key, and the key's own server has the placeholder of another instance
	fillLate                       // the phases have changed since the backfill began, or may have changed
)

// MayFill reports whether a backfill may store a placeholder now, or replace the placeholder in the
// reply that has just arrived by the value. The phases must be the same as when the server of the
// key was looked up. No other instance may know the server as IN yet, because such an instance does
// not delete at the substitute server and does not check for placeholders. So this instance's
// knowledge of the phases must be recent, also with relaxed consistency. It is not recent after the
// process was stopped for a while.
func (l *Spot) MayFill(t *task.Task) bool {
	if t.Loop.Moment() >= l.View.KnownUntil(l.First.Server) || !l.Sure(t) {
		return false
	}
	part, h, owner := t.Route.Pool.Place.Locate(t.Key)
	return t.Route.Find(part, h, owner) == l.Route
}

// CopyBack copies t's key from its substitute server to its own server, which is in WARM, before a
// command that depends on the value. Then it calls next with the outcome: FillThere, FillNowhere or
// FillForeign. If the phases are not certain, t is dispatched again after a moment. If a server does
// not reply, t fails. The caller has sent no part of the command yet.
func (l *Spot) CopyBack(t *task.Task, next func(FillOutcome)) {
	if !l.MayFill(t) {
		dispatchLater(t)
		return
	}
	t.Open++ // the backfill counts as a request in flight, so the task does not end before it
	l.backfill(t, func(what FillOutcome) {
		t.Open--
		switch {
		case what == fillLate:
			dispatchLater(t)
		case what == fillUnsure || what == FillNowhere && !l.Sure(t):
			t.Fail("what server "+t.Route.Server(l.Interim.Server).Label()+" keeps for it could not be copied back", stats.Unavailable)
		default:
			next(what)
		}
		t.CatchUp()
	})
}

// dispatchLater dispatches t again after a moment, because this instance must first learn
// the current phases. No part of the command has been executed yet. A task that is dispatched
// again after its deadline fails.
func dispatchLater(t *task.Task) {
	t.Open++ // the wait counts as a request in flight, so the task does not end before it
	t.Loop.After(t.Loop.Now+task.ParkedLook, func() {
		t.Open--
		t.Loop.Ready(t)
	})
}

// backfill begins to copy t's key from its substitute server to its own server. The caller has
// checked that MayFill is true. then is called with the outcome; nil: no command waits for it.
func (l *Spot) backfill(t *task.Task, then func(FillOutcome)) {
	f := &backfill{t: t, l: l, then: then, rule: replicate.Mend(0, 1, false, then != nil)}
	t.Backfilling = true
	f.advance()
}

// advance sends the requests (asks) that the backfill's rule decides, and ends the backfill when the
// rule is done. If a request can't be sent, the rule learns that at once, and may add requests.
func (f *backfill) advance() {
	for next := f.rule.Next(nil); len(next) > 0; next = f.rule.Next(nil) {
		for _, a := range next {
			f.asks = append(f.asks, fillAsk{Ask: a})
			f.send(a)
		}
	}
	if !f.rule.IsDone() {
		return
	}
	what := fillUnsure
	if s, _ := f.rule.Settled(); s.Verdict == replicate.Answered {
		switch f.asks[len(f.asks)-1].Step {
		case replicate.Look, replicate.Fill:
			what = FillThere
		case replicate.Fetch: // the placeholder at the own server belongs to another instance, and a value may have replaced it since
			what = FillForeign
		default:
			what = FillNowhere
		}
	}
	if f.late && what == fillUnsure {
		what = fillLate
	}
	f.t.Backfilled()
	if f.then != nil {
		f.then(what)
	}
}

func (f *backfill) send(a replicate.Ask) {
	t, e := f.t, f.t.Loop
	guarded := a.Step == replicate.Fill || a.Step == replicate.Drop
	switch {
	case a.Step == replicate.Claim && !f.l.MayFill(t):
		f.late = true
		f.rule.HandleOutcome(a.Number, replicate.Outcome{Kind: replicate.Unsent})
		return
	case a.Step == replicate.Wait && f.hollow: // its owner may be a client, so the backfill does not wait for it
		f.rule.HandleOutcome(a.Number, replicate.Outcome{Kind: replicate.OK})
		return
	case a.Step == replicate.Wait:
		e.After(e.Now+int64(task.MarkWait), func() { f.handleReply(a.Number, replicate.OK) })
		return
	case guarded && f.asks[a.Guard].result.HasEnded(): // a new process of the server may have assigned the same cas to another item
		f.rule.HandleOutcome(a.Number, replicate.Outcome{Kind: replicate.Exists})
		return
	}
	internal := f.then == nil || guarded // no command waits, or the request removes or fills a placeholder
	c, _, _ := t.Route.Server(f.l.Place(a.Replica).Server).Pick(t.Asker, internal)
	if c == nil {
		f.rule.HandleOutcome(a.Number, replicate.Outcome{Kind: replicate.Unsent})
		return
	}
	key, guard := f.l.Keys[a.Replica], task.CasFlag(&f.asks[a.Guard].result)
	if a.Step == replicate.Fill && f.late { // remove the placeholder instead: another instance may have deleted the key only at the key's own server
		a.Step = replicate.Drop
	}
	line := task.StepRequest(t, a.Step, key, guard, health.PlaceholderLife)
	if a.Step == replicate.Fill {
		line = task.FillRequest(t, key, guard, &f.asks[a.From].result)
	}
	e.Ask(c, f, a.Number, t.Limits(), line, internal)
}

func (f *backfill) Client() uint64 { return f.t.Asker }

func (f *backfill) Answered(id int, r *upstream.Result) {
	f.asks[id].result = f.t.Keep(r)
	switch step := f.asks[id].Step; {
	case (step == replicate.Claim || step == replicate.Look) && !f.l.MayFill(f.t): // the backfill is not allowed any more, so the placeholder may have been stored too late
		f.late = true
	case step == replicate.Fill && f.late: // not the value was sent (Fill), but a request that removes the placeholder (Drop)
		f.handleReply(id, replicate.InDoubt)
		return
	}
	k := task.OutcomeKind(f.asks[id].Step, r)
	if f.hollow = f.asks[id].Step == replicate.Look && f.t.Route.Guard != nil && task.HasPlaceholder(r); f.hollow {
		k = replicate.Marked
	}
	f.handleReply(id, k)
}

func (f *backfill) handleReply(id int, k replicate.Kind) {
	f.rule.HandleOutcome(id, replicate.Outcome{Kind: k})
	f.advance()
}
