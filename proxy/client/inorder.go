package client

// This file implements two features: multi-key reads with values in request order, and quiet
// gets of a binary client, of which several are sent together.

import (
	"ringside/proxy/link"
	"ringside/proxy/stats"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
	"ringside/proxy/wire/binary"
)

// inOrder stores the values of one multi-key read until all servers have replied.
// Cache::Memcached::Fast parses a reply key by key, and treats a value in the wrong order as a
// miss; twemproxy replies in order. The cost is the wait for the slowest server and a copy of
// the keys.
type inOrder struct {
	keys   []byte                // the keys of the request, as the client sent them
	Values []inOrderValue        // the values of the read, in order of arrival
	of     map[string]inOrderKey // for each key, as the client knows the key, its positions in Values
	Held   int                   // bytes of memory that are used in addition to the values

	batch *batch // the quiet gets of a binary client, if it replies to these; nil: it replies to a multi-key read
}

type inOrderValue struct {
	Block link.Queue // VALUE line and data
	next  int        // position of the next value of the same key, if it was requested twice; -1: none
}

// inOrderKey has the positions of the values of one key: the first that was not sent yet, -1 if
// there is none, and the last.
type inOrderKey struct{ first, last int }

// KeepOrder makes x reply in the order of the keys of the request in e.Req, which has the bytes
// raw.
func (x *Exchange) KeepOrder(raw []byte) {
	x.InOrder = &inOrder{keys: append([]byte(nil), x.e.Req.Keys.Of(raw)...), of: map[string]inOrderKey{}}
	x.InOrder.hold(&x.e.Buffers, len(x.InOrder.keys))
}

// hold adds n, which may be negative, to the counted memory.
func (o *inOrder) hold(p *link.Buffers, n int) {
	o.Held += n
	p.Hold(n)
}

// Keep stores the block of one value. key is in the form that the client knows.
func (o *inOrder) Keep(p *link.Buffers, key string, block []byte) {
	v := inOrderValue{next: -1}
	v.Block.Append(p, block)
	o.hold(p, valueSize+len(key))
	o.Values = append(o.Values, v)
	at := len(o.Values) - 1
	k, ok := o.of[key]
	if ok {
		o.Values[k.last].next = at
	} else {
		k.first = at
	}
	k.last = at
	o.of[key] = k
}

// send moves the values to q in the order of the keys.
func (o *inOrder) send(p *link.Buffers, q *link.Queue) {
	rest := wire.Span{End: uint32(len(o.keys))}
	for {
		var key wire.Span
		if key, rest = wire.NextKey(o.keys, rest); key.Len() == 0 {
			return
		}
		name := string(key.Of(o.keys))
		k, ok := o.of[name]
		if !ok || k.first < 0 {
			continue
		}
		o.Values[k.first].Block.MoveTo(p, q)
		k.first = o.Values[k.first].next
		o.of[name] = k
	}
}

// freeOrder frees the values in o that were not sent.
func (e *Clients) freeOrder(o *inOrder) {
	for i := range o.Values {
		o.Values[i].Block.Drop(&e.Buffers)
	}
	o.hold(&e.Buffers, -o.Held)
	if o.batch != nil {
		o.batch.Reset(&e.Buffers)
		e.freeBatches.Keep(o.batch)
	}
}

// kept returns how many bytes wait to be sent.
func (o *inOrder) kept() int {
	n := o.Held
	for i := range o.Values {
		n += o.Values[i].Block.Room()
	}
	if o.batch != nil {
		n += o.batch.Room()
	}
	return n
}

// batch has consecutive quiet gets. They are one exchange, and each server gets one multi-key
// read, but each get has its own place in the client's order. A value that arrives before its
// turn is stored.
//
//	getkq a, getkq b, getkq c, noop ► gets a c ► server 1, gets b ► server 2
//
// Keys that need a task are not batched, and neither are the keys of a paced client: these are
// handled one by one.
type batch struct {
	link.Sequence          // sends the replies to the quiet gets in their order
	order         inOrder  // embedded here, so that its exchange can point to it
	places        []place  // the quiet gets in request order; quiet and place refer to them by numbers from 1
	parts         []*quiet // the receivers of the replies, one for each attempt of the batch; those after the first used ones are kept for reuse
	used          int      // number of parts in use
}

// place is one quiet get in a batch.
type place struct {
	head binary.Head
	next int32 // number of the quiet get after this one in the same attempt; 0: this is the last
	left int   // bytes still to come of its value, if the value is passed on in pieces
}

// quiet receives the reply to one attempt of a batch.
type quiet struct {
	x      *Exchange
	place  int32 // number of the first quiet get of the attempt that has no reply; 0: all have one
	last   int32 // number of the last quiet get of the attempt
	passed int   // how many quiet gets of the attempt have a reply
}

// maxBatch is the maximum number of quiet gets in a batch. Further gets start another batch.
const maxBatch = 256

// joins reports whether the quiet get of n bytes at the start of buf may be batched: a batch
// was started, or another quiet get follows. In the second case it sets e.Req to a quiet get.
func (s *Session) joins(buf []byte, n int) bool {
	e := s.e
	switch {
	case e.batch != nil:
		return len(e.batch.InOrder.batch.places) < maxBatch
	case s.window > 0 || s.Tasks > 0 || !binary.BeginsQuietGet(buf[n:]):
		return false
	}
	e.Req = wire.Request{Op: wire.Get, Flags: wire.Binary, NumKeys: 1, Several: e.Req.Several[:0]}
	return true
}

// batchOn adds the quiet get at the start of buf to the current batch. If the input does not
// start with one, or it can't be added, it does nothing and returns false.
func (s *Session) batchOn(buf []byte) bool {
	e := s.e
	key := e.Frame.NextQuietGet(&e.Accepts, buf)
	if len(key) == 0 || len(e.batch.InOrder.batch.places) >= maxBatch || !s.Handler.ServeQuiet(s, key) {
		return false
	}
	n := binary.HeadSize + len(key)
	e.Input.Start += n
	s.turn.keys--
	s.turn.bytes -= n
	return true
}

// endBatch sends the gets of the current batch.
func (s *Session) endBatch() {
	if x := s.e.batch; x != nil {
		s.e.batch = nil
		s.Handler.EndBatch(x)
	}
}

// Batch adds the quiet get in e.Frame to the current batch, and returns the exchange of the
// batch. It starts a new batch if there is none, or if its exchange has another MissErrors than
// missErrors.
func (s *Session) Batch(missErrors bool) (x *Exchange) {
	e := s.e
	if x = e.batch; x == nil || x.MissErrors != missErrors {
		s.endBatch()
		x = e.NewExchange(s)
		x.Miss, x.MissErrors = x.Miss[:0], missErrors
		b := e.freeBatches.Take()
		b.places, b.used, b.order.batch = b.places[:0], 0, b
		x.InOrder, e.batch = &b.order, x
	} else {
		s.requests++
		x.AddWork(1)
	}
	b := x.InOrder.batch
	b.places = append(b.places, place{head: e.Frame.Head})
	b.Add(&e.Buffers)
	x.Keys++
	return x
}

// AsksLast records that the attempt a requests the key that was added to the batch last. If a
// is nil, no server can be asked for the key, and x.trouble has the reason.
func (x *Exchange) AsksLast(a *upstream.Attempt) {
	b := x.InOrder.batch
	at := int32(len(b.places))
	if a == nil {
		x.failPlace(at)
		return
	}
	q, ok := a.To.(*quiet)
	if ok {
		b.places[q.last-1].next = at
	} else {
		if b.used == len(b.parts) {
			b.parts = append(b.parts, new(quiet))
		}
		q = b.parts[b.used]
		b.used++
		*q = quiet{x: x, place: at}
		a.To = q
	}
	q.last = at
}

// destAt returns the queue for the reply to the quiet get with the number `at`; nil if the
// client is gone.
func (x *Exchange) destAt(at int32) *link.Queue {
	return x.InOrder.batch.Dest(int(at)-1, x.dest(nil))
}

// settlePlace records that the reply to the quiet get with the number `at` is complete.
func (x *Exchange) settlePlace(at int32) {
	x.InOrder.batch.Settle(&x.e.Buffers, int(at)-1, x.dest(nil))
}

// failPlace replies to the quiet get with the number `at`, which no server has answered, with
// the reason in x.trouble.
func (x *Exchange) failPlace(at int32) {
	if x.MissErrors {
		x.settlePlace(at)
		return
	}
	e := x.e
	e.Line = wire.AppendServerError(e.Line[:0], x.trouble)
	_, _ = wire.NextReply(x.Op, x.dialect, e.Line, &e.framedReply) // can't fail: the line is a SERVER_ERROR
	x.refusePlace(at, &e.framedReply, e.Line)
}

// refusePlace replies to the quiet get with the number `at` with the error line r, which has
// the bytes b.
func (x *Exchange) refusePlace(at int32, r *wire.Reply, b []byte) {
	e := x.e
	if q := x.destAt(at); q != nil {
		e.framed = x.InOrder.batch.places[at-1].head.AppendFrame(e.framed[:0], x.Op, r, b, nil, statusOf(x.Outcome))
		q.Append(&e.Buffers, e.framed)
	}
	x.settlePlace(at)
}

// pass moves on to the next quiet get of the attempt.
func (q *quiet) pass() {
	q.place = q.x.InOrder.batch.places[q.place-1].next
	q.passed++
}

// hit moves on to the quiet get with the value r, and returns it. The gets before it in the
// attempt have missed.
func (q *quiet) hit(a *upstream.Attempt, r *wire.Reply) *place {
	nth := int(a.Nth) - 1
	if r.Awaited && r.Last {
		nth = int(a.Nth)
	}
	for ; q.passed < nth; q.pass() {
		q.x.settlePlace(q.place)
	}
	q.x.Hit(a.Share)
	return &q.x.InOrder.batch.places[q.place-1]
}

// fail replies with the error to the quiet gets of the attempt that have no reply.
func (q *quiet) fail() {
	for ; q.place != 0; q.pass() {
		q.x.failPlace(q.place)
	}
}

// Client returns the number of the client that waits for the reply; 0: it is gone.
func (q *quiet) Client() uint64 { return q.x.Client() }

// keyShown returns the key for the reply r, as the client knows it; nil: the reply has no key.
func (q *quiet) keyShown(a *upstream.Attempt, r *wire.Reply, b []byte) []byte {
	switch {
	case !q.x.InOrder.batch.places[q.place-1].head.ReturnsKey():
		return nil
	case a.Strip == "":
		return r.Key.Of(b)
	}
	q.x.e.Line = append(append(q.x.e.Line[:0], a.Strip...), r.Key.Of(b)...)
	return q.x.e.Line
}

// Reply handles one VALUE, END or error line from the reply to the attempt a. b contains its
// bytes.
func (q *quiet) Reply(c *upstream.Conn, a *upstream.Attempt, r *wire.Reply, b []byte) (taken int) {
	switch r.Kind {
	case wire.Value:
		p := q.hit(a, r)
		e, key := q.x.e, q.keyShown(a, r, b)
		o, i, out := q.x.InOrder.batch, int(q.place)-1, q.x.dest(nil)
		if r.Size <= smallValue && out != nil && !o.IsTurn(i) {
			e.framed = p.head.AppendValue(e.framed[:0], r, b, key)
			o.Keep(&e.Buffers, i, e.framed, r.Body.Of(b))
		} else {
			taken = q.x.sendValue(o.Dest(i, out), p.head, key, a, r, b)
		}
		o.Settle(&e.Buffers, i, out)
		q.pass()
		return taken
	case wire.End: // the other gets are misses: see Done
	case wire.ServerError:
		q.x.FailByServer(a.Share, c.Server.Label(), string(r.Line.Of(b)))
		q.fail()
	default:
		q.x.Outcome = stats.ClientFault
		for ; q.place != 0; q.pass() {
			q.x.refusePlace(q.place, r, b)
		}
	}
	return 0
}

// smallValue is the maximum size in bytes of a reply with a value that is copied into a buffer
// together with other replies.
const smallValue = 1 << 10

func (q *quiet) Done(c *upstream.Conn, a *upstream.Attempt) {
	for ; q.place != 0; q.pass() {
		q.x.settlePlace(q.place)
	}
	q.x.Done(c, a)
}

// Failed fails the gets of a that have no reply. If the client has received part of a value,
// its connection ends.
func (q *quiet) Failed(c *upstream.Conn, a *upstream.Attempt, f upstream.Failure) {
	x := q.x
	if x.Slow() {
		x.slowPart(c, a, c.FailedIn(a, f), f.Why)
	}
	x.Fail(a.Share, f.Why, f.Outcome)
	switch {
	case x.Session == nil:
	case a.Streams && x.InOrder.batch.IsTurn(int(q.place)-1):
		x.cut = true
		x.Session.cut(x)
	default:
		if a.Streams {
			x.InOrder.batch.Discard(&x.e.Buffers, int(q.place)-1)
			x.hit(a.Share, -1)
		}
		q.fail()
	}
	x.FinishOne()
}

func (q *quiet) IsSlow() bool { return q.x.IsSlow() }

func (q *quiet) Streams(r *wire.Reply, _ []byte) bool { return r.Body.Len() > wholeValue }

// Begin sends or stores the beginning of a value.
func (q *quiet) Begin(_ *upstream.Conn, a *upstream.Attempt, r *wire.Reply, b []byte) (taken int) {
	p := q.hit(a, r)
	here := b[min(int(r.Body.Start), len(b)):min(int(r.Body.End), len(b))]
	p.left = r.Body.Len() - len(here)
	if to := q.x.destAt(q.place); to != nil {
		q.x.e.framed = p.head.AppendValue(q.x.e.framed[:0], r, b, q.keyShown(a, r, b))
		to.Append(&q.x.e.Buffers, q.x.e.framed)
		to.Append(&q.x.e.Buffers, here)
	}
	return 0
}

// More sends or stores the next bytes of a value.
func (q *quiet) More(_ *upstream.Conn, _ *upstream.Attempt, b []byte, last bool) (taken int) {
	taken = q.x.sendMore(q.x.destAt(q.place), &q.x.InOrder.batch.places[q.place-1].left, b)
	if last {
		q.x.settlePlace(q.place)
		q.pass()
	}
	return taken
}
