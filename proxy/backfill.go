package proxy

// A value that a returning server missed, brought back to it from the interim
// server while it fills up (phase WARM).

import (
	"bytes"
	"strconv"
	"time"

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
	t     *task
	l     *led
	then  func(found) // goes on; nil: nobody waits, so it doesn't for others either
	stub  string      // its cas
	found found       // what the interim server has said
	line  []byte      // that asks for a stub
	looks int         // at the stub of another, or after another came in between
}

// found is what came of a backfill.
type found uint8

const (
	unsure  found = iota // a server did not say
	there                // the key is at its own server, whoever has brought it there
	nowhere              // nobody has it
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

func (l *led) backfill(t *task, then func(found)) {
	f := &backfill{t: t, l: l, then: then}
	t.fills = true
	f.line = t.meta("mg", l.keys[0], " s c N"+backfillTime, nil)
	f.ask(fillStub, 0, f.line)
}

// ask asks First (0) or Interim (1); where that can't be, the backfill ends.
func (f *backfill) ask(step, at int, line []byte) {
	internal := f.then == nil || step == fillStore // nobody waits, or a stub is in the way
	c, _, _ := f.t.rt.member(f.l.place(at).Server).pick(f.t.client, internal)
	switch {
	case c == nil && step == fillFetch: // take the stub away: what builds on it would build on nothing
		f.ask(fillStore, 0, f.t.meta("md", f.l.keys[0], " C"+f.stub, nil))
		return
	case c == nil:
		f.end(unsure)
		return
	}
	limit := f.t.rt.pool.Timeouts
	limit.Deadline = min(limit.Deadline, max(time.Duration(f.t.deadline-f.t.e.now), time.Millisecond))
	f.t.e.demand(c, f, step, &limit, line, internal)
	if step == fillStub { // one that is made late would show in any phase
		c.tail.leaves = true
	}
}

func (f *backfill) Client() uint64 { return f.t.client }

func (f *backfill) Answered(step int, r *Result) {
	t, l, rep := f.t, f.l, &f.t.e.rep
	ok := r.parsed(wire.Get, wire.Meta, rep)
	switch step {
	case fillStub:
		if !ok || rep.Kind.Failed() {
			f.end(unsure)
			return
		}
		at, _ := wire.FlagArg(r.bytes, rep.MetaFlags, 'c')
		f.stub = string(at.Of(r.bytes))
		switch size, _ := wire.FlagArg(r.bytes, rep.MetaFlags, 's'); {
		case rep.Letters.Has('W'):
		case !rep.Letters.Has('Z') || string(size.Of(r.bytes)) != "0":
			f.end(there)
			return
		case f.then == nil: // another one's stub
			f.end(unsure)
			return
		case f.looks < maxLooks:
			f.again()
			return
		default:
			f.ask(fillStore, 0, t.meta("md", l.keys[0], " C"+f.stub, nil))
			return
		}
		f.ask(fillFetch, 1, t.meta("mg", l.keys[1], " v f t", nil))
	case fillFetch:
		switch {
		case !ok || rep.Kind.Failed():
		case rep.Kind != wire.Value || dying(r.bytes, rep):
			f.found = nowhere
		default:
			f.found = there
		}
		if f.found != there {
			f.ask(fillStore, 0, t.meta("md", l.keys[0], " C"+f.stub, nil))
			return
		}
		flags := " C" + f.stub
		if at, has := wire.FlagArg(r.bytes, rep.MetaFlags, 'f'); has {
			flags += " F" + string(at.Of(r.bytes))
		}
		if at, has := wire.FlagArg(r.bytes, rep.MetaFlags, 't'); has {
			if ttl, err := strconv.Atoi(string(at.Of(r.bytes))); err == nil && ttl > 0 {
				flags += " T" + strconv.Itoa(ttl)
			}
		}
		f.ask(fillStore, 0, t.meta("ms", l.keys[0], flags, bytes.Clone(rep.Body.Of(r.bytes))))
	default:
		switch {
		case f.found == unsure || r.bytes == nil:
			f.end(unsure)
		case bytes.HasPrefix(r.bytes, []byte("HD")): // before 1.6.18 a space follows to md
			f.end(f.found)
		default: // the stub has changed
			f.again()
		}
	}
}

func (f *backfill) end(what found) {
	f.t.fills = false
	if f.then != nil {
		f.then(what)
	} else if f.t.over { // what the client has behind it must not meet the stub
		f.t.e.letGo(f.t)
	}
}

// again begins from the front.
func (f *backfill) again() {
	f.looks++
	f.found = unsure
	if f.looks > maxLooks || f.then == nil || f.t.e.now >= f.t.deadline {
		f.end(unsure)
		return
	}
	f.ask(fillStub, 0, f.line)
}
