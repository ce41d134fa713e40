package proxy

// This file implements Ringside's own statistics: its counters, the servers as it sees
// them, and its clients.

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"ringside/proxy/client"
	"ringside/proxy/health"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// reports makes the replies to stats commands that need data of all loops, one after the other.
// Each such reply costs every loop a time that grows with the number of routes, servers and
// clients. Between two of them, each loop handles its other events.
type reports struct {
	mu      sync.Mutex
	running bool
	waiting []func() // each function starts one report; oldest first
}

// start calls begin, which starts a report, or adds begin to the waiting ones while a report is
// being made. begin must cause a call of next when its report is complete.
func (r *reports) start(begin func()) {
	r.mu.Lock()
	wait := r.running
	if r.running = true; wait {
		r.waiting = append(r.waiting, begin)
	}
	r.mu.Unlock()
	if !wait {
		begin()
	}
}

// next starts the report that has waited longest.
func (r *reports) next() {
	r.mu.Lock()
	var begin func()
	if len(r.waiting) > 0 {
		begin, r.waiting = r.waiting[0], r.waiting[1:]
	} else {
		r.running, r.waiting = false, nil
	}
	r.mu.Unlock()
	if begin != nil {
		begin()
	}
}

// report answers a request of s with what write appends to dst. Before that, add runs for
// every loop, on the goroutine of that loop and one at a time. write runs on e's goroutine
// after the last one. The client may have disconnected by then, but its exchange exists
// until it is answered.
func (e *Engine) report(s *client.Session, add func(*Engine), write func(e *Engine, dst []byte) []byte) {
	x := e.NewExchange(s)
	e.Shared.reports.start(func() {
		e.Shared.each(add, func() {
			e.Post(func(e *Engine) {
				var b []byte
				if x.Session != nil {
					b = write(e, nil)
				}
				x.Answer(append(b, wire.EndLine...), stats.Okay)
				e.Shared.reports.next()
			})
		})
	})
}

// askLoops answers a request with what write makes of the counters of all loops: see
// report.
func (e *Engine) askLoops(s *client.Session, write func(e *Engine, sum *stats.Snapshot, dst []byte) []byte) {
	sum := &stats.Snapshot{}
	e.report(s, func(o *Engine) { o.Snapshot(sum) }, func(e *Engine, dst []byte) []byte { return write(e, sum, dst) })
}

// statsProxy answers stats proxy. It uses memcached's name for a counter if there is
// one.
func (e *Engine) statsProxy(s *client.Session) {
	e.askLoops(s, func(e *Engine, sum *stats.Snapshot, dst []byte) []byte {
		p, limits := e.Shared, e.Limits
		r := &stats.Report{Dst: dst}
		r.Int("pid", p.PID)
		r.Int("uptime", int(e.Wall-p.Started.Unix()))
		r.Int("time", int(e.Wall))
		r.Text("version", p.Version)
		r.Int("loops", len(p.Engines()))
		r.Figures(sum.Figures(limits))
		sum.KeyCounts.Report(r)
		r.Figures(sum.Totals())
		sum.Requests.Report(r)
		for op := range wire.NumOps {
			r.Latency("latency:"+op.String()+":", &sum.Latency[op])
		}
		return r.Dst
	})
}

// statsRoutes answers stats routes: the routes of s's listener, in the order in which
// they are matched. Counters are summed over all loops.
func (e *Engine) statsRoutes(s *client.Session) {
	routes := e.listener(s).Routes // read before the reply is made, because a reload replaces the slice
	e.askLoops(s, func(e *Engine, sum *stats.Snapshot, dst []byte) []byte {
		r := &stats.Report{Dst: dst}
		for i := range routes {
			name := routes[i].Name()
			r.Prefix = "route:" + strconv.Itoa(i+1) + ":"
			if match := routes[i].Match; match != "" {
				r.Text("match", match)
			} else {
				r.Text("prefix", routes[i].Prefix)
			}
			r.Text("pool", name.Pool)
			if c := sum.Routes[name]; c != nil {
				c.Report(r)
			} else { // a reload has removed the route since
				r.Text("state", "removed")
			}
		}
		return r.Dst
	})
}

// statsServers answers stats servers: the servers behind s's listener in the order of
// the configuration. Counters are summed over all loops.
func (e *Engine) statsServers(s *client.Session) {
	type behind struct {
		target  table.Target
		address string // where Ringside connects to it
		pools   []string
		orders  []string // override of the server in each of the pools, in the same order as pools
	}
	var list []behind
	e.listener(s).Each(func(srv *upstream.Server, _ *table.Pool, _ string) {
		b := behind{target: srv.Target, address: srv.Address()}
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
			r.Text("address", b.address)
			r.Text("pools", strings.Join(b.pools, ","))
			r.Int("weight", b.target.Weight)
			for i, o := range b.orders {
				if o != health.Restore.String() {
					r.Text("order:"+b.pools[i], o)
				}
			}
			for _, pool := range b.pools {
				if m := sum.Phase(pool, b.target); m != nil {
					m.Report(r)
				}
			}
			if t := sum.Servers[b.target.Network+" "+b.target.Address]; t != nil {
				t.Report(r)
			} else { // a reload has removed the server since
				r.Text("state", "removed")
			}
		}
		return r.Dst
	})
}

// statsConns answers stats conns: the clients of all loops and listeners, oldest first,
// in the format of memcached.
func (e *Engine) statsConns(s *client.Session) {
	id := s.ID &^ upstream.Bulky
	list := newClientList(stats.ClientOrders["id"], 0)
	e.report(s, func(o *Engine) { o.describe(list) }, func(_ *Engine, dst []byte) []byte {
		list.End()
		return appendClients(dst, list, id)
	})
}

// appendClients appends the clients in list. asking is the ID of the client that sent
// the request.
func appendClients(dst []byte, list *stats.ClientList, asking uint64) []byte {
	r := stats.Report{Dst: dst}
	for i := range list.List {
		c := &list.List[i]
		network, address := "", "-"
		if c.Listener != "" {
			network, address, _ = strings.Cut(c.Listener, " ")
		}
		if c.ID == asking {
			c.State = "conn_parse_cmd"
		}
		r.Prefix = stats.Decimal(c.ID) + ":"
		r.Text("addr", socketName(network, c.Address))
		r.Text("listen_addr", socketName(network, address))
		r.Text("state", c.State)
		r.Int("secs_since_last_cmd", int(c.Idle/time.Second))
	}
	return r.Dst
}

// Clients describes the clients that are first in the order `by`. The parameter `most`
// limits their number; 0: all. It returns an error in the same cases as Snapshot.
// Calls at the same time wait for each other, so that a loop makes only one list at once.
func (p *Proxy) Clients(by stats.ClientOrder, most int) (*stats.ClientList, error) {
	p.listing.Lock()
	defer p.listing.Unlock()
	list := newClientList(by, most)
	if err := p.waited(func(e *Engine) { e.describe(list) }); err != nil {
		return nil, err
	}
	list.End()
	return list, nil
}

func newClientList(by stats.ClientOrder, most int) *stats.ClientList {
	return &stats.ClientList{By: by, Most: most, Waits: map[uint64]stats.Wait{}}
}

// describe adds the clients of e. It formats the addresses only of the clients that are
// shown, because there may be a hundred thousand others.
func (e *Engine) describe(into *stats.ClientList) {
	list := make([]stats.ClientSnapshot, 0, len(e.Sessions))
	for s := range e.Sessions {
		list = append(list, s.Snapshot())
	}
	into.All += len(list)
	list = into.Cut(list)
	shown := make(map[uint64]*stats.ClientSnapshot, len(list))
	for i := range list {
		shown[list[i].ID] = &list[i]
	}
	for s := range e.Sessions {
		if c := shown[s.ID&^upstream.Bulky]; c != nil {
			c.Address, c.State = s.Peer(), s.State()
			if lst := e.listener(s); lst != nil {
				c.Listener = lst.Name
			}
		}
	}
	into.List = append(into.List, list...)
	e.Servers.Waits(into.RecordWait)
	e.Tasks.Waits(into.RecordWait)
}

// socketName formats an address as memcached does.
func socketName(network, address string) string {
	switch {
	case network == "unix":
		return "unix:" + strings.TrimPrefix(address, "unix")
	case strings.HasPrefix(address, "["):
		return "tcp6:" + address
	}
	return "tcp:" + address
}
