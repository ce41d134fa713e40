package replication

// The type directReader reads replicated keys without a task, if the replica that is read first
// has a value. It also reads keys of a pool that fills from another one (fill.go): then the owner of the key is
// the only server that is read like this.
//
// A plain text get, or one key of a get of many, is sent to the replica that Conn returns. It needs
// no task and no other loop, and gets can share request lines, as for a key with one replica. If the
// reply is a tombstone, a miss or an error, or if there is none, a task continues (task.Read): its
// rule asks the other replicas, but not this one again.
//
// Large values are not streamed, because another replica has the value if the server fails in
// between.
//
// # Limits
//
// These gets are left to tasks:
//
//   - reads that want more than a value (gets, gat, meta, the binary protocol);
//   - all gets of routes with strict consistency, `read: fastest` or a guard;
//   - all gets while a server of the route is not simply in use, or may be missing a
//     write.

import (
	"ringside/proxy/client"
	"ringside/proxy/routing"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// directReader is the task.ReadStrategy and the task.Judge of replicated routes.
type directReader struct{ *Replicator }

// DirectReads returns the task.ReadStrategy of replicated routes.
func (e *Replicator) DirectReads() task.ReadStrategy { return directReader{e} }

// Conn returns the connection to the replica that is read first. It returns nil if a task is needed.
//
// A value of that replica is a valid reply, unless the process knows of a write that the replica
// has missed or may still run. Another loop may own the key and know of such a write. That loop
// calls disableDirectReads before it answers the write. So for a read that is sent after the
// reply to the write, Conn returns nil.
func (e directReader) Conn(x *client.Exchange, rt *routing.Route, owner *upstream.Server, name []byte) *upstream.Conn {
	if x.Op != wire.Get || x.Flags&wire.Binary != 0 {
		return nil
	}
	if rt.Copies.Copies == 0 { // the pool fills from another one
		if owner == nil || !rt.Serves(owner) {
			return nil
		}
		c, _, _ := owner.Pick(x.Session.ID, false)
		return c
	}
	if e.learning {
		e.learn()
	}
	if !rt.AllIn() || e.handover != nil || e.Doubtful.Load() > 0 && !e.ownsClean(rt, name) {
		return nil
	}
	if !rt.ReadsFirst() {
		owner = e.nextOf(rt, name)
	}
	if owner == nil {
		return nil
	}
	c, _, _ := owner.Pick(x.Session.ID, false)
	return c
}

// Send sends a get, which may share a request line with other gets.
func (e directReader) Send(r *task.Read, rt *routing.Route, c *upstream.Conn, a *upstream.Attempt) task.Judge {
	before := c.Tail
	c.Begin(a, &rt.Timeouts)
	line := append(append(append(e.Line[:0], "get "...), r.Name...), wire.CRLF...)
	e.Line = line
	c.GiveKey(a, before, line)
	return e
}

// Judge passes a value to the client.
func (e directReader) Judge(r *task.Read, c *upstream.Conn, a *upstream.Attempt, rep *wire.Reply, b []byte) (taken int, hit bool) {
	if rep.Kind != wire.Value || string(rep.ClientFlags.Of(b)) == wire.TombstoneFlags {
		return 0, false
	}
	return r.X.Reply(c, a, rep, b), true
}

// Resume makes t continue with the reply res.
func (e directReader) Resume(_ *task.Read, t *task.Task, c *upstream.Conn, res *upstream.Result) {
	if res != nil && (t.Route.Copies.Copies != 0 || t.Route.Source != nil) { // otherwise a new routing table has removed the replicas, or renamed the key, so t reads the key again
		res.Server = nil
		t.Rule = &command{first: res, firstFrom: c.Server.Target} // the task does not ask this server again
	}
}

// Drop does nothing: the request has changed nothing.
func (e directReader) Drop(*task.Read, *upstream.Conn, *upstream.Result) {}

// Ended does nothing.
func (e directReader) Ended() {}

// Streams returns false for a client that is still there: another replica has the value if the server fails in between. If
// the client has gone, the value is discarded as it arrives.
func (e directReader) Streams(r *task.Read, _ *wire.Reply, _ []byte) bool { return r.X.Session == nil }

// Begin does nothing, because the client has gone.
func (e directReader) Begin(*task.Read, *upstream.Conn, *upstream.Attempt, *wire.Reply, []byte) {}
