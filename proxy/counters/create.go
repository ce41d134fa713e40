package counters

// This file creates a counter when incr or decr does not find it.

import (
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
	Draining bool            // the process ends, so nothing is buffered any more
}

// handler serves the tasks of a route that creates counters or has a buffer. It passes all other
// tasks to next.
type handler struct {
	*Counters
	next task.Handler
}

// Over returns the handler for routes that create counters or have a buffer. It passes tasks that do
// not concern counters to next.
func (e *Counters) Over(next task.Handler) task.Handler { return handler{e, next} }

func (h handler) Handle(t *task.Task) {
	if c, parked := t.Rule.(*creation); parked {
		c.Begin(t)
		return
	}
	switch {
	case t.IsStep():
		t.Pass(h.next)
	case t.Route.Buffer != nil && h.leadBuffered(t):
	case t.Route.Autocreate == nil || !Counts(&t.Req):
		t.Pass(h.next)
	default:
		h.count(t, true, t.Answer)
	}
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
	why  string // why the last request did not count, usually the server's error; empty: none has ended yet
}

// Begin sends the client's command.
func (c *creation) Begin(t *task.Task) { c.send(t, counting) }

// HandleReply is never called. c sends all its requests with Task.Step, which passes the reply to a
// callback instead.
func (c *creation) HandleReply(*task.Task, int, *upstream.Result) {}

// send sends the request m, and does what follows its reply.
func (c *creation) send(t *task.Task, m making) {
	line := t.Raw
	switch {
	case t.Loop.Now >= t.Deadline:
		c.then(&upstream.Result{Failure: upstream.Failure{Why: cmp.Or(c.why, task.TooLong), Outcome: stats.TimedOut}}, nil)
		return
	case m == creating:
		line = c.create(t)
	case m == adding:
		line = c.add(t)
	}
	t.Step(line, func(r *upstream.Result, token task.Token) {
		rep := &r.Reply
		next, what := m.next(rep.Kind, wire.NotNumber(rep.Line.Of(r.Bytes)), r.Foreign, wire.PlainKey(t.Key), t.Rule != nil)
		if c.why = "the counter is created and deleted repeatedly"; rep.Kind == wire.ClientError {
			c.why = "server: " + string(rep.Line.Of(r.Bytes))
		}
		switch what {
		case goOn:
			c.send(t, next)
			return
		case again:
			t.Loop.Park(t, min(t.Deadline, t.Loop.Now+task.ParkedLook), func() uint64 { return 0 })
			return
		case giveAbsent:
			r, token = t.Result(r.Server, wire.AppendAnswer(nil, t.Raw, &t.Req, wire.NotFound)), nil
		case giveNumber:
			t.Loop.Count.CountersMade++
			_, n := outcomeOf(r)
			if m == adding {
				n = c.first(t)
			}
			if m == adding || t.Req.Dialect == wire.Text {
				r.SetAnswer(t.Op, t.Req.Dialect, numberReply(t, n))
			}
		}
		c.then(r, token)
	})
}

// create returns the request that creates the missing counter.
func (c *creation) create(t *task.Task) []byte {
	flags := " N" + strconv.FormatInt(int64(c.TTL/time.Second), 10) + " J" + strconv.FormatUint(c.first(t), 10)
	if t.Req.Dialect == wire.Meta {
		end := t.Req.Line.End
		return t.WithKey(t.Key, task.Edit{At: wire.Span{Start: end, End: end}, With: []byte(flags)})
	}
	flags += " v D" + strconv.FormatUint(t.Delta(), 10)
	if t.Op == wire.Decr {
		flags += " MD"
	}
	return t.Meta("ma", t.Key, flags, nil)
}

// first returns the counter's value after t has created it.
func (c *creation) first(t *task.Task) uint64 {
	if t.Op == wire.Decr {
		return c.Initial
	}
	return c.Initial + t.Delta()
}

// add returns the request that creates the missing counter on a server that does not support ma.
func (c *creation) add(t *task.Task) []byte {
	number := strconv.AppendUint(nil, c.first(t), 10)
	line := append([]byte("add "), t.Key...)
	line = strconv.AppendInt(append(line, " 0 "...), int64(c.TTL/time.Second), 10)
	line = strconv.AppendInt(append(line, ' '), int64(len(number)), 10)
	return append(append(append(line, wire.CRLF...), number...), wire.CRLF...)
}
