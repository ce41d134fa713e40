package copies

// The ledger: what each member of a pool is missing, and how that is found out. The doc
// of this package has the table of it.

import (
	"slices"
	"time"

	"ringside/proxy/copies/entries"
	"ringside/proxy/health"
	"ringside/proxy/link"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
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

	*entries.Table              // of the keys that it has wrong
	numbers        []lastNumber // of its server, by the views that have one, as notice saw them last
	Incomplete     bool         // it has come back empty: a miss there decides nothing
	Resync         *resync      // what fills it; nil: nothing does
	until          int64        // when Incomplete ends by itself, where repairs are off
	doomed         bool         // the keepers of another pool are about to flush its server
	left           bool         // in a handover: it has no keys any more that it is not to have

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
	for _, l := range e.InOrder {
		for i := range l.Routes {
			if rt := &l.Routes[i]; rt.CopiesOn(bp) {
				rate = max(rate, rt.Copies.RepairRate)
			}
		}
	}
	return rate
}

// incomplete reports whether a member has come back empty and is not filled yet, or may be
// flushed at any time. Where repairs are off nobody fills it, and it counts as complete after
// incompleteTime.
func (m *account) incomplete(e *Copies) bool {
	return m.doomed || m.Incomplete && (m.ledger.rate > 0 || e.Now < m.until)
}

// lastNumber is the number of a member's server, which says how often that was flushed, as a
// view has it: that of the member's pool, or of another pool that names the server.
type lastNumber struct {
	view   *health.View
	member int
	known  bool   // the view has learned n
	n      uint32 // see health.View.N
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
	if len(m.numbers) == 0 {
		m.numbers = append(m.numbers, lastNumber{})
	}
	if view.Learned() {
		m.compare(e, 0, lastNumber{view, m.index, true, view.N(m.index)})
	}
	numbers := m.numbers[:1]
	m.doomed = false
	for _, r := range e.Keepers.Registrations[m.server()] {
		if v := r.Agent.View; v != view || r.Member != m.index {
			now := lastNumber{v, r.Member, v.Learned(), v.N(r.Member)}
			m.doomed = m.doomed || health.PhaseOf(now.n) == health.Returning
			if len(numbers) == len(m.numbers) {
				m.numbers = append(m.numbers, now)
			}
			numbers = m.numbers[:len(numbers)+1]
			m.compare(e, len(numbers)-1, now)
		}
	}
	m.numbers = numbers
}

// compare takes what the i-th view says now, and notes if there was a flush since the last
// time. If the keeper of another pool has flushed, what is known of the member's keys is
// kept: a server that refuses to be flushed counts as flushed in that pool, where its keys
// are renamed.
func (m *account) compare(e *Copies, i int, now lastNumber) {
	before := m.numbers[i]
	m.numbers[i] = now
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
// matters to reads: what is stale is deleted, single keys are copied, then all others. As
// long as the member is not complete it tells the keepers of this process.
func (m *account) tend(e *Copies) {
	bp, srv := m.ledger.bp, m.server()
	if m.Incomplete = m.incomplete(e); m.lacks() {
		bp.View.SayIncomplete(m.index, e.Now+2*int64(lookTime))
	}
	m.defend(e)
	if m.Overflowed && m.othersComplete() {
		bp.View.SayUnfit(m.index, m.numbers[0].n)
	}
	if !srv.Down && !e.handover.Pauses() {
		m.deleteStale(e)
		m.copyLost(e)
	}
	if srv.Unidentified && !srv.Down || srv.StartedAt == 0 && srv.Conns[0].State == upstream.ConnUp {
		e.Keepers.Identify(srv) // reads go to others first, so no command may ever ask for it
	}
	leaves := !m.Incomplete && e.leaves(m)
	switch f := m.Resync; {
	case f != nil && (f.leaving != leaves || !leaves && !m.Incomplete || m.ledger.rate == 0):
		m.stop()
	case e.handover.Pauses() || m.doomed:
	case f == nil && (m.Incomplete || leaves) && m.ledger.rate > 0:
		m.Resync = &resync{m: m, index: m.index, to: srv, leaving: leaves, wait: int64(retryFirst)}
		fallthrough
	case f != nil:
		m.Resync.advance(e, bp)
	}
}

// lacks reports whether the member has less than it is to have.
func (m *account) lacks() bool { return m.Incomplete || m.HasLess() }

// defend tells the keepers of other pools that have the server of a member whether that may
// have the only copy of a key: they would flush it, and don't see what this pool's servers lack.
func (m *account) defend(e *Copies) {
	view := m.ledger.bp.View
	if p := view.Phase(m.index); p == health.Leaving || p == health.Out || p == health.Returning {
		return
	}
	for i := range m.ledger.Members {
		if o := &m.ledger.Members[i]; o == m || view.Phase(i) == health.In && !o.lacks() {
			continue
		}
		for _, r := range e.Keepers.Registrations[m.server()] {
			if r.Agent.View != view {
				r.Agent.View.SayNeeded(r.Member, e.Now+2*int64(lookTime))
			}
		}
		return
	}
}

// StartedAnew notes that another process answers at srv, which has lost what the one before
// it had.
func (e *Copies) StartedAnew(srv *upstream.Server) {
	for _, m := range e.Keepers.Registrations[srv] {
		if w := e.Ledgers[m.Pool]; w != nil && m.Member < len(w.Members) {
			w.Members[m.Member].markEmpty(e, false)
		}
	}
}

// AddTo adds to the statistics what members lack, as this loop knows it. Each loop's
// ledger is of other keys, so the numbers add up.
func (e *Copies) AddTo(into *stats.Snapshot) {
	e.proceed() // a loop to which nothing comes is told by Tend alone
	into.Moving, into.Unsettled = into.Moving || e.handover != nil, max(into.Unsettled, e.unsettled())
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
