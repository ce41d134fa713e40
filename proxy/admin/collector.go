package admin

// This file writes one scrape: a snapshot of the loops' counters, as metrics.

import (
	"maps"
	"runtime"
	"slices"
	"strconv"
	"time"

	"ringside/proxy"
	"ringside/proxy/health"
	"ringside/proxy/live"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/watch/missreason"
	"ringside/proxy/wire"
)

// AppendMetrics appends the metrics of the proxy p as text. reload is the state of its
// configuration, and sources are those of its servers. adminClosed is the number of connections of the admin interface that were closed
// because there were too many. adminExpires is when its certificate expires; zero: it has none.
func AppendMetrics(dst []byte, p *proxy.Proxy, reload live.Reload, sources []live.Source, adminClosed uint64, adminExpires time.Time) ([]byte, error) {
	s, err := p.Snapshot()
	if err != nil {
		return dst, err
	}
	out := newOutput()
	t := p.Table()
	out.commands(&s.Counters)
	out.routes(s, t.Listeners)
	out.figures(s.Figures(&t.Limits))
	out.figures(s.Totals())
	out.count(adminConnectionsClosed, adminClosed)
	rejected := p.Rejected()
	for _, user := range slices.Sorted(maps.Keys(rejected)) {
		out.count(commandsRejected, rejected[user], user)
	}
	for _, at := range slices.Sorted(maps.Keys(s.Servers)) {
		is := s.Servers[at]
		out.figures(is.Figures(), is.Target.Name, live.Address(is.Target))
	}
	out.hot(p)
	out.misses(p)
	out.failover(s)
	out.rolls(s)
	out.pools(p, t.Pools, s.Phases)
	for _, pool := range t.Pools {
		out.set(poolShared, float64(live.SharedServers(s, pool.Name)), pool.Name)
		if r := s.Resizes[pool.Name]; r != nil && r.Mine != 0 {
			out.figures(r.Figures(), pool.Name)
		}
		if pool.Fill != nil {
			out.figures(s.Fill(pool.Name).Figures(), pool.Name)
		}
	}
	for _, g := range p.Guards() {
		out.figures(g.Figures(), g.Route)
	}
	for _, n := range p.Nears() {
		out.figures(n.Figures(), n.Route)
	}
	for i, tags := range p.Tags() {
		out.figures(tags.Figures(), tags.Route)
		if said := p.Invalidations(); i == 0 { // they count for the whole process, and need a route with tags
			out.figures(said.Figures())
		}
	}
	for _, pool := range t.Pools {
		if pool.TLS.On() && pool.TLS.Settings().Expires > 0 {
			out.set(poolCertificateExpiry, float64(pool.TLS.Settings().Expires), pool.Name)
		}
	}
	for _, l := range t.Listeners {
		if l.TLS != nil {
			out.set(certificateExpiry, float64(l.TLS.Expires.Unix()), live.ListenerAddress(l.Network, l.Address))
		}
	}
	if !adminExpires.IsZero() {
		out.set(certificateExpiry, float64(adminExpires.Unix()), "admin")
	}
	out.config(reload)
	out.sources(sources)
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
			out.histogram(requestDuration, h, op.String())
		}
	}
	out.figures(c.KeyCounts.Figures(keys))
}

// figures writes the values in list. labels are the labels that all of them have in common.
func (out *output) figures(list []stats.Figure, labels ...string) {
	for _, f := range list {
		all := labels
		if f.Label != "" {
			all = append(labels[:len(labels):len(labels)], f.Label)
		}
		if f.Metric != nil {
			out.figure(f.Metric, f.Value, all)
		}
	}
}

func (out *output) figure(m *stats.Metric, value any, labels []string) {
	switch v := value.(type) {
	case bool:
		out.count(m, map[bool]uint64{true: 1}[v], labels...)
	case uint64:
		out.count(m, v, labels...)
	case int:
		out.set(m, float64(v), labels...)
	case int64:
		out.set(m, float64(v), labels...)
	case float64:
		out.set(m, v, labels...)
	case *stats.Histogram:
		out.histogram(m, v, labels...)
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
			out.figures(c.KeyCounts.Figures(routeKeys), at...)
			if r.Near != nil {
				out.figures(c.Near.Figures(), at...)
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
		out.figures([]stats.Figure{{Metric: missFills, Value: l.Filled}, {Metric: missSeconds, Value: l.Seconds}}, l.Name)
		if l.Filled > 0 {
			out.figures([]stats.Figure{{Metric: missQuantile, Label: "50", Value: l.P50}, {Metric: missQuantile, Label: "99", Value: l.P99}}, l.Name)
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
		if p.Fill != nil {
			pools = append(slices.Clip(pools), p.Fill.From) // its servers can be down, too
		}
	}
	for _, p := range pools {
		for i, t := range slices.Concat(p.Servers, p.Newcomers()) {
			at := place{p.Name, t.Name, live.Address(t), strconv.Itoa(t.Weight)}
			if !seen[at] {
				seen[at] = true
				out.set(poolServer, 1, at.pool, at.server, at.address, at.weight)
			}
			if at.weight = ""; !ordered[at] {
				ordered[at] = true
				order := health.Restore // also for a newcomer with the name of a server in use
				if i < len(p.Servers) {
					order = px.OverrideOf(p.Name, t.Name).Override
				}
				out.order(order, at.pool, at.server, at.address)
			}
		}
	}
}

func (out *output) failover(s *stats.Snapshot) {
	for i := range s.Phases {
		m := &s.Phases[i]
		out.figures(m.Figures(), m.Pool, m.Target.Name)
	}
	for i := range s.Events {
		ev := &s.Events[i]
		out.figures(ev.Figures(), ev.Pool, ev.Server)
	}
	for event := range stats.NumTombstoneEvents {
		out.figures(s.Marks.Figures(event), event.String())
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
			out.figures([]stats.Figure{{Metric: peersAll, Value: is.Of}, {Metric: peersDiffering, Value: is.Differ},
				{Metric: peersPlacingDifferently, Value: is.OtherPlacement}, {Metric: peersUnreadable, Value: uint64(is.Bad)}}, pool)
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

func (out *output) sources(list []live.Source) {
	for i := range list {
		s := &list[i]
		out.figures([]stats.Figure{{Metric: discoverySuccess, Value: s.Problem == ""}, {Metric: discoveryServers, Value: s.Servers},
			{Metric: discoveryLookups, Label: "success", Value: s.Succeeded}, {Metric: discoveryLookups, Label: "failure", Value: s.Failed},
			{Metric: discoveryLookups, Label: "held", Value: s.Held}}, s.Pool, s.Source)
		if !s.At.IsZero() {
			out.set(discoveryTime, float64(s.At.UnixMilli())/1e3, s.Pool, s.Source)
		}
	}
}

func (out *output) config(r live.Reload) {
	out.figures([]stats.Figure{{Metric: configSuccess, Value: r.Err == nil}, {Metric: configTime, Value: float64(r.At.UnixMilli()) / 1e3},
		{Metric: configReloads, Label: "success", Value: r.Succeeded}, {Metric: configReloads, Label: "failure", Value: r.Failed},
		{Metric: configGeneration, Value: r.Generation}})
}
