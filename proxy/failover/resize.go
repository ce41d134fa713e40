package failover

// This file flushes the servers that gain keys, before a change of the server list of a pool (package
// health/resize).

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
	"ringside/proxy/health/resize"
	"ringside/proxy/link"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

const (
	sweepConn    = 1<<31 + 1 // number of the connection on which a server is flushed
	sweptSeconds = 60        // lifetime of the item that says that a server is flushed, in seconds
)

// The numbers of the requests of a sweep to one server, in their order.
const (
	askWalk  = iota // mg: does another instance move keys at the moment?
	askSwept        // mg: has another instance flushed the server for the same change?
	askFlush        // flush_all
	askNote         // ms: note that the server is flushed
)

// sweep flushes the servers that gain keys. All instances may do it at the same time: a further flush
// only costs misses. If a server can't be flushed, the sweep tries again after a ping, but only those that it has
// not flushed: no server gets a value of a key that it will own before the change. New servers are flushed first, so
// that the others keep their values while a new one can't be flushed.
type sweep struct {
	change  [2]uint32
	all     int                        // number of servers
	rest    []*upstream.Server         // servers that are flushed after those that are being flushed
	open    int                        // number of servers that are being flushed
	flushed map[*upstream.Server]int64 // for each server that is flushed, when that was noted there last
	fails   sweepFailure               // why a server could not be flushed in this attempt; zero: all could so far
	failed  sweepFailure               // the same, of the last attempt that has ended
	again   int64
}

// sweepFailure is why a server could not be flushed.
type sweepFailure struct {
	server table.Target
	why    string // it follows the name of the server
}

// sweepAsk receives the replies of one server during a sweep.
type sweepAsk struct {
	e    *Keepers
	w    *Agent
	s    *sweep
	srv  *upstream.Server
	key  string
	done bool
}

// followResize flushes the servers that gain keys when that is due, and puts the new list of servers of
// this process in use when it is in force.
func (e *Keepers) followResize(w *Agent) {
	if is := w.View.Resize(); is.Superseded() || is.Forgets() || is.Drops {
		e.Resized()
		return
	}
	if text := w.Keeper.Joins(); text != nil {
		e.join(w, text)
		return
	}
	if texts := w.Keeper.Learned(); texts != nil {
		e.learn(w, texts)
		return
	}
	w.logWait(e)
	change, due := w.Keeper.Sweeps()
	if bp := e.bound(w); bp != nil && bp.Next != nil && w.View.Resize().Warm {
		e.Walk(w, bp, change, due)
		return
	}
	switch s := w.sweep; {
	case !due || s != nil && (s.open > 0 || s.change == change && e.Now < s.again):
		return
	}
	bp := e.bound(w)
	if bp == nil {
		return
	}
	if w.sweep == nil || w.sweep.change != change {
		w.sweep = &sweep{change: change, flushed: map[*upstream.Server]int64{}}
	}
	s, list := w.sweep, gaining(bp)
	s.again, s.all, s.fails, s.rest = e.Now+int64(w.failover.Ping), len(list), sweepFailure{}, nil
	first := []*upstream.Server{}
	for _, srv := range list {
		if slices.Contains(bp.Servers, srv) {
			s.rest = append(s.rest, srv)
		} else {
			first = append(first, srv)
		}
	}
	e.sweep(w, first)
}

// sweep flushes servers, and then the rest of the sweep of w.
func (e *Keepers) sweep(w *Agent, list []*upstream.Server) {
	s := w.sweep
	s.open = 1 + len(list) // the additional one keeps the attempt open until all servers are asked
	for _, srv := range list {
		a := &sweepAsk{e: e, w: w, s: s, srv: srv, key: fmt.Sprintf("%s_swept__:%s", divert.Reserved, w.Pool)}
		switch noted, flushed := s.flushed[srv]; {
		case !flushed:
			a.ask(askWalk, "mg "+WalkKey(w.Pool, s.change[0])+" v\r\n")
		case e.Now >= noted+int64(sweptSeconds*time.Second/2):
			a.note()
		default:
			s.open--
		}
	}
	e.flushedOne(w, s)
}

// flushedOne ends the attempt to flush servers when none is being flushed any more.
func (e *Keepers) flushedOne(w *Agent, s *sweep) {
	if s.open--; s.open == 0 {
		e.swept(w, s)
		e.At(link.KeeperTimer, s.again)
	}
}

// addResize adds the state of a change of the servers to a snapshot, if instances change them together.
func (w *Agent) addResize(into *stats.Snapshot, now int64) {
	is, began, why, server := w.Keeper.Resize(now)
	if is.Mine == 0 {
		return
	}
	to := into.Resize(w.Pool)
	if server >= 0 {
		to.For = w.Servers[server]
		why = "server " + to.For.Name + " " + why
	}
	to.Status, to.Since, to.Waits = is, time.Duration(now-max(began, w.Began)), why
	if s := w.sweep; s != nil && s.change == [2]uint32{is.N, is.Wish} && is.Stage() == resize.Stable {
		to.Work.Of, to.Work.At = s.all, len(s.flushed)
		if f := s.failed; f.why != "" && why == "" {
			to.For, to.Waits = f.server, "server "+f.server.Name+" "+f.why
		}
	}
}

// logWait logs why a change of the servers can't go on, if it waits for a server or for another instance.
func (w *Agent) logWait(e *Keepers) {
	is, _, why, server := w.Keeper.Resize(e.Now)
	switch {
	case why == "" || is.Mine == 0:
		w.waits = ""
	case server < 0 && w.waits != why:
		w.waits = why
		e.LogLimited(slog.LevelWarn, w.Pool+" waits", "a change of servers must wait for other instances", event.Other.Attr(), "pool", w.Pool, "why", why)
	case server >= 0 && w.waits != w.Servers[server].Name:
		w.waits = w.Servers[server].Name
		state, what, _ := strings.Cut(strings.TrimPrefix(why, "is "), ": ")
		what = cmp.Or(what, w.Keeper.Verdict(server).Why, why)
		e.LogLimited(slog.LevelWarn, w.Pool+" "+w.Servers[server].Name+" waits", "a change of servers must wait for a server", event.Other.Attr(),
			"pool", w.Pool, "server", w.Servers[server].Name, "state", state, "why", what)
	}
}

// WalkKey returns the key of the item that says that an instance does the work on the servers of a pool
// in the stage with the number n (package replication).
func WalkKey(pool string, n uint32) string {
	return fmt.Sprintf("%s_walk__:%s:%d", divert.Reserved, pool, n)
}

// swept flushes the rest of the servers, or ends the attempt.
func (e *Keepers) swept(w *Agent, s *sweep) {
	if rest := s.rest; s.fails.why == "" && len(rest) > 0 {
		s.rest = nil
		e.sweep(w, rest)
		return
	}
	if s.failed = s.fails; s.failed.why == "" {
		w.Keeper.Swept(s.change, e.Now)
	}
	e.Schedule(w)
}

// ask sends a request of the sweep.
func (a *sweepAsk) ask(id int, line string) {
	a.e.Ask(a.srv.DedicatedConn(sweepConn), a, id, a.srv.OwnTimeouts(a.w.failover.Request), []byte(line), true)
}

// note notes that the server is flushed, on the server, for other instances.
func (a *sweepAsk) note() {
	a.s.flushed[a.srv] = a.e.Now
	mark := a.mark()
	a.ask(askNote, fmt.Sprintf("ms %s %d T%d\r\n%s\r\n", a.key, len(mark), sweptSeconds, mark))
}

// mark returns the value of the item that says that the server is flushed.
func (a *sweepAsk) mark() string { return fmt.Sprintf("%d.%d", a.s.change[0], a.s.change[1]) }

func (a *sweepAsk) Answered(id int, r *upstream.Result) {
	if a.done {
		return
	}
	value, _, found := health.MetaValue(r.Bytes)
	switch {
	case id == askNote: // the item only spares other instances a flush
		a.end("")
	case r.Bytes == nil:
		a.end("is down: " + strings.TrimPrefix(r.Why, "server "+a.srv.Label()+": "))
	case id == askWalk && found:
		a.end("is not flushed: another instance moves keys at the moment")
	case id == askWalk:
		a.ask(askSwept, "mg "+a.key+" v\r\n")
	case id == askSwept && found && string(value) == a.mark():
		a.s.flushed[a.srv] = a.e.Now
		a.end("")
	case id == askSwept:
		a.ask(askFlush, "flush_all\r\n")
	case id == askFlush && string(r.Bytes) != wire.AnswerOK:
		a.end("has answered flush_all with " + fmt.Sprintf("%.100q", r.Bytes))
	default:
		a.e.Notify(a.srv, func(k *health.Keeper, server int, now int64) { k.Flushed(server, now) })
		a.note()
	}
}

// end ends the sweep of one server. why is the reason if the server could not be flushed.
func (a *sweepAsk) end(why string) {
	a.done = true
	a.srv.CloseDedicated(sweepConn)
	if why != "" {
		a.s.fails = sweepFailure{a.srv.Target, why}
		a.e.LogLimited(slog.LevelWarn, a.w.Pool+" "+a.srv.Target.Name+" sweep", "server list can't change: a server that gains keys can't be flushed", event.Other.Attr(),
			"pool", a.w.Pool, "server", a.srv.Target.Name, "why", strings.TrimPrefix(why, "is down: "))
	}
	a.e.flushedOne(a.w, a.s)
}

// bound returns the pool of w with the servers of this loop; nil: the loop has another table.
func (e *Keepers) bound(w *Agent) *routing.BoundPool {
	for _, list := range e.Registrations {
		for _, m := range list {
			if m.Agent == w {
				return m.Bound
			}
		}
	}
	return nil
}

// gaining returns the servers that may get keys of other servers by the list to which the pool changes. If
// that list is already in use here, the list in force is not known. So every server may.
func gaining(bp *routing.BoundPool) (list []*upstream.Server) {
	if bp.Next == nil {
		return bp.Servers
	}
	for i, gains := range Gains(bp) {
		if gains {
			list = append(list, bp.Next.Servers[i])
		}
	}
	return list
}

// Gains reports for each server of bp.Next, which is not nil, whether it may get keys of other servers.
func Gains(bp *routing.BoundPool) []bool {
	next := bp.Pool.Next
	return bp.Pool.Place.Gains(&next.Place, func(i int) int { return find(next.Servers, bp.Pool.Servers[i]) })
}

// lists returns the lists of a pool for its keeper.
func lists(pool *table.Pool) (l resize.Lists) {
	l.Mine, l.Wish = pool.Prints()
	if l.Mine != 0 && pool.Later != nil {
		l.Later = pool.Later.Print()
	}
	l.Warm = l.Mine != 0 && pool.Resize == table.ResizeWarm
	l.Own = l.Warm && pool.ResizeUsual
	l.Again = l.Warm && pool.Next != nil && slices.ContainsFunc(pool.Next.Servers, func(m table.Target) bool {
		return slices.ContainsFunc(pool.Servers, func(o table.Target) bool { return o.Name == m.Name && !together(o, m) })
	})
	return l
}

// texts returns the lists of a pool as texts, for its keeper. They are not on the servers of a pool that does not coordinate
// changes.
func (w *Agent) texts(pool *table.Pool) *health.Texts {
	if pool.ReadList == nil {
		return &health.Texts{}
	}
	members := func(text []byte) (uint64, error) {
		l, err := pool.ReadList(text)
		if err != nil {
			return 0, err
		}
		return health.Membership(pool.Name, newAgent(pool.By(l), w.Stays()).members()), nil
	}
	if w.joined {
		members = nil
	}
	lists := pool.Texts()
	if pool.Resize == table.ResizePlain {
		lists = nil
	}
	return &health.Texts{Lists: lists, Members: members, Hash: func(text []byte) (uint32, error) {
		l, err := pool.ReadList(text)
		if err != nil {
			return 0, err
		}
		return l.Print(), nil
	}}
}

// learn lets the pool of w serve by the lists of its peers, whose texts its keeper has read: the list in force and the next
// one, as far as the pool does not have them.
func (e *Keepers) learn(w *Agent, texts [][]byte) {
	is := w.View.Resize()
	var list, next *table.List
	for _, text := range texts {
		l, err := w.read(text)
		if err != nil { // the keeper has checked it
			return
		}
		l.Learned = true
		if l.Print() == is.List {
			list = l
		} else {
			next = l
		}
	}
	e.LogLimited(slog.LevelInfo, w.Pool+" learned", "this instance has learned the server list of its peers, and serves by it until all instances have its own list", event.Other.Attr(), "pool", w.Pool, "item", w.Keeper.Lacking())
	e.Learned(w, list, next, is.Turned())
}

// join makes the pool of w use a list of its peers, whose text its keeper has read: replicated keys move to its servers.
func (e *Keepers) join(w *Agent, text []byte) {
	list, err := w.read(text)
	if err != nil { // the keeper has checked it
		return
	}
	e.LogLimited(slog.LevelInfo, w.Pool+" joins", "replicated keys move to other servers than those of this configuration: this instance moves them like its peers, and then uses its own servers", event.Other.Attr(), "pool", w.Pool)
	e.Joined(w, list)
}

// find returns the index in list of the server with the address of m; -1: there is none.
func find(list []table.Target, m table.Target) int {
	return slices.IndexFunc(list, func(o table.Target) bool { return together(o, m) })
}

// Joined returns for each server of the list Next of the pool its index in the servers of the pool's agent.
func Joined(pool *table.Pool, w *Agent) (at []int) {
	for _, m := range pool.Next.Servers {
		at = append(at, find(w.Servers, m))
	}
	return at
}
