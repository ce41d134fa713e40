package task

// This file implements reads that need no task as long as the reply is a plain hit.

import (
	"bytes"

	"ringside/proxy/client"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// Read is the read of one key that is sent to one server, without a task. It is the receiver of the
// reply, on the loop of the client. The features of the route supply the parts that differ:
//
//	ReadStrategy.Conn    which server has the key; nil: the read needs a task
//	ReadStrategy.Send    the request, and the Judge of its reply
//	Judge.Judge          a plain hit: the client gets it
//	Judge.Resume         any other reply, or none: a task continues with it, as a new part of the exchange
//	Judge.Drop           the reply is not used: the client has gone, or a reload has changed the route
//
// A Read keeps its place in the order of its client's commands (Session.Reads). A command that
// changes the key waits for it. A task that continues the read has the same place.
//
// A Read is no upstream.Taker: if it were taken back and sent again, a later write of its client
// could overtake it. So a client has few reads of large values in flight: see client.Session.
type Read struct {
	client.OpenRead
	X         *client.Exchange
	e         *Tasks
	judge     Judge
	route     *routing.Route // the route of the key when the read was sent
	answered  bool           // the client has the value
	continued bool           // a task continues the read and replies to the client
	next      *Read          // the next element in the list of Reads that are kept for reuse
}

var _ upstream.Streamer = (*Read)(nil)

// ReadStrategy sends the reads of the routes with certain features. Each loop has its own.
type ReadStrategy interface {
	// Conn returns the connection on which to read the key `name` for x, or nil if the read needs a
	// task. owner is the server that owns the key.
	Conn(x *client.Exchange, rt *routing.Route, owner *upstream.Server, name []byte) *upstream.Conn

	// Send sends the request of r on c, as the attempt a, which names the key already. It returns the
	// Judge of the reply.
	Send(r *Read, rt *routing.Route, c *upstream.Conn, a *upstream.Attempt) Judge
}

// Judge handles the reply to a Read.
type Judge interface {
	// Judge passes a plain hit to the client. For any other reply it returns false.
	Judge(r *Read, c *upstream.Conn, a *upstream.Attempt, rep *wire.Reply, b []byte) (taken int, hit bool)

	// Streams reports whether the value with head rep, which has only partly arrived, is a hit that is
	// passed on in pieces. b is the part that has arrived.
	Streams(r *Read, rep *wire.Reply, b []byte) bool

	// Begin passes the first part of a value to the client.
	Begin(r *Read, c *upstream.Conn, a *upstream.Attempt, rep *wire.Reply, b []byte)

	// Resume makes t continue the read with res, which is the reply or the reason why there is none.
	// res is nil if a reload has given the key another name at the servers.
	Resume(r *Read, t *Task, c *upstream.Conn, res *upstream.Result)

	// Drop undoes what the request has changed at the server: res is not used.
	Drop(r *Read, c *upstream.Conn, res *upstream.Result)

	// Ended is called when the request has ended.
	Ended()
}

// SendRead reads one key of x on c. share is the index of the key's route in the shares of x.
func (e *Tasks) SendRead(how ReadStrategy, x *client.Exchange, share int32, rt *routing.Route, c *upstream.Conn, key []byte) {
	r := e.freeReads
	if r == nil {
		r = &Read{e: e}
	} else {
		e.freeReads = r.next
	}
	r.X, r.route, r.answered, r.continued = x, rt, false, false
	a := x.Attempt()
	a.To, a.Share, a.Strip = r, share, rt.Strip
	a.SetKey(key[len(rt.Strip):])
	r.Name, _ = a.Named() // the attempt is freed after r
	e.beginRead(x.Session, &r.OpenRead)
	r.judge = how.Send(r, rt, c, a)
}

// TrimReads frees the Reads that are kept for reuse.
func (e *Tasks) TrimReads() { e.freeReads = nil }

// Client returns the number of the client that waits for r; 0: it is gone.
func (r *Read) Client() uint64 { return r.X.Client() }

// Route returns the route of the key of a, the request of r, in the current table; nil: there is none,
// or the client has gone.
func (r *Read) Route(a *upstream.Attempt) *routing.Route {
	switch {
	case r.X.Session == nil:
		return nil
	case !r.route.Retired:
		return r.route
	}
	r.e.readKey = a.AppendKey(r.e.readKey[:0])
	return r.X.Session.Handler.(interface {
		Fitting(key []byte) *routing.Route
	}).Fitting(r.e.readKey)
}

func (r *Read) Reply(c *upstream.Conn, a *upstream.Attempt, rep *wire.Reply, b []byte) (taken int) {
	switch {
	case r.continued: // this is the END after a value that is no plain hit
		return 0
	case r.answered: // this is the END after a hit
		return r.X.Reply(c, a, rep, b)
	}
	if taken, r.answered = r.judge.Judge(r, c, a, rep, b); !r.answered {
		r.resume(c, a, &upstream.Result{Server: c.Server, Bytes: b, Reply: *rep, ConnEpoch: c.EpochOf(a)})
	}
	return taken
}

// resume starts a task that continues the read with res, a reply that is no plain hit, or the reason
// why there is no reply.
func (r *Read) resume(c *upstream.Conn, a *upstream.Attempt, res *upstream.Result) {
	x, rt := r.X, r.Route(a)
	why := res.Why
	if rt == nil || rt.Strip != a.Strip {
		r.judge.Drop(r, c, res)
		res = nil
	} else {
		res.Bytes = bytes.Clone(res.Bytes)
	}
	switch {
	case x.Session == nil:
	case rt == nil:
		x.Fail(a.Share, client.NoRoute, stats.Unavailable)
	default:
		t := r.e.newRead(x, a.Share, rt, a.AppendKey(nil))
		t.WaitReason = why // the reason that the client gets if the deadline has passed
		r.judge.Resume(r, t, c, res)
		r.continued = true
		r.e.takeOver(t, &r.OpenRead)
	}
}

// Done ends r after the reply. If a task continues the read, the task replies to the client.
func (r *Read) Done(c *upstream.Conn, a *upstream.Attempt) {
	x, continued := r.X, r.continued
	if r.free(); continued {
		x.FinishOne()
		return
	}
	x.Done(c, a)
}

func (r *Read) Failed(c *upstream.Conn, a *upstream.Attempt, f upstream.Failure) {
	x := r.X
	switch {
	case a.Streams:
		r.free()
		x.Failed(c, a, f)
		return
	case !r.answered && !r.continued:
		r.resume(c, a, &upstream.Result{Server: c.Server, Failure: f})
	}
	r.free()
	x.FinishOne()
}

// free ends r and keeps it for reuse.
func (r *Read) free() {
	r.end()
	r.judge.Ended()
	r.X, r.judge, r.route = nil, nil, nil
	r.next, r.e.freeReads = r.e.freeReads, r
}

// end records that later commands of the client need not wait for r.
func (r *Read) end() {
	if r.Session != nil {
		r.e.endRead(&r.OpenRead)
	}
}

func (r *Read) Streams(rep *wire.Reply, b []byte) bool { return r.judge.Streams(r, rep, b) }

// Begin passes the first part of a value to the client. The server has executed the read, so later
// commands of the client need not wait for the rest of the value.
func (r *Read) Begin(c *upstream.Conn, a *upstream.Attempt, rep *wire.Reply, b []byte) (taken int) {
	r.end()
	r.judge.Begin(r, c, a, rep, b)
	return 0
}

func (r *Read) More(_ *upstream.Conn, a *upstream.Attempt, b []byte, last bool) (taken int) {
	return r.X.More(nil, a, b, last)
}

func (r *Read) IsSlow() bool { return r.X.IsSlow() }
