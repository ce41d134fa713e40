package copies

// Which members have a key of which a route keeps copies, and how far each can
// be trusted now.

import (
	"ringside/proxy/health"
	"ringside/proxy/task"
	"ringside/proxy/wire"
	"ringside/replicate"
)

// stateOf is what is known of a member for this key. In relaxed mode nobody
// waits for a server that can't be reached: writes leave it out, and the key
// is dirty there until it is repaired. Suspicion may come from another loop, or
// last a little longer than its reason.
func (c *command) stateOf(t *task.Task, i int, suspicion bool) replicate.Member {
	m := &c.members[i]
	m.unreachable = false
	strict := m.Pool.Pool.Failover.Strict
	out := replicate.Member{
		Near:      t.Route.Prefer == m.Pool || t.Route.Prefer == nil && t.Route.Zone != "" && m.Pool.Pool.Servers[m.Index].Zone == t.Route.Zone,
		ChosenCAS: t.Req.Dialect == wire.Meta && m.Server.Speech(t.Asker)&wire.ChosenCAS != 0,
	}
	switch phase := m.Pool.View.Phase(m.Index); {
	case strict && phase != health.Out && phase != health.Leaving && !m.leased(t.Loop.Now):
		out.State = replicate.Suspect
	case phase == health.In && (m.Server.Down || (suspicion || strict) && m.Pool.View.Suspected(m.Index)):
		out.State = replicate.Suspect
		if !strict {
			out.State, m.unreachable = replicate.Out, true
		}
	case phase == health.In && m.missedTooMuch(c.e):
		out.State = replicate.Returning
	case phase == health.In && m.missed().Has(t.Hash):
		out.State = replicate.Dirty
	case phase == health.In && (m.lacks(c.e) || m.Server.Unidentified):
		out.State = replicate.Filling
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
func (c *command) generation() (sum uint64) {
	var last *health.View
	for _, m := range c.members {
		if m.Pool.View != last {
			last = m.Pool.View
			sum += last.Gen()
		}
	}
	return sum
}

// outages is the sum of the members' numbers, which only grow: it changes when
// one of them comes to another phase. Suspicion changes nothing that was told.
func (c *command) outages() (sum uint64) {
	for i := range c.members {
		m := &c.members[i]
		sum += uint64(m.Pool.View.N(m.Index)) + uint64(m.Pool.View.Renamed(m.Index))
	}
	return sum
}

// keyAt is the name of t's key at a member. One that refused to be flushed has
// what it had before under the plain name.
func (c *command) keyAt(t *task.Task, i int) []byte {
	m := &c.members[i]
	n := m.Pool.View.Renamed(m.Index)
	if n == 0 {
		return t.Key
	}
	return health.AppendKey(nil, uint64(n), t.Key)
}

// leased says that what the member answers now may be told, as far as it goes.
func (m *copyOf) leased(now int64) bool {
	return !m.Pool.Pool.Failover.Strict || now < m.Pool.View.ValidUntil(m.Index)
}

// outlook changes when anybody's phase does, or when a lease ends or is there
// again: what a write that is held waits for.
func (c *command) outlook() uint64 {
	leased := uint64(0)
	for i := range c.members {
		if c.members[i].leased(c.e.Now) {
			leased |= 1 << i
		}
	}
	return c.generation()<<replicate.Max | leased
}

// sure says whether an answer counts that the rule has settled on: in strict
// mode nobody may have learnt since it was asked for that others decide. A read
// needs that of the member whose answer it is, a write of all that took it. And
// the process that has decided a write must be there still: if it isn't, the
// others have what nobody knows. A refusal has decided nothing.
func (c *command) sure(t *task.Task, s replicate.Settlement) bool {
	if c.writes && s.Answer >= 0 && c.asks[s.Answer].kind != replicate.ClientError && c.asks[s.Answer].got.Void() {
		return false
	}
	strict := false
	for i := range c.asks {
		a := &c.asks[i]
		m := &c.members[a.Member]
		if !m.Pool.Pool.Failover.Strict {
			continue
		}
		strict = true
		if (i == s.Answer || c.writes && a.Deed.Mutates() && a.got.Bytes != nil) && !m.leased(t.Loop.Now) {
			return false
		}
	}
	return !strict || c.numbers == c.outages()
}

// identity is what cas tokens of t's key at a member are sealed for.
func (c *command) identity(t *task.Task, i int) uint64 {
	m := &c.members[i]
	target := &m.Server.Target
	return replicate.Identity(target.Network+" "+target.Address, t.Key,
		uint64(m.Server.StartedAt), uint64(m.Server.Pid), uint64(health.Emptied(m.Pool.View.N(m.Index))))
}

// stranger is a member whose cas tokens can't be told yet, because it has not
// said since when it runs; -1: there is none. A token that is to be opened must
// be for who is there now; one that is sealed may be for who was there last, for
// then it fits nothing if that has ended.
func (c *command) stranger(t *task.Task, states []replicate.Member) int {
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

// awaitStranger parks t until the server of member i has said who it is, or is
// not asked any more.
func (c *command) awaitStranger(t *task.Task, i int) {
	srv := c.members[i].Server
	t.WaitReason = "server " + srv.Label() + " has not said yet since when it runs, which cas tokens depend on"
	c.e.Identify(srv.Conns[0])
	t.Loop.Park(t, t.Deadline, func() uint64 {
		if srv.StartedAt != 0 && !srv.Unidentified || srv.Down {
			return 1
		}
		return c.outlook() << 1
	})
}
