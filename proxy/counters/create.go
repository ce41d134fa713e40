package counters

// This file creates a counter when incr or decr does not find it.

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

// Counters handles, for one loop, increments and decrements on routes that create missing
// counters, and all commands on keys with buffered increments.
type Counters struct {
	*task.Tasks
	sums     map[string]*sum // the sums of buffered increments, by pool and key
	schedule schedule        // the sums with a time at which they are sent, earliest first
	Draining bool            // the process ends, so nothing is buffered any more
}

// Handle handles t if it may have to create its counter, or if its route has a buffer.
func (e *Counters) Handle(t *task.Task) bool {
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

// count executes t, an increment or decrement, and calls the function `then` with the result. It
// first creates the counter if it is missing. Meanwhile another client may store or remove an item
// of the key. If patient is set, count then tries again until the deadline of t.
func (e *Counters) count(t *task.Task, patient bool, then func(r *upstream.Result, token task.Token)) {
	if t.Route.Autocreate == nil {
		t.Step(t.Raw, then)
		return
	}
	c := &creation{Autocreate: *t.Route.Autocreate, then: then}
	if t.Rule = nil; patient { // if patient is not set, t gets no rule: its previous rule may belong to a table that was replaced
		t.Rule = c
	}
	c.Begin(t)
}

// Counts reports whether r is an increment or decrement for which the route decides how to
// create a missing key: r has no flag N, J or C.
func Counts(r *wire.Request) bool {
	says := r.Letters.Has('N') || r.Letters.Has('J') || r.Letters.Has('C')
	return (r.Op == wire.Incr || r.Op == wire.Decr) && !(r.Dialect == wire.Meta && says)
}

// creation is the task rule of an increment or decrement.
type creation struct {
	table.Autocreate
	then func(r *upstream.Result, token task.Token)
	why  string // why the last try did not count, usually the server's error; empty: no try has ended yet
}

// Begin sends the client's command.
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

// HandleReply is never called. c sends all its requests with Task.Step, which passes the reply to a
// callback instead.
func (c *creation) HandleReply(*task.Task, int, *upstream.Result) {}

// create creates the missing counter.
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
		case r.Foreign: // the server is too old for meta commands, and no other command can name this key
			c.then(r, token)
		case rep.Kind == wire.ClientError && t.Rule != nil: // the request found a value that was stored in between, or the placeholder of a repair
			c.why = "server: " + string(rep.Line.Of(r.Bytes))
			t.Loop.Park(t, min(t.Deadline, t.Loop.Now+task.ParkedLook), func() uint64 { return 0 })
		case task.Missed(r) && t.Rule != nil: // a replicated key: a replica lost the item while the counter was created, so this request missed
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

// first returns the counter's value after t has created it.
func (c *creation) first(t *task.Task) uint64 {
	if t.Op == wire.Decr {
		return c.Initial
	}
	return c.Initial + t.Delta()
}

// add creates the missing counter on a server that does not support ma.
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
		case kind != wire.Stored: // another client has created the counter in between
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
