package counters

// This file implements buffered increments: one request to the server carries many increments.

import (
	"bytes"
	"log/slog"
	"maps"
	"slices"
	"strconv"

	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// sum is a counter with buffered increments.
type sum struct {
	buffered
	id    string         // the key of this sum in Counters.sums
	key   []byte         // the key, as servers know it
	hash  uint64         // hash of key
	route *routing.Route // the route of the last command on the counter, by which the increments are sent

	at    int64        // when the sum is due; 0: no timer is set
	queue []*task.Task // commands that wait for the requests in progress
}

const (
	// sumSize is the size that counts against limits.memory for a sum, in addition to its key.
	sumSize = 512

	// maxWaiting is the maximum number of commands that wait for one sum.
	maxWaiting = 1000
)

// leadBuffered handles t on a route with a buffer. It returns false if t is no increment that
// can be buffered, and no increments of its key are.
func (e *Counters) leadBuffered(t *task.Task) bool {
	id := t.Route.Pool.ID + " " + string(t.Key)
	s, c := e.sums[id], classOf(t)
	switch {
	case s == nil && (c != adds || len(e.sums) >= e.room(t.Route)):
		return false
	case s == nil:
		s = e.newSum(id, t)
	default:
		s.route = t.Route // another route may lead to the same counter, or a reload may have replaced the route
	}
	if e.Now >= t.Deadline {
		t.Fail(task.TooLong, stats.TimedOut)
		e.release(s)
		return true
	}
	switch s.arrive(c, t.Delta(), e.Now) {
	case reply:
		e.reply(s, t)
	case send:
		e.send(s, t, c)
	case sendSum:
		e.sendSum(s, t, c)
	default:
		if len(s.queue) >= maxWaiting {
			t.Fail("too many commands wait on this key", stats.QueueFull)
			return true
		}
		s.queue = append(s.queue, t)
	}
	return true
}

// classOf returns the class of t's command.
func classOf(t *task.Task) class {
	has := t.Req.Letters.Has
	switch {
	case t.Op == wire.Incr && Counts(&t.Req) && t.Req.Letters&^plainLetters == 0 && !t.Req.LongOpaque(): // the server rejects a long opaque, but counts
		return adds
	case t.Op == wire.Get && t.Req.Letters&^readLetters == 0:
		return reads
	case (t.Op == wire.Set || t.Op == wire.Delete && !has('C')) && !has('I'):
		return replaces
	}
	return exact
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
	s := &sum{id: id, key: bytes.Clone(t.Key), hash: t.Hash, route: t.Route}
	if e.sums == nil {
		e.sums = map[string]*sum{}
	}
	e.sums[id] = s
	e.Buffers.Hold(sumSize + 3*len(id))
	return s
}

// reply answers t, an increment that was buffered.
func (e *Counters) reply(s *sum, t *task.Task) {
	e.Count.Buffer.Increments++
	if e.Draining {
		e.plan(s, e.Now)
	}
	t.Answer(t.Result(nil, numberReply(t, s.shown(s.route.Buffer.Last))), nil)
}

// numberReply returns the reply to the incr or decr t with the number n.
func numberReply(t *task.Task, n uint64) []byte {
	line := append(strconv.AppendUint(nil, n, 10), wire.CRLF...)
	if t.Req.Dialect == wire.Meta {
		line = wire.AppendAsMeta(nil, t.Raw, &t.Req, wire.Incr, line)
	}
	return line
}

// send sends t, a command of the class c.
func (e *Counters) send(s *sum, t *task.Task, c class) {
	then := func(r *upstream.Result, token task.Token) {
		o, n := outcomeOf(r)
		if c != reads {
			e.lose(s, stats.LostOverwritten, s.ended(c, o, n))
		} else if more := s.read(); more > 0 && o == counted {
			r = withNumber(t, r, n+more)
		}
		t.Answer(r, token)
		e.release(s)
	}
	if Counts(&t.Req) {
		e.count(t, false, then)
	} else {
		t.Step(t.Raw, then)
	}
}

// outcomeOf returns the outcome of a request with the result r, and the number in the reply.
func outcomeOf(r *upstream.Result) (o outcome, n uint64) {
	text := r.Reply.Body.Of(r.Bytes)
	if r.Reply.Kind == wire.Number {
		text = r.Reply.Line.Of(r.Bytes)
	}
	n, err := strconv.ParseUint(string(bytes.TrimRight(text, " ")), 10, 64)
	switch {
	case err == nil:
		o = counted
	case r.Bytes == nil && r.Unsent:
		o = unsent
	case r.Bytes == nil:
		o = inDoubt
	case r.Unsent: // Ringside itself has rejected a value that is too large for the server: see upstream.Conn.RejectItem
		o = rejected
	case r.Reply.Kind == wire.NotStored || r.Reply.Kind == wire.Error || r.Reply.Kind == wire.ClientError:
		o = rejected
	}
	return o, n
}

// withNumber returns the reply r to the read t with the number n as its value.
func withNumber(t *task.Task, r *upstream.Result, n uint64) *upstream.Result {
	rep := &r.Reply
	number := strconv.AppendUint(nil, n, 10)
	words := bytes.Split(rep.Line.Of(r.Bytes), []byte(" "))
	at := 1 // index of the size in the words of a VA line
	if t.Req.Dialect == wire.Text {
		at = 3 // index of the size in the words of a VALUE line
	}
	words[at] = strconv.AppendInt(nil, int64(len(number)), 10)
	out := append(bytes.Join(words, []byte(" ")), wire.CRLF...)
	return t.Result(r.Server, append(append(out, number...), r.Bytes[rep.Body.End:]...))
}

// release continues after a request of s has ended: it sends the increments if they are overdue, else
// starts the commands that wait. It removes s if it is not needed any more.
func (e *Counters) release(s *sum) {
	switch {
	case s.busy():
		return
	case s.overdue:
		e.due(s)
		return
	case s.at == 0 && s.holds():
		every := int64(s.route.Buffer.Every)
		e.plan(s, e.Now+every+every*(int64(s.hash%201)-100)/1000) // up to a tenth more or less, so that not all sums are sent at once
	}
	switch {
	case len(s.queue) > 0:
		for _, t := range s.queue { // in the order in which they have waited
			e.Ready(t)
		}
		s.queue = nil
	case s.at == 0:
		delete(e.sums, s.id)
		e.Buffers.Hold(-sumSize - 3*len(s.id))
	}
}

// plan makes s due at the given time.
func (e *Counters) plan(s *sum, at int64) {
	s.at = at
	e.After(at, func() {
		if s.at == at { // else plan has set another timer since
			s.at = 0
			e.due(s)
		}
	})
}

// due sends the increments of s, if there are any and no request is in progress.
func (e *Counters) due(s *sum) {
	switch s.buffered.due() {
	case sendSum:
		e.sendSum(s, nil, exact)
	case drop:
		e.release(s)
	}
}

// client returns the key, as clients of the sum's route know it.
func (s *sum) client() string { return s.route.Strip + string(s.key) }

// sendSum sends the increments in s.inFlight to the server, and then t, a command of the class c. If no
// server has received the increments, t fails, because its reply would not have them. t may be nil.
func (e *Counters) sendSum(s *sum, t *task.Task, c class) {
	was := s.inFlight
	f := e.OwnTask(s.route, wire.Incr, s.key, s.hash, "ma", " v D"+strconv.FormatUint(was.sum, 10))
	e.count(f, false, func(r *upstream.Result, _ task.Token) {
		o, n := outcomeOf(r)
		if o == counted {
			e.Count.Buffer.Flushes++
			e.Count.Buffer.Flushed += was.commands
		}
		lost, why := s.sent(o, n, e.Now-was.since < int64(s.route.Buffer.Keep) && !e.Draining)
		e.lose(s, why, lost)
		switch {
		case t != nil && o != unsent:
			s.start()
			e.send(s, t, c)
			return
		case t != nil:
			t.Fail(r.Why, r.Outcome)
		}
		e.release(s)
	})
}

// lose counts the increments in lost, which are lost for the reason why: no server has received them,
// or it is unknown whether one has.
func (e *Counters) lose(s *sum, why stats.LostCount, lost batch) {
	if lost.sum > 0 {
		e.Count.Buffer.Lost[why] += lost.sum
		e.LogLimited(slog.LevelWarn, why.String(), "buffered increments lost", "key", s.client(), "sum", lost.sum, "why", why.String())
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
		if s.pending.sum > 0 || s.inFlight.sum > 0 {
			return true
		}
	}
	return false
}

// Rebind assigns the routes of a new table to the sums. If the key of a sum is no longer buffered,
// the sum is sent at once, so that it arrives before the commands that the new routes send.
func (e *Counters) Rebind() {
	for _, id := range slices.Sorted(maps.Keys(e.sums)) {
		s := e.sums[id]
		var rt *routing.Route
		if l := e.Listeners[s.route.Listener]; l != nil {
			rt = l.Fitting([]byte(s.client()))
		}
		if rt == nil || rt.Buffer == nil || rt.Strip != s.route.Strip {
			s.warm = false
			e.due(s) // the increments are sent by the old route of s
			continue
		}
		s.route = rt
	}
}

// AddTo adds the buffered increments to the snapshot of all loops.
func (e *Counters) AddTo(into *stats.Snapshot) {
	into.BufferKeys += len(e.sums)
	for _, s := range e.sums {
		into.BufferPending += s.pending.sum + s.inFlight.sum
	}
}
