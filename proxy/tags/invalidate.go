package tags

// This file implements invalidations. The item of a tag is deleted on all servers that may have
// values with the tag.

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"ringside/proxy/event"
	"ringside/proxy/health"
	"ringside/proxy/health/divert"
	"ringside/proxy/routing"
	"ringside/proxy/tags/stamp"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// Answer is the result of an invalidation at one server of a pool.
type Answer struct {
	Pool, Server string // Server is empty if the result is of the pool as a whole
	Why          string // the reason why the server has not invalidated the tags; empty: it has
	Skipped      bool   // the server is out: it is flushed before it serves reads again
}

// Handle serves commands on keys that are names of tags.
func (t *Tags) Handle(k *task.Task) {
	rt := k.Route
	name := []byte(strings.TrimPrefix(rt.Strip+string(k.Key), rt.Prefix))
	switch err := stamp.CheckName(name); {
	case k.Removal(): // Ringside has rejected a value for this key, so AnswerKind sends the error for that
		k.AnswerKind(wire.Deleted)
	case k.Op <= wire.Gats:
		k.AnswerKind(task.MissKind(k)) // a key that is the name of a tag never has a value
	case k.Op != wire.Delete:
		k.Reject(wire.AppendClientError(nil, fmt.Sprintf("keys that begin with %s are names of tags: they can be deleted, which invalidates them, and nothing else", rt.Prefix)))
	case err != nil:
		k.Reject(wire.AppendClientError(nil, err.Error()))
	default:
		t.lead(k, rt, name)
	}
}

// lead executes a client's invalidation of a tag.
//
// While too many of Ringside's own requests wait for a server, the command waits, before it sends anything.
func (t *Tags) lead(k *task.Task, rt *routing.Route, name []byte) {
	if why := t.Crowded(); why != "" || t.MustQueue(k) {
		why = cmp.Or(why, "other invalidations wait for a server")
		if k.WaitReason = why; t.Now < k.Deadline && t.ParkForRoom(k, t.Crowded) {
			return
		}
		k.Reject(wire.AppendServerError(nil, fmt.Sprintf("tag %s: %s; no server has invalidated it: repeat until DELETED", name, why)))
		return
	}
	t.Invalidate([]stamp.Tag{rt.Tags.Tag(name)}, t.Pools, k.Deadline, func(answers []Answer, waits bool) {
		i := slices.IndexFunc(answers, func(a Answer) bool { return a.Why != "" })
		switch {
		case i < 0:
			t.Clients.LogLimited(slog.LevelInfo, "", "tag invalidated", event.TagInvalidated.Attr(), "tag", string(name), "servers", len(answers))
			k.AnswerKind(wire.Deleted)
		case waits && t.Now < k.Deadline:
			t.Park(k, k.Deadline, t.gens)
		default:
			a := answers[i]
			t.Clients.LogLimited(slog.LevelWarn, "", "tag not invalidated everywhere", "tag", string(name), "why", a.Why)
			k.Reject(wire.AppendServerError(nil, fmt.Sprintf("tag %s: %s; the other servers have invalidated it: repeat until DELETED", name, a.Why)))
		}
	})
}

// Crowded returns why invalidations should wait, because of any server; "": they need not.
func (t *Tags) Crowded() string {
	for _, p := range t.Pools {
		for i := range members(p) {
			if why := p.Server(i).Crowded(); why != "" && (p.View == nil || p.View.Phase(i) != health.Out) { // a server that is out gets no invalidation
				return why
			}
		}
		for _, srv := range p.Incoming() {
			if why := srv.Crowded(); why != "" {
				return why
			}
		}
	}
	return ""
}

// members returns the number of servers of a pool, with those that only its view has, such as gutter servers.
func members(p *routing.BoundPool) int {
	if p.View != nil {
		return p.View.Len()
	}
	return len(p.Servers)
}

// gens returns a number that changes when the phase of any server changes, when a server stops
// answering or answers again, and when a lease of a pool with consistency strict ends or is renewed.
func (t *Tags) gens() (sum uint64) {
	for _, p := range t.Pools {
		v := p.View
		if v == nil {
			continue
		}
		sum += v.Gen() << 1
		if v.Learned() {
			sum++
		}
		if t.holdsLeases(p) {
			sum += 1 << 48
		}
		for i := range v.Len() {
			if v.Suspected(i) {
				sum += 1 << 32 << (i % 31)
			}
		}
	}
	return sum
}

// holdsLeases reports whether this instance knows the present phases of the servers of p. Only consistency strict requires that
// of it, because an instance may have been stopped for a while: a server that it skips could have rejoined meanwhile.
func (t *Tags) holdsLeases(p *routing.BoundPool) bool {
	v := p.View
	if v == nil || !p.Pool.Failover.Strict {
		return true
	}
	now := t.Clients.Moment()
	for i := range v.Len() {
		if v.Phase(i) != health.Out && !v.Suspected(i) && now >= v.ValidUntil(i) {
			return false
		}
	}
	return true
}

// Invalidate deletes tags on the servers of pools. It calls the function `then` with the result of
// each server. waits reports whether the invalidation may succeed later. Until the deadline,
// Invalidate repeats the invalidation if the phases of servers change while it runs: a server that was skipped may serve reads by then.
func (t *Tags) Invalidate(tags []stamp.Tag, pools []*routing.BoundPool, deadline int64, then func(answers []Answer, waits bool)) {
	n := &invalidation{t: t, tags: tags, pools: pools, deadline: deadline, began: t.Now, then: then}
	n.begin()
}

func (n *invalidation) begin() {
	n.answers, n.waits, n.foreign, n.open, n.gens = n.answers[:0], false, false, 1, n.t.gens()
	for _, p := range n.pools {
		if p.Pool.Unknown {
			n.answers = append(n.answers, Answer{Pool: p.Pool.Name, Why: "pool " + p.Pool.Name + ": " + routing.Unknown})
		}
		if v := p.View; v != nil && v.Foreign() {
			n.foreign = true
			if p.Pool.Failover.Strict {
				n.answers = append(n.answers, Answer{Pool: p.Pool.Name, Why: "pool " + p.Pool.Name + ": instances have different lists of servers, so it may not have reached all of them"})
			}
		}
		if p.Outdated() {
			n.answers = append(n.answers, Answer{Pool: p.Pool.Name, Why: "pool " + p.Pool.Name + ": " + routing.Outdated})
		}
		for i := range members(p) {
			n.ask(p, i)
		}
		for _, srv := range p.Incoming() {
			n.answers = append(n.answers, Answer{Pool: p.Pool.Name, Server: srv.Target.Name})
			n.send(p, srv, 0)
		}
	}
	n.ended()
}

const uncertain = "it is not certain which servers are in use"

// invalidation is an invalidation in progress.
type invalidation struct {
	t        *Tags
	tags     []stamp.Tag
	pools    []*routing.BoundPool
	deadline int64
	began    int64
	gens     uint64 // t.gens when the requests were sent
	answers  []Answer
	waits    bool
	foreign  bool // other instances may know servers of the pools that this instance does not know
	open     int
	then     func(answers []Answer, waits bool)
}

func (n *invalidation) ended() {
	if n.open--; n.open > 0 {
		return
	}
	if n.t.gens() != n.gens && n.t.Now < n.deadline {
		n.begin()
		return
	}
	for _, p := range n.pools {
		if !n.t.holdsLeases(p) {
			n.answers, n.waits = append(n.answers, Answer{Pool: p.Pool.Name, Why: "pool " + p.Pool.Name + ": " + uncertain}), true
		}
	}
	all := !slices.ContainsFunc(n.answers, func(a Answer) bool { return a.Why != "" })
	n.t.Count.Ended(n.t.Now-n.began, all, n.foreign)
	n.then(n.answers, n.waits)
}

// ask deletes the tags on the server i of a pool, or records why that is not possible.
func (n *invalidation) ask(p *routing.BoundPool, i int) {
	srv, at := p.Server(i), len(n.answers)
	n.answers = append(n.answers, Answer{Pool: p.Pool.Name, Server: srv.Target.Name})
	why, number := "", uint64(0)
	if i < len(p.Servers) {
		why = p.Refusal(i)
	}
	if v := p.View; v != nil {
		number = uint64(v.Renamed(i))
		switch phase := v.Phase(i); {
		case !v.Learned():
			why, n.waits = "server "+srv.Label()+": it is not known yet whether it is in use", true
		case phase == health.Out && p.Pool.Failover.Strict && v.Differs() && !v.Foreign(): // otherwise there is an error for the pool
			why = "server " + srv.Label() + ": it is out, but instances have different lists of servers, so another one may use it"
		case phase == health.Out:
			n.answers[at].Skipped = true
			return
		case phase == health.Leaving || v.Suspected(i):
			why, n.waits = "server "+srv.Label()+": "+v.SuspectWhy(i), true
			if srv.Down { // this loop knows a more precise reason
				why = srv.Why
			}
		}
	}
	if why != "" {
		n.answers[at].Why = why
		return
	}
	n.send(p, srv, number)
}

// send deletes the tags on srv, for the values that are stored there under the given path number. The
// result is that of the last answer.
func (n *invalidation) send(p *routing.BoundPool, srv *upstream.Server, number uint64) {
	at := len(n.answers) - 1
	c, why, _ := srv.Pick(0, true)
	if c == nil {
		n.answers[at].Why = why
		return
	}
	limit := p.Pool.Timeouts
	if n.deadline > n.t.Now {
		limit = *limit.Within(time.Duration(n.deadline - n.t.Now))
	}
	for _, tag := range n.tags {
		bucket := divert.AppendKey(nil, number, tag.AppendBucket(nil))
		name := divert.AppendKey(nil, number, tag.AppendKey(nil))
		n.open += 2
		n.t.Clients.TaskAsks += 2
		n.t.Servers.Ask(c, n, at, &limit, fmt.Appendf(nil, "ms %s 0\r\n\r\n", bucket), true) // the bucket is written before the tag is deleted: see the package comment
		n.t.Servers.Ask(c, n, at, &limit, fmt.Appendf(nil, "md %s\r\n", name), true)
	}
}

func (n *invalidation) Answered(at int, r *upstream.Result) {
	n.t.Clients.TaskAsks--
	switch a := &n.answers[at]; {
	case r.Bytes == nil:
		a.Why = r.Why
	case r.Reply.Kind.Failed():
		a.Why = "server " + r.Server.Label() + ": " + strings.TrimSpace(string(r.Bytes))
	}
	n.ended()
}
