package task

// A command that takes several asks: what they have in common.

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"slices"
	"strconv"
	"time"

	"ringside/proxy/client"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/upstream"
	"ringside/proxy/watch/why"
	"ringside/proxy/wire"
)

// Task is a command on one key, or one key of a read of many, that a rule leads
// through several asks. It goes on when its client is gone or has its answer, until
// every ask has ended.
type Task struct {
	ClientLoop *Tasks           // the loop of its client
	x          *client.Exchange // its exchange there; nil: it is Ringside's own, or a step; only ClientLoop may touch it
	step       *step            // of another task: who hears of its answer; nil: it is no step
	ClientDone bool             // the client has the answer; or there is no client
	Loop       *Tasks           // the loop that leads it: another one, if that leads the key
	Route      *routing.Route   // as Loop has it
	Rule       Rule             // leads it; set by a Leader
	leader     Leader           // the one that serves it, which is asked first when t is led again and holds the line of its key; nil: none yet

	Op    wire.Op // of the request
	share int32   // of its exchange: see client.Exchange.Share
	Strip string  // what the servers don't see of the client's key

	course
	Asker    uint64       // number of the client, whose requests go in order
	Hash     uint64       // of Key, for all loops of the process
	reads    bool         // it changes nothing, so that the client's other reads need not wait
	inLine   bool         // the client's next command on the key waits for it; ClientLoop's
	held     int          // bytes that it counts against limits.memory
	Raw      []byte       // the request, a copy; nil once nothing needs it
	Req      wire.Request // Raw, parsed
	echo     wire.KeyEcho // what the client asked to see and servers are not asked for
	Key      []byte       // decoded, without what the route strips
	Deadline int64        // on the loop's clock

	instead []byte      // what the client gets in place of the answer when all went well; nil: the answer
	failed  []unsentAsk // asks that found no connection or have their answer, of which the rule is told next
	Open    int         // asks that have not ended
}

// course is what is known of how a task goes.
type course struct {
	TTL         uint32 // of what it stores or touches, in seconds; 0: for ever
	Invalidated bool   // it has found a value of which a tag was invalidated
	Backfilling bool   // a backfill of Key is at work for it
	AwaitsKept  bool   // it is a read that awaits what another brings to be kept here
	WaitReason  string // what it was parked for; empty: it was not

	Account *why.Account // hears what becomes of Key; nil: nobody asks. Set by Concluding, as Place is
	Place   why.Place    // where Key is
}

// Tasks are the commands of one loop that take several asks, and who waits for
// whom among them.
type Tasks struct {
	*upstream.Servers
	Clients   *client.Clients              // of the same loop
	Listeners map[string]*routing.Listener // by network and address, over generations
	InOrder   []*routing.Listener          // the same, in the order of the table
	Leaders   []Leader                     // asked in this order who serves a task
	Loops     Loops                        // all of the process
	Post      func(f func(*Tasks))         // runs f on this loop, from any other

	// Concluding is told of each task of a client that is about to have its answer, on the
	// loop that leads it: what Ended must know of the task's route it takes along, for that
	// is this loop's.
	Concluding func(t *Task)

	// Ended is told on its client's loop of each task of a client that has its answer: what its key was, how
	// it has ended, and of how many bytes is the value that it found or the request.
	Ended func(t *Task, key []byte, o stats.Outcome, size int)

	Lines    map[Line]*queue // who waits for whom
	Runnable []*Task         // tasks whose turn in a line has come
	Parked   []parkedTask    // commands that wait for a server's next phase
	Later    timers          // what goes on at a time
}

// Leader serves tasks of one kind.
type Leader interface {
	// Lead serves t, whose turn it is, or parks it. It reports false, and has done
	// nothing, if t is not of its kind.
	Lead(t *Task) bool
}

// Loops are the loops of the process.
type Loops interface {
	// Owner is the loop that leads the commands on a key of several copies, by the
	// hash of the key.
	Owner(hash uint64) *Tasks

	// HashKey makes one number of a key, the same for all loops.
	HashKey(key []byte) uint64

	// Count is how many there are, and which of them t is.
	Count(t *Tasks) (n, index int)
}

// lead gives t to the first leader whose kind it is. Before, it goes to the loop that
// leads its key; and it is parked while it is not known which servers are out.
//
// A task that was parked while it holds the line of its key goes on with the leader that
// has taken the line: only that one gives it back. Meanwhile its key may have become one of
// another leader too, as increments of it are buffered by now, or a reload has added a guard.
func (e *Tasks) lead(t *Task) {
	if t.x == nil && t.step == nil { // Ringside's own: it has its rule, and now its turn
		t.Deadline = e.Now + int64(t.Route.Timeouts.Deadline)
		t.Run(0, nil)
		return
	}
	if t.Route.OneLoop() {
		if o := e.Loops.Owner(t.Hash); o != e {
			t.handOver(o)
			return
		}
	}
	if v := t.Route.UnlearnedView(); v != nil {
		if e.Now >= t.Deadline {
			e.refuse(t, "the servers have not said yet who of them is in use")
			e.Unclaim(t, KeyLine(t.Hash))
		} else {
			e.Park(t, t.Deadline, v.Gen)
		}
		return
	}
	if t.leader != nil && e.holdsKey(t) && t.leader.Lead(t) {
		return
	}
	for _, l := range e.Leaders {
		if l.Lead(t) {
			t.leader = l
			return
		}
	}
}

// refuse ends a task that no leader has been asked to serve.
func (e *Tasks) refuse(t *Task, why string) {
	for _, l := range e.Leaders {
		if w, ok := l.(interface{ Refused(t *Task) }); ok {
			w.Refused(t)
		}
	}
	t.Fail(why, stats.Unavailable)
}

// Rule leads a task: it asks, is told how each ask ended, and answers.
type Rule interface {
	// Begin asks first.
	Begin(t *Task)

	// Told is told how the ask with the number id ended. r is valid during the call.
	Told(t *Task, id int, r *upstream.Result)
}

// unsentAsk is an ask that found no connection, or whose answer was there.
type unsentAsk struct {
	id int
	upstream.Result
}

// NewTask makes a task of the request in Clients.Req, for its only key or for one of
// several: key, decoded, which the client wrote as wrote. It is a part of x, of that
// share.
func (e *Tasks) NewTask(x *client.Exchange, share int32, rt *routing.Route, raw, wrote, key []byte) *Task {
	t := &Task{ClientLoop: e, x: x, share: share, Loop: e, Route: rt, Op: e.Clients.Req.Op, Strip: rt.Strip, Asker: x.Session.ID}
	t.Deadline = x.Start + int64(rt.Timeouts.Deadline)
	if e.Clients.Req.NumKeys > 1 {
		command := raw[e.Clients.Req.Line.Start:e.Clients.Req.Keys.Start]
		if e.Clients.Req.Op == wire.Get { // it may be a bget, which not every server knows
			command = []byte("get ")
		}
		t.Raw = append(t.Raw, command...)
		t.Raw = append(append(t.Raw, wrote...), wire.CRLF...)
	} else {
		t.Raw = wire.AppendPlain(make([]byte, 0, len(raw)+len(wire.CRLF)), raw, &e.Clients.Req)
	}
	e.Wire.Next(t.Raw, &t.Req)
	t.Req.Flags |= e.Clients.Req.Flags & wire.Binary
	t.echo = t.Req.KeyEcho(t.Raw)
	t.Key = append([]byte(nil), key[len(rt.Strip):]...)
	t.Hash = e.Loops.HashKey(t.Key)
	t.reads = CommandOf(t).Reads()
	t.Count()
	x.Waiting++
	return t
}

// NewRemoval makes a task that deletes key, which the client wrote as wrote,
// and then answers what a storage command that Ringside refuses gets.
func (e *Tasks) NewRemoval(x *client.Exchange, rt *routing.Route, wrote, key, instead []byte) *Task {
	flags := e.Clients.Req.Flags & wire.Base64
	line := append([]byte("md "), wrote...)
	if flags != 0 {
		line = append(line, " b"...)
	}
	line = append(line, wire.CRLF...)
	e.Wire.Next(line, &e.Clients.Req)
	t := e.NewTask(x, 0, rt, line, wrote, key)
	t.instead = append([]byte{}, instead...)
	return t
}

// Refuse makes t a task that deletes its key and then says why.
func (t *Task) Refuse(why string) {
	t.instead = wire.AppendClientError(nil, why)
	t.Raw = t.Meta("md", t.Key, "", nil)
	t.Loop.Wire.Next(t.Raw, &t.Req)
	t.Op = t.Req.Op
}

// Run lets the rule begin (r is nil) or tells it how ask id ended, and then of the
// asks that found no connection meanwhile.
func (t *Task) Run(id int, r *upstream.Result) {
	if r == nil {
		t.Rule.Begin(t)
	} else {
		t.Open--
		t.Rule.Told(t, id, r)
	}
	t.CatchUp()
}

// CatchUp tells the rule of asks that found no connection.
func (t *Task) CatchUp() {
	for len(t.failed) > 0 {
		f := t.failed[0]
		t.failed = t.failed[1:]
		t.Open--
		t.Rule.Told(t, f.id, &f.Result)
	}
	t.release()
}

// release gives up the task's bytes when nothing needs them any more.
func (t *Task) release() {
	if t.ClientDone && t.Open == 0 && t.Raw != nil {
		t.hold(-t.held)
		t.Raw = nil
	}
}

// Count counts t and its request against limits.memory, until nothing needs them any more.
func (t *Task) Count() { t.hold(TaskSize + len(t.Raw)) }

// hold counts n more bytes, or fewer.
func (t *Task) hold(n int) {
	t.held += n
	t.Loop.Buffers.Hold(n)
}

// TaskSize is what a task counts against limits.memory, with its rule and its asks,
// beside its request.
const TaskSize = 2 << 10

// Keep is a copy of r that stays valid when the call that brought it has ended.
func (t *Task) Keep(r *upstream.Result) upstream.Result {
	kept := *r
	kept.Bytes = bytes.Clone(r.Bytes)
	if t.Raw != nil { // else nothing is counted for it any more
		t.hold(len(kept.Bytes))
	}
	return kept
}

// Client is the number of the client: t is an upstream.Asker.
func (t *Task) Client() uint64 { return t.Asker }

// Answered goes on with what came of an ask.
func (t *Task) Answered(id int, r *upstream.Result) { t.Run(id, r) }

// Ask sends line to srv, and tells the rule what comes of it as number id. When the
// client has its answer, what is asked is Ringside's own.
func (t *Task) Ask(id int, srv *upstream.Server, line []byte) { t.AskAs(t.ClientDone, id, srv, line) }

// AskAs is Ask of Ringside's own (internal), or of the client's.
func (t *Task) AskAs(internal bool, id int, srv *upstream.Server, line []byte) {
	t.Loop.Wire.Next(line, &t.Loop.Plain)
	t.AskParsed(internal, id, srv, line, nil)
}

// AskParsed is AskAs for a line that has been parsed into Servers.Plain. Where it is about what
// an answer has told it must reach the process which that came from: seen is its way, or nil.
// It reports false, and has not sent the line, if that is not so.
func (t *Task) AskParsed(internal bool, id int, srv *upstream.Server, line []byte, seen *upstream.Via) bool {
	c, why, o := srv.Pick(t.Asker, internal)
	switch {
	case c == nil:
		t.Knows(id, &upstream.Result{Server: srv, Failure: upstream.Failure{Why: why, Outcome: o, Unsent: true}})
		return true
	case seen != nil && !c.Reaches(*seen):
		return false
	}
	t.Open++
	if t.step != nil {
		t.step.asked = true
	}
	t.Loop.AskParsed(c, t, id, t.Limits(), line, internal)
	c.Tail.LeavesValue = LeavesValue(&t.Loop.Plain) && !t.counts()
	if t.Route.Guard == nil && t.Route.Copies.Copies == 0 { // else a rule goes by the cas that an old server does not tell
		c.Tail.Flags |= t.Req.Flags & wire.Binary
	}
	return true
}

// Knows tells the rule r, next, as what has come of ask id, which was not sent.
func (t *Task) Knows(id int, r *upstream.Result) {
	t.Open++
	t.failed = append(t.failed, unsentAsk{id, *r})
}

// Limits is what is left for an ask of the time that the command may take.
func (t *Task) Limits() *table.Timeouts {
	return t.Route.Timeouts.Within(time.Duration(t.Deadline - t.Loop.Now))
}

// Edit is a change to a request: what replaces one of its spans.
type Edit struct {
	At   wire.Span
	With []byte
}

// WithKey is the task's request with another key, and with edits. It may be the request
// itself.
func (t *Task) WithKey(key []byte, edits ...Edit) []byte {
	if len(edits) == 0 && t.Req.Flags&wire.Base64 == 0 && bytes.Equal(key, t.Req.Key.Of(t.Raw)) {
		return t.Raw[:len(t.Raw):len(t.Raw)]
	}
	return t.edited(append(edits, Edit{t.Req.Key, t.onWire(key)}))
}

// Rewrite makes edits to the request itself, as if the client had sent it so.
func (t *Task) Rewrite(edits ...Edit) {
	if len(edits) == 0 {
		return
	}
	t.Raw = t.edited(edits)
	binary := t.Req.Flags & wire.Binary
	t.Loop.Wire.Next(t.Raw, &t.Req)
	t.Req.Flags |= binary
}

func (t *Task) edited(edits []Edit) []byte {
	slices.SortFunc(edits, func(a, b Edit) int { return cmp.Compare(a.At.Start, b.At.Start) })
	size := len(t.Raw)
	for _, x := range edits {
		size += len(x.With)
	}
	line := make([]byte, 0, size)
	at := uint32(0)
	for _, x := range edits {
		line = append(append(line, t.Raw[at:x.At.Start]...), x.With...)
		at = x.At.End
	}
	return append(line, t.Raw[at:]...)
}

// onWire is key as the request writes it: in base64, or as it is.
func (t *Task) onWire(key []byte) []byte {
	if t.Req.Flags&wire.Base64 != 0 {
		return base64.StdEncoding.AppendEncode(nil, key)
	}
	return key
}

// Meta is a meta command on key with flags, and with a data block if body is
// not nil.
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

// Result is b as a server's answer to t's own request.
func (t *Task) Result(srv *upstream.Server, b []byte) *upstream.Result {
	r := &upstream.Result{Server: srv}
	r.SetAnswer(t.Op, t.Req.Dialect, b)
	return r
}

// Answer gives the client the answer of a server, with the client's own key in it
// and with the cas token that token makes of the server's; nil leaves it as it is. It
// ends the task's part of the exchange.
func (t *Task) Answer(r *upstream.Result, token Token) {
	if t.step != nil {
		t.endStep(r, token)
		return
	}
	got, server := *r, ""
	if r.Server != nil { // it is this loop's: the client's must not look at it
		server = r.Server.Label()
	}
	if t.ClientLoop != t.Loop {
		got.Bytes = bytes.Clone(r.Bytes)
	}
	t.conclude(server, r.Why, func(e *Tasks, x *client.Exchange) (stats.Outcome, int) {
		return t.answerClient(e, x, &got, server, token)
	})
	t.release()
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
		x.Emit(nil, t.instead)
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
			x.Emit(nil, t.forClient(rep, r.Bytes, token))
		}
		return x.Outcome, rep.Body.Len()
	}
	return stats.OutcomeOf(rep.Kind), rep.Body.Len()
}

// answerRead gives the client the value that a text read found.
func (t *Task) answerRead(e *Tasks, x *client.Exchange, r *upstream.Result, token func(uint64) uint64) {
	switch rep := &r.Reply; rep.Kind {
	case wire.Value:
		x.Hit(t.share)
		x.Stake.FoundText(t.share, rep, r.Bytes)
		block := t.forClient(rep, r.Bytes[:rep.Size], token)
		if x.InOrder != nil && x.Session != nil {
			x.InOrder.Keep(&e.Buffers, t.Strip+string(t.Key), block)
		} else {
			x.Emit(nil, block)
		}
	case wire.End:
	default:
		x.ErrLine = append(x.ErrLine[:0], r.Bytes...)
		x.Outcome = stats.ClientFault
	}
}

// Fail ends the task's part of the exchange without an answer.
func (t *Task) Fail(why string, o stats.Outcome) {
	if t.step != nil {
		t.endStep(&upstream.Result{Failure: upstream.Failure{Why: why, Outcome: o, Unsent: !t.step.asked}}, nil)
		return
	}
	t.conclude("", why, func(_ *Tasks, x *client.Exchange) (stats.Outcome, int) {
		x.Fail(t.share, why, o)
		return o, 0
	})
	t.release()
}

// AnswerKind ends the task's part of the exchange with an answer of kind k that
// Ringside makes.
func (t *Task) AnswerKind(k wire.Kind) {
	var line []byte
	if t.instead == nil && (t.Req.Dialect == wire.Meta || t.Op > wire.Gats) { // a miss of a text read has no line
		line = wire.AppendAnswer(nil, t.Raw, &t.Req, k)
	}
	if t.step != nil {
		if line == nil { // else it would pass for a step without an answer
			line = wire.EndLine
		}
		t.endStep(t.Result(nil, line), nil)
		return
	}
	t.conclude("", "", func(e *Tasks, x *client.Exchange) (stats.Outcome, int) {
		if t.instead != nil {
			x.Outcome = stats.ClientFault
			x.Emit(nil, t.instead)
			return x.Outcome, 0
		}
		x.Outcome = stats.OutcomeOf(k)
		if !wire.Hidden(t.Op, t.Req.Dialect, x.Flags, k) {
			x.Emit(nil, line)
		}
		return x.Outcome, 0
	})
	t.release()
}

// Removal says that t deletes a key whose new value Ringside has refused.
func (t *Task) Removal() bool { return t.instead != nil }

// Reject ends the task's part of the exchange with an error line, whatever is to
// be said of a read that no server could answer.
func (t *Task) Reject(line []byte) {
	t.conclude("", string(bytes.TrimSpace(line)), func(_ *Tasks, x *client.Exchange) (stats.Outcome, int) {
		x.ErrLine = append(x.ErrLine[:0], line...)
		x.Outcome = stats.ServerFault
		if t.Req.Dialect == wire.Text && x.Flags&wire.Quiet != 0 {
			x.ErrLine = x.ErrLine[:0]
		}
		return x.Outcome, 0
	})
	t.release()
}

// forClient is the reply rep, whose bytes are b, with the key as the client
// knows it.
func (t *Task) forClient(rep *wire.Reply, b []byte, token func(uint64) uint64) []byte {
	var edits []Edit
	key, named := []byte(t.Strip+string(t.Key)), rep.Key.Of(b)
	switch {
	case len(named) == 0:
		if at, ok := t.echo.At(b, rep); ok {
			edits = append(edits, Edit{wire.Span{Start: at, End: at}, t.echo.Text})
		}
	case rep.Letters.Has('b') || rep.Kind == wire.Item && !bytes.HasSuffix(named, t.Key): // its item was made in base64
		edits = append(edits, Edit{rep.Key, base64.StdEncoding.AppendEncode(nil, key)})
	default:
		edits = append(edits, Edit{rep.Key, key})
	}
	if token != nil {
		at := rep.Unique
		if arg, ok := wire.FlagArg(b, rep.MetaFlags, 'c'); ok {
			at = arg
		}
		if at.Len() > 0 {
			if n, err := strconv.ParseUint(string(at.Of(b)), 10, 64); err == nil {
				edits = append(edits, Edit{at, strconv.AppendUint(nil, token(n), 10)})
			}
		}
	}
	if len(edits) == 0 {
		return b
	}
	slices.SortFunc(edits, func(a, b Edit) int { return cmp.Compare(a.At.Start, b.At.Start) })
	var out []byte
	from := uint32(0)
	for _, x := range edits {
		out = append(append(out, b[from:x.At.Start]...), x.With...)
		from = x.At.End
	}
	return append(out, b[from:]...)
}

// AddTo adds what waits to what is told of all loops.
func (e *Tasks) AddTo(into *stats.Snapshot) {
	into.Parked += len(e.Parked)
	into.Lines += len(e.Lines)
}
