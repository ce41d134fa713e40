package failover

// A value that a returning server missed, brought back to it from the interim
// server while it fills up (phase WARM).

import (
	"bytes"
	"strconv"
	"time"

	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// backfill copies one key from its interim server to its own. A stub at the
// own server, which a delete removes and a write replaces, guards the copy:
// what is stored there meanwhile stays, what is deleted stays deleted.
//
//	own      mg k s c N1       a stub, or there is something already
//	interim  mg key' v f t
//	own      ms k C<stub> F T  or md k C<stub> if there is nothing to bring
type backfill struct {
	t       *task.Task
	l       *single
	then    func(fillOutcome) // goes on; nil: nobody waits, so it doesn't for others either
	stub    string            // its cas
	outcome fillOutcome       // what the interim server has said
	line    []byte            // that asks for a stub
	looks   int               // at the stub of another, or after another came in between
}

// found is what came of a backfill.
type fillOutcome uint8

const (
	fillUnsure  fillOutcome = iota // a server did not say
	fillThere                      // the key is at its own server, whoever has brought it there
	fillNowhere                    // nobody has it
)

// maxLooks is how often a backfill looks whether another one has come to its
// end, at a round trip each, before it takes that one for dead.
const maxLooks = 50

const (
	fillStub = iota
	fillFetch
	fillStore
)

// backfillTime is how long a stub that was left alone hides, in seconds: less
// than the phase SETTLE takes, so that none is left when reads are plain again.
const backfillTime = "1"

func (l *single) backfill(t *task.Task, then func(fillOutcome)) {
	f := &backfill{t: t, l: l, then: then}
	t.Backfilling = true
	f.line = t.Meta("mg", l.keys[0], " s c N"+backfillTime, nil)
	f.ask(fillStub, 0, f.line)
}

// ask asks First (0) or Interim (1); where that can't be, the backfill ends.
func (f *backfill) ask(step, at int, line []byte) {
	internal := f.then == nil || step == fillStore // nobody waits, or a stub is in the way
	c, _, _ := f.t.Route.Member(f.l.place(at).Server).Pick(f.t.Asker, internal)
	switch {
	case c == nil && step == fillFetch: // take the stub away: what builds on it would build on nothing
		f.ask(fillStore, 0, f.t.Meta("md", f.l.keys[0], " C"+f.stub, nil))
		return
	case c == nil:
		f.end(fillUnsure)
		return
	}
	limit := f.t.Route.Pool.Timeouts
	limit.Deadline = min(limit.Deadline, max(time.Duration(f.t.Deadline-f.t.Loop.Now), time.Millisecond))
	f.t.Loop.Ask(c, f, step, &limit, line, internal)
	if step == fillStub { // one that is made late would show in any phase
		c.Tail.LeavesValue = true
	}
}

func (f *backfill) Client() uint64 { return f.t.Asker }

func (f *backfill) Answered(step int, r *upstream.Result) {
	t, l, rep := f.t, f.l, &f.t.Loop.Rep
	ok := r.Parsed(wire.Get, wire.Meta, rep)
	switch step {
	case fillStub:
		if !ok || rep.Kind.Failed() {
			f.end(fillUnsure)
			return
		}
		at, _ := wire.FlagArg(r.Bytes, rep.MetaFlags, 'c')
		f.stub = string(at.Of(r.Bytes))
		switch size, _ := wire.FlagArg(r.Bytes, rep.MetaFlags, 's'); {
		case rep.Letters.Has('W'):
		case !rep.Letters.Has('Z') || string(size.Of(r.Bytes)) != "0":
			f.end(fillThere)
			return
		case f.then == nil: // another one's stub
			f.end(fillUnsure)
			return
		case f.looks < maxLooks:
			f.again()
			return
		default:
			f.ask(fillStore, 0, t.Meta("md", l.keys[0], " C"+f.stub, nil))
			return
		}
		f.ask(fillFetch, 1, t.Meta("mg", l.keys[1], " v f t", nil))
	case fillFetch:
		switch {
		case !ok || rep.Kind.Failed():
		case rep.Kind != wire.Value || task.Expiring(r.Bytes, rep):
			f.outcome = fillNowhere
		default:
			f.outcome = fillThere
		}
		if f.outcome != fillThere {
			f.ask(fillStore, 0, t.Meta("md", l.keys[0], " C"+f.stub, nil))
			return
		}
		flags := " C" + f.stub
		if at, has := wire.FlagArg(r.Bytes, rep.MetaFlags, 'f'); has {
			flags += " F" + string(at.Of(r.Bytes))
		}
		if at, has := wire.FlagArg(r.Bytes, rep.MetaFlags, 't'); has {
			if ttl, err := strconv.Atoi(string(at.Of(r.Bytes))); err == nil && ttl > 0 {
				flags += " T" + strconv.Itoa(ttl)
			}
		}
		f.ask(fillStore, 0, t.Meta("ms", l.keys[0], flags, bytes.Clone(rep.Body.Of(r.Bytes))))
	default:
		switch {
		case f.outcome == fillUnsure || r.Bytes == nil:
			f.end(fillUnsure)
		case bytes.HasPrefix(r.Bytes, []byte("HD")): // before 1.6.18 a space follows to md
			f.end(f.outcome)
		default: // the stub has changed
			f.again()
		}
	}
}

func (f *backfill) end(what fillOutcome) {
	f.t.Backfilling = false
	if f.then != nil {
		f.then(what)
	} else if f.t.ClientDone { // what the client has behind it must not meet the stub
		f.t.Loop.ReleaseLine(f.t)
	}
}

// again begins from the front.
func (f *backfill) again() {
	f.looks++
	f.outcome = fillUnsure
	if f.looks > maxLooks || f.then == nil || f.t.Loop.Now >= f.t.Deadline {
		f.end(fillUnsure)
		return
	}
	f.ask(fillStub, 0, f.line)
}
