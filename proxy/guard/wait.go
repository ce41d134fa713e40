package guard

// This file has the gets that wait for another client's rebuild. One poll per key asks the server
// whether the rebuild is done.

import (
	"slices"
	"strconv"
	"time"

	"ringside/proxy/link"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// poll repeats the get of a key that has waiting gets. Only its loop uses it.
type poll struct {
	g        *Guard
	key      string              // the name of the key across pools: see nameOf
	rt       *routing.RouteGuard // route of the get that has created the poll
	here     itemPlace           // server of the key, and name of the key on that server
	held     []*held             // the gets that wait for the key; the poll uses the connection and the settings of the first one
	asking   bool                // a poll was sent, and its reply has not arrived
	again    bool                // a command has changed the key since the last poll was sent
	nextAt   int64               // time of the next poll, on the loop's clock
	interval time.Duration       // delay after the next poll; it grows from poll to poll, up to lastPoll
}

// held is a get that waits for another client's rebuild.
type held struct {
	t     *task.Task
	l     *rule // state of the command t
	since int64 // when the wait began, on the loop's clock
	until int64 // when the wait times out, on the loop's clock
	seen  Item  // the item in the last reply for the key
}

const (
	firstPoll = 5 * time.Millisecond
	lastPoll  = 50 * time.Millisecond
	maxPolls  = 2000 // polls per second to one server
)

// hold makes the get t wait for the rebuild of another client and returns true. It returns false
// if t may not wait.
func (g *Guard) hold(t *task.Task, l *rule, seen Item) bool {
	p, until := l.party, l.since+int64(l.Wait)
	if l.Wait == 0 || p.Shared.Load() || l.many {
		return false
	}
	is, here := g.rebuildOf(l.key), l.here(t)
	if is.until > g.Now { // clients do not fill the key
		l.Learned.Count(stats.GuardNeverFilled)
		return false
	}
	q := is.poll
	fresh := q != nil && len(q.held) == 0 && !q.asking // no get waits yet
	loops, _ := g.Loops.Count(g.Tasks)
	if !l.Learned.Holds() || g.waiting >= max(g.Clients.Limits.Waiting/max(loops, 1), 1) || until <= g.Now || q != nil && !fresh && !here.Copied && q.here != here {
		return false
	}
	p.held.Add(1)
	if p.followers.Load() != l.followers || p.gone.Load() {
		p.held.Add(-1)
		return false
	}
	if q == nil {
		q = &poll{g: g, key: l.key, rt: l.RouteGuard, here: here, interval: firstPoll}
		is.poll = q
		g.polls = append(g.polls, q)
		q.nextAt = g.Now + int64(max(q.jitter(), l.Learned.Usual()/5))
	} else if fresh || here.Copied && here.Seal != 0 { // each waiting get of a replicated key will read the key itself: poll the newest server
		q.here = here
	}
	q.held = append(q.held, &held{t: t, l: l, since: g.Now, until: until, seen: seen})
	g.waiting++
	l.Learned.Count(stats.GuardWait)
	l.Learned.Waiting.Add(1)
	g.At(link.GuardTimer, q.next())
	return true
}

// jitter returns the time until the next poll: q.interval, changed at random by up to 30 %. It
// then makes q.interval longer.
func (q *poll) jitter() time.Duration {
	d := q.interval
	q.interval = min(q.interval+q.interval/2, lastPoll)
	return d*7/10 + time.Duration(q.g.chance.Int64N(int64(d)*6/10+1))
}

// next returns when tick must run again: at the next poll, or when the first wait times out.
func (q *poll) next() int64 {
	next := int64(link.Never)
	if !q.asking && len(q.held) > 0 {
		next = q.nextAt
	}
	for _, h := range q.held {
		next = min(next, h.until)
	}
	return next
}

func (q *poll) tick() {
	for _, h := range slices.Clone(q.held) {
		if h.until <= q.g.Now {
			q.end(h, true)
		}
	}
	if len(q.held) > 0 && !q.asking && q.nextAt <= q.g.Now {
		q.ask()
	}
}

// ask sends a poll: a read of the key for all gets that wait for it.
func (q *poll) ask() {
	g, first := q.g, q.held[0]
	if !q.here.Copied && !q.stays(first) { // the server of the key has changed its health phase, or the key has moved
		if q.here.Moves || first.t.Route.Arrives(first.t.Key) {
			q.startAgain()
		} else {
			q.endAll()
		}
		return
	}
	next := g.nextPoll[q.here.Server]
	if next > g.Now {
		q.nextAt = next
		return
	}
	g.nextPoll[q.here.Server] = max(next, g.Now-int64(10*time.Millisecond)) + int64(time.Second/maxPolls)
	c, _, _ := q.here.Server.Pick(first.t.Asker, true)
	q.nextAt = g.Now + int64(q.jitter())
	if c == nil {
		return
	}
	first.l.Learned.Count(stats.GuardPoll)
	q.asking, q.again = true, false
	line := []byte(plainLine("mg ", q.here.Name, " s f t c"))
	if !q.here.inSteps() {
		line = first.l.readLine(first.t, first.l.name, first.l.guardFlags(first.t), true)
	}
	limit := first.t.Route.Timeouts
	g.Servers.Ask(c, q, 0, &limit, line, true)
}

// stays reports whether the key of h is still on the server that q polls.
func (q *poll) stays(h *held) bool {
	now := rule{RouteGuard: h.l.RouteGuard}
	trouble, _ := now.locate(h.t, true)
	return trouble.Why == "" && now.here(h.t) == q.here
}

// Answered handles the reply to a poll: the waiting gets end or continue to wait.
func (q *poll) Answered(_ int, r *upstream.Result) {
	g, s, n := q.g, itemOf(r), len(q.held)
	q.asking = false
	if q.again {
		q.nextAt = g.Now
	}
	if q.here.inSteps() {
		cas, _ := strconv.ParseUint(string(s.Cas), 10, 64)
		s.Cas = strconv.AppendUint(nil, cas^q.here.Seal, 10)
	}
	if s.HasLease() && (q.here.Moves || n == 0 && !q.here.Copied) { // no get uses the lease of this reply
		g.cancelLease(q.rt, q.here, &s)
	}
	switch {
	case n == 0:
	case q.held[0].l.mustWait(&s):
		seen := s.Clone()
		if q.here.Copied && q.here.Seal == 0 { // the token of the cas is not known, so the guard can't use the cas
			seen.Cas = nil
		}
		for _, h := range q.held {
			seen.At = h.seen.At
			h.seen = seen
		}
		q.held[0].l.watch(q.held[0].t, &s)
	case !q.here.inSteps() && (s.HasLease() || s.IsAbsent()): // the first waiting get is granted the lease and rebuilds; if the item is absent, it gets a miss
		q.release(r, false)
	default:
		for ; n > 0; n-- { // the loop ends after n gets, because a get may wait again
			q.release(r, s.Kind.Answered() && !q.here.inSteps())
		}
	}
	g.At(link.GuardTimer, q.next())
	if len(q.held) == 0 {
		g.Soon(link.GuardTimer)
	}
}

// mustWait reports whether a waiting get continues to wait if it finds the item s.
func (l *rule) mustWait(s *Item) bool {
	switch {
	case !s.Kind.Answered() || s.HasLease() || s.IsAbsent():
		return false
	case s.IsPlaceholder() || s.IsTombstone():
		return true
	}
	return s.IsInvalidated() && !l.mayServe(s) || l.waitsFirst() && l.isOld(s)
}

// release ends the wait of the first waiting get with r, the reply to the poll. If commands on the key are
// steps, the get reads the key itself. value means that r may have a value.
func (q *poll) release(r *upstream.Result, value bool) {
	h := q.take(0)
	l := h.l
	if value {
		l.Learned.Count(stats.GuardSaved)
		if l.tags != nil {
			l.tags.known = nil // judged requests the tag versions again, because h's own versions are from its first read
		}
	}
	if q.here.inSteps() {
		l.read(h.t)
	} else {
		l.found(h.t, r)
	}
	h.t.CatchUp()
}

// take removes the get with the index i from the waiting gets of the key, and returns it.
func (q *poll) take(i int) *held {
	h := q.held[i]
	q.held = slices.Delete(q.held, i, i+1)
	q.g.waiting--
	h.l.party.held.Add(-1)
	h.l.Learned.Waiting.Add(-1)
	h.l.Learned.Waited(q.g.Now - h.since)
	return h
}

// end ends the wait of h without a rebuilt value. The parameter `over` means that the wait has
// timed out.
func (q *poll) end(h *held, over bool) {
	q.take(slices.Index(q.held, h))
	q.g.Soon(link.GuardTimer)
	if over {
		h.l.Learned.Count(stats.GuardLate)
		if h.l.Late == table.LateError {
			h.t.Reject(wire.AppendServerError(nil, "guard: wait is over"))
			return
		}
	}
	h.seen.At = h.since
	h.l.unheld(h.t, &h.seen)
	h.t.CatchUp()
}

// startAgain starts all gets that wait for the key again, because the key has begun to move, or has moved.
func (q *poll) startAgain() {
	for len(q.held) > 0 {
		h := q.take(0)
		h.l.fast = FastAnswer{}
		q.g.Ready(h.t)
	}
	q.g.Soon(link.GuardTimer)
}

// endAll ends all waits for the key.
func (q *poll) endAll() {
	for len(q.held) > 0 {
		q.end(q.held[0], false)
	}
}

// endWaits ends the waits of all gets of a client, because its connection is closed or it has
// sent another request.
func (g *Guard) endWaits(p *clientState) {
	for _, q := range g.polls {
		for i := 0; i < len(q.held); {
			if h := q.held[i]; h.l.party == p {
				if !h.l.quiet && !p.gone.Load() {
					p.Shared.Store(true)
				}
				q.end(h, false)
			} else {
				i++
			}
		}
	}
}
