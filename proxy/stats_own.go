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

	"ringside/proxy/wire"
)

// askLoops answers with what write makes of the counts of all loops. It runs
// on e's goroutine, when the last loop has reported; the client may be gone by
// then, but its exchange is there until it is answered.
func (e *Engine) askLoops(s *Session, write func(e *Engine, sum *Snapshot, dst []byte) []byte) {
	x := e.newExchange(s)
	e.Shared.Collect(func(sum *Snapshot) {
		e.Post(func(e *Engine) {
			x.answer(append(write(e, sum, nil), wire.EndLine...), Okay)
		})
	})
}

// statsProxy answers stats proxy. Where memcached has a name for it, it has
// that name here.
func (e *Engine) statsProxy(s *Session) {
	e.askLoops(s, func(e *Engine, sum *Snapshot, dst []byte) []byte {
		p, limits, now := e.Shared, e.limits, time.Now()
		r := &report{dst: dst}
		r.int("pid", p.PID)
		r.int("uptime", int(now.Sub(p.Started)/time.Second))
		r.int("time", int(now.Unix()))
		r.text("version", p.Version)
		r.int("loops", len(p.Engines()))
		r.int("max_connections", limits.Clients)
		r.int("curr_connections", sum.Clients)
		r.count("total_connections", sum.Accepted)
		r.count("rejected_connections", sum.Refused)
		r.int("requests_in_flight", sum.InFlight)
		r.count("bytes_read", sum.ClientIn)
		r.count("bytes_written", sum.ClientOut)
		r.int("buffer_bytes", int(sum.Memory))
		r.int("limit_buffer_bytes", int(limits.Memory))
		r.count("keys_hit", sum.KeysHit)
		r.count("keys_missed", sum.KeysMissed)
		r.count("keys_failed", sum.KeysFailed)
		r.count("closed_idle", sum.IdleClosed)
		r.count("closed_output", sum.OutputClosed)
		r.count("closed_memory", sum.MemoryClosed)
		r.count("closed_in_value", sum.CutOff)
		r.count("refused_memory", sum.NoMemory)
		r.count("aborted_in_doubt", sum.Doubts)
		for op := range wire.NumOps {
			for o, n := range sum.Requests[op] {
				if n > 0 {
					r.count("requests:"+op.String()+":"+Outcome(o).String(), n)
				}
			}
		}
		for op := range wire.NumOps {
			r.latency("latency:"+op.String()+":", &sum.Latency[op])
		}
		return r.dst
	})
}

// statsServers answers stats servers: the servers behind s's listener, in the
// order of the configuration, counted over all loops.
func (e *Engine) statsServers(s *Session) {
	type behind struct {
		target Target
		pools  []string
		orders []string // by pool
	}
	var list []behind
	e.listener(s).each(func(srv *Server, _ *Pool, _ string) {
		b := behind{target: srv.target}
		for _, p := range e.listener(s).pools {
			if i := slices.Index(p.servers, srv); i >= 0 {
				b.pools = append(b.pools, p.pool.Name)
				b.orders = append(b.orders, e.Shared.Ordered(p.pool.Name, p.pool.Servers[i].Name).Order.String())
			}
		}
		list = append(list, b)
	})
	e.askLoops(s, func(e *Engine, sum *Snapshot, dst []byte) []byte {
		r := &report{dst: dst}
		for i, b := range list {
			r.prefix = "server:" + strconv.Itoa(i+1) + ":"
			r.text("name", b.target.Name)
			r.text("address", b.target.Address)
			r.text("pools", strings.Join(b.pools, ","))
			r.int("weight", b.target.Weight)
			for i, o := range b.orders {
				if o != Restore.String() {
					r.text("order:"+b.pools[i], o)
				}
			}
			for _, pool := range b.pools {
				if m := sum.Member(pool, b.target.Name); m != nil {
					m.report(r)
				}
			}
			if t := sum.Servers[b.target.Network+" "+b.target.Address]; t != nil {
				t.report(r)
			} else { // a reload took it out meanwhile
				r.text("state", "removed")
			}
		}
		return r.dst
	})
}

// statsConns answers stats conns: the clients of all loops, whatever listener
// they came by, in the lines that memcached has for a connection.
func (e *Engine) statsConns(s *Session) {
	x := e.newExchange(s)
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
				x.answer(append(slices.Concat(parts...), wire.EndLine...), Okay)
			})
		})
	}
}

// appendClients appends the clients of e, oldest first. asking is the one that
// asks, perhaps on another loop.
func (e *Engine) appendClients(dst []byte, asking *Session) []byte {
	list := make([]*Session, 0, len(e.sessions))
	for s := range e.sessions {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b *Session) int { return cmp.Compare(a.id, b.id) })
	r := report{dst: dst}
	for _, s := range list {
		network, address := "", "-"
		if lst := e.listener(s); lst != nil {
			network, address, _ = strings.Cut(lst.name, " ")
		}
		r.prefix = decimal(s.id) + ":"
		r.text("addr", socketName(network, s.peer()))
		r.text("listen_addr", socketName(network, address))
		r.text("state", s.state(asking))
		r.int("secs_since_last_cmd", int((e.now-s.last)/int64(time.Second)))
	}
	return r.dst
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
