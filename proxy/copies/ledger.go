package copies

// The ledger: what each member of a pool is missing, and how that is found out. The doc
// of this package has the table of it.

import (
	"slices"
	"time"

	"ringside/proxy/copies/entries"
	"ringside/proxy/health"
	"ringside/proxy/health/process"
	"ringside/proxy/link"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// ledger is what one loop knows of how complete the members of a pool are. It stays
// over reloads, and its members have the order of the pool's servers.
type ledger struct {
	bp      *routing.BoundPool // the pool in the present table
	Servers []*upstream.Server // of bp, when the ledger was made
	rate    int                // keys a second that a member may be given; 0: repairs are off
	Members []account
}

// account is what the ledger says of one member. Times are on the loop's clock.
type account struct {
	ledger *ledger
	index  int // of the member in the pool

	*entries.Table           // of the keys that it has wrong
	heard          []hearing // flushes of its server, as they were known when notice was called last
	Incomplete     bool      // it has come back empty: a miss there decides nothing
	Resync         *resync   // what fills it; nil: nothing does
	until          int64     // when Incomplete ends by itself, where repairs are off
	left           bool      // in a handover: it has no keys any more that it is not to have

	tokens   float64 // copies that it may be given now: a token bucket
	filledAt int64   // when tokens was counted
}

const incompleteTime = time.Minute // how long a member that nobody fills counts as incomplete

// KeepLedger lets the pool bp keep the ledger that it had before a reload, if its
// servers are the same.
func (e *Copies) KeepLedger(bp *routing.BoundPool) {
	old := e.Ledgers[bp.Pool.Name]
	if old != nil && slices.Equal(old.Servers, bp.Servers) {
		old.bp = bp
		return
	}
	if e.Ledgers == nil {
		e.Ledgers = map[string]*ledger{}
	}
	e.Ledgers[bp.Pool.Name] = e.newLedger(bp, old)
	old.stop()
}

// newLedger makes the ledger of a pool whose ledger was old; nil: it had none. What a
// server has wrong is taken over, since it stays wrong.
func (e *Copies) newLedger(bp *routing.BoundPool, old *ledger) *ledger {
	w := &ledger{bp: bp, Servers: slices.Clone(bp.Servers), Members: make([]account, len(bp.Servers))}
	for i, srv := range bp.Servers {
		m := &w.Members[i]
		m.ledger, m.index = w, i
		m.Table = &entries.Table{Keys: map[uint64]*entries.Entry{}}
		// When the process starts nobody can know what a server has, and it counts as
		// complete. One whose release is known was in use for other keys, and never
		// had those that the pool has now given it.
		m.Incomplete = old != nil || srv.Release != (wire.Release{})
		m.until = e.Now + int64(incompleteTime)
		if old == nil {
			continue
		}
		if j := slices.Index(old.Servers, srv); j >= 0 {
			m.Table, m.Incomplete = old.Members[j].Table, old.Members[j].Incomplete
		}
	}
	return w
}

// server is the server of the member in the present table.
func (m *account) server() *upstream.Server { return m.ledger.bp.Servers[m.index] }

// stop ends the resyncs of all members. w may be nil.
func (w *ledger) stop() {
	if w != nil {
		for i := range w.Members {
			w.Members[i].stop()
		}
	}
}

// TakeCopies drops the ledgers of pools that keep no copies any more, and sets the
// repair rates of the others. It is called when the routes of a new table are bound.
func (e *Copies) TakeCopies() {
	for name, w := range e.Ledgers {
		if !slices.Contains(e.Pools, w.bp) {
			w.stop()
			delete(e.Ledgers, name)
			continue
		}
		w.rate = e.repairRate(w.bp)
		e.At(link.ResyncTimer, e.Now)
	}
	e.takeArrangement()
}

// repairRate is the highest rate, in keys a second, that a route sets for members of bp.
func (e *Copies) repairRate(bp *routing.BoundPool) (rate int) {
	for _, l := range e.Listeners {
		for i := range l.Routes {
			if rt := &l.Routes[i]; rt.CopiesOn(bp) {
				rate = max(rate, rt.Copies.RepairRate)
			}
		}
	}
	return rate
}

// incomplete reports whether a member has come back empty and is not filled yet. Where
// repairs are off nobody fills it, and it counts as complete after incompleteTime.
func (m *account) incomplete(e *Copies) bool {
	return m.Incomplete && (m.ledger.rate > 0 || e.Now < m.until)
}

// hearing is how often the server of a member was flushed, as a view tells it: that of the
// member's pool, or of another pool that names the server.
type hearing struct {
	view   *health.View
	member int
	known  bool   // the view has learned n
	n      uint32 // number of the phase, see health
}

// notice looks whether the server was flushed, by the keepers of the member's pool or of
// another. It is called before what the ledger says is used or added to: a miss behind a
// flush decides nothing, and what the member misses behind it must not be forgotten with
// what it missed before.
//
// A view that has learned nothing yet, after a start or a reload, says nothing: its
// numbers would seem to grow when it learns them. Those of the member's own pool go on
// with another view, which is of the same servers.
func (m *account) notice(e *Copies) {
	view := m.ledger.bp.View
	if len(m.heard) == 0 {
		m.heard = append(m.heard, hearing{})
	}
	if view.Learned() {
		m.hear(e, 0, hearing{view, m.index, true, view.N(m.index)})
	}
	others := m.heard[:1]
	for _, r := range e.Keepers.Registrations[m.server()] {
		if v := r.Agent.View; v != view || r.Member != m.index {
			now := hearing{v, r.Member, v.Learned(), v.N(r.Member)}
			if len(others) == len(m.heard) {
				m.heard = append(m.heard, now)
			}
			others = m.heard[:len(others)+1]
			m.hear(e, len(others)-1, now)
		}
	}
	m.heard = others
}

// hear notes what the i-th view says. What is known of the member's keys is kept if it was
// another pool's keeper that has flushed: a server that refuses to be flushed counts as
// flushed in that pool, where its keys are renamed.
func (m *account) hear(e *Copies, i int, now hearing) {
	before := m.heard[i]
	m.heard[i] = now
	own := i == 0
	if before.known && (own || before.view == now.view && before.member == now.member) && health.Emptied(before.n) < health.Emptied(now.n) {
		m.markEmpty(e, own)
	}
}

// markEmpty notes that a member is empty, because it was flushed or started anew. All
// Ringsides wait for a flush, so nothing stale is left behind one. After a restart
// another Ringside may have filled the member already, with values of which this one
// knows that they are stale: what is known of its keys is kept.
func (m *account) markEmpty(e *Copies, flushed bool) {
	m.stop()
	if flushed {
		*m.Table = entries.Table{Keys: map[uint64]*entries.Entry{}, DeletesSent: m.DeletesSent}
	}
	m.Incomplete, m.until = true, e.Now+int64(incompleteTime)
	e.At(link.ResyncTimer, e.Now)
}

// othersComplete reports whether the member can be emptied without losing the only
// copy of a key, as far as this loop knows. An empty member can be filled, one with
// stale keys that nobody remembers can't be mended. Of several that have overflowed the
// one with the lowest index goes first, and the others wait until it is filled.
func (m *account) othersComplete() bool {
	for i := range m.ledger.Members {
		o := &m.ledger.Members[i]
		if o.server().Down || o != m && (o.Incomplete || o.Overflowed && i < m.index) {
			return false
		}
	}
	return true
}

// Tend looks after all members of all pools, at every turn of ResyncTimer. It sets the
// timer again, at most lookTime from now, while there is a ledger.
func (e *Copies) Tend() {
	e.reassure()
	e.proceed()
	for _, bp := range e.Pools { // in the table's order
		w := e.Ledgers[bp.Pool.Name]
		if w == nil {
			continue
		}
		for i := range w.Members {
			w.Members[i].notice(e)
		}
		for i := range w.Members {
			w.Members[i].tend(e)
		}
		e.At(link.ResyncTimer, e.Now+int64(lookTime))
	}
	e.endHandover()
}

// tend does for a member what its ledger says is to be done, in the order in which it
// matters to reads: what is stale goes, single keys are copied, then the rest is. It tells the keepers
// of this process as long as the member is not complete.
func (m *account) tend(e *Copies) {
	bp, srv := m.ledger.bp, m.server()
	if m.Incomplete = m.incomplete(e); m.Incomplete || m.HasLess() {
		bp.View.SayIncomplete(m.index, e.Now+2*int64(lookTime))
	}
	if m.Overflowed && m.othersComplete() {
		bp.View.SayUnfit(m.index, m.heard[0].n)
	}
	if !srv.Down && !e.paused() {
		m.deleteStale(e)
		m.copyLost(e)
	}
	if srv.Unidentified && !srv.Down || srv.StartedAt == 0 && srv.Conns[0].State == upstream.ConnUp {
		e.Identify(srv.Conns[0]) // reads go to others first, so no command may ever ask for it
	}
	leaves := !m.Incomplete && e.leaves(m)
	switch f := m.Resync; {
	case f != nil && (f.leaving != leaves || !leaves && !m.Incomplete || m.ledger.rate == 0):
		m.stop()
	case e.paused():
	case f == nil && (m.Incomplete || leaves) && m.ledger.rate > 0:
		m.Resync = &resync{m: m, index: m.index, to: srv, leaving: leaves, wait: int64(retryFirst)}
		fallthrough
	case f != nil:
		m.Resync.advance(e, bp)
	}
}

// Identify asks a server since when it runs, on its new connection c: a process that
// was started anew has lost what the one before it had. It does nothing if the server
// is being asked already, or keeps no copies.
func (e *Copies) Identify(c *upstream.Conn) {
	srv := c.Server
	if srv.Identifying || !slices.Contains(srv.Conns, c) {
		return
	}
	for _, m := range e.Keepers.Registrations[srv] {
		if m.Copies {
			limit := table.Timeouts{Request: srv.Greeting, Deadline: srv.Connect + srv.Greeting}
			srv.Identifying = true
			m.Agent.View.SayIncomplete(m.Member, e.Now+2*int64(lookTime)) // until it is known
			e.Ask(c, &identification{e, srv}, 0, &limit, []byte("stats\r\n"), true)
			srv.Unidentified = srv.StartedAt != 0
			return
		}
	}
}

// identification is the stats command that asks a server since when it runs.
type identification struct {
	e   *Copies
	srv *upstream.Server
}

// startUnknown is the StartedAt of a server whose stats don't tell. It counts as one
// process for ever.
const startUnknown = -1

func (d *identification) Client() uint64 { return 0 }

func (d *identification) Answered(_ int, r *upstream.Result) {
	e, srv := d.e, d.srv
	srv.Identifying = false
	p, ok := process.Parse(r.Bytes)
	before := process.Process{PID: srv.Pid, Started: srv.StartedAt}
	switch {
	case r.Bytes == nil || !ok && before.Started > 0:
		return
	case !ok:
		srv.StartedAt, srv.Unidentified = startUnknown, false
		return
	}
	srv.Unidentified = false
	srv.StartedAt, srv.Pid = p.Started, p.PID
	if before.Started <= 0 || p.Is(before) {
		return
	}
	for _, m := range e.Keepers.Registrations[srv] {
		if w := e.Ledgers[m.Pool]; w != nil && m.Member < len(w.Members) {
			w.Members[m.Member].markEmpty(e, false)
		}
	}
}

// AddTo adds to the statistics what members lack, as this loop knows it. Each loop's
// ledger is of other keys, so the numbers add up.
func (e *Copies) AddTo(into *stats.Snapshot) {
	for pool, w := range e.Ledgers {
		for i := range w.Members {
			m := &w.Members[i]
			m.notice(e)
			filling := m.incomplete(e) || e.handover != nil
			if !filling && len(m.Keys) == 0 {
				continue
			}
			if into.Lacks == nil {
				into.Lacks = map[[2]string]stats.Lack{}
			}
			at := [2]string{pool, w.bp.Pool.Servers[i].Name}
			is := into.Lacks[at]
			is.Filling = is.Filling || filling
			is.Missed += m.Missed()
			if m.Resync != nil {
				is.Copied += m.Resync.filled
			}
			is.Waiting += m.Waiting()
			is.Flush = is.Flush || m.Overflowed
			into.Lacks[at] = is
		}
	}
}
