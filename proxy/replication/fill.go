package replication

// This file runs commands on keys of a pool that fills from another pool, its source. The rule is
// replicate.FillFrom. It asks the owner of the key, the source and the mark of the key like three replicas of a
// key that moves.

import (
	"strconv"
	"time"

	"ringside/proxy/failover"
	"ringside/proxy/health/divert"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
	"ringside/replicate"
)

// The replicas of a command on a key of a pool that fills.
const (
	fillOwner  = iota // the server that owns the key
	fillSource        // the server of the source that owns the key there
	fillMark          // the server that owns the key again, with the name of the mark
)

// filling says whether the command is on a key of a pool that fills.
func (c *command) filling() bool { return c.moving != nil && c.moving.fills }

// fill runs t, a command on a key of a pool that fills. The pool ejects no servers, but one that was out when a
// reload set fill_from may still be. Commands on its keys fail until it is in use: it will be flushed, and
// would then not know what was written.
func (e *Replicator) fill(t *task.Task) {
	if e.unfit(t) {
		return
	}
	is := task.CommandOf(t)
	if t.Op.Stores() && wire.SameFlags(t.Req.ClientFlags.Of(t.Raw), wire.TombstoneFlags) {
		if is.Op != replicate.Set || is.If || is.Stale || t.IsStep() { // the command might store nothing, so its rejection removes nothing
			t.Reject(wire.AppendClientError(nil, ownFlags))
			return
		}
		t.Refuse(wire.AppendClientError(nil, ownFlags))
		is = task.CommandOf(t)
	}
	rt := t.Route
	var at failover.Spot
	if trouble, parked := at.Locate(t, is.Reads()); trouble.Why != "" {
		t.Fail(trouble.Why, trouble.Outcome)
		return
	} else if parked {
		return
	}
	c := e.fillCommand(rt, t.Key, &at)
	if before, ok := t.Rule.(*command); ok && !t.ClientDone {
		c.first, c.firstFrom = before.first, before.firstFrom
	}
	srv := c.replicas[fillOwner].Server
	switch reads := is.Reads(); {
	case (!reads || is.Op == replicate.Gets) && srv.LacksCas():
		t.Reject(srv.AppendNoCas(nil, "keys of a pool with fill_from"))
		return
	case t.Op.Stores() && t.Op != wire.Set && srv.ExceedsItem(len(t.Key), t.Req.Body.Len(), wire.ClientFlags(t.Req.ClientFlags.Of(t.Raw)) != 0): // sent as an ms, it would remove the item
		t.Reject(wire.AppendServerError(nil, "object too large for cache"))
		return
	default:
		c.writes = !reads
	}
	c.openMoved(t, is.Op)
	source := replicate.Asked
	if rt.Pool.Fill.Rate == 0 {
		source = replicate.Empty
	}
	if (is.Vivify || is.Win) && source == replicate.Asked {
		c.moving.create, c.moving.second, is = true, is, replicate.Command{Op: replicate.Gets}
	}
	c.rule = replicate.FillFrom(is, source)
	t.Rule = c
	t.Run(0, nil)
}

// fillCommand returns a command on a key of a pool that fills, without its rule. at is the server that owns the
// key, and the name of the key there.
func (e *Replicator) fillCommand(rt *routing.Route, key []byte, at *failover.Spot) *command {
	_, _, from := rt.Source.Pool.Place.Locate(key)
	name, own := at.Keys[0], movingReplica(rt.BoundPool, at.First.Server)
	source := replica{Holder: routing.Holder{Pool: rt.Source, Index: max(from, 0), Server: rt.Source.Servers[max(from, 0)]}}
	return e.newCommand(&moving{fills: true, names: [3][]byte{name, key, divert.AppendMark(nil, name)}, tag: at.First.Number}, own, source, own)
}

// askSource prepares the request a to the source. It returns the timeouts of the request, which are also those of the
// source. A plain read that exceeds the rate gets no request: ok is false.
func (c *command) askSource(t *task.Task, a *copyAsk) (limits *table.Timeouts, ok bool) {
	m := &c.replicas[fillSource]
	if a.Step == replicate.Forward {
		loops, _ := c.e.Loops.Count(c.e.Tasks)
		if p := c.replicas[fillOwner].Pool.Pool; !c.e.mayMove(p.Name, m.Index, p.Fill.Rate, loops) {
			c.e.countFill(c).Limited++
			a.limited = true
			return nil, false
		}
	}
	within := *t.Limits()
	within.Request = min(m.Pool.Pool.Timeouts.Request, within.Deadline)
	within.Cut = within.Request < m.Pool.Pool.Timeouts.Request/2
	return &within, true
}

// fillLife returns the TTL of a mark or of a placeholder, in seconds. A command finds its placeholder still there after a
// request to the source that takes as long as it may, although memcached may expire an item a second early. If an
// instance dies, writes of the key wait for the rest of this time.
func (c *command) fillLife(replica int) int {
	pool := c.replicas[fillOwner].Pool.Pool
	if replica == fillMark {
		return int(pool.Fill.Remember / time.Second)
	}
	return 1 + int((pool.Timeouts.Request+pool.Fill.From.Timeouts.Request+time.Second-1)/time.Second)
}

// countSource counts the reply to the ask a of the source.
func (c *command) countSource(a *copyAsk, r *upstream.Result) {
	switch n := c.e.countFill(c); {
	case c.isRepair || a.limited:
	case r.Bytes == nil || a.kind == replicate.ClientError || a.kind == replicate.ServerError:
		n.Failed++
	case a.kind == replicate.Hit || a.kind == replicate.Expiring:
		n.Hits++
	default:
		n.Misses++
	}
}

// readsSource reports whether the ask a is a plain text read of the source. It is sent as an mg, which also shows the
// remaining TTL, and tells the placeholder of a guard from a value.
func (c *command) readsSource(t *task.Task, a *copyAsk) bool {
	return c.filling() && a.Replica == fillSource && a.Step == replicate.Forward && t.Req.Dialect == wire.Text
}

// keepFound keeps the value that the ask a has found at the source, for the copy, and translates the reply to a for the
// client.
func (c *command) keepFound(t *task.Task, a *copyAsk) {
	found := a.result
	c.moving.found = &found
	line := append(append([]byte("VALUE "), t.Key...), ' ')
	line = append(append(line, task.Arg(&found, 'f')...), ' ')
	line = append(strconv.AppendInt(line, int64(found.Reply.Body.Len()), 10), wire.CRLF...)
	line = append(append(line, found.Reply.Body.Of(found.Bytes)...), wire.CRLF...)
	a.result.SetAnswer(t.Op, t.Req.Dialect, append(line, wire.AnswerEnd...))
}

// copyFound copies the value of a key from the source to its owner, after a read has found it at the source, unless
// many copies are in progress.
func (e *Replicator) copyFound(t *task.Task, found *command) {
	if e.Copying >= maxCopies {
		return
	}
	e.Copying++
	mv := &moving{fills: true, names: found.moving.names, found: found.moving.found}
	mv.ended = func(c *command, ok bool) {
		if e.Copying--; ok {
			e.countFill(c).Copied++
		}
	}
	e.runMove(t.Route, t.Key, found.replicas, mv, replicate.FillKey())
}

// countFill returns the counts of the pool of c.
func (e *Replicator) countFill(c *command) *stats.FillCounters {
	return stats.Entry(&e.fills, c.replicas[fillOwner].Pool.Pool.Name)
}
