package counters

// This file implements buffered increments: one request to the server carries many increments.

import (
	"bytes"
	"container/heap"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"time"

	"ringside/proxy/link"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// sum has the increments of one counter since they were last sent to its server.
type sum struct {
	id       string         // the key of this sum in Counters.sums
	key      []byte         // the key, as servers know it
	hash     uint64         // hash of key
	route    *routing.Route // the route of the last command on the counter; set by setRoute
	listener string         // network and address of the listener of that route
	client   []byte         // the key, as clients of that route know it

	warm     bool   // the value in the field known is from a reply of the server that is younger than the interval
	known    uint64 // the counter's value in the last reply of the server
	inFlight uint64 // increments that were sent, and have no reply so far
	pending  uint64 // the sum of the buffered increments, which were not sent yet; inFlight is not included
	counted  uint64 // number of commands with an increment in pending
	since    int64  // when the first increment in pending arrived
	at       int64  // when pending is sent to the server; if pending is 0, the sum is dropped then
	index    int    // index of this sum in Counters.schedule; -1: the sum is not in it

	ending  bool         // the route no longer buffers this key: the increments are sent, and the sum is dropped
	readers int          // number of reads in progress
	alone   bool         // true while a command runs that must run alone, or while the increments are being sent
	queue   []*task.Task // commands that wait for the running ones on the key
}

const (
	// sumSize is the size that counts against limits.memory for a sum, in addition to its key.
	sumSize = 512

	// maxWaiting is the maximum number of commands that wait for one sum.
	maxWaiting = 1000

	// most is the size of a sum from which the sum is sent to the server at once.
	most = 1 << 63
)

// schedule is a heap of sums by the time at which they are sent (sum.at), earliest first.
type schedule []*sum

func (s schedule) Len() int { return len(s) }

func (s schedule) Less(i, j int) bool { return s[i].at < s[j].at }

func (s schedule) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].index, s[j].index = i, j
}

func (s *schedule) Push(x any) {
	x.(*sum).index = len(*s)
	*s = append(*s, x.(*sum))
}

func (s *schedule) Pop() any {
	last := len(*s) - 1
	x := (*s)[last]
	x.index = -1
	(*s)[last] = nil
	*s = (*s)[:last]
	return x
}

// leadBuffered handles t on a route with a buffer. It returns false if t is no increment that
// can be buffered, and no increments of its key are.
func (e *Counters) leadBuffered(t *task.Task) bool {
	id := t.Route.Pool.ID + " " + string(t.Key)
	s := e.sums[id]
	adds := t.Op == wire.Incr && Counts(&t.Req) && t.Req.Letters&^plainLetters == 0
	switch {
	case s == nil && (!adds || len(e.sums) >= e.room(t.Route)):
		return false
	case s == nil:
		s = e.newSum(id, t)
	}
	if s.ending = false; s.route != t.Route { // another route leads to the same counter, or a reload has replaced the route
		s.setRoute(t)
	}
	reads := t.Op == wire.Get && t.Req.Letters&^readLetters == 0
	switch {
	case e.Now >= t.Deadline:
		t.Fail(task.TooLong, stats.TimedOut)
		e.release(s)
	case adds && s.warm && s.pending < most:
		s.add(e, t)
	case s.alone || !reads && s.readers > 0 || reads && s.pending > 0 && s.at <= e.Now+busyLook: // t waits for running commands, or it is a read and the buffered increments are due, so they are sent before more reads
		if len(s.queue) >= maxWaiting {
			t.Fail("too many commands wait on this key", stats.QueueFull)
			return true
		}
		s.queue = append(s.queue, t)
	case reads:
		s.read(e, t)
	case adds && s.pending == 0:
		s.ask(e, t)
	case t.Op == wire.Set && !t.Req.Letters.Has('I') || t.Op == wire.Delete && !t.Req.Letters.Has('C') && !t.Req.Letters.Has('I'):
		e.lose(s, stats.LostOverwritten, s.pending)
		s.pending, s.counted = 0, 0
		s.pass(e, t)
	case s.pending > 0:
		s.alone = true
		s.flush(e, func() { s.pass(e, t) })
	default:
		s.pass(e, t)
	}
	return true
}

var (
	// plainLetters are the flags of an ma that only affect the delta and the reply.
	plainLetters = lettersOf("DMvqOkb")

	// readLetters are the flags of an mg that a buffer supports: to the number in the reply,
	// the buffered increments are added.
	readLetters = lettersOf("vfkqOb")
)

func lettersOf(text string) (l wire.Letters) {
	for _, c := range text {
		l |= 1 << (c - 'A')
	}
	return l
}

// room returns how many sums this loop may have for a route.
func (e *Counters) room(rt *routing.Route) int {
	n, _ := e.Loops.Count(e.Tasks)
	return max(1, rt.Buffer.Keys/n)
}

func (e *Counters) newSum(id string, t *task.Task) *sum {
	s := &sum{id: id, key: bytes.Clone(t.Key), hash: t.Hash, index: -1}
	s.setRoute(t)
	if e.sums == nil {
		e.sums = map[string]*sum{}
	}
	e.sums[id] = s
	e.Buffers.Hold(sumSize + 3*len(id))
	return s
}

// forget drops s. All its increments must have been sent, and no command may wait for it.
func (e *Counters) forget(s *sum) {
	delete(e.sums, s.id)
	e.Buffers.Hold(-sumSize - 3*len(s.id))
	if s.index >= 0 {
		heap.Remove(&e.schedule, s.index)
	}
}

// add adds the increment of t to the sum.
func (s *sum) add(e *Counters, t *task.Task) {
	if s.pending == 0 {
		s.since = e.Now
	}
	s.pending += t.Delta()
	s.counted++
	e.Count.Buffer.Increments++
	if e.Draining || s.pending >= most {
		e.plan(s, e.Now)
	}
	shown := s.known
	if !s.route.Buffer.Last {
		shown += s.inFlight + s.pending
	}
	number := append(strconv.AppendUint(nil, shown, 10), wire.CRLF...)
	if t.Req.Dialect == wire.Meta {
		number = wire.AppendAsMeta(nil, t.Raw, &t.Req, wire.Incr, number)
	}
	t.Answer(t.Result(nil, number), nil)
}

// ask sends t to the server. The number in the reply is the known value of the counter from
// then on.
func (s *sum) ask(e *Counters, t *task.Task) {
	s.alone = true
	e.count(t, false, func(r *upstream.Result, token task.Token) {
		s.alone = false
		if n, ok := numberIn(r); ok {
			s.known, s.warm = n, true
			e.plan(s, e.Now+s.interval())
		}
		t.Answer(r, token)
		e.release(s)
	})
}

// numberIn returns the number in the reply to an increment or decrement.
func numberIn(r *upstream.Result) (n uint64, ok bool) {
	var text []byte
	switch r.Reply.Kind {
	case wire.Value:
		text = r.Reply.Body.Of(r.Bytes)
	case wire.Number:
		text = r.Reply.Line.Of(r.Bytes)
	}
	n, err := strconv.ParseUint(string(bytes.TrimRight(text, " ")), 10, 64)
	return n, err == nil
}

// read handles the read t: the reply is the server's value plus pending.
func (s *sum) read(e *Counters, t *task.Task) {
	s.readers++
	t.Step(t.Raw, func(r *upstream.Result, token task.Token) {
		s.readers--
		t.Answer(withSum(t, r, s.pending), token)
		e.release(s)
	})
}

// withSum returns the reply r to the read t. It adds the parameter `more` to the number in that
// reply.
func withSum(t *task.Task, r *upstream.Result, more uint64) *upstream.Result {
	rep := &r.Reply
	if more == 0 || rep.Kind != wire.Value {
		return r
	}
	n, err := strconv.ParseUint(string(bytes.TrimRight(rep.Body.Of(r.Bytes), " ")), 10, 64)
	if err != nil { // the value is not a number
		return r
	}
	number := strconv.AppendUint(nil, n+more, 10)
	words := bytes.Split(rep.Line.Of(r.Bytes), []byte(" "))
	at := 1 // index of the size in the words of a VA line
	if t.Req.Dialect == wire.Text {
		at = 3 // index of the size in the words of a VALUE line
	}
	words[at] = strconv.AppendInt(nil, int64(len(number)), 10)
	out := append(bytes.Join(words, []byte(" ")), wire.CRLF...)
	return t.Result(r.Server, append(append(out, number...), r.Bytes[rep.Body.End:]...))
}

// pass sends t to the server. The known value is dropped, because t may change the counter in
// any way.
func (s *sum) pass(e *Counters, t *task.Task) {
	s.alone, s.warm = true, false // while t runs, no increments are buffered: they wait in s.queue
	then := func(r *upstream.Result, token task.Token) {
		s.alone = false
		t.Answer(r, token)
		e.release(s)
	}
	if Counts(&t.Req) {
		e.count(t, false, then)
	} else {
		t.Step(t.Raw, then)
	}
}

// release starts the commands that wait for s, and removes s if it is not needed any more.
func (e *Counters) release(s *sum) {
	switch {
	case s.alone || s.readers > 0:
	case len(s.queue) > 0:
		e.Runnable = append(e.Runnable, s.queue...) // the commands start in the order in which they have waited
		s.queue = nil
		e.Wake()
	case !s.warm && s.pending == 0:
		e.forget(s)
	}
}

// plan sets the time at which the sum s is sent next.
func (e *Counters) plan(s *sum, at int64) {
	if s.at = at; s.index < 0 {
		heap.Push(&e.schedule, s)
	} else {
		heap.Fix(&e.schedule, s.index)
	}
	e.At(link.CounterTimer, e.schedule[0].at)
}

// interval returns the time after which s is sent again. It differs from the route's value by up
// to a tenth, so that not all sums are sent at once.
func (s *sum) interval() int64 {
	every := int64(s.route.Buffer.Every)
	return every + every*(int64(s.hash%201)-100)/1000
}

// busyLook is the time between two checks of a sum that is due, while a command on its key is
// in progress.
const busyLook = int64(time.Millisecond)

// Flush sends the buffered increments that are due to their servers.
func (e *Counters) Flush() {
	var busy []*sum
	for len(e.schedule) > 0 && e.schedule[0].at <= e.Now {
		s := heap.Pop(&e.schedule).(*sum)
		switch {
		case s.alone || s.readers > 0:
			busy = append(busy, s)
		case s.pending == 0:
			s.warm = false
			e.release(s)
		default:
			s.alone = true
			s.flush(e, func() {
				s.alone = false
				if s.warm || s.pending > 0 {
					e.plan(s, e.Now+s.interval())
				}
				e.release(s)
			})
		}
	}
	for _, s := range busy {
		e.plan(s, e.Now+busyLook)
	}
	if len(e.schedule) > 0 {
		e.At(link.CounterTimer, e.schedule[0].at)
	}
}

// setRoute makes the route of t the one by which the increments are sent.
func (s *sum) setRoute(t *task.Task) {
	s.route, s.listener, s.client = t.Route, t.Route.Listener, []byte(t.Route.Strip+string(t.Key))
}

// flush sends the increments to the server, and then calls the function `then`. A request that may
// have reached the server is never sent again, because it may have counted.
func (s *sum) flush(e *Counters, then func()) {
	counted, since := s.counted, s.since
	s.inFlight, s.pending, s.counted = s.pending, 0, 0
	f := &task.Task{Loop: e.Tasks, ClientLoop: e.Tasks, ClientDone: true, Route: s.route, Op: wire.Incr, Key: s.key, Hash: s.hash}
	f.Deadline = e.Now + int64(s.route.Timeouts.Deadline)
	if !wire.PlainKey(f.Key) {
		f.Req.Flags = wire.Base64
	}
	f.Raw = f.Meta("ma", f.Key, " v D"+strconv.FormatUint(s.inFlight, 10), nil)
	e.Wire.Next(f.Raw, &f.Req)
	e.count(f, false, func(r *upstream.Result, _ task.Token) {
		n, ok := numberIn(r)
		told := s.inFlight
		s.inFlight = 0
		switch {
		case ok:
			s.known, s.warm = n, true
			e.Count.Buffer.Flushes++
			e.Count.Buffer.Flushed += counted
		case r.Bytes == nil && r.Unsent && e.Now-since < int64(s.route.Buffer.Keep) && !e.Draining:
			s.pending += told
			s.counted += counted
			s.since = since
		case r.Bytes == nil && r.Unsent:
			s.warm = false
			e.lose(s, stats.LostUnreachable, told)
		case r.Bytes == nil:
			s.known += told
			e.lose(s, stats.LostUnsure, told)
		default: // the key is gone, or the value of the counter is not a number
			s.warm = false
			e.lose(s, stats.LostMissing, told)
		}
		s.warm = s.warm && !s.ending
		then()
	})
}

// lose counts n increments that are lost for the reason why: no server has received them, or it is
// unknown whether one has.
func (e *Counters) lose(s *sum, why stats.LostCount, n uint64) {
	if n > 0 {
		e.Count.Buffer.Lost[why] += n
		e.LogLimited(slog.LevelWarn, why.String(), "buffered increments lost", "key", string(s.client), "sum", n, "why", why.String())
	}
}

// FlushAll makes all sums due, and from then on every new increment, because the process ends.
func (e *Counters) FlushAll() {
	e.Draining = true
	for _, id := range slices.Sorted(maps.Keys(e.sums)) { // sorted, so that the same events always cause the same requests
		e.plan(e.sums[id], e.Now)
	}
}

// Owing reports whether there are increments that a server has not confirmed.
func (e *Counters) Owing() bool {
	for _, s := range e.sums {
		if s.pending > 0 || s.inFlight > 0 {
			return true
		}
	}
	return false
}

// Rebind assigns the routes of a new table to the sums. If the key of a sum is no longer buffered,
// the sum is sent at once.
func (e *Counters) Rebind() {
	for _, id := range slices.Sorted(maps.Keys(e.sums)) {
		s := e.sums[id]
		var rt *routing.Route
		if l := e.Listeners[s.listener]; l != nil {
			rt = l.Fitting(s.client)
		}
		if rt == nil || rt.Buffer == nil || len(s.client) <= len(rt.Strip) || !bytes.Equal(s.client[len(rt.Strip):], s.key) {
			s.ending, s.warm = true, false
			e.plan(s, e.Now) // the increments are sent by the old route of s
			continue
		}
		s.route = rt
	}
}

// AddTo adds the buffered increments to the snapshot of all loops.
func (e *Counters) AddTo(into *stats.Snapshot) {
	into.BufferKeys += len(e.sums)
	for _, s := range e.sums {
		into.BufferPending += s.pending + s.inFlight
	}
}
