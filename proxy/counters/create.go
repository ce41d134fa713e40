package counters

// An incr or decr that makes its counter, if there is none.

import (
	"bytes"
	"strconv"
	"time"

	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// Counters leads the commands that count, on routes that make what is missing.
type Counters struct{}

// Lead serves t if it may have to make its counter.
func (Counters) Lead(t *task.Task) bool {
	if t.IsStep() || t.Route.Autocreate == nil || !Counts(&t.Req) {
		return false
	}
	if t.Rule == nil {
		t.Rule = &creation{Autocreate: *t.Route.Autocreate}
	}
	t.Rule.Begin(t)
	return true
}

// Counts says whether r counts, and leaves open what becomes of a missing key.
func Counts(r *wire.Request) bool {
	says := r.Letters.Has('N') || r.Letters.Has('J') || r.Letters.Has('C')
	return (r.Op == wire.Incr || r.Op == wire.Decr) && !(r.Dialect == wire.Meta && says)
}

// creation is the rule of a command that counts.
type creation struct {
	table.Autocreate
	why string // the server's error of the last try
}

// Begin lets the client's command count.
func (c *creation) Begin(t *task.Task) {
	if t.Loop.Now >= t.Deadline {
		t.Fail(c.why, stats.TimedOut)
		return
	}
	t.Step(t.Raw, func(r *upstream.Result, token task.Token) {
		if t.Missed(r) {
			c.create(t)
		} else {
			t.Answer(r, token)
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
		flags += " v D" + string(t.Req.Delta.Of(t.Raw))
		if t.Op == wire.Decr {
			flags += " MD"
		}
		line = t.Meta("ma", t.Key, flags, nil)
	}
	t.Step(line, func(r *upstream.Result, token task.Token) {
		rep := &t.Loop.Rep
		switch {
		case r.Foreign && wire.PlainKey(t.Key):
			c.add(t)
		case r.Foreign: // only meta commands can name the key
			t.Answer(r, token)
		case !r.Parsed(wire.Incr, wire.Meta, rep):
			t.Answer(r, token)
		case rep.Kind == wire.ClientError: // it met a value that came meanwhile, or the stub of a repair
			c.why = "server: " + string(rep.Line.Of(r.Bytes))
			t.Loop.Park(t, min(t.Deadline, t.Loop.Now+task.ParkedLook), func() uint64 { return 0 })
		case rep.Kind.Failed():
			t.Answer(r, token)
		default:
			t.Loop.Count.CountersMade++
			if t.Req.Dialect == wire.Text {
				r.Bytes = append(bytes.Clone(rep.Body.Of(r.Bytes)), wire.LineEnd...)
			}
			t.Answer(r, token)
		}
	})
}

// first is what the counter is when t has made it.
func (c *creation) first(t *task.Task) uint64 {
	if t.Op == wire.Decr {
		return c.Initial
	}
	delta := uint64(1)
	if t.Req.Delta.Len() > 0 {
		delta, _ = strconv.ParseUint(string(t.Req.Delta.Of(t.Raw)), 10, 64)
	}
	return c.Initial + delta
}

// add is create for a server that does not know ma.
func (c *creation) add(t *task.Task) {
	number := strconv.AppendUint(nil, c.first(t), 10)
	line := append([]byte("add "), t.Key...)
	line = strconv.AppendInt(append(line, " 0 "...), int64(c.TTL/time.Second), 10)
	line = strconv.AppendInt(append(line, ' '), int64(len(number)), 10)
	line = append(append(append(line, wire.LineEnd...), number...), wire.LineEnd...)
	t.Step(line, func(r *upstream.Result, token task.Token) {
		rep := &t.Loop.Rep
		switch {
		case !r.Parsed(wire.Add, wire.Text, rep) || rep.Kind.Failed():
			t.Answer(r, token)
		case rep.Kind != wire.Stored: // somebody else has made it
			c.why = "the counter comes and goes"
			c.Begin(t)
		default:
			t.Loop.Count.CountersMade++
			answer := append(number, wire.LineEnd...)
			if t.Req.Dialect == wire.Meta {
				answer = wire.AppendModern(nil, t.Raw, &t.Req, wire.Incr, answer)
			}
			r.Bytes = answer
			t.Answer(r, token)
		}
	})
}
