package admin

// This file writes one scrape: a snapshot of the loops' counters, as metrics.

import (
	"maps"
	"runtime"
	"slices"
	"strconv"

	"ringside/proxy"
	"ringside/proxy/health"
	"ringside/proxy/live"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/watch/missreason"
	"ringside/proxy/wire"
)

// AppendMetrics appends the metrics of the proxy p as text. reload is the state of its
// configuration. adminClosed is the number of connections of the admin interface that were closed
// because there were too many.
func AppendMetrics(dst []byte, p *proxy.Proxy, reload live.Reload, adminClosed uint64) ([]byte, error) {
	s, err := p.Snapshot()
	if err != nil {
		return dst, err
	}
	out := newOutput()
	t := p.Table()
	out.commands(&s.Counters)
	out.routes(s, t.Listeners)
	out.clients(s, &t.Limits)
	out.count(adminConnectionsClosed, adminClosed)
	out.count(wakeups, s.Wakeups)
	out.count(loopReads, s.Reads)
	out.count(loopWrites, s.Writes)
	for _, at := range slices.Sorted(maps.Keys(s.Servers)) {
		out.server(s.Servers[at])
	}
	out.set(desyncs, float64(s.Desyncs))
	out.count(replyFaults, s.ReplyFaults)
	out.hot(p)
	out.misses(p)
	out.failover(s)
	out.rolls(s)
	out.pools(p, t.Pools, s.Phases)
	for _, pool := range t.Pools {
		out.set(poolShared, float64(live.SharedServers(s, pool.Name)), pool.Name)
	}
	for _, g := range p.Guards() {
		out.guard(g)
	}
	for _, n := range p.Nears() {
		out.set(nearBytes, float64(n.Bytes.Load()), n.Route)
		out.set(nearValues, float64(n.Values.Load()), n.Route)
	}
	said := p.Invalidations()
	out.tags(p.Tags(), &said)
	out.config(reload)
	out.set(buildInfo, 1, p.Version, runtime.Version())
	if out.wrong != nil {
		return dst, out.wrong
	}
	return out.appendTo(dst), nil
}

// common are the commands that have series before their first request. The function rate() of
// Prometheus does not count the request that creates a series. For these frequent commands, a
// series that is missing at the start would leave a gap in every graph.
var common = [wire.NumOps]bool{wire.Get: true, wire.Set: true, wire.Delete: true}

func (out *output) commands(c *stats.Counters) {
	for op := range wire.NumOps {
		counts := &c.Requests[op]
		if !common[op] && *counts == ([stats.NumOutcomes]uint64{}) {
			continue
		}
		for o := range stats.NumOutcomes {
			if counts[o] > 0 || expected(op, o) {
				out.count(requests, counts[o], op.String(), o.String())
			}
		}
		if h := &c.Latency[op]; common[op] || h.Count() > 0 {
			out.histogram(requestDuration, h, 0, op.String())
		}
	}
	out.keys(keys, &c.KeyCounts)
}

func (out *output) keys(m *metric, c *stats.KeyCounts, labels ...string) {
	for _, one := range []struct {
		result string
		n      uint64
	}{{"hit", c.KeysHit}, {"miss", c.KeysMissed}, {"failed", c.KeysFailed}} {
		out.count(m, one.n, append(labels[:len(labels):len(labels)], one.result)...)
	}
}

// routes writes the counters of each route. It writes a command and its outcome only if that
// outcome has occurred. With all possible outcomes of a hundred routes there would be too many
// series.
func (out *output) routes(s *stats.Snapshot, listeners []table.Listener) {
	for _, l := range listeners {
		for _, r := range l.Routes {
			c := s.Routes[stats.RouteName{Listener: l.Network + " " + l.Address, Route: r.Label(), Pool: r.Pool.Name}]
			if c == nil { // no loop has handled a request of this route yet
				c = new(stats.RouteCounters)
			}
			at := []string{live.ListenerAddress(l.Network, l.Address), r.Label(), r.Pool.Name}
			out.keys(routeKeys, &c.KeyCounts, at...)
			if r.Near != nil {
				out.near(&c.Near, at)
			}
			for op := range wire.NumOps {
				for o, n := range c.Requests[op] {
					if n > 0 {
						out.count(routeRequests, n, append(at[:3:3], op.String(), stats.Outcome(o).String())...)
					}
				}
			}
		}
	}
}

// expected reports whether a series for the command op and the outcome o exists from the first
// request of that command on. With it, rate() sees the first failure of a command. A rare outcome
// gets a series when it occurs first. Example: Okay of an mg without v, or Exists of an ms with the
// flag C.
func expected(op wire.Op, o stats.Outcome) bool {
	switch {
	case op < wire.Get || op > wire.Delete:
		return false
	case o.Failed() || o == stats.ClientFault:
		return true
	case op <= wire.Gats:
		return o == stats.Hit || o == stats.Miss
	case op == wire.Cas:
		return o == stats.Stored || o == stats.Exists || o == stats.NotFound
	case op.Stores():
		return o == stats.Stored || o == stats.NotStored && op != wire.Set
	default:
		return o == stats.Okay || o == stats.NotFound
	}
}

func (out *output) clients(s *stats.Snapshot, l *table.Limits) {
	out.set(requestsInFlight, float64(s.InFlight))
	out.set(clients, float64(s.Clients))
	out.set(clientsLimit, float64(l.Clients))
	out.count(clientsAccepted, s.Accepted)
	out.count(clientsRefused, s.Refused, "limit")
	out.count(clientsRefused, s.Unaccepted, "descriptors")
	out.count(clientsRefused, s.TooLate, "stopping")
	out.count(clientsClosed, s.IdleClosed, "idle")
	out.count(clientsClosed, s.UnfinishedClosed, "unfinished")
	out.count(clientsClosed, s.LoginsLate+s.LoginsClosed, "login")
	out.count(loginsFailed, s.LoginsFailed)
	out.count(clientsClosed, s.OutputClosed, "output")
	out.count(clientsClosed, s.MemoryClosed, "memory")
	out.count(clientsClosed, s.CutOff, "cut_off")
	out.count(clientReceived, s.ClientIn)
	out.count(clientSent, s.ClientOut)
	out.set(buffers, float64(s.Memory))
	out.set(buffersLimit, float64(l.Memory))
	out.count(valuesRefused, s.NoMemory)
	out.count(valuesOverLimit, s.TooLarge)
	out.count(countersMade, s.CountersMade)
	out.count(bufferIncrements, s.Buffer.Increments)
	out.count(bufferFlushes, s.Buffer.Flushes)
	out.count(bufferFlushed, s.Buffer.Flushed)
	for why, n := range s.Buffer.Lost {
		out.count(bufferLost, n, stats.LostCount(why).String())
	}
	out.set(bufferKeys, float64(s.BufferKeys))
	out.set(bufferPending, float64(s.BufferPending))
}

func (out *output) server(s *stats.ServerSnapshot) {
	name, addr := s.Target.Name, live.Address(s.Target)
	switch {
	case s.Down > 0:
		out.set(serverUp, 0, name, addr)
	case s.Known:
		out.set(serverUp, 1, name, addr)
	}
	out.set(serverConnections, float64(s.Conns), name, addr)
	out.set(serverZombies, float64(s.Lingering), name, addr)
	out.set(serverQueue, float64(s.Waiting), name, addr)
	out.count(serverRequests, s.Requests, name, addr)
	out.count(serverFailed, s.Failed, name, addr)
	out.count(serverTimedOut, s.TimedOut, name, addr)
	out.count(serverUndone, s.LateDeletes, name, addr)
	out.count(serverUndoLost, s.LateDeletesLost, name, addr)
	out.count(serverRefused, s.Refused, name, addr, "down")
	out.count(serverRefused, s.QueueFull, name, addr, "queue_full")
	out.count(serverRefused, s.Shed, name, addr, "memory")
	out.count(serverRefused, s.Overridden, name, addr, "ordered")
	out.histogram(serverDuration, &s.Latency, 2, name, addr)
	out.count(serverDials, s.Dials, name, addr)
	out.count(serverClosed, s.Lost, name, addr, "lost")
	out.count(serverClosed, s.ClosedIdle, name, addr, "idle")
	if s.DeadByPing+s.DeadByRequest > 0 { // most servers have no dead connections, and the metrics of 200 servers must stay below 1 MB
		out.count(serverDead, s.DeadByPing, name, addr, "ping")
		out.count(serverDead, s.DeadByRequest, name, addr, "request")
		out.count(serverResent, s.ReadsResent, name, addr)
	}
	out.count(serverOutages, s.WentDown, name, addr)
	out.count(serverReceived, s.BytesIn, name, addr)
	out.count(serverSent, s.BytesOut, name, addr)
	if s.Version != "" {
		out.set(serverVersion, 1, name, addr, s.Version)
	}
}

// hotRanks is the number of hot keys in the metrics. Each has its rank as label. With the keys as
// labels, the number of series would have no limit.
const hotRanks = 10

func (out *output) hot(p *proxy.Proxy) {
	seen, err := p.Watched()
	if err != nil || seen.Requests == 0 {
		return
	}
	out.set(hotLooks, max(1, seen.Requests/seen.Looks))
	for i := range seen.Keys[:min(len(seen.Keys), hotRanks)] {
		rank, k := strconv.Itoa(i+1), &seen.Keys[i]
		out.set(hotKey, k.Likely()/seen.Requests, rank)
		out.set(hotKeyOff, k.MoreOrLess()/seen.Requests, rank)
	}
}

// misses writes the miss reasons of each route. A reason has no series before it occurs. With nine
// reasons for each of a hundred routes there would be too many series.
func (out *output) misses(p *proxy.Proxy) {
	is, err := p.MissReport()
	if err != nil || is == nil {
		return
	}
	out.set(missSampled, is.Chosen)
	for i := range is.Routes {
		l := &is.Routes[i]
		for reason, n := range l.Reasons {
			if n > 0 {
				out.count(missReasons, n, l.Name, missreason.Reason(reason).String())
			}
		}
		out.count(missFills, l.Filled, l.Name)
		out.set(missSeconds, l.Seconds, l.Name)
		if l.Filled > 0 {
			out.set(missQuantile, l.P50, l.Name, "50")
			out.set(missQuantile, l.P99, l.Name, "99")
		}
	}
}

// pools writes the servers of each pool, and the operator's orders for them. If the pool has a
// keeper, the order is in the state of its servers (members). Otherwise the process has the order.
func (out *output) pools(px *proxy.Proxy, pools []*table.Pool, members []stats.PhaseSnapshot) {
	type place struct{ pool, server, address, weight string }
	seen := map[place]bool{} // a pool may have the same server twice, but a series must be unique
	ordered := map[place]bool{}
	for i := range members {
		m := &members[i]
		if at := (place{m.Pool, m.Target.Name, live.Address(m.Target), ""}); !ordered[at] {
			ordered[at] = true
			out.order(m.Override, at.pool, at.server, at.address)
		}
	}
	for _, p := range pools {
		for _, t := range p.Servers {
			at := place{p.Name, t.Name, live.Address(t), strconv.Itoa(t.Weight)}
			if !seen[at] {
				seen[at] = true
				out.set(poolServer, 1, at.pool, at.server, at.address, at.weight)
			}
			if at.weight = ""; !ordered[at] {
				ordered[at] = true
				out.order(px.OverrideOf(p.Name, t.Name).Override, at.pool, at.server, at.address)
			}
		}
	}
}

func (out *output) failover(s *stats.Snapshot) {
	for i := range s.Phases {
		m := &s.Phases[i]
		suspect := 0.0
		if m.Suspect {
			suspect = 1
		}
		out.set(failoverPhase, float64(m.Phase), m.Pool, m.Target.Name)
		out.set(failoverSuspect, suspect, m.Pool, m.Target.Name)
		out.count(failoverOutages, uint64(m.Outages()), m.Pool, m.Target.Name)
		out.set(failoverLease, m.Lease.Seconds(), m.Pool, m.Target.Name)
	}
	for _, ev := range s.Events {
		out.count(failoverChanges, ev.Count, ev.Pool, ev.Server, ev.To)
	}
	out.count(replicasRepaired, s.Repairs, "done")
	out.count(replicasRepaired, s.RepairsDropped, "dropped")
	for event := range stats.NumTombstoneEvents {
		for user := range stats.NumTombstoneUsers {
			out.count(tombstones, s.Marks[event][user], event.String(), user.String())
		}
	}
	for i, n := range s.DeleteRounds {
		out.count(deleteRounds, n, strconv.Itoa(i+1))
	}
}

// rolls writes figures about the instances of each pool whose instances list themselves on its
// servers (package roll). It counts all instances, instances with another configuration than most,
// instances that place replicas on other servers, and unreadable entries. The names of instances
// are not labels, because the number of series would have no limit. The dashboard shows the names.
func (out *output) rolls(s *stats.Snapshot) {
	for i := range s.Rolls {
		pool := s.Rolls[i].Pool
		if is := live.RollOf(s, pool); is != nil {
			out.set(peersAll, float64(is.Of), pool)
			out.set(peersDiffering, float64(is.Differ), pool)
			out.set(peersPlacingDifferently, float64(is.OtherPlacement), pool)
			out.count(peersUnreadable, uint64(is.Bad), pool)
		}
	}
}

// order writes a series for a server only if an operator has given an order for it. Zeros for
// hundreds of servers without an order would add no information.
func (out *output) order(is health.Override, labels ...string) {
	if is != health.Restore {
		out.set(serverOverride, 1, append(labels, is.String())...)
	}
}

func (out *output) config(r live.Reload) {
	success := 0.0
	if r.Err == nil {
		success = 1
	}
	out.set(configSuccess, success)
	out.set(configTime, float64(r.At.UnixMilli())/1e3)
	out.count(configReloads, r.Succeeded, "success")
	out.count(configReloads, r.Failed, "failure")
	out.count(configGeneration, r.Generation)
}
