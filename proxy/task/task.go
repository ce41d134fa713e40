package task

// This file defines Task and Tasks: the state and operations that all commands of several
// requests share.

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"slices"
	"strconv"
	"time"

	"ringside/proxy/ablation"
	"ringside/proxy/client"
	"ringside/proxy/health/divert"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/upstream"
	"ringside/proxy/watch/missreason"
	"ringside/proxy/wire"
)

// Task is a command on one key, or one key of a read of many, that a rule carries out by
// several asks. It continues when its client has disconnected or has its reply, until every
// ask has ended.
type Task struct {
	ClientLoop *Tasks           // the loop of the task's client
	x          *client.Exchange // the task's exchange on ClientLoop; nil: an internal task, or a step. Only ClientLoop may use it
	step       *step            // set if the task is a step of another task, which gets the reply; nil: the task is no step
	session    *client.Session  // the task's client; other loops than ClientLoop may only use its method Abandoned; nil: as for x
	ClientDone bool             // the client has its reply, or the task has no client
	Loop       *Tasks           // the loop that runs the task: another one than ClientLoop if Loops.Owner says so
	Route      *routing.Route   // the route of the key, as the loop in the field Loop has it
	Rule       Rule             // the rule; set by a Handler
	handler    Handler          // the Handler that serves the task. If the task starts again while it runs in the line of its key, this Handler continues it; nil: none yet

	Op    wire.Op // the operation of the request
	share int32   // the share of the exchange that the key belongs to: see client.Exchange.Share
	Strip string  // the prefix of the client's key that servers don't see

	shared
	Asker    uint64         // ID of the client, whose commands on a key keep their order
	Hash     uint64         // hash of Key, the same on all loops of the process
	queued   bool           // the task has waited for room: see Tasks.ParkForRoom
	reads    bool           // the task changes nothing, so the client's other reads need not wait
	held     int            // bytes that the task counts against limits.memory
	load     *upstream.Conn // the connection that counts the request in TaskBytes until the client has its reply; nil: none does. Only ClientLoop may use it
	loadSize int            // bytes that load counts
	Raw      []byte         // a copy of the request; nil once it is not needed any more
	Req      wire.Request   // the request in Raw, parsed
	echo     wire.KeyEcho   // the key that the client wants in the reply, and that servers are not asked for
	Key      []byte         // the decoded key, without the prefix that the route strips
	Deadline int64          // when the client must have its reply, on the loop's clock

	instead []byte      // what the client gets as the reply if all asks succeed; nil: the server's reply
	failed  []unsentAsk // requests that were not sent, because there was no connection or the reply is known; the rule gets their outcomes next
	Open    int         // number of asks without an outcome

	own room // the task's place in the line of its client's commands on the key; without a line, the client's next command does not wait for the task. Only ClientLoop may use it
	key room // the task's place in the line of the writes to the key; only the loop in the field Loop may use it
}

// shared is the state of a task that several packages set.
type shared struct {
	TTL         uint32 // TTL of the item that the task stores or touches, in seconds; 0: for ever
	Invalidated bool   // the task found a value with an invalidated tag
	Backfilling bool   // a backfill of Key by this task is in progress
	AwaitsKept  bool   // the task is a read that waits for the reply to another read, to be stored in the near cache
	WaitReason  string // reason for parking the task; empty: it was not parked

	Account *missreason.Account // counts why Key is missing; nil: the route does not explain misses. Concluding sets Account and Place
	Place   missreason.Place    // the servers that have Key, for the explanation of misses
}

// Tasks has one loop's commands of several requests, and the order in which they wait for
// each other.
type Tasks struct {
	*upstream.Servers
	Clients   *client.Clients              // the clients of this loop
	Listeners map[string]*routing.Listener // the listeners by network and address; a reload keeps those that the new table has, too
	InOrder   []*routing.Listener          // the listeners in the order of the table
	Handlers  [routing.FeatureSets]Handler // the handlers of tasks, by the features of the route
	Loops     Loops                        // all loops of the process
	Post      func(f func(*Tasks))         // runs f on this loop; any loop may call it
	Refused   func(t *Task)                // is called for a task that fails before a Handler has served it

	// Concluding is called for each task of a client that is about to get its reply, on the
	// loop that runs the task. It copies what Ended needs from the task's route, because the
	// route belongs to that loop.
	Concluding func(t *Task)

	// Ended is called on the client's loop for each task of a client that has its reply. It
	// gets the key, the outcome, and the size in bytes of the value that was found, or of
	// the request.
	Ended func(t *Task, key []byte, o stats.Outcome, size int)

	Lines    map[Line]*queue // the lines of commands that wait for each other, by name
	Runnable Runnable        // tasks that may start now
	Parked   []parkedTask    // tasks that wait until a server changes its phase, or until the ejected servers are known
	Later    timers          // timers of rules

	waitForRoom int // number of tasks in Parked that wait for room: see ParkForRoom

	freeReads *Read  // kept for reuse
	readKey   []byte // scratch: the key of a Read, in the form of the client
	started   int    // number of tasks that start has started in the wakeup startedIn
	startedIn uint64 // number of a wakeup: see Clients.Count

	Ablation ablation.Set // rules that tests turn off; the guard has its own copy, because it is on the path of each guarded get
}

// Handler serves tasks.
type Handler interface {
	// Handle serves t or parks it.
	Handle(t *Task)
}

// Loops are the loops of the process.
type Loops interface {
	// Owner returns the loop that runs the commands on a replicated key, by the hash of
	// the key.
	Owner(hash uint64) *Tasks

	// HashKey returns the hash of a key, which is the same on all loops.
	HashKey(key []byte) uint64

	// Count returns the number of loops, and the index of the loop t.
	Count(t *Tasks) (n, index int)
}

// dispatch passes t to the handler for the features of its route. Before that, t moves to the loop
// of its key (Owner). While it is not known which servers are out, t is parked.
//
// A task that was parked while it runs in the line of its key continues with the handler that
// has claimed the line: only that handler releases the line. The features of its route may differ
// by now, for example because a reload has added a guard.
func (e *Tasks) dispatch(t *Task) {
	if t.x == nil && t.step == nil { // an internal task has its rule already, and its turn has come
		t.Deadline = e.Now + int64(t.Route.Timeouts.Deadline)
		t.Run(0, nil)
		return
	}
	if rt := t.newer(); rt != nil {
		t.Route = rt
	}
	if t.Route.OneLoop() {
		if o := e.Loops.Owner(t.Hash); o != e {
			t.moveToLoop(o)
			return
		}
	}
	if v := t.Route.UnlearnedView(); v != nil {
		if e.Now >= t.Deadline {
			e.refuse(t, "the states of the servers are not known yet")
			e.Unclaim(t)
		} else {
			e.Park(t, t.Deadline, v.Gen)
		}
		return
	}
	t.SetPreparing(false)
	if t.handler != nil && t.holdsKey() {
		t.handler.Handle(t)
	} else {
		t.Pass(e.Handlers[t.Route.Features])
	}
}

// Pass makes the handler h serve t.
func (t *Task) Pass(h Handler) {
	t.handler = h
	h.Handle(t)
}

// refuse fails a task that no handler serves.
func (e *Tasks) refuse(t *Task, why string) {
	e.Refused(t)
	t.Fail(why, stats.Unavailable)
}

// Rule carries out a task: it sends asks, gets their outcomes, and replies to the client.
type Rule interface {
	// Begin sends the first asks.
	Begin(t *Task)

	// HandleReply gets the outcome of the request (ask) with the number id. r is valid during the call.
	HandleReply(t *Task, id int, r *upstream.Result)
}

// unsentAsk is the outcome of a request that was not sent: it found no connection, or its reply
// is known.
type unsentAsk struct {
	id int
	upstream.Result
}

// NewTask creates a task of the request r, which has the bytes raw, for its only key or one of
// several. key is decoded, and wrote is the key as the client wrote it. The client's reply is a
// part of x, in that share.
func (e *Tasks) NewTask(x *client.Exchange, share int32, rt *routing.Route, r *wire.Request, raw, wrote, key []byte) *Task {
	t := &Task{Op: r.Op}
	switch {
	case r.Op.Stores() && r.Flags == 0 && r.Drop.Len() == 0: // AppendPlain would change at most spaces, so the parsed form of raw can be kept
		t.Raw, t.Req = slices.Clone(raw), *r
		t.Req.Several = nil
	case r.NumKeys > 1:
		command := raw[r.Line.Start:r.Keys.Start]
		if r.Op == wire.Get { // the client's command may be bget, which not every server supports: it is sent as get
			command = []byte("get ")
		}
		t.Raw = append(t.Raw, command...)
		t.Raw = append(append(t.Raw, wrote...), wire.CRLF...)
		e.Wire.One(t.Raw, &t.Req)
	default:
		t.Raw = wire.AppendPlain(make([]byte, 0, len(raw)+len(wire.CRLF)), raw, r, nil)
		e.Wire.One(t.Raw, &t.Req)
	}
	t.echo = t.Req.KeyEcho(t.Raw)
	return e.begin(t, x, share, rt, r.Flags, key)
}

// begin completes a new task, which has its request already. flags are those of the client's request.
func (e *Tasks) begin(t *Task, x *client.Exchange, share int32, rt *routing.Route, flags wire.Flags, key []byte) *Task {
	t.ClientLoop, t.x, t.session, t.share, t.Asker = e, x, x.Session, share, x.Session.ID
	t.Loop, t.Route, t.Strip = e, rt, rt.Strip
	t.Deadline = x.PieceStart() + int64(rt.Timeouts.Deadline)
	x.Session.NeedsTask(x)
	t.Req.Flags |= flags & wire.Binary
	t.Key = append([]byte(nil), key[len(rt.Strip):]...)
	t.Hash = e.Loops.HashKey(t.Key)
	t.reads = CommandOf(t).Reads()
	t.Count()
	x.Waiting++
	return t
}

// CountOn makes c count the large request of t until its client has the reply: see upstream.Conn.TaskBytes.
func (t *Task) CountOn(c *upstream.Conn) {
	t.load, t.loadSize = c, len(t.Raw)
	c.TaskBytes += t.loadSize
}

// newRead creates a task that continues the text read of one key, which x has sent without a
// task. key has the prefix that the route strips.
func (e *Tasks) newRead(x *client.Exchange, share int32, rt *routing.Route, key []byte) *Task {
	t := &Task{Op: x.Op, Raw: append(append([]byte(x.Op.String()+" "), key...), wire.CRLF...)}
	e.Wire.One(t.Raw, &t.Req)
	return e.begin(t, x, share, rt, x.Flags, key)
}

// NewRemoval creates a task that deletes key, which the client wrote as `wrote`, because
// Ringside rejects a storage command. The client then gets the reply `instead`.
func (e *Tasks) NewRemoval(x *client.Exchange, rt *routing.Route, wrote, key, instead []byte) *Task {
	var r wire.Request
	line := append([]byte("md "), wrote...)
	if e.Clients.Req.Flags&wire.Base64 != 0 {
		line = append(line, " b"...)
	}
	line = append(line, wire.CRLF...)
	e.Wire.One(line, &r)
	t := e.NewTask(x, 0, rt, &r, line, wrote, key)
	t.instead = append([]byte{}, instead...)
	return t
}

// Refuse turns t into a task that deletes its key. The client, or the task that t is a step of, then gets
// the error line, unless the client has sent a text command with noreply.
func (t *Task) Refuse(line []byte) {
	t.instead = []byte{} // not nil, because nil would mean the server's reply
	if t.step != nil || t.Req.Dialect != wire.Text || t.x.Flags&wire.Quiet == 0 {
		t.instead = line
	}
	t.Raw = t.Meta("md", t.Key, "", nil)
	t.Loop.Wire.One(t.Raw, &t.Req)
	t.Op = t.Req.Op
}

// Run begins the rule (r is nil), or reports to the rule the outcome of the request with the number
// id. Then it reports the requests that could not be sent because there was no connection.
func (t *Task) Run(id int, r *upstream.Result) {
	if r == nil {
		t.Rule.Begin(t)
	} else {
		t.Open--
		if t.step != nil && !t.step.prepares && !r.Unsent {
			t.step.asked = true
		}
		t.Rule.HandleReply(t, id, r)
	}
	t.CatchUp()
}

// CatchUp reports to the rule the requests that could not be sent because there was no connection.
func (t *Task) CatchUp() {
	for len(t.failed) > 0 {
		f := t.failed[0]
		t.failed = t.failed[1:]
		t.Open--
		t.Rule.HandleReply(t, f.id, &f.Result)
	}
	t.release()
}

// release frees the task's bytes when they are not needed any more.
func (t *Task) release() {
	if t.ClientDone && t.Open == 0 && t.Raw != nil {
		t.hold(-t.held)
		t.Raw = nil
	}
}

// Count counts t and its request against limits.memory, until they are not needed any more.
func (t *Task) Count() { t.hold(TaskSize + len(t.Raw)) }

// hold adds n to the bytes that t counts against limits.memory. n may be negative.
func (t *Task) hold(n int) {
	t.held += n
	t.Loop.Buffers.Hold(n)
}

// TaskSize is the number of bytes that a task counts against limits.memory for itself, its
// rule and its asks, in addition to its request.
const TaskSize = 2 << 10

// Keep returns r, which is then valid after the call that r was passed to, and counts its bytes.
func (t *Task) Keep(r *upstream.Result) upstream.Result {
	if t.Raw != nil { // if Raw is nil, the task is done and its bytes are not counted any more
		t.hold(len(r.Bytes))
	}
	return *r
}

// Forget drops the bytes of r, which Keep has returned.
func (t *Task) Forget(r *upstream.Result) {
	if t.Raw != nil {
		t.hold(-len(r.Bytes))
	}
	r.Bytes = nil
}

// NeedsValue reports whether the value in the reply to the request with the number id is needed.
func (t *Task) NeedsValue(id int) bool {
	rule, ok := t.Rule.(interface{ NeedsValue(t *Task, id int) bool })
	return !ok || rule.NeedsValue(t, id)
}

// AwaitsReply reports whether a client, or the task that t is a step of, waits for the reply to t.
func (t *Task) AwaitsReply() bool {
	return !t.ClientDone && (t.session == nil || !t.session.Abandoned() || t.Route.Near != nil) // other clients may wait for the near cache to store the value
}

// Client returns the number of the client: t is an upstream.Asker.
func (t *Task) Client() uint64 { return t.Asker }

// Answered continues after the request with the number id has ended.
func (t *Task) Answered(id int, r *upstream.Result) {
	t.Loop.Clients.TaskAsks--
	t.Run(id, r)
}

// Ask sends line to srv, and reports the outcome to the rule with the number id. If the client
// has its reply already, the request counts as an internal one.
func (t *Task) Ask(id int, srv *upstream.Server, line []byte) { t.AskAs(t.ClientDone, id, srv, line) }

// AskAs sends line to srv, and reports the outcome to the rule with the number id. internal is
// set for a request that no client waits for.
func (t *Task) AskAs(internal bool, id int, srv *upstream.Server, line []byte) {
	t.Loop.Wire.One(line, &t.Loop.Plain)
	t.AskParsed(t.Limits(), internal, id, srv, line, nil)
}

// AskParsed sends line, which was parsed into Servers.Plain, to srv, and reports the outcome to
// the rule with the number id. internal is set for a request that no client waits for. If seen
// is not nil, the line is sent only to the server process that sent the earlier reply `seen`.
// If that process can't be reached any more, AskParsed sends nothing and returns false. limits are
// the timeouts of the request.
func (t *Task) AskParsed(limits *table.Timeouts, internal bool, id int, srv *upstream.Server, line []byte, seen *upstream.ConnEpoch) bool {
	c, why, o := srv.Pick(t.Asker, internal)
	switch {
	case c == nil:
		t.InjectResult(id, &upstream.Result{Server: srv, Failure: upstream.Failure{Why: why, Outcome: o, Unsent: true}})
		return true
	case seen != nil && !c.IsSameProcess(*seen):
		return false
	case t.Loop.Plain.Op == wire.Bad:
		t.InjectResult(id, c.RejectLine())
		return true
	case srv.RemovesItem(&t.Loop.Plain, line):
		t.InjectResult(id, c.RejectItem())
		return true
	}
	t.Open++
	t.Loop.Clients.TaskAsks++
	t.Loop.AskParsed(c, t, id, limits, line, internal)
	c.Tail.LeavesValue = LeavesValue(&t.Loop.Plain)
	if t.Route.Guard == nil && t.Route.Copies.Copies == 0 { // guards and replicas need the cas in each reply, which an old server does not return to a binary client's request
		c.Tail.Flags |= t.Req.Flags & wire.Binary
	}
	return true
}

// InjectResult makes r the outcome of the ask with the number id, which is not sent. The rule
// gets r next.
func (t *Task) InjectResult(id int, r *upstream.Result) {
	t.Open++
	t.failed = append(t.failed, unsentAsk{id, *r})
}

// Limits returns the timeouts of one request, within the command's remaining time.
func (t *Task) Limits() *table.Timeouts {
	return t.Route.Timeouts.Within(time.Duration(t.Deadline - t.Loop.Now))
}

// Edit is a change to a request: the bytes in With replace those in the span At.
type Edit struct {
	At   wire.Span
	With []byte
}

// WithKey returns the task's request with another key, and with edits. The result may be t.Raw,
// so the caller must not change it.
func (t *Task) WithKey(key []byte, edits ...Edit) []byte {
	if len(edits) == 0 && t.Req.Flags&wire.Base64 == 0 && bytes.Equal(key, t.Req.Key.Of(t.Raw)) {
		return t.Raw[:len(t.Raw):len(t.Raw)]
	}
	return edited(t.Raw, append(edits, Edit{t.Req.Key, t.onWire(key)}))
}

// Rewrite applies edits to the task's request, as if the client had sent the edited request. If memcached
// would not accept the result, Rewrite rejects t and returns false.
func (t *Task) Rewrite(edits ...Edit) bool {
	if len(edits) == 0 {
		return true
	}
	line, binary := edited(t.Raw, edits), t.Req.Flags&wire.Binary
	if !t.Loop.Wire.One(line, &t.Loop.Plain) {
		t.Reject(upstream.UnfitLine)
		return false
	}
	t.Raw, t.Req = line, t.Loop.Plain
	t.Req.Several = nil
	t.Req.Flags |= binary
	return true
}

// edited returns b with edits.
func edited(b []byte, edits []Edit) []byte {
	slices.SortFunc(edits, func(x, y Edit) int { return cmp.Compare(x.At.Start, y.At.Start) })
	size := len(b)
	for _, x := range edits {
		size += len(x.With)
	}
	line := make([]byte, 0, size)
	at := uint32(0)
	for _, x := range edits {
		line = append(append(line, b[at:x.At.Start]...), x.With...)
		at = x.At.End
	}
	return append(line, b[at:]...)
}

// onWire returns key as the request spells it: in base64, or unchanged.
func (t *Task) onWire(key []byte) []byte {
	if t.Req.Flags&wire.Base64 != 0 {
		return base64.StdEncoding.AppendEncode(nil, key)
	}
	return key
}

// OwnTask returns a task without a client: the meta command with this name and flags, which executes op on a key.
func (e *Tasks) OwnTask(rt *routing.Route, op wire.Op, key []byte, hash uint64, command, flags string) *Task {
	t := &Task{Loop: e, ClientLoop: e, ClientDone: true, Route: rt, Op: op, Key: key, Hash: hash}
	t.Deadline = e.Now + int64(rt.Timeouts.Deadline)
	if wire.NeedsBase64(key) {
		t.Req.Flags = wire.Base64
	}
	t.Raw = t.Meta(command, key, flags, nil)
	e.Wire.One(t.Raw, &t.Req)
	return t
}

// Meta returns a meta command on key with flags, and with a data block if body is not nil.
func (t *Task) Meta(command string, key []byte, flags string, body []byte) []byte {
	line := append([]byte(command), ' ')
	if t.Req.Flags&wire.Base64 != 0 {
		line = base64.StdEncoding.AppendEncode(line, key)
	} else {
		line = append(line, key...)
	}
	if body != nil {
		line = strconv.AppendInt(append(line, ' '), int64(len(body)), 10)
	}
	if t.Req.Flags&wire.Base64 != 0 {
		line = append(line, " b"...)
	}
	line = append(append(line, flags...), wire.CRLF...)
	if body != nil {
		line = append(append(line, body...), wire.CRLF...)
	}
	return line
}

// Result returns b as a server's reply to t's own request.
func (t *Task) Result(srv *upstream.Server, b []byte) *upstream.Result {
	r := &upstream.Result{Server: srv}
	r.SetAnswer(t.Op, t.Req.Dialect, b)
	return r
}

// Answer sends the client the reply of a server, with the client's own key in it. token
// converts the server's cas to the client's; nil leaves the cas unchanged. Answer ends the
// task's part of the exchange.
func (t *Task) Answer(r *upstream.Result, token Token) {
	if t.step != nil {
		t.endStep(r, token)
		return
	}
	got, server := r, ""
	if r.Server != nil { // the server object belongs to the loop that runs the task, and the client's loop must not use it
		server = r.Server.Label()
	}
	if t.ClientLoop != t.Loop {
		got = new(*r)
	}
	t.conclude(server, r.Why, func(e *Tasks, x *client.Exchange) (stats.Outcome, int) {
		return t.answerClient(e, x, got, server, token)
	})
}

// answerClient is the part of Answer that runs on the client's loop.
func (t *Task) answerClient(e *Tasks, x *client.Exchange, r *upstream.Result, server string, token func(uint64) uint64) (o stats.Outcome, found int) {
	rep := &r.Reply
	switch {
	case rep.Kind == wire.NoReply:
		x.Fail(t.share, r.Why, r.Outcome)
		return r.Outcome, 0
	case t.instead != nil:
		x.Outcome = stats.ClientFault
		x.Emit(t.instead)
	case r.NoValue: // the client has gone
		x.Hit(t.share)
		x.Outcome = stats.Hit
		return stats.Hit, 0
	case rep.Kind == wire.ServerError && t.Op <= wire.Gats:
		x.FailByServer(t.share, server, string(rep.Line.Of(r.Bytes)))
	case t.Req.Dialect == wire.Text && t.Op <= wire.Gats:
		t.answerRead(e, x, r, token)
	default:
		x.Outcome = stats.OutcomeOf(rep.Kind)
		if t.Op == wire.Get && rep.Kind == wire.Header {
			x.Outcome = stats.Hit
		}
		if !wire.Hidden(t.Op, t.Req.Dialect, x.Flags, rep.Kind) {
			x.Emit(t.forClient(rep, r.Bytes, token))
		}
		return x.Outcome, rep.Body.Len()
	}
	return stats.OutcomeOf(rep.Kind), rep.Body.Len()
}

// answerRead sends the client the value that a text read found.
func (t *Task) answerRead(e *Tasks, x *client.Exchange, r *upstream.Result, token func(uint64) uint64) {
	switch rep := &r.Reply; rep.Kind {
	case wire.Value:
		x.Hit(t.share)
		x.Lookup.FoundText(t.share, rep, r.Bytes)
		block := t.forClient(rep, r.Bytes[:rep.Size], token)
		if x.InOrder != nil && x.Session != nil {
			x.InOrder.Keep(&e.Buffers, string(t.clientKey()), block)
		} else {
			x.Emit(block)
		}
	case wire.End:
	default:
		x.ErrLine = append(x.ErrLine[:0], r.Bytes...)
		x.Outcome = stats.ClientFault
	}
}

// Fail ends the task's part of the exchange with an error.
func (t *Task) Fail(why string, o stats.Outcome) {
	if t.step != nil {
		t.endStep(&upstream.Result{Failure: upstream.Failure{Why: why, Outcome: o, Unsent: !t.step.asked && (t.step.prepares || t.Open == 0)}}, nil)
		return
	}
	t.conclude("", why, func(_ *Tasks, x *client.Exchange) (stats.Outcome, int) {
		x.Fail(t.share, why, o)
		return o, 0
	})
}

// AnswerKind ends the task's part of the exchange with a reply of kind k that Ringside
// makes.
func (t *Task) AnswerKind(k wire.Kind) {
	line := wire.EndLine // of a text read that misses
	if t.Req.Dialect == wire.Meta || t.Op > wire.Gats {
		line = wire.AppendAnswer(nil, t.Raw, &t.Req, k)
	}
	t.Answer(t.Result(nil, line), nil)
}

// Removal reports whether t deletes a key because Ringside has rejected its new value.
func (t *Task) Removal() bool { return t.instead != nil }

// Reject ends the task's part of the exchange with an error line, whatever get_errors says
// of reads that no server could answer.
func (t *Task) Reject(line []byte) {
	if t.step != nil {
		t.endStep(t.Result(nil, line), nil)
		return
	}
	t.conclude("", string(bytes.TrimSpace(line)), func(_ *Tasks, x *client.Exchange) (stats.Outcome, int) {
		x.ErrLine = append(x.ErrLine[:0], line...)
		x.Outcome = stats.ServerFault
		if t.Req.Dialect == wire.Text && x.Flags&wire.Quiet != 0 {
			x.ErrLine = x.ErrLine[:0]
		}
		return x.Outcome, 0
	})
}

// clientKey returns the key in the form of the client. The caller must not change it.
func (t *Task) clientKey() []byte {
	if t.Strip == "" {
		return t.Key
	}
	return []byte(t.Strip + string(t.Key))
}

// forClient returns the reply rep, which has the bytes b, with the client's spelling of the
// key.
func (t *Task) forClient(rep *wire.Reply, b []byte, token func(uint64) uint64) []byte {
	var edits []Edit
	switch named := rep.Key.Of(b); {
	case len(named) == 0:
		if at, ok := t.echo.At(b, rep); ok {
			edits = append(edits, Edit{wire.Span{Start: at, End: at}, t.echo.Text})
		}
	case rep.Letters.Has('b') || rep.Kind == wire.Item && !bytes.HasSuffix(named, t.Key) && !divert.IsReserved(named): // the reply to me has the key in base64, because the item was stored with a base64 key
		edits = append(edits, Edit{rep.Key, base64.StdEncoding.AppendEncode(nil, t.clientKey())})
	case len(t.echo.Text) > 0: // a hashed name needs no base64, but the client's key does
		edits = append(edits, Edit{rep.Key, append(base64.StdEncoding.AppendEncode(nil, t.clientKey()), " b"...)})
	default:
		edits = append(edits, Edit{rep.Key, t.clientKey()})
	}
	if token != nil {
		at := rep.Unique
		if arg, ok := wire.FlagArg(b, rep.MetaFlags, 'c'); ok {
			at = arg
		}
		if at.Len() > 0 {
			if n, err := strconv.ParseUint(string(at.Of(b)), 10, 64); err == nil && n != 0 { // nothing was stored if it is 0
				edits = append(edits, Edit{at, strconv.AppendUint(nil, token(n), 10)})
			}
		}
	}
	if len(edits) == 0 {
		return b
	}
	return edited(b, edits)
}

// AddTo adds the numbers of waiting commands to a snapshot.
func (e *Tasks) AddTo(into *stats.Snapshot) {
	into.Parked += len(e.Parked)
	into.Lines += len(e.Lines)
}
