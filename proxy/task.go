package proxy

// A command that takes several asks: what they have in common.

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"slices"
	"strconv"
	"time"

	"ringside/proxy/wire"
)

// task is a command on one key, or one key of a read of many, that a rule
// leads through several asks: because its server is gone or comes back, or
// because its route keeps copies. It goes on when its client is gone or has
// its answer, until every ask has ended.
//
// Tasks are made where requests are rare or are several anyway, so they may
// allocate. Their bytes count against limits.memory.
type task struct {
	home *Tasks    // where its client is
	x    *Exchange // the home's
	over bool      // the client has its answer
	e    *Tasks    // that leads it: another one, if copies of its key are led there
	rt   *route    // that engine's
	rule rule

	op    wire.Op // of the request
	strip string  // what the servers don't see of the client's key

	client   uint64       // whose asks go in order
	hash     uint64       // of key
	reads    bool         // it changes nothing, so that the client's other reads need not wait
	inLine   bool         // the client's next command on the key waits for it; the home's
	fills    bool         // a backfill of it is at work
	held     int          // bytes, for limits.memory
	raw      []byte       // the request, a copy; nil once nothing needs it
	req      wire.Request // raw, parsed
	echo     wire.KeyEcho // what servers are not asked for and the client gets
	key      []byte       // decoded, without what the route strips
	deadline int64

	waited  string      // for what, if it was parked
	instead []byte      // what the client gets when all went well
	failed  []failedAsk // asks that found no connection, to be told
	open    int         // asks that have not ended
}

// Tasks are the commands of one loop that take several asks, and who waits for
// whom among them.
type Tasks struct {
	*Servers
	clients   *Clients
	listeners map[string]*listener // by network and address, over generations
	leaders   []Leader
	loops     Loops
	post      func(f func(*Tasks)) // runs f on this loop, from any other

	keylines map[lineOf]*keyline
	turns    []*task  // whose turn in a line has come
	parked   []parked // commands that wait for a server's next phase
}

// Leader serves tasks of one kind.
type Leader interface {
	// Lead serves t, whose turn it is, or parks it. It reports false, and has done
	// nothing, if t is not of its kind.
	Lead(t *task) bool
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

// lead lets the first leader whose kind t is serve it, or parks it while it is not
// known who is out.
func (e *Tasks) lead(t *task) {
	if t.x == nil { // Ringside's own: it has its rule, and now its turn
		t.deadline = e.now + int64(t.rt.pool.Timeouts.Deadline)
		t.run(0, nil)
		return
	}
	if t.rt.copies.Copies != 0 {
		if o := e.loops.Owner(t.hash); o != e {
			t.handOver(o)
			return
		}
	}
	if v := t.rt.unknown(); v != nil {
		if e.now >= t.deadline {
			t.fail("the servers have not said yet who of them is in use", Unavailable)
			e.unclaim(t, keyLine(t.hash))
		} else {
			e.park(t, v.Gen)
		}
		return
	}
	for _, l := range e.leaders {
		if l.Lead(t) {
			return
		}
	}
}

// rule leads a task: it asks, is told how each ask ended, and settles.
type rule interface {
	begin(t *task)
	told(t *task, id int, r *Result)
}

type failedAsk struct {
	id int
	Result
}

// newTask makes a task of the request in e.clients.req, for its only key or for one of
// several, which the client wrote as wrote. It takes a part of x.
func (e *Tasks) newTask(x *Exchange, rt *route, raw, wrote, key []byte) *task {
	t := &task{home: e, x: x, e: e, rt: rt, op: e.clients.req.Op, strip: rt.strip, client: x.s.id}
	t.deadline = x.start + int64(rt.pool.Timeouts.Deadline)
	if e.clients.req.NumKeys > 1 {
		command := raw[e.clients.req.Line.Start:e.clients.req.Keys.Start]
		if e.clients.req.Op == wire.Get { // or bget, which not every server knows
			command = []byte("get ")
		}
		t.raw = append(t.raw, command...)
		t.raw = append(append(t.raw, wrote...), wire.LineEnd...)
	} else {
		t.raw = wire.AppendPlain(nil, raw, &e.clients.req)
	}
	e.wire.Next(t.raw, &t.req)
	t.echo = t.req.KeyEcho(t.raw)
	t.key = append([]byte(nil), key[len(rt.strip):]...)
	t.hash = e.loops.HashKey(t.key)
	t.reads = commandOf(t).Reads()
	t.hold(taskSize + len(t.raw))
	x.waiting++
	return t
}

// newRemoval makes a task that deletes key, which the client wrote as wrote,
// and then answers what a storage command that Ringside refuses gets.
func (e *Tasks) newRemoval(x *Exchange, rt *route, wrote, key, instead []byte) *task {
	flags := e.clients.req.Flags & wire.Base64
	line := append([]byte("md "), wrote...)
	if flags != 0 {
		line = append(line, " b"...)
	}
	line = append(line, wire.LineEnd...)
	e.wire.Next(line, &e.clients.req)
	t := e.newTask(x, rt, line, wrote, key)
	t.instead = append([]byte{}, instead...)
	return t
}

// run lets the rule begin (answer nil) or tells it how ask id ended, and then
// of the asks that found no connection meanwhile.
func (t *task) run(id int, r *Result) {
	if r == nil {
		t.rule.begin(t)
	} else {
		t.open--
		t.rule.told(t, id, r)
	}
	t.catchUp()
}

// catchUp tells the rule of asks that found no connection.
func (t *task) catchUp() {
	for len(t.failed) > 0 {
		f := t.failed[0]
		t.failed = t.failed[1:]
		t.open--
		t.rule.told(t, f.id, &f.Result)
	}
	t.release()
}

// release gives up the task's bytes when nothing needs them any more.
func (t *task) release() {
	if t.over && t.open == 0 && t.raw != nil {
		t.hold(-t.held)
		t.raw = nil
	}
}

func (t *task) hold(n int) {
	t.held += n
	t.e.pool.hold(n)
}

// taskSize is what a task takes, with its rule and its asks.
const taskSize = 1 << 10

// keep is an answer beyond the call that brought it.
func (t *task) keep(r *Result) Result {
	kept := *r
	kept.bytes = bytes.Clone(r.bytes)
	if t.raw != nil { // else it has been given up
		t.hold(len(kept.bytes))
	}
	return kept
}

func (t *task) Client() uint64 { return t.client }

func (t *task) Answered(id int, r *Result) { t.run(id, r) }

// ask sends line to srv, and lets the rule have the answer as number id. What
// is asked when the client has its answer is Ringside's own business.
func (t *task) ask(id int, srv *Server, line []byte) { t.askAs(t.over, id, srv, line) }

func (t *task) askAs(internal bool, id int, srv *Server, line []byte) {
	t.open++
	c, why, o := srv.pick(t.client, internal)
	if c == nil {
		t.failed = append(t.failed, failedAsk{id, Result{srv: srv, Failure: Failure{Why: why, Outcome: o, Unsent: true}}})
		return
	}
	limit := t.rt.pool.Timeouts
	if left := time.Duration(t.deadline - t.e.now); left < limit.Deadline {
		limit.Deadline = max(left, time.Millisecond)
	}
	t.e.demand(c, t, id, &limit, line, internal)
	c.tail.leaves = leavesValue(&t.e.plain)
}

// edit is a change to a request: what replaces one of its spans.
type edit struct {
	at   wire.Span
	with []byte
}

// spelled is the task's request with another key and with edits.
func (t *task) spelled(key []byte, edits ...edit) []byte {
	edits = append(edits, edit{t.req.Key, t.onWire(key)})
	slices.SortFunc(edits, func(a, b edit) int { return cmp.Compare(a.at.Start, b.at.Start) })
	var line []byte
	at := uint32(0)
	for _, x := range edits {
		line = append(append(line, t.raw[at:x.at.Start]...), x.with...)
		at = x.at.End
	}
	return append(line, t.raw[at:]...)
}

// onWire is key as the client's dialect writes it.
func (t *task) onWire(key []byte) []byte {
	if t.req.Flags&wire.Base64 != 0 {
		return base64.StdEncoding.AppendEncode(nil, key)
	}
	return key
}

// meta is a meta command on key with flags, and with a data block if body is
// not nil.
func (t *task) meta(command string, key []byte, flags string, body []byte) []byte {
	line := append([]byte(command), ' ')
	if t.req.Flags&wire.Base64 != 0 {
		line = base64.StdEncoding.AppendEncode(line, key)
	} else {
		line = append(line, key...)
	}
	if body != nil {
		line = strconv.AppendInt(append(line, ' '), int64(len(body)), 10)
	}
	if t.req.Flags&wire.Base64 != 0 {
		line = append(line, " b"...)
	}
	line = append(append(line, flags...), wire.LineEnd...)
	if body != nil {
		line = append(append(line, body...), wire.LineEnd...)
	}
	return line
}

// settle gives the client an answer of a server, with the client's own key in
// it and with the cas token that token makes. It ends the task's part of the
// exchange.
func (t *task) settle(r *Result, token func(uint64) uint64) {
	got, server := *r, r.srv.label() // the server is this engine's: the home must not look at it
	if t.home != t.e {
		got.bytes = bytes.Clone(r.bytes)
	}
	t.conclude(func(e *Tasks, x *Exchange) { t.tell(e, x, &got, server, token) })
	t.release()
}

// tell runs on the engine that has the client.
func (t *task) tell(e *Tasks, x *Exchange, r *Result, server string, token func(uint64) uint64) {
	rep := &e.rep
	switch {
	case !r.parsed(t.op, t.req.Dialect, rep):
		x.fail(r.Why, r.Outcome)
	case t.instead != nil:
		x.outcome = ClientFault
		x.emit(nil, t.instead)
	case rep.Kind == wire.ServerError && t.op <= wire.Gats:
		x.fail("server "+server+": "+string(rep.Line.Of(r.bytes)), ServerFault)
	case t.req.Dialect == wire.Text && t.op <= wire.Gats:
		t.tellRead(e, x, r, token)
	default:
		x.outcome = outcomeOf(rep.Kind)
		if t.op == wire.Get && rep.Kind == wire.Header {
			x.outcome = Hit
		}
		if !wire.Hidden(t.op, t.req.Dialect, x.flags, rep.Kind) {
			x.emit(nil, t.forClient(rep, r.bytes, token))
		}
	}
}

// tellRead gives the client the value that a text read found.
func (t *task) tellRead(e *Tasks, x *Exchange, r *Result, token func(uint64) uint64) {
	switch rep := &e.rep; rep.Kind {
	case wire.Value:
		x.hits++
		block := t.forClient(rep, r.bytes[:rep.Size], token)
		if x.order != nil && x.s != nil {
			x.order.keep(&e.pool, t.strip+string(t.key), block)
		} else {
			x.emit(nil, block)
		}
	case wire.End:
	default:
		x.errLine = append(x.errLine[:0], r.bytes...)
		x.outcome = ClientFault
	}
}

// fail ends the task's part of the exchange without an answer.
func (t *task) fail(why string, o Outcome) {
	t.conclude(func(_ *Tasks, x *Exchange) { x.fail(why, o) })
	t.release()
}

// say ends the task's part of the exchange with an answer that Ringside makes.
func (t *task) say(k wire.Kind) {
	var line []byte
	if t.req.Dialect == wire.Meta || t.op > wire.Gats { // else a miss is no line
		line = wire.AppendAnswer(nil, t.raw, &t.req, k)
	}
	t.conclude(func(e *Tasks, x *Exchange) {
		x.outcome = outcomeOf(k)
		if !wire.Hidden(t.op, t.req.Dialect, x.flags, k) {
			x.emit(nil, line)
		}
	})
	t.release()
}

// forClient is the reply rep, whose bytes are b, with the key as the client
// knows it.
func (t *task) forClient(rep *wire.Reply, b []byte, token func(uint64) uint64) []byte {
	var edits []edit
	key, named := []byte(t.strip+string(t.key)), rep.Key.Of(b)
	switch {
	case len(named) == 0:
		if at, ok := t.echo.At(b, rep); ok {
			edits = append(edits, edit{wire.Span{Start: at, End: at}, t.echo.Text})
		}
	case rep.Letters.Has('b') || rep.Kind == wire.Item && !bytes.HasSuffix(named, t.key): // its item was made in base64
		edits = append(edits, edit{rep.Key, base64.StdEncoding.AppendEncode(nil, key)})
	default:
		edits = append(edits, edit{rep.Key, key})
	}
	if token != nil {
		at := rep.Unique
		if arg, ok := wire.FlagArg(b, rep.MetaFlags, 'c'); ok {
			at = arg
		}
		if n, err := strconv.ParseUint(string(at.Of(b)), 10, 64); err == nil {
			edits = append(edits, edit{at, strconv.AppendUint(nil, token(n), 10)})
		}
	}
	slices.SortFunc(edits, func(a, b edit) int { return cmp.Compare(a.at.Start, b.at.Start) })
	var out []byte
	from := uint32(0)
	for _, x := range edits {
		out = append(append(out, b[from:x.at.Start]...), x.with...)
		from = x.at.End
	}
	return append(out, b[from:]...)
}

// addTo adds what waits to what is told of all loops.
func (e *Tasks) addTo(into *Snapshot) {
	into.Parked += len(e.parked)
	into.Lined += len(e.keylines)
}
