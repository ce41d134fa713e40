package proxy

// Statistics that are Ringside's own: what it has counted, the servers as it
// sees them, its clients.

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"ringside/proxy/client"
	"ringside/proxy/health"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// askLoops answers with what write makes of the counts of all loops. It runs
// on e's goroutine, when the last loop has reported; the client may be gone by
// then, but its exchange is there until it is answered.
func (e *Engine) askLoops(s *client.Session, write func(e *Engine, sum *stats.Snapshot, dst []byte) []byte) {
	x := e.NewExchange(s)
	e.Shared.Collect(func(sum *stats.Snapshot) {
		e.Post(func(e *Engine) {
			x.Answer(append(write(e, sum, nil), wire.EndLine...), stats.Okay)
		})
	})
}

// statsProxy answers stats proxy. Where memcached has a name for it, it has
// that name here.
func (e *Engine) statsProxy(s *client.Session) {
	e.askLoops(s, func(e *Engine, sum *stats.Snapshot, dst []byte) []byte {
		p, limits, now := e.Shared, e.Limits, time.Now()
		r := &stats.Report{Dst: dst}
		r.Int("pid", p.PID)
		r.Int("uptime", int(now.Sub(p.Started)/time.Second))
		r.Int("time", int(now.Unix()))
		r.Text("version", p.Version)
		r.Int("loops", len(p.Engines()))
		r.Int("max_connections", limits.Clients)
		r.Int("curr_connections", sum.Clients)
		r.Count("total_connections", sum.Accepted)
		r.Count("rejected_connections", sum.Refused)
		r.Int("requests_in_flight", sum.InFlight)
		r.Count("bytes_read", sum.ClientIn)
		r.Count("bytes_written", sum.ClientOut)
		r.Int("buffer_bytes", int(sum.Memory))
		r.Int("limit_buffer_bytes", int(limits.Memory))
		r.Count("keys_hit", sum.KeysHit)
		r.Count("keys_missed", sum.KeysMissed)
		r.Count("keys_failed", sum.KeysFailed)
		r.Count("closed_idle", sum.IdleClosed)
		r.Count("closed_unfinished", sum.UnfinishedClosed)
		r.Count("closed_login", sum.LoginsLate)
		r.Count("logins_failed", sum.LoginsFailed)
		r.Count("closed_output", sum.OutputClosed)
		r.Count("closed_memory", sum.MemoryClosed)
		r.Count("closed_in_value", sum.CutOff)
		r.Count("refused_memory", sum.NoMemory)
		r.Count("counters_made", sum.CountersMade)
		r.Count("aborted_in_doubt", sum.Doubts)
		for op := range wire.NumOps {
			for o, n := range sum.Requests[op] {
				if n > 0 {
					r.Count("requests:"+op.String()+":"+stats.Outcome(o).String(), n)
				}
			}
		}
		for op := range wire.NumOps {
			r.Latency("latency:"+op.String()+":", &sum.Latency[op])
		}
		return r.Dst
	})
}

// statsServers answers stats servers: the servers behind s's listener, in the
// order of the configuration, counted over all loops.
func (e *Engine) statsServers(s *client.Session) {
	type behind struct {
		target table.Target
		pools  []string
		orders []string // by pool
	}
	var list []behind
	e.listener(s).Each(func(srv *upstream.Server, _ *table.Pool, _ string) {
		b := behind{target: srv.Target}
		for _, p := range e.listener(s).Pools {
			if i := slices.Index(p.Servers, srv); i >= 0 {
				b.pools = append(b.pools, p.Pool.Name)
				b.orders = append(b.orders, e.Shared.OverrideOf(p.Pool.Name, p.Pool.Servers[i].Name).Override.String())
			}
		}
		list = append(list, b)
	})
	e.askLoops(s, func(e *Engine, sum *stats.Snapshot, dst []byte) []byte {
		r := &stats.Report{Dst: dst}
		for i, b := range list {
			r.Prefix = "server:" + strconv.Itoa(i+1) + ":"
			r.Text("name", b.target.Name)
			r.Text("address", b.target.Address)
			r.Text("pools", strings.Join(b.pools, ","))
			r.Int("weight", b.target.Weight)
			for i, o := range b.orders {
				if o != health.Restore.String() {
					r.Text("order:"+b.pools[i], o)
				}
			}
			for _, pool := range b.pools {
				if m := sum.Member(pool, b.target.Name); m != nil {
					m.Report(r)
				}
			}
			if t := sum.Servers[b.target.Network+" "+b.target.Address]; t != nil {
				t.Report(r)
			} else { // a reload took it out meanwhile
				r.Text("state", "removed")
			}
		}
		return r.Dst
	})
}

// statsConns answers stats conns: the clients of all loops, whatever listener
// they came by, in the lines that memcached has for a connection.
func (e *Engine) statsConns(s *client.Session) {
	x := e.NewExchange(s)
	engines := e.Shared.Engines()
	parts := make([][]byte, len(engines))
	var missing atomic.Int64
	missing.Store(int64(len(engines)))
	for i, o := range engines {
		o.Post(func(o *Engine) {
			parts[i] = o.appendClients(nil, s)
			if missing.Add(-1) > 0 {
				return
			}
			e.Post(func(e *Engine) {
				x.Answer(append(slices.Concat(parts...), wire.EndLine...), stats.Okay)
			})
		})
	}
}

// appendClients appends the clients of e, oldest first. asking is the one that
// asks, perhaps on another loop.
func (e *Engine) appendClients(dst []byte, asking *client.Session) []byte {
	list := make([]*client.Session, 0, len(e.Sessions))
	for s := range e.Sessions {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b *client.Session) int { return cmp.Compare(a.ID, b.ID) })
	r := stats.Report{Dst: dst}
	for _, s := range list {
		network, address := "", "-"
		if lst := e.listener(s); lst != nil {
			network, address, _ = strings.Cut(lst.Name, " ")
		}
		r.Prefix = stats.Decimal(s.ID) + ":"
		r.Text("addr", socketName(network, s.Peer()))
		r.Text("listen_addr", socketName(network, address))
		r.Text("state", s.State(asking))
		r.Int("secs_since_last_cmd", int((e.Now-s.Last)/int64(time.Second)))
	}
	return r.Dst
}

// socketName spells an address as memcached does.
func socketName(network, address string) string {
	switch {
	case network == "unix":
		return "unix:" + strings.TrimPrefix(address, "unix")
	case strings.HasPrefix(address, "["):
		return "tcp6:" + address
	}
	return "tcp:" + address
}
