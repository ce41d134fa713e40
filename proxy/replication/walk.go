package replication

// This file empties servers of keys that they do not own, while all instances change to another list of
// servers (package health/resize):
//
//	stage   the servers           the keys                                        what happens to them
//	Stable  those that gain keys  that move to the server                         they are removed
//	Move    the old owners        that move away from the server                  they are moved to their new owners
//	Settle  the old owners        the same, which only an incomplete listing has  they are removed
//
// Several instances may do this at once, but that costs more. So an instance first stores an item on a
// server, which says that it does the work.

import (
	"bytes"
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"ringside/proxy/event"
	"ringside/proxy/failover"
	"ringside/proxy/health"
	"ringside/proxy/health/divert"
	"ringside/proxy/health/resize"
	"ringside/proxy/link"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/upstream"
	"ringside/replicate"
)

const (
	walkBytes    = 8 << 20                       // a listing remembers keys of at most this size, including walkKey bytes for each
	walkKey      = 64                            // what a key costs in addition, in bytes
	walkPause    = int64(250 * time.Millisecond) // delay after a failure, and between two attempts to begin
	walkTick     = int64(time.Millisecond)       // delay if the rate does not allow another key
	walkSeconds  = 10                            // lifetime of the item that names the instance that does the work, in seconds
	walkRenewal  = int64(3 * time.Second)        // how often that item is stored again
	walkOut      = int64(time.Minute)            // keys are removed if the server to which they move is out for this time
	walkListing  = int64(5 * time.Minute)        // a listing that takes longer is a problem
	walkDoubles  = 7                             // walkPause is doubled at most this often between listings with keys that are listed again
	walkFailures = 4                             // the same, between listings with keys that can't be handled now
	walkLog      = int64(10 * time.Second)       // how often the progress is logged
	gapPasses    = 3                             // this many listings must find nothing on a server whose listings may omit keys
)

// walk empties the servers of a pool. The loop that runs the keepers does it.
type walk struct {
	e      *Replicator
	w      *failover.Agent
	bp     *routing.BoundPool
	from   *routing.BoundPool // bp by the list that keys leave
	to     *routing.BoundPool // bp by the list to which they move
	change [2]uint32
	is     resize.Status // when the work began
	rest   []int         // indexes in the view of the servers that are still to be emptied
	asked  int           // number of servers that were asked for the view record of the pool Former
	dump   *dump

	keys    []string            // keys that were listed and are not handled yet
	size    int                 // what keys costs, in bytes
	more    uint64              // number of keys of the listing that did not fit
	works   bool                // a listing has ended, and its keys are being handled
	found   int                 // keys of the present listing
	failed  int                 // keys of the present listing that could not be handled
	reason  string              // why one of them could not be handled; empty: not known
	unmoved uint64              // keys that the last listing of this server that was handled has left there
	away    []string            // names of old owners that are out, so that their keys can't be moved
	again   int                 // keys of the present listing that were handled in the pass before
	passes  int                 // passes in a row with keys that failed or were listed again
	stuck   bool                // the pass before had keys that could not be handled, or that were listed again
	gaps    bool                // the present listing may omit keys
	out     map[int]int64       // for servers to which keys move and that are out, by their index in to: since when this work has seen that
	gone    map[uint64]struct{} // hashes of the keys that this pass has moved
	before  map[uint64]struct{} // the same, of the pass before: a key that is listed again can't be moved
	clean   int                 // listings in a row that have found nothing
	open    int                 // keys that are being handled

	ours    bool  // this instance does the work
	asking  bool  // the request for the item that says so is in flight
	renewAt int64 // when that item is stored again
	at      int64 // earliest time of the next step
	why     string
	over    bool

	progress stats.ResizeWork // of this instance, or of the one that does the work; without Left
	began    int64            // when this instance first knew the stage
	listedAt int64            // when the present listing began
	loggedAt int64            // when it logged the progress last
	ratedAt  int64            // when progress.Rate was computed
	rated    uint64           // progress.Done at that time
}

// Walk begins the work for the change of the pool of w, unless it is in progress, and ends it if the
// change is not due any more.
func (e *Replicator) Walk(w *failover.Agent, bp *routing.BoundPool, change [2]uint32, due bool) {
	k := e.walks[w.Pool]
	var before stats.ResizeWork // the progress before a reload that does not end the change
	began := e.Now
	due = due && bp != nil && bp.Next != nil && bp.View.Resize().N == change[0]
	if k != nil && (!due || k.change != change || k.bp != bp || k.w != w) {
		if k.change == change {
			before, began = k.progress, k.began
		}
		k.end()
		k = nil
	}
	if !due {
		return
	}
	if k == nil {
		is := bp.View.Resize()
		k = &walk{e: e, w: w, bp: bp, change: change, is: is, progress: before, began: began}
		k.from, k.to = bp.Ends(is)
		k.rest = k.servers()
		if e.walks == nil {
			e.walks = map[string]*walk{}
		}
		e.walks[w.Pool] = k
	}
	k.advance()
}

// servers returns the servers that must be emptied in this stage.
func (k *walk) servers() (list []int) {
	if k.is.Stage() != resize.Stable {
		for i := range k.from.Servers {
			list = append(list, k.from.InView(i))
		}
		return list
	}
	for j, gains := range failover.Gains(k.bp) {
		if gains {
			list = append(list, k.bp.Next.Indexes[j])
		}
	}
	return list
}

func (k *walk) end() {
	k.over = true
	k.dump.stop()
	if k.e.walks[k.w.Pool] == k {
		delete(k.e.walks, k.w.Pool)
	}
}

// later makes the next step wait. why is the reason for log, or empty.
func (k *walk) later(why string) {
	k.at = k.e.Now + walkPause
	if k.ours {
		k.progress.Why = why
	}
	k.e.At(link.ResyncTimer, k.at)
	k.log(why)
}

// log logs why the work must wait, unless why is empty or was logged last.
func (k *walk) log(why string) {
	if why != "" && why != k.why {
		k.why = why
		k.e.LogLimited(slog.LevelWarn, k.w.Pool+" walk", "keys that move to other servers must wait", event.Other.Attr(), "pool", k.w.Pool, "why", why)
	}
}

// advance does the next step that is possible now.
func (k *walk) advance() {
	e := k.e
	is := k.bp.View.Resize()
	switch {
	case k.over || k.asking:
		return
	case is.N != k.is.N:
		k.end()
		return
	case e.Now < k.at:
		e.At(link.ResyncTimer, k.at)
		return
	case (!k.ours && k.dump == nil) || k.ours && e.Now >= k.renewAt:
		k.claim()
		return
	case k.dump != nil:
		if lasts := e.Now - k.listedAt; k.ours && lasts >= walkListing {
			k.progress.Why = "the listing of server " + k.dump.srv.Label() + " has not ended after more than 5 min"
			k.log(k.progress.Why)
		}
		return
	case k.works:
		k.handle()
		return
	case k.is.Stage() == resize.Stable && k.bp.Pool.Former != "" && k.asked < len(k.bp.Servers):
		k.askFormer()
		return
	case len(k.rest) == 0:
		k.logEnd()
		k.end()
		k.w.Keeper.Swept(k.change, e.Now)
		e.Keepers.Schedule(k.w)
		return
	}
	i := k.rest[0]
	srv := k.bp.Server(i)
	switch phase := k.bp.View.Phase(i); {
	case k.is.Stage() != resize.Stable && (phase == health.Out || phase == health.Returning): // it is flushed before it is in use again
		k.lose(srv)
		k.next()
		e.At(link.ResyncTimer, e.Now)
	case !k.inUse(i):
		k.later(k.notInUse(i))
	case slices.ContainsFunc(e.Pools, func(o *routing.BoundPool) bool { return o != k.bp && slices.Contains(o.Servers, srv) }):
		k.later("server " + srv.Label() + " belongs to another pool, too, and their keys can't be told apart")
	case srv.Dedicated[dumpConn] != nil:
		k.later("")
	default:
		k.keys, k.size, k.more, k.found, k.failed = nil, 0, 0, 0, 0
		k.again, k.reason, k.listedAt = 0, "", e.Now
		k.progress.Server, k.progress.At, k.progress.Listed = srv.Target.Name, k.progress.Of-len(k.rest)+1, false
		k.before, k.gone = k.gone, map[uint64]struct{}{}
		if d := e.newDump(k.bp, i, k); !d.over {
			k.dump = d
		}
	}
}

// inUse reports whether server i of the view is in use.
func (k *walk) inUse(i int) bool {
	return k.bp.View.Phase(i) == health.In && !k.bp.View.Suspected(i) && !k.bp.Server(i).Down
}

func (k *walk) notInUse(i int) string { return "server " + k.bp.Server(i).Label() + " is not in use" }

// listed receives a key of the listed server. Keys that the stage is not about are left out.
func (k *walk) listed(_ *dump, key []byte) {
	switch {
	case !k.concerns(key):
	case k.size >= walkBytes:
		k.more++
	default:
		k.keys = append(k.keys, string(key))
		k.size += len(key) + walkKey
		k.found++
	}
}

// concerns reports whether the listed server must not have the key at the end of this stage.
func (k *walk) concerns(key []byte) bool {
	_, _, owner := k.from.Pool.Place.Locate(key)
	_, _, next := k.to.Pool.Place.Locate(key)
	switch {
	case owner < 0 || next < 0 || k.from.Servers[owner] == k.to.Servers[next]:
		return false
	case k.is.Stage() == resize.Stable:
		return k.to.InView(next) == k.rest[0]
	}
	return k.from.InView(owner) == k.rest[0]
}

func (k *walk) allListed(d *dump, ok bool, why string) {
	k.dump = nil
	k.ratedAt, k.rated = k.e.Now, k.progress.Done // the time of the listing does not count
	if !ok {
		k.later(why)
		return
	}
	k.works, k.gaps = true, d.gaps
	if k.progress.Listed = true; !k.stuck {
		k.progress.Why = ""
	}
	k.e.At(link.ResyncTimer, k.e.Now)
}

// next ends the work on a server.
func (k *walk) next() { k.rest, k.clean, k.gone, k.unmoved = k.rest[1:], 0, nil, 0 }

// lose counts the keys of an old owner that is out as lost, as far as a listing has found them.
func (k *walk) lose(srv *upstream.Server) {
	if k.is.Stage() == resize.Move {
		k.away = append(k.away, srv.Target.Name)
		k.progress.Rejected += k.unmoved
		k.e.countKeys(k.w.Pool).Rejected += k.unmoved
	}
}

// handle handles listed keys, as fast as the rate of the pool allows. If their server is not in use any more, it is listed again later.
func (k *walk) handle() {
	e := k.e
	if len(k.keys) > 0 && !k.inUse(k.rest[0]) {
		k.failed, k.keys, k.reason = k.failed+len(k.keys), nil, k.notInUse(k.rest[0])
	}
	for len(k.keys) > 0 {
		if k.open >= background { // the end of a move continues the work
			return
		}
		if !e.mayMove(k.bp.Pool.Name, k.rest[0], k.bp.Pool.MoveRate(), 1) {
			k.at = e.Now + walkTick
			e.At(link.ResyncTimer, k.at)
			return
		}
		key := []byte(k.keys[0])
		k.keys = k.keys[1:]
		if !k.take(key) {
			k.failed++
		}
	}
	if k.open == 0 {
		k.passed()
	}
}

// take begins to move or to remove a key. It returns false if that is not possible now.
func (k *walk) take(key []byte) bool {
	e, i := k.e, k.rest[0]
	rt := k.route()
	if rt == nil {
		k.reason = "no route uses the pool"
		return false
	}
	hash := e.Loops.HashKey(key)
	_, again := k.before[hash]
	if again {
		k.again++
	}
	from := movingReplica(k.bp, i)
	name := divert.AppendKey(nil, uint64(k.bp.View.Renamed(i)), key)
	mv := &moving{n: k.is.N, names: [3][]byte{name, name}}
	replicas, rule := []replica{from, from}, replicate.Move(0, 0, 0, false)
	lost := false
	if k.is.Stage() == resize.Move && !again { // a key that is listed again although it was moved is stale, or its new owner rejects it
		_, _, next := k.to.Pool.Place.Locate(key)
		c, _, why := e.movingCommand(k.bp, k.is, key)
		if k.bp.View.Phase(k.to.InView(next)) == health.Out {
			why = "server " + k.to.Servers[next].Label() + ", to which keys move, is out"
		}
		switch lost = k.isOut(next); {
		case lost:
		case why != "":
			k.reason = why
			return false
		default:
			mv.names, replicas, rule = c.moving.names, c.replicas, replicate.Depart()
		}
	}
	k.open++
	moves := replicas[0] != replicas[1]
	mv.ended = func(c *command, ok bool) {
		k.open--
		count := e.countKeys(k.w.Pool)
		rejects := slices.ContainsFunc(c.asks, func(a copyAsk) bool {
			return a.Step == replicate.Fill && (a.kind == replicate.ServerError || a.kind == replicate.ClientError)
		})
		switch {
		case rejects, ok && lost:
			k.progress.Rejected++
			count.Rejected++
		case ok && moves:
			k.progress.Done++
			count.Moved++
		case ok:
			k.progress.Done++
			count.Removed++
		}
		if !ok {
			k.failed++
		}
		if ok || rejects {
			k.gone[hash] = struct{}{}
		}
		e.At(link.ResyncTimer, e.Now)
	}
	e.runMove(rt, key, replicas, mv, rule)
	return true
}

// isOut reports whether a server to which keys move has been out for walkOut. next is its index in k.to. If the configuration requires the
// list that keys leave, isOut returns false: their values stay when the change is reversed.
func (k *walk) isOut(next int) bool {
	if k.bp.View.Phase(k.to.InView(next)) != health.Out {
		delete(k.out, next)
		return false
	}
	if k.out == nil {
		k.out = map[int]int64{}
	}
	if k.out[next] == 0 {
		k.out[next] = k.e.Now
	}
	return k.e.Now >= k.out[next]+walkOut && !k.bp.View.Resize().TakenBack()
}

// route returns a route of the pool, for the timeouts of requests.
func (k *walk) route() *routing.Route {
	for _, l := range k.e.InOrder {
		for i := range l.Routes {
			if rt := &l.Routes[i]; rt.BoundPool == k.bp {
				return rt
			}
		}
	}
	return nil
}

// passed ends the work on a listing. The server is done when a listing has found nothing.
func (k *walk) passed() {
	k.works = false
	k.unmoved = uint64(k.failed) + k.more
	k.clean++
	if k.found > 0 || k.more > 0 {
		k.clean = 0
	}
	srv := k.bp.Server(k.rest[0]).Label()
	pause := k.pause()
	if k.stuck = pause > 0; !k.stuck {
		k.progress.Why = ""
	}
	switch {
	case k.failed > 0:
		k.later(cmp.Or(k.reason, "server "+srv+" has keys that can't be moved now"))
		k.at = k.e.Now + pause
		return
	case pause > 0:
		k.later(fmt.Sprintf("server %s lists keys again that were moved or removed: perhaps something stores them there directly", srv))
		k.at = k.e.Now + pause
		return
	case k.clean > 0 && (!k.gaps || k.clean >= gapPasses):
		k.next()
	}
	k.e.At(link.ResyncTimer, k.e.Now)
}

// pause returns how long the next listing of a server waits after one that has ended, because keys could not be
// handled, or are listed again although they were handled. It grows; 0: the next listing is due now. One listing
// with keys of the second kind is normal: see take.
func (k *walk) pause() int64 {
	switch k.passes++; {
	case k.failed > 0:
		return walkPause << min(k.passes-1, walkFailures)
	case k.again == 0:
		k.passes = 0
		return 0
	case k.passes < 2:
		return 0
	}
	return walkPause << min(k.passes-2, walkDoubles)
}

// askFormer asks a server whether instances use it by a pool with the name of the pool that warm_from names. Such
// instances have another view record. They would not learn that keys move, and must use the name of this pool.
func (k *walk) askFormer() {
	srv := k.bp.Server(k.asked)
	if srv.Down {
		k.later("server " + srv.Label() + " is not in use")
		return
	}
	k.asking = true
	k.ask(srv, walkFormer{k, srv}, 0, health.MetaGet(health.ViewKey(k.bp.Pool.Former)))
}

// walkFormer receives the reply to the request of askFormer.
type walkFormer struct {
	*walk
	srv *upstream.Server
}

func (k walkFormer) Answered(_ int, r *upstream.Result) {
	k.asking = false
	_, _, found := health.MetaValue(r.Bytes)
	switch former := k.bp.Pool.Former; {
	case r.Bytes == nil:
		k.later(r.Why)
	case !found && !health.IsMetaMiss(r.Bytes):
		k.later(fmt.Sprintf("server %s has replied %.100q", k.srv.Label(), r.Bytes))
	case !found:
		k.asked++
		k.e.At(link.ResyncTimer, k.e.Now)
	default:
		k.later(fmt.Sprintf("server %s has the view record of a pool %s, so instances may use it by that name; the new servers must have the pool name of the former ones, and warm_from another name", k.srv.Label(), former))
	}
}

// The numbers of the requests of a claim.
const (
	claimLook  = iota // mg: does another instance do the work?
	claimTake         // ms: this instance begins it
	claimRenew        // ms: it goes on
	claimNote         // ms: the same, at a further server; the reply does not count
)

// claim stores the item which says that this instance does the work of this stage, on the servers to which keys
// move. The first of them decides: if another instance has stored it there, this one waits. The item has the
// progress of the work, for the views of the other instances.
func (k *walk) claim() {
	key := failover.WalkKey(k.w.Pool, k.is.N)
	id, line := claimLook, "mg "+key+" v\r\n"
	if k.ours {
		k.rate()
		id, line = claimRenew, k.item(key, "")
	}
	for i := range k.to.Servers {
		i = k.to.InView(i)
		srv := k.bp.Server(i)
		if !k.inUse(i) {
			continue
		}
		if k.asking {
			id = claimNote
		}
		k.asking = true
		walkClaim{k, srv}.ask(id, line)
		if !k.ours {
			return
		}
	}
	if !k.asking {
		k.later("no server is in use")
	}
}

// ask sends a request to a server of the pool.
func (k *walk) ask(srv *upstream.Server, to upstream.Asker, id int, line []byte) {
	k.e.Ask(srv.Conns[0], to, id, srv.OwnTimeouts(k.bp.Pool.Failover.Request), line, true)
}

// item returns the request that stores the item, with more flags.
func (k *walk) item(key, flags string) string {
	is := k.progress
	is.By, is.Left, is.Listing = k.bp.View.Name(), k.left(), k.listing()
	value := is.JSON()
	return fmt.Sprintf("ms %s %d T%d%s\r\n%s\r\n", key, len(value), walkSeconds, flags, value)
}

// left returns how many keys of the present listing are still on the server.
func (k *walk) left() uint64 { return uint64(len(k.keys)+k.open+k.failed) + k.more }

// listing returns how long the present listing has taken, in seconds; 0: there is none.
func (k *walk) listing() int64 {
	if k.dump == nil {
		return 0
	}
	return (k.e.Now - k.listedAt) / int64(time.Second)
}

// walkClaim receives the replies to the requests of a claim at one server.
type walkClaim struct {
	*walk
	srv *upstream.Server
}

func (k walkClaim) ask(id int, line string) { k.walk.ask(k.srv, k, id, []byte(line)) }

func (k walkClaim) Answered(id int, r *upstream.Result) {
	if id == claimNote {
		return
	}
	k.asking = false
	switch value, _, found := health.MetaValue(r.Bytes); {
	case bytes.HasPrefix(r.Bytes, []byte("HD")):
		if k.renewAt = k.e.Now + walkRenewal; !k.ours { // the other servers get the item at once
			k.ours, k.renewAt = true, k.e.Now
			k.begin()
		}
		k.e.At(link.ResyncTimer, k.e.Now)
	case r.Bytes == nil:
		k.later(r.Why)
	case id == claimLook && !found && !k.over:
		k.asking = true
		k.ask(claimTake, k.item(failover.WalkKey(k.w.Pool, k.is.N), " ME"))
	default: // another instance does the work
		k.ours = false
		k.progress = stats.ParseResizeWork(value)
		k.later("")
	}
}

// begin begins the progress of the work of this instance, and logs it. Keys that were moved in this stage before count: before a reload, or by
// another instance.
func (k *walk) begin() {
	now := k.e.Now
	k.progress = stats.ResizeWork{Of: len(k.rest), Done: k.progress.Done, Rejected: k.progress.Rejected}
	k.loggedAt, k.ratedAt, k.rated = now, now, k.progress.Done
	if k.is.Stage() == resize.Move {
		what := "keys begin to move to other servers"
		switch {
		case k.progress.Done > 0:
			what = "this instance goes on moving keys"
		case k.is.Reversed():
			what = "keys begin to move back"
		}
		k.e.LogLimited(slog.LevelInfo, k.w.Pool, what, event.Other.Attr(), "pool", k.w.Pool, "servers", len(k.rest), "rate", k.bp.Pool.MoveRate())
	}
}

// rate computes how many keys are handled in a second while no server is being listed, and logs the progress from time
// to time.
func (k *walk) rate() {
	p, now := &k.progress, k.e.Now
	if now > k.ratedAt && k.dump == nil {
		p.Rate = float64(p.Done-k.rated) * 1e9 / float64(now-k.ratedAt)
		k.ratedAt, k.rated = now, p.Done
	}
	if now < k.loggedAt+walkLog || k.is.Stage() != resize.Move {
		return
	}
	k.loggedAt = now
	k.e.LogLimited(slog.LevelInfo, k.w.Pool, "keys are moving to other servers", event.Hidden.Attr(), "pool", k.w.Pool,
		"moved", p.Done, "per_second", int(p.Rate), "server", p.Server, "left_there", k.left(), "servers_left", len(k.rest)-1)
}

// logEnd logs the work of a stage that has ended.
func (k *walk) logEnd() {
	level, what, reports, p := slog.LevelInfo, "keys have moved to other servers", event.KeysMoved, &k.progress
	if k.is.Reversed() {
		what = "keys have moved back"
	}
	attrs := []any{"pool", k.w.Pool, "keys", p.Done}
	switch away := strings.Join(k.away, " "); {
	case k.is.Stage() != resize.Move:
		what, reports = "keys were removed from servers that must not have them", event.Other
		if p.Done == 0 {
			return
		}
	case p.Rejected > 0:
		level, what, reports = slog.LevelWarn, what+", but keys are lost", event.KeysLost
		attrs = append(attrs, "lost", p.Rejected, "old_servers_out", away)
	case away != "":
		level, what, reports = slog.LevelWarn, what+", but not from servers that are out", event.KeysLeft
		attrs = append(attrs, "old_servers_out", away)
	}
	k.e.LogLimited(level, k.w.Pool, what, append(attrs, "seconds", (k.e.Now-k.began)/int64(time.Second), reports.Attr())...)
}

// addResize adds the progress of the changes of servers to a snapshot.
func (e *Replicator) addResize(into *stats.Snapshot) {
	for pool, n := range e.resizeKeys {
		to := &into.Resize(pool).Keys
		to.Moved, to.Copied, to.Removed, to.Rejected = to.Moved+n.Moved, to.Copied+n.Copied, to.Removed+n.Removed, to.Rejected+n.Rejected
	}
	for pool, k := range e.walks {
		is := into.Resize(pool)
		if is.Work, is.Ours = k.progress, k.ours; k.ours {
			is.Work.By, is.Work.Left, is.Work.Listing = k.bp.View.Name(), k.left(), k.listing()
		}
	}
}

// countKeys returns the counts of keys of a pool.
func (e *Replicator) countKeys(pool string) *stats.ResizeKeys {
	return stats.Entry(&e.resizeKeys, pool)
}
