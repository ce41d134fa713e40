package copies

// How far each holder of a key can be trusted now, and whether an answer still counts
// when it is to be told.

import (
	"ringside/proxy/health"
	"ringside/proxy/health/divert"
	"ringside/proxy/task"
	"ringside/proxy/wire"
	"ringside/replicate"
	"ringside/replicate/castoken"
)

// stateOf is what is known of member i for this key. With suspicion a server that a
// keeper suspects counts as one that can't be reached, though it is up for this loop.
// Suspicion may come from another loop, and may last longer than its reason.
//
// A write waits for a member that can't be reached, in relaxed mode too: others may
// still read there, and only this process would know what the member has missed. It
// would wait for ever where no server of the member's pool answers, since the phases are
// agreed on there. So in relaxed mode each process then leaves the member out, and keeps
// what it has missed in its ledger.
func (c *command) stateOf(t *task.Task, i int, suspicion bool) replicate.Member {
	m := &c.members[i]
	strict := m.Pool.Pool.Failover.Strict
	out := replicate.Member{
		Near:      t.Route.IsNear(m.Holder),
		ChosenCAS: t.Req.Dialect == wire.Meta && m.Server.Speech(t.Asker)&wire.ChosenCAS != 0,
	}
	switch phase := m.Pool.View.Phase(m.Index); {
	case strict && phase != health.Out && phase != health.Leaving && !m.leased(t.Loop.Now):
		out.State = replicate.Suspect
	case suspicion && !strict && phase != health.Out && phase != health.Leaving && m.Pool.View.Gone():
		out.State = replicate.Gone
	case phase == health.In && (m.Server.Down || (suspicion || strict) && m.Pool.View.Suspected(m.Index)):
		out.State = replicate.Suspect
	case suspicion && phase != health.Out && phase != health.Leaving && m.Server.HasLateDelete(t.Key): // it would take what is written now
		out.State = replicate.Suspect
	case phase == health.In && m.Dirty(t.Hash):
		out.State = replicate.Dirty
	case phase == health.In && (m.incomplete(c.e) || m.Server.Unidentified):
		out.State = replicate.Filling
	case phase == health.In:
		out.State = replicate.In
	case phase == health.Leaving:
		out.State = replicate.Leaving
	case phase == health.Out:
		out.State = replicate.Out
	case phase == health.Returning:
		out.State = replicate.Returning
	case phase == health.Warming:
		out.State = replicate.Warming
	default:
		out.State = replicate.Settling
	}
	return out
}

// generation changes when the phase of any server of the members' pools does.
func (c *command) generation() (sum uint64) {
	for i := range c.members {
		sum += c.members[i].Pool.View.Gen()
	}
	return sum
}

// phaseNumbers is the sum of the members' phase numbers. They only grow, so it changes
// when one of the members comes to another phase. Suspicion is left out: what a suspected
// server has answered is still true.
func (c *command) phaseNumbers() (sum uint64) {
	for i := range c.members {
		m := &c.members[i]
		sum += uint64(m.Pool.View.N(m.Index)) + uint64(m.Pool.View.Renamed(m.Index))
	}
	return sum
}

// keyAt is the name of t's key at member i. A server that refused to be flushed still
// has stale values under the plain names, so its keys have other names since.
func (c *command) keyAt(t *task.Task, i int) []byte {
	m := &c.members[i]
	n := m.Pool.View.Renamed(m.Index)
	if n == 0 {
		return t.Key
	}
	return divert.AppendKey(nil, uint64(n), t.Key)
}

// leased reports whether this process has a lease on the member, without which a strict
// pool answers nothing from it: others may have moved its keys. Relaxed pools need none.
func (m *copyOf) leased(now int64) bool {
	return !m.Pool.Pool.Failover.Strict || now < m.Pool.View.ValidUntil(m.Index)
}

// lends reports whether what the member has may be copied to others: nobody has done without
// it yet. A copy claims first, and asks the member behind that, so a delete that does without
// it comes behind the claim, and takes that. The lease is looked at before the phase: see sure.
func (m *copyOf) lends(now int64) bool {
	if !m.leased(now) {
		return false
	}
	phase := m.Pool.View.Phase(m.Index)
	return phase == health.In || phase == health.Warming || phase == health.Settling
}

// outlook changes when a phase does, when a lease on a member ends or comes back, and
// when what lies behind a late set of t's key has run there. A command that is parked is
// led again then.
func (c *command) outlook(t *task.Task) uint64 {
	usable := uint64(0)
	for i := range c.members {
		if m := &c.members[i]; m.leased(c.e.Now) && !m.Server.HasLateDelete(t.Key) {
			usable |= 1 << i
		}
	}
	return c.generation()<<replicate.Max | usable
}

// sure reports whether the answer that the rule has settled on still counts. In a strict
// pool the phases must be those that the command began with, and there must be leases:
// for a read on the member whose answer it is, for a write on all that have taken it,
// at a moment behind the last answer; and the leases are looked at before the phases, as
// they are published behind them (health.View.Publish). Else another Ringside may have given the key to other members in between. In any pool
// the process that has decided a write must still be there: one that has been restarted
// has lost the value, and nobody knows which of the copies have it. A client error has
// decided nothing.
func (c *command) sure(t *task.Task, s replicate.Settlement) bool {
	if c.writes && s.Answer >= 0 && c.asks[s.Answer].kind != replicate.ClientError && c.asks[s.Answer].result.Void() {
		return false
	}
	strict, now := false, int64(0)
	for i := range c.asks {
		a := &c.asks[i]
		m := &c.members[a.Member]
		if !m.Pool.Pool.Failover.Strict {
			continue
		}
		if !strict {
			strict, now = true, t.Loop.Moment()
		}
		if (i == s.Answer || c.writes && a.Deed.Mutates() && a.result.Bytes != nil) && !m.leased(now) {
			return false
		}
	}
	return !strict || c.phases == c.phaseNumbers()
}

// handedOver reports whether another member than the authority of t's command, a write that
// the authority decides, may decide about the key by now, here or at another Ringside. It
// was on its way back when the command began. SETTLE lasts two pings in relaxed mode, and a
// command on a slow server may take longer.
func (c *command) handedOver(t *task.Task) bool {
	if !c.writes || c.isRepair || c.authority < 0 || t.Op == wire.Set || t.Op == wire.Add || t.Op == wire.Delete {
		return false // all decide those
	}
	for i := range c.members[:c.authority] {
		m := &c.members[i]
		switch phase := m.Pool.View.Phase(m.Index); {
		case m.Pool.View.Gone() || c.gone.Has(i): // it has been left out, and may answer again since
		case phase == health.In || phase == health.Settling:
			return true
		}
	}
	return false
}

// identity is what cas tokens of t's key at member i are sealed for: see package
// replicate.
func (c *command) identity(t *task.Task, i int) uint64 {
	m := &c.members[i]
	target := &m.Server.Target
	return castoken.Identity(target.Network+" "+target.Address, t.Key,
		uint64(m.Server.StartedAt), uint64(m.Server.Pid), uint64(health.Emptied(m.Pool.View.N(m.Index))))
}

// unidentified is the index of a member whose server has not said yet since when it
// runs, if t needs that for a cas token; -1: there is none. To open a token the present
// process must be known. To seal one the last known process is enough: if that has ended
// the token fits nothing, which is the truth.
func (c *command) unidentified(t *task.Task, states []replicate.Member) int {
	_, opens := t.Token()
	shows := t.Op == wire.Gets || t.Op == wire.Gats || t.Op == wire.Get && t.Req.Flags&wire.Binary != 0 || t.Req.Letters.Has('c')
	if !opens && !shows {
		return -1
	}
	authority := replicate.Authority(states)
	for i := range states {
		srv := c.members[i].Server
		switch states[i].State {
		case replicate.In, replicate.Dirty, replicate.Filling, replicate.Warming, replicate.Settling:
			if !srv.Down && (srv.StartedAt == 0 || opens && i == authority && srv.Unidentified) {
				return i
			}
		}
	}
	return -1
}

// awaitIdentity parks t until the server of member i has said since when it runs, or is
// down, or a phase changes.
func (c *command) awaitIdentity(t *task.Task, i int) {
	srv, was := c.members[i].Server, c.outlook(t)
	c.e.Keepers.Identify(srv)
	c.e.await(t, "server "+srv.Label()+" has not said yet since when it runs, which cas tokens depend on", func() bool {
		return srv.StartedAt != 0 && !srv.Unidentified || srv.Down || c.outlook(t) != was
	})
}
