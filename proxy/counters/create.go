package counters

// An incr or decr that makes its counter, if there is none.

import (
	"bytes"
	"cmp"
	"strconv"
	"time"

	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// Counters leads the commands of one loop that count, on routes that make what is
// missing, and all commands on keys of which increments wait here.
type Counters struct {
	*task.Tasks
	sums     map[string]*sum // by pool and key
	schedule schedule        // those of sums that are to be flushed
	Draining bool            // nothing waits any more: the process ends
}

// Lead serves t if it may have to make its counter, or if increments of it wait.
func (e *Counters) Lead(t *task.Task) bool {
	if c, parked := t.Rule.(*creation); parked {
		c.Begin(t)
		return true
	}
	switch {
	case t.IsStep():
		return false
	case t.Route.Buffer != nil && e.leadBuffered(t):
		return true
	case t.Route.Autocreate == nil || !Counts(&t.Req):
		return false
	}
	e.count(t, true, t.Answer)
	return true
}

// count serves t, which counts, and tells then what came of it. If it is patient and
// meets what is no number where it was told that there is nothing, it tries again.
func (e *Counters) count(t *task.Task, patient bool, then func(r *upstream.Result, token task.Token)) {
	if t.Route.Autocreate == nil {
		t.Step(t.Raw, then)
		return
	}
	c := &creation{Autocreate: *t.Route.Autocreate, then: then}
	if t.Rule = nil; patient { // a rule of its client's loop is of a table that is no more
		t.Rule = c
	}
	c.Begin(t)
}

// Counts says whether r counts, and leaves open what becomes of a missing key.
func Counts(r *wire.Request) bool {
	says := r.Letters.Has('N') || r.Letters.Has('J') || r.Letters.Has('C')
	return (r.Op == wire.Incr || r.Op == wire.Decr) && !(r.Dialect == wire.Meta && says)
}

// creation is the rule of a command that counts.
type creation struct {
	table.Autocreate
	then func(r *upstream.Result, token task.Token)
	why  string // the server's error of the last try; empty: it was not tried before its deadline
}

// Begin lets the client's command count.
func (c *creation) Begin(t *task.Task) {
	if t.Loop.Now >= t.Deadline {
		c.then(&upstream.Result{Failure: upstream.Failure{Why: cmp.Or(c.why, task.TooLong), Outcome: stats.TimedOut}}, nil)
		return
	}
	t.Step(t.Raw, func(r *upstream.Result, token task.Token) {
		if task.Missed(r) {
			c.create(t)
		} else {
			c.then(r, token)
		}
	})
}

// Told is not called: all that c asks are steps.
func (c *creation) Told(*task.Task, int, *upstream.Result) {}

// create makes the counter, which is not there.
func (c *creation) create(t *task.Task) {
	flags := " N" + strconv.FormatInt(int64(c.TTL/time.Second), 10) + " J" + strconv.FormatUint(c.first(t), 10)
	var line []byte
	if t.Req.Dialect == wire.Meta {
		end := t.Req.Line.End
		line = t.WithKey(t.Key, task.Edit{At: wire.Span{Start: end, End: end}, With: []byte(flags)})
	} else {
		flags += " v D" + strconv.FormatUint(t.Delta(), 10)
		if t.Op == wire.Decr {
			flags += " MD"
		}
		line = t.Meta("ma", t.Key, flags, nil)
	}
	t.Step(line, func(r *upstream.Result, token task.Token) {
		rep := &r.Reply
		switch {
		case r.Foreign && wire.PlainKey(t.Key):
			c.add(t)
		case r.Foreign: // only meta commands can name the key
			c.then(r, token)
		case rep.Kind == wire.ClientError && t.Rule != nil: // it met a value that came meanwhile, or the stub of a repair
			c.why = "server: " + string(rep.Line.Of(r.Bytes))
			t.Loop.Park(t, min(t.Deadline, t.Loop.Now+task.ParkedLook), func() uint64 { return 0 })
		case task.Missed(r) && t.Rule != nil: // of several copies one has gone while it was made
			c.why = "the counter comes and goes"
			t.Loop.Park(t, min(t.Deadline, t.Loop.Now+task.ParkedLook), func() uint64 { return 0 })
		case !rep.Kind.Answered():
			c.then(r, token)
		case task.Missed(r):
			c.then(t.Result(r.Server, wire.AppendAnswer(nil, t.Raw, &t.Req, wire.NotFound)), nil)
		default:
			t.Loop.Count.CountersMade++
			if t.Req.Dialect == wire.Text {
				r.SetAnswer(t.Op, wire.Text, append(bytes.Clone(rep.Body.Of(r.Bytes)), wire.CRLF...))
			}
			c.then(r, token)
		}
	})
}

// first is what the counter is when t has made it.
func (c *creation) first(t *task.Task) uint64 {
	if t.Op == wire.Decr {
		return c.Initial
	}
	return c.Initial + t.Delta()
}

// add is create for a server that does not know ma.
func (c *creation) add(t *task.Task) {
	number := strconv.AppendUint(nil, c.first(t), 10)
	line := append([]byte("add "), t.Key...)
	line = strconv.AppendInt(append(line, " 0 "...), int64(c.TTL/time.Second), 10)
	line = strconv.AppendInt(append(line, ' '), int64(len(number)), 10)
	line = append(append(append(line, wire.CRLF...), number...), wire.CRLF...)
	t.Step(line, func(r *upstream.Result, token task.Token) {
		switch kind := r.Reply.Kind; {
		case !kind.Answered():
			c.then(r, token)
		case kind != wire.Stored: // somebody else has made it
			c.why = "the counter comes and goes"
			c.Begin(t)
		default:
			t.Loop.Count.CountersMade++
			answer := append(number, wire.CRLF...)
			if t.Req.Dialect == wire.Meta {
				answer = wire.AppendAsMeta(nil, t.Raw, &t.Req, wire.Incr, answer)
			}
			r.SetAnswer(t.Op, t.Req.Dialect, answer)
			c.then(r, token)
		}
	})
}
