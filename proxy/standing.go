package proxy

// Which members have a key of which a route keeps copies, and how far each can
// be trusted now.

import (
	"ringside/proxy/health"
	"ringside/proxy/wire"
	"ringside/replicate"
)

// members appends who has key: one member of each pool that the route names, or
// several of its only one.
func (rt *route) members(list []copyOf, key []byte) []copyOf {
	if len(rt.also) > 0 {
		for i := -1; i < len(rt.also); i++ {
			lp := rt.livePool
			if i >= 0 {
				lp = rt.also[i]
			}
			if i := lp.owners.Owner(key); i >= 0 {
				list = append(list, copyOf{lp: lp, index: i, srv: lp.servers[i]})
			}
		}
		return list
	}
	part := rt.pool.Place.Part.Of(key)
	h := rt.pool.Place.Hash(part)
	servers := rt.pool.Servers
	same := func(a, b int) bool {
		switch rt.copies.Apart {
		case replicate.Hosts:
			return servers[a].Host == servers[b].Host
		case replicate.Zones:
			return servers[a].Zone == servers[b].Zone
		}
		return false
	}
	var room [replicate.Max]int
	for _, i := range replicate.Members(room[:0], func(n int) int { return rt.order.At(part, h, n) }, rt.copies.Copies, same) {
		list = append(list, copyOf{lp: rt.livePool, index: i, srv: rt.servers[i]})
	}
	return list
}

// stateOf is what is known of a member for this key. In relaxed mode nobody
// waits for a server that can't be reached: writes leave it out, and the key
// is dirty there until it is repaired. Suspicion may come from another loop, or
// last a little longer than its reason.
func (c *copied) stateOf(t *task, i int, suspicion bool) replicate.Member {
	m := &c.members[i]
	m.left = false
	strict := m.lp.pool.Failover.Strict
	out := replicate.Member{
		Near:      t.rt.prefer == m.lp || t.rt.prefer == nil && t.rt.zone != "" && m.lp.pool.Servers[m.index].Zone == t.rt.zone,
		ChosenCAS: t.req.Dialect == wire.Meta && m.srv.speech(t.client)&wire.ChosenCAS != 0,
	}
	switch phase := m.lp.watch.phase(m.index); {
	case strict && phase != health.Out && phase != health.Leaving && !m.leased(t.e.now):
		out.State = replicate.Suspect
	case phase == health.In && (m.srv.down || (suspicion || strict) && m.lp.watch.seen[m.index].suspected()):
		out.State = replicate.Suspect
		if !strict {
			out.State, m.left = replicate.Out, true
		}
	case phase == health.In && m.lp.overfull(t.e, m.index):
		out.State = replicate.Returning
	case phase == health.In && m.missed().Has(c.hash):
		out.State = replicate.Dirty
	case phase == health.In && (m.lp.lacks(t.e, m.index) || m.srv.unknown):
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
	var last *watch
	for _, m := range c.members {
		if m.lp.watch != last {
			last = m.lp.watch
			sum += last.gen.Load()
		}
	}
	return sum
}

// outages is the sum of the members' numbers, which only grow: it changes when
// one of them comes to another phase. Suspicion changes nothing that was told.
func (c *copied) outages() (sum uint64) {
	for i := range c.members {
		seen := &c.members[i].lp.watch.seen[c.members[i].index]
		sum += uint64(seen.n()) + uint64(seen.renamed.Load())
	}
	return sum
}

// keyAt is the name of t's key at a member. One that refused to be flushed has
// what it had before under the plain name.
func (c *copied) keyAt(t *task, i int) []byte {
	m := &c.members[i]
	n := m.lp.watch.seen[m.index].renamed.Load()
	if n == 0 {
		return t.key
	}
	return health.AppendKey(nil, uint64(n), t.key)
}

// leased says that what the member answers now may be told, as far as it goes.
func (m *copyOf) leased(now int64) bool {
	return !m.lp.pool.Failover.Strict || now < m.lp.watch.seen[m.index].valid.Load()
}

// outlook changes when anybody's phase does, or when a lease ends or is there
// again: what a write that is held waits for.
func (c *copied) outlook(e *Engine) uint64 {
	leased := uint64(0)
	for i := range c.members {
		if c.members[i].leased(e.now) {
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

// identity names a member and its incarnation, for cas tokens.
func (c *copied) identity(i int) uint64 {
	m := c.members[i]
	made := uint64(m.srv.born)<<1 ^ uint64(m.srv.bornAs)<<33 // its count of cas begins anew with it
	if m.srv.unknown {
		made |= 1
	}
	return hashOf([]byte(m.srv.target.Address)) ^ made ^ uint64(m.lp.watch.seen[m.index].n())<<20
}
