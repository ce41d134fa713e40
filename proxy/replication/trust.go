package replication

// This file decides how far each replica of a key can be trusted now, and whether a reply still
// counts when the client gets it.

import (
	"cmp"
	"slices"

	"ringside/proxy/health"
	"ringside/proxy/health/divert"
	"ringside/proxy/stats"
	"ringside/proxy/task"
	"ringside/proxy/wire"
	"ringside/replicate"
)

// stateOf returns the state of replica i for t's key. If suspicion is set, a server that a keeper
// suspects counts as unreachable, even if it is up for this loop. A suspicion may be reported by
// another loop, and may last longer than its reason.
//
// A write waits for an unreachable replica, in relaxed mode too. Other instances may still read
// from this replica, and only this process would know which writes it has missed. But if no
// server of the replica's pool answers, the phases can't change, and the write would wait
// forever. So in relaxed mode each process then skips the replica, and records the missed writes
// in its ledger.
func (c *command) stateOf(t *task.Task, i int, suspicion bool) replicate.Replica {
	m := &c.replicas[i]
	strict := m.Pool.Pool.Failover.Strict
	out := replicate.Replica{Near: t.Route.IsNear(m.Holder)}
	switch phase := m.Pool.View.Phase(m.Index); {
	case strict && phase != health.Out && phase != health.Leaving && !m.leased(t.Loop.Now):
		out.State = replicate.Suspect
	case suspicion && !strict && phase != health.Out && phase != health.Leaving && m.Pool.View.Gone():
		out.State = replicate.Gone
	case phase == health.In && (m.Server.Down || (suspicion || strict) && m.Pool.View.Suspected(m.Index)):
		out.State = replicate.Suspect
	case suspicion && phase != health.Out && phase != health.Leaving && m.Server.HasLateDelete(t.Key): // a late delete of the key is in flight to this server, and would remove a value that is written now
		out.State = replicate.Suspect
	case phase == health.In && m.Dirty(t.Hash):
		out.State = replicate.Dirty
	case phase == health.In && (m.incomplete(c.e) || m.Server.Unidentified):
		out.State = replicate.Filling
	default:
		out.State = statesOf[phase]
	}
	return out
}

// statesOf has the state of a replica in each phase of its server, if nothing else is known of the replica.
var statesOf = [...]replicate.State{health.In: replicate.In, health.Leaving: replicate.Leaving, health.Out: replicate.Out,
	health.Returning: replicate.Returning, health.Warming: replicate.Warming, health.Settling: replicate.Settling}

// generation returns a number that changes whenever any server in the pools of the replicas
// enters another phase.
func (c *command) generation() (sum uint64) {
	for i := range c.replicas {
		sum += c.replicas[i].Pool.View.Gen()
	}
	return sum
}

// phaseNumbers returns the sum of the replicas' phase numbers. These numbers only grow, so the
// sum changes when a replica enters another phase. Suspicion does not change the sum, because the
// replies of a suspected server are still true.
func (c *command) phaseNumbers() (sum uint64) {
	for i := range c.replicas {
		m := &c.replicas[i]
		sum += uint64(m.Pool.View.N(m.Index)) + uint64(m.Pool.View.Renamed(m.Index))
	}
	return sum
}

// keyAt returns the name of t's key at replica i. A server that has rejected a flush still has
// stale values under the plain names, so Ringside has renamed its keys.
func (c *command) keyAt(t *task.Task, i int) []byte {
	if c.moving != nil {
		return c.moving.names[i]
	}
	m := &c.replicas[i]
	n := m.Pool.View.Renamed(m.Index)
	if n == 0 {
		return t.Key
	}
	return divert.AppendKey(nil, uint64(n), t.Key)
}

// leased reports whether this process has a lease on the server of m. Without a lease, a strict
// pool must not use the server's replies, because other instances may have moved its keys. In a
// relaxed pool the result is always true.
func (m *replica) leased(now int64) bool {
	return !m.Pool.Pool.Failover.Strict || now < m.Pool.View.ValidUntil(m.Index)
}

// canBeSource reports whether a repair may copy from the replica: no write can have skipped it so
// far. A copy stores a claim (a tombstone) at the target first, and then reads the source. So a
// delete that skips the source runs after the claim, and removes the claim. The lease is checked
// before the phase: see command.sure.
func (m *replica) canBeSource(now int64) bool {
	if !m.leased(now) {
		return false
	}
	phase := m.Pool.View.Phase(m.Index)
	return phase == health.In || phase == health.Warming || phase == health.Settling
}

// The reasons why a request is not sent, or a reply does not count.
const (
	overdue     = "the command reached its deadline between two of its requests"
	uncertain   = "it is not certain which server has the key now"
	unconfirmed = "the server may not have the key any more, so its reply does not count"
)

// refusal returns why an ask must not be sent now, and the outcome for the client; "": it may be sent.
//
//   - It is a Fetch from a replica that can't be the source of a repair.
//   - It would start a delete again after its deadline. The tombstones of its first round may have expired,
//     so another client may hold the lock that was deleted. A second round would delete that lock.
//   - It belongs to a client's command on a key that moves, and the deadline has passed, or a lease has ended.
//     The process may have been suspended since the last reply, and other instances may have acknowledged
//     newer writes since. A command that has its result may still remove what it has stored.
func (c *command) refusal(t *task.Task, ask replicate.Ask) (why string, o stats.Outcome) {
	moves := c.moving != nil && !c.isRepair
	if moves {
		_, settled := c.rule.Settled()
		moves = !settled
	}
	again := t.Op == wire.Delete && !t.ClientDone && (ask.Step == replicate.Look || ask.Step == replicate.PlaceTombstone)
	fetches := ask.Step == replicate.Fetch && !ask.Compares && !c.filling()
	if !moves && !again && !fetches {
		return "", stats.Okay
	}
	switch now := t.Loop.Moment(); {
	case (moves || again) && now >= t.Deadline:
		return cmp.Or(t.WaitReason, overdue), stats.TimedOut
	case moves && !c.holdsLeases(now):
		return uncertain, stats.Unavailable
	case fetches && (!c.replicas[ask.Replica].canBeSource(now) || ask.Replica == c.primary && c.handedOver(t)):
		return unconfirmed, stats.Unavailable
	}
	return "", stats.Okay
}

// outlook returns a number that changes when a parked command should start again. That is when a
// server changes its phase, when a lease on a replica ends or begins, or when the late delete of
// t's key has run.
func (c *command) outlook(t *task.Task) uint64 {
	usable := uint64(0)
	for i := range c.replicas {
		if m := &c.replicas[i]; m.leased(c.e.Now) && !m.Server.HasLateDelete(t.Key) {
			usable |= 1 << i
		}
	}
	return c.generation()<<replicate.Max | usable
}

// awaitsLease reports whether the command could not ask some replicas only because this process had no lease on
// their servers, or a late delete of the key was in flight there. The servers are up, so that soon ends.
func (c *command) awaitsLease() (awaits bool) {
	for i := range c.replicas {
		m := &c.replicas[i]
		switch c.room.states[i].State {
		case replicate.Suspect:
			if m.Server.Down || m.Pool.View.Suspected(m.Index) {
				return false
			}
			awaits = true
		case replicate.Leaving, replicate.Gone:
			return false
		}
	}
	return awaits
}

// awaitLease makes t, a read for which awaitsLease is true, start again when it can ask more replicas. It does nothing and
// returns false if a replica has failed, or the time until has passed.
func (c *command) awaitLease(t *task.Task, until int64) bool {
	e, usable := c.e, true
	if !c.rule.IsDone() || e.Now >= until || slices.ContainsFunc(c.asks, func(a copyAsk) bool { return a.kind != replicate.Miss && a.kind != replicate.Marked }) {
		return false
	}
	for i := range c.replicas {
		m := &c.replicas[i]
		usable = usable && (c.room.states[i].State != replicate.Suspect || m.leased(e.Now) && !m.Server.HasLateDelete(t.Key))
	}
	if t.WaitReason = uncertain; usable {
		e.Ready(t)
	} else {
		e.Park(t, until, func() uint64 { return c.outlook(t) })
	}
	return true
}

// sure reports whether the reply that the rule has settled on still counts.
//
// In a strict pool the phases must be the same as at the start of the command, and leases must
// still be valid. A read needs a lease on the replica that has answered, a write on all replicas
// that have stored it. Without these leases, another instance may have moved the key to other
// replicas in between. The leases are checked at a time after the last reply. They are checked
// before the phases, because a view publishes its leases after its phases (health.View.Publish).
//
// In any pool, the server process that has decided a write must still run. A restarted process
// has lost the value, and it is unknown which replicas have the value. A reply CLIENT_ERROR is
// always valid.
func (c *command) sure(t *task.Task, s replicate.Settlement) bool {
	if c.moving != nil {
		return c.surely(t)
	}
	if c.writes && s.Answer >= 0 && c.asks[s.Answer].kind != replicate.ClientError && c.asks[s.Answer].result.HasEnded() {
		return false
	}
	strict, now := false, int64(0)
	for i := range c.asks {
		a := &c.asks[i]
		m := &c.replicas[a.Replica]
		if !m.Pool.Pool.Failover.Strict || i < c.since && i != s.Answer {
			continue
		}
		if !strict {
			strict, now = true, t.Loop.Moment()
		}
		if (i == s.Answer || c.writes && a.Step.Mutates() && a.result.Bytes != nil) && !m.leased(now) {
			return false
		}
	}
	return !strict || c.phases == c.phaseNumbers()
}

// handedOver reports whether another replica may have become the primary of t's key since the
// command started, here or at another instance. t is a write that the primary decides. The other
// replica was rejoining at the start. SETTLE lasts only two pings in relaxed mode, and a command
// on a slow server may last longer.
func (c *command) handedOver(t *task.Task) bool {
	if !c.writes || c.isRepair || c.primary < 0 || t.Op == wire.Set || t.Op == wire.Add || t.Op == wire.Delete {
		return false // sets, adds and deletes run at all replicas, so no primary decides them
	}
	for i := range c.replicas[:c.primary] {
		m := &c.replicas[i]
		switch phase := m.Pool.View.Phase(m.Index); {
		case m.Pool.View.Gone() || c.gone.Has(i): // no server of the replica's pool answers, or the command has skipped the replica: it does not decide the write
		case phase == health.In || phase == health.Settling:
			return true
		}
	}
	return false
}

// identity returns the number for which cas tokens of t's key at replica i are sealed: see
// castoken.go.
func (c *command) identity(t *task.Task, i int) uint64 {
	m := &c.replicas[i]
	target := &m.Server.Target
	return Identity(target.Network+" "+target.Address, t.Key,
		uint64(m.Server.StartedAt), uint64(m.Server.Pid), uint64(health.Emptied(m.Pool.View.N(m.Index))))
}

// unknownToAll reports whether no memcached release knows the meta flags of r, or its opaque is too
// long. The flag x is in newer releases.
func unknownToAll(r *wire.Request) bool {
	is := *r
	is.Letters &^= 1 << ('x' - 'A')
	return is.UnknownFlags() || is.LongOpaque()
}

// lacks rejects t, an md that leaves an empty or stale item, if the server of a replica does not know
// its flags. The primary would reject t after the other replicas have lost the key. While the release
// of a server is not known, lacks parks t. It returns false if t can run.
func (c *command) lacks(t *task.Task, states []replicate.Replica) bool {
	for i, m := range c.replicas {
		srv := m.Server
		switch {
		case states[i].State == replicate.Out || states[i].State == replicate.Gone || srv.Down:
		case srv.Release == (wire.Release{}):
			c.e.Keepers.Identify(srv)
			return c.e.await(t, "server "+srv.Label()+" has not reported its version yet", func() bool { return srv.Release != (wire.Release{}) || srv.Down })
		case t.Req.Needs()&^srv.Release.Features() != 0:
			t.Reject(wire.AppendClientError(nil, "server "+srv.Label()+" is of version "+srv.Version+", "+wire.TooOld))
			c.e.Unclaim(t)
			return true
		}
	}
	return false
}

// unidentified returns the index of a replica without a known start time, if t needs this time
// for a cas token; -1: none. To translate a client's token into the cas of a server, the
// memcached process that runs now must be known. To make a token for a client, the last known
// process is enough: if that process has ended, the token matches nothing, which is correct.
func (c *command) unidentified(t *task.Task, states []replicate.Replica) int {
	_, opens := t.Token()
	shows := t.Op == wire.Gets || t.Op == wire.Gats || t.Op == wire.Get && t.Req.Flags&wire.Binary != 0 || t.Req.Letters.Has('c')
	if !opens && !shows {
		return -1
	}
	authority := replicate.Authority(states)
	for i := range states {
		srv := c.replicas[i].Server
		switch states[i].State {
		case replicate.In, replicate.Dirty, replicate.Filling, replicate.Warming, replicate.Settling:
			if !srv.Down && (srv.StartedAt == 0 || opens && i == authority && srv.Unidentified) {
				return i
			}
		}
	}
	return -1
}

// awaitIdentity parks t until the server of replica i has reported its start time, or
// is down, or a phase changes.
func (c *command) awaitIdentity(t *task.Task, i int) {
	srv, was := c.replicas[i].Server, c.outlook(t)
	c.e.Keepers.Identify(srv)
	c.e.await(t, "server "+srv.Label()+" has not reported its start time yet, on which cas tokens depend", func() bool {
		return srv.StartedAt != 0 && !srv.Unidentified || srv.Down || c.outlook(t) != was
	})
}
