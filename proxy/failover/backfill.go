package failover

// A value that a returning server missed, brought back to it from the interim
// server while it fills up (phase WARM).

import (
	"ringside/proxy/task"
	"ringside/proxy/task/deed"
	"ringside/proxy/upstream"
	"ringside/replicate"
)

// backfill copies one key from its interim server to its own, as every key is copied: by
// replicate.Mend. The mark that it leaves at the own server, which a delete removes and a
// write replaces, guards the copy: what is stored there meanwhile stays, what is deleted
// stays deleted.
//
//	own      ms k 0 ME F<M> T1 c    a mark, or there is something already: mg k s f c
//	interim  mg key' v f t s c
//	own      ms k C F T             or md k C if there is nothing to bring
type backfill struct {
	t    *task.Task
	l    *single
	then func(fillOutcome) // goes on; nil: nobody waits, and so the backfill waits for no other one
	rule replicate.Rule    // of its members 0 is First and 1 is Interim
	asks []fillAsk         // by their number
}

// fillAsk is an ask of a backfill, and its answer.
type fillAsk struct {
	replicate.Ask
	result upstream.Result
}

// fillOutcome is what has come of a backfill.
type fillOutcome uint8

const (
	fillUnsure  fillOutcome = iota // a server did not say
	fillThere                      // the key is at its own server, whoever has brought it there
	fillNowhere                    // neither server has it
	fillForeign                    // the interim server has nothing, and at the key's own was the placeholder of another instance
)

// backfillTime is how long a mark that was left alone hides, in seconds: less than the
// phase SETTLE takes, so that none is left when reads are plain again.
const backfillTime = 1

// backfill begins one for t's key. then is told what came of it; nil: nobody waits.
func (l *single) backfill(t *task.Task, then func(fillOutcome)) {
	f := &backfill{t: t, l: l, then: then, rule: replicate.Mend(0, 1, false, then != nil)}
	t.Backfilling = true
	f.advance()
}

// advance sends what the rule wants asked now, and ends the backfill when that is over.
// An ask that can't be sent is told at once, which may make the rule want others.
func (f *backfill) advance() {
	for next := f.rule.Next(nil); len(next) > 0; next = f.rule.Next(nil) {
		for _, a := range next {
			f.asks = append(f.asks, fillAsk{Ask: a})
			f.send(a)
		}
	}
	if !f.rule.Over() {
		return
	}
	what := fillUnsure
	if s, _ := f.rule.Settled(); s.Verdict == replicate.Answered {
		switch f.asks[len(f.asks)-1].Deed {
		case replicate.Look, replicate.Fill:
			what = fillThere
		case replicate.Fetch: // what it met is not its own to drop, and may have been replaced by a value since
			what = fillForeign
		default:
			what = fillNowhere
		}
	}
	f.t.Backfilled()
	if f.then != nil {
		f.then(what)
	}
}

func (f *backfill) send(a replicate.Ask) {
	t, e := f.t, f.t.Loop
	guarded := a.Deed == replicate.Fill || a.Deed == replicate.Drop
	switch {
	case a.Deed == replicate.Wait:
		e.After(e.Now+int64(deed.MarkWait), func() { f.told(a.Number, replicate.OK) })
		return
	case guarded && f.asks[a.Guard].result.Void(): // the same cas may be another item's by now
		f.rule.Told(a.Number, replicate.Outcome{Kind: replicate.Exists})
		return
	}
	internal := f.then == nil || guarded // nobody waits, or a mark must not stay
	c, _, _ := t.Route.Member(f.l.Place(a.Member).Server).Pick(t.Asker, internal)
	if c == nil {
		f.rule.Told(a.Number, replicate.Outcome{Kind: replicate.Unsent})
		return
	}
	key, guard := f.l.Keys[a.Member], deed.Guard(&f.asks[a.Guard].result)
	line := deed.Spell(t, a.Deed, key, guard, backfillTime)
	if a.Deed == replicate.Fill {
		line = deed.Fill(t, key, guard, &f.asks[a.From].result, false)
	}
	e.Ask(c, f, a.Number, t.Limits(), line, internal)
	c.Tail.LeavesValue = a.Deed == replicate.Claim // a mark that is made late would show in any phase
}

func (f *backfill) Client() uint64 { return f.t.Asker }

func (f *backfill) Answered(id int, r *upstream.Result) {
	f.asks[id].result = f.t.Keep(r)
	f.told(id, deed.Kind(f.asks[id].Deed, r))
}

func (f *backfill) told(id int, k replicate.Kind) {
	f.rule.Told(id, replicate.Outcome{Kind: k})
	f.advance()
}
