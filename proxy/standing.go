package proxy

// Which members have a key of which a route keeps copies, and how far each can
// be trusted now.

import (
	"ringside/proxy/health"
	"ringside/proxy/wire"
	"ringside/replicate"
)

// stateOf is what is known of a member for this key. In relaxed mode nobody
// waits for a server that can't be reached: writes leave it out, and the key
// is dirty there until it is repaired. Suspicion may come from another loop, or
// last a little longer than its reason.
func (c *copied) stateOf(t *task, i int, suspicion bool) replicate.Member {
	m := &c.members[i]
	m.unreachable = false
	strict := m.lp.pool.Failover.Strict
	out := replicate.Member{
		Near:      t.rt.prefer == m.lp || t.rt.prefer == nil && t.rt.zone != "" && m.lp.pool.Servers[m.index].Zone == t.rt.zone,
		ChosenCAS: t.req.Dialect == wire.Meta && m.srv.speech(t.client)&wire.ChosenCAS != 0,
	}
	switch phase := m.lp.view.Phase(m.index); {
	case strict && phase != health.Out && phase != health.Leaving && !m.leased(t.e.now):
		out.State = replicate.Suspect
	case phase == health.In && (m.srv.down || (suspicion || strict) && m.lp.view.Suspected(m.index)):
		out.State = replicate.Suspect
		if !strict {
			out.State, m.unreachable = replicate.Out, true
		}
	case phase == health.In && m.missedTooMuch(c.e):
		out.State = replicate.Returning
	case phase == health.In && m.missed().Has(t.hash):
		out.State = replicate.Dirty
	case phase == health.In && (m.lacks(c.e) || m.srv.unknown):
		out.State = replicate.Warming
	case phase == health.In:
		out.State = replicate.In
	case phase == health.Leaving:
		out.State = replicate.Leaving
		if !strict {
			out.State = replicate.Out
		}
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

// generation changes when anybody's phase does.
func (c *copied) generation() (sum uint64) {
	var last *health.View
	for _, m := range c.members {
		if m.lp.view != last {
			last = m.lp.view
			sum += last.Gen()
		}
	}
	return sum
}

// outages is the sum of the members' numbers, which only grow: it changes when
// one of them comes to another phase. Suspicion changes nothing that was told.
func (c *copied) outages() (sum uint64) {
	for i := range c.members {
		m := &c.members[i]
		sum += uint64(m.lp.view.N(m.index)) + uint64(m.lp.view.Renamed(m.index))
	}
	return sum
}

// keyAt is the name of t's key at a member. One that refused to be flushed has
// what it had before under the plain name.
func (c *copied) keyAt(t *task, i int) []byte {
	m := &c.members[i]
	n := m.lp.view.Renamed(m.index)
	if n == 0 {
		return t.key
	}
	return health.AppendKey(nil, uint64(n), t.key)
}

// leased says that what the member answers now may be told, as far as it goes.
func (m *copyOf) leased(now int64) bool {
	return !m.lp.pool.Failover.Strict || now < m.lp.view.ValidUntil(m.index)
}

// outlook changes when anybody's phase does, or when a lease ends or is there
// again: what a write that is held waits for.
func (c *copied) outlook() uint64 {
	leased := uint64(0)
	for i := range c.members {
		if c.members[i].leased(c.e.now) {
			leased |= 1 << i
		}
	}
	return c.generation()<<replicate.Max | leased
}

// sure says whether an answer counts that the rule has settled on: in strict
// mode nobody may have learnt since it was asked for that others decide. A read
// needs that of the member whose answer it is, a write of all that took it.
func (c *copied) sure(t *task, s replicate.Settlement) bool {
	strict := false
	for i := range c.asks {
		a := &c.asks[i]
		m := &c.members[a.Member]
		if !m.lp.pool.Failover.Strict {
			continue
		}
		strict = true
		if (i == s.Answer || c.writes && a.Deed.Mutates() && a.got.bytes != nil) && !m.leased(t.e.now) {
			return false
		}
	}
	return !strict || c.numbers == c.outages()
}

// identity is what cas tokens of t's key at a member are sealed for.
func (c *copied) identity(t *task, i int) uint64 {
	m := &c.members[i]
	target := &m.srv.target
	return replicate.Identity(target.Network+" "+target.Address, t.key,
		uint64(m.srv.born), uint64(m.srv.bornAs), uint64(health.Emptied(m.lp.view.N(m.index))))
}

// stranger is a member whose cas tokens can't be told yet, because it has not
// said since when it runs; -1: there is none. A token that is to be opened must
// be for who is there now; one that is sealed may be for who was there last, for
// then it fits nothing if that has ended.
func (c *copied) stranger(t *task, states []replicate.Member) int {
	_, opens := t.token()
	if !opens && t.op != wire.Gets && t.op != wire.Gats && !t.req.Letters.Has('c') {
		return -1
	}
	authority := replicate.Authority(states)
	for i := range states {
		srv := c.members[i].srv
		switch states[i].State {
		case replicate.In, replicate.Dirty, replicate.Warming, replicate.Settling:
			if !srv.down && (srv.born == 0 || opens && i == authority && srv.unknown) {
				return i
			}
		}
	}
	return -1
}

// awaitStranger parks t until the server of member i has said who it is, or is
// not asked any more.
func (c *copied) awaitStranger(t *task, i int) {
	srv := c.members[i].srv
	t.waited = "server " + srv.label() + " has not said yet since when it runs, which cas tokens depend on"
	c.e.introduce(srv.conns[0])
	t.e.park(t, func() uint64 {
		if srv.born != 0 && !srv.unknown || srv.down {
			return 1
		}
		return c.outlook() << 1
	})
}
