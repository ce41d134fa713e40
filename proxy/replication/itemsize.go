package replication

// This file rejects values that some servers of a key can't store, because they were started with a
// smaller item_size_max (memcached's option -I) than the others.

import (
	"bytes"
	"cmp"
	"log/slog"
	"strconv"

	"ringside/proxy/event"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
	"ringside/replicate"
)

// tooLarge returns the error for the value of t if a replica's server would reject it because it is too
// large there. It returns nil if t can be sent. Without this check, the value would remain on some servers
// after the client has got an error. If all servers reject the value, a set is sent nevertheless, and
// removes the old value; but a conditional set would keep it, so tooLarge returns the error.
func (c *command) tooLarge(t *task.Task, conditional bool) []byte {
	if !t.Op.Stores() {
		return nil
	}
	fits, size, flags := false, c.size+t.Req.Body.Len(), c.size > 0 || wire.ClientFlags(t.Req.ClientFlags.Of(t.Raw)) != 0 // the value that t extends may have client flags
	var small *upstream.Server
	for i, m := range c.replicas {
		switch n := len(c.keyAt(t, i)); {
		case m.Server.KnownToExceed(n, size, flags):
			small = m.Server
		case !conditional || m.Server.KnownItemSize() > 0 || !m.Server.ExceedsItem(n, size, flags): // while the size is not known, the usual size is assumed
			fits = true
		}
	}
	switch {
	case fits && small != nil:
		return wire.AppendServerError(nil, "object too large for cache: server "+small.Label()+" stores smaller items than other servers of its pool (memcached's option -I)")
	case !fits && conditional && t.Op == wire.Set:
		return wire.AppendServerError(nil, "object too large for cache")
	}
	return nil // also if all servers reject the value themselves
}

// sizesDiffer reports whether the largest items of the replicas' servers are known to differ.
func (c *command) sizesDiffer() bool {
	least, most := 0, 0
	for _, m := range c.replicas {
		if n := m.Server.KnownItemSize(); n > 0 {
			least, most = min(cmp.Or(least, n), n), max(most, n)
		}
	}
	return least < most
}

// weighing is the task.Rule that finds out how large the value of a key is, before an append or a
// prepend runs. Without it, the value could outgrow one server: its replica of the old value, which
// was acknowledged, would be removed, and the others would have a value that was not acknowledged.
//
// Another instance may extend the value after the look. Then the append still fails at one server.
type weighing struct {
	c      *command
	states []replicate.Replica
}

// Begin looks at the replicas that writes are sent to.
func (w *weighing) Begin(t *task.Task) {
	for i, m := range w.c.replicas {
		switch w.states[i].State {
		case replicate.In, replicate.Dirty, replicate.Filling, replicate.Warming, replicate.Settling:
			t.Ask(i, m.Server, task.StepRequest(t, replicate.Look, w.c.keyAt(t, i), "", 0))
		}
	}
	w.proceed(t)
}

// HandleReply records the size of one replica's value.
func (w *weighing) HandleReply(t *task.Task, _ int, r *upstream.Result) {
	n, _ := strconv.Atoi(task.Arg(r, 's'))
	w.c.size = max(w.c.size, n)
	w.proceed(t)
}

// proceed starts the command again when all replies have arrived.
func (w *weighing) proceed(t *task.Task) {
	switch {
	case t.Open > 0 || w.c.weighed:
	case t.ClientDone:
		w.c.e.Unclaim(t)
	default:
		w.c.weighed = true
		t.Rule = w.c
		w.c.e.Ready(t)
	}
}

// refuses reports whether r, the reply to the ask a of a copy, says that the value is too large for
// the server. It is then useless to repeat the copy, so the key has one replica less. refuses logs that.
func (c *command) refuses(a *copyAsk, r *upstream.Result) bool {
	if a.Step != replicate.Fill || a.kind != replicate.ServerError || !bytes.Contains(r.Bytes, []byte("object too large")) {
		return false
	}
	m := &c.replicas[a.Replica]
	if r.Unsent && m.Server.KnownItemSize() == 0 { // the usual size is only assumed
		return false
	}
	c.e.LogLimited(slog.LevelWarn, m.Pool.Pool.Name+" "+m.Server.Target.Name, "keys have one replica less, because their values are too large for a server (memcached's option -I)", event.Other.Attr(), "pool", m.Pool.Pool.Name, "server", m.Server.Target.Name)
	return true
}
