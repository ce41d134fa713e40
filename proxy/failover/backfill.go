package failover

// A value that a returning server missed, brought back to it from the interim
// server while it fills up (phase WARM).

import (
	"bytes"
	"strconv"

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
	then    func(fillOutcome) // goes on; nil: nobody waits, and so the backfill waits for no other one
	stub    string            // cas of the stub
	outcome fillOutcome       // what the interim server has said
	line    []byte            // of fillStub
	looks   int               // at another one's stub, or again after a write has come between
}

// fillOutcome is what has come of a backfill.
type fillOutcome uint8

const (
	fillUnsure  fillOutcome = iota // a server did not say
	fillThere                      // the key is at its own server, whoever has brought it there
	fillNowhere                    // nobody has it
)

// maxLooks is how often a backfill looks whether another one of the same key has come
// to its end, at a round trip each, before it takes the other one for dead.
const maxLooks = 50

// The steps of a backfill.
const (
	fillStub  = iota // make a stub at the key's own server
	fillFetch        // fetch the value from the interim server
	fillStore        // put it in the place of the stub, or take the stub away
)

// backfillTime is how long a stub that was left alone hides, in seconds: less
// than the phase SETTLE takes, so that none is left when reads are plain again.
const backfillTime = "1"

// backfill begins one for t's key. then is told what came of it; nil: nobody waits.
func (l *single) backfill(t *task.Task, then func(fillOutcome)) {
	f := &backfill{t: t, l: l, then: then}
	t.Backfilling = true
	f.line = t.Meta("mg", l.Keys[0], " s c N"+backfillTime, nil)
	f.ask(fillStub, 0, f.line)
}

// ask sends a step's line to First (0) or Interim (1). Where that can't be done the
// backfill ends.
func (f *backfill) ask(step, at int, line []byte) {
	internal := f.then == nil || step == fillStore // nobody waits, or a stub must not stay
	c, _, _ := f.t.Route.Member(f.l.Place(at).Server).Pick(f.t.Asker, internal)
	switch {
	case c == nil && step == fillFetch: // the stub is taken away: an incr or append would build on it
		f.ask(fillStore, 0, f.t.Meta("md", f.l.Keys[0], " C"+f.stub, nil))
		return
	case c == nil:
		f.end(fillUnsure)
		return
	}
	f.t.Loop.Ask(c, f, step, f.t.Limits(), line, internal)
	if step == fillStub { // a stub that is made late would show in any phase
		c.Tail.LeavesValue = true
	}
}

func (f *backfill) Client() uint64 { return f.t.Asker }

func (f *backfill) Answered(step int, r *upstream.Result) {
	t, l, rep := f.t, f.l, &r.Reply
	switch step {
	case fillStub:
		if !rep.Kind.Answered() {
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
		case f.then == nil: // it is another backfill's stub
			f.end(fillUnsure)
			return
		case f.looks < maxLooks:
			f.again()
			return
		default:
			f.ask(fillStore, 0, t.Meta("md", l.Keys[0], " C"+f.stub, nil))
			return
		}
		f.ask(fillFetch, 1, t.Meta("mg", l.Keys[1], " v f t", nil))
	case fillFetch:
		switch {
		case !rep.Kind.Answered():
		case rep.Kind != wire.Value || task.Expiring(r.Bytes, rep):
			f.outcome = fillNowhere
		default:
			f.outcome = fillThere
		}
		if f.outcome != fillThere {
			f.ask(fillStore, 0, t.Meta("md", l.Keys[0], " C"+f.stub, nil))
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
		f.ask(fillStore, 0, t.Meta("ms", l.Keys[0], flags, bytes.Clone(rep.Body.Of(r.Bytes))))
	default:
		switch {
		case f.outcome == fillUnsure || r.Bytes == nil:
			f.end(fillUnsure)
		case bytes.HasPrefix(r.Bytes, []byte("HD")): // to md releases before 1.6.18 answer HD and a space
			f.end(f.outcome)
		default: // the stub is not there any more: somebody has written
			f.again()
		}
	}
}

func (f *backfill) end(what fillOutcome) {
	f.t.Backfilling = false
	if f.then != nil {
		f.then(what)
	} else if f.t.ClientDone { // the client's next command on the key has waited, not to meet the stub
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
