package live

// This file makes a single report for scripts, in place of a stream of events.

import (
	"context"
	"fmt"
	"time"

	"ringside/proxy/table"
)

// Now describes what a pool's servers and the whole proxy did in the counted time.
type Now struct {
	T       int64       `json:"t"`    // end of the counted time, in milliseconds since 1970
	Span    int64       `json:"span"` // length of the counted time, in milliseconds
	Pool    string      `json:"pool"`
	Overall             // state of all pools together
	Total   Total       `json:"total"`
	List    []NowServer `json:"servers"`
	Asked   bool        `json:"asked"` // true if the servers were asked for their stats; a server without values has then sent no reply
	Slabs   []Class     `json:"slabs"` // slab classes, summed over all servers; null: no server has reported them
	Warn    []Warning   `json:"warnings"`
	Hot     *Hot        `json:"hot"` // hot keys; null: not known yet
	Misses  *Misses     `json:"why"`
	Routes  *Routes     `json:"routes"` // work of routes; null: not known yet, or no route has a guard, tags, replicas or a near cache
	Roll    *Roll       `json:"roll"`   // instances of the pool; null: not known yet, or the pool has no list of instances
}

// Total describes the whole proxy: all its pools and clients.
type Total struct {
	Requests float64            `json:"rps"`
	Ops      map[string]float64 `json:"ops"` // requests per second, by command
	Outcomes Outcomes           `json:"outcomes"`
	Hit      *float64           `json:"hit"` // fraction of the requested keys that were found, 0 to 1; null: no keys were requested
	P50      *float64           `json:"p50_us"`
	P90      *float64           `json:"p90_us"`
	P99      *float64           `json:"p99_us"`
	Clients  int                `json:"clients"`
	InFlight int                `json:"in_flight"`
	BytesIn  float64            `json:"in_bps"`
	BytesOut float64            `json:"out_bps"`
	CPU      float64            `json:"cpu"` // CPU time that the process uses, as a number of CPU cores
}

// NowServer describes what one server of a pool does now.
type NowServer struct {
	Name    string    `json:"name"`
	Address string    `json:"address"`
	Share   float64   `json:"share"`
	State   string    `json:"state"`
	Since   time.Time `json:"since"`
	Why     string    `json:"why,omitempty"`
	Next    string    `json:"next,omitempty"` // next step of the keeper, or why the keeper waits; empty: no step
	Rate    float64   `json:"rps"`            // requests per second, for requests of clients
	Own     float64   `json:"own"`            // Ringside's own requests per second
	Fail    float64   `json:"fail"`
	Hit     *float64  `json:"hit"` // hit rate as the server counts it, 0 to 1; null: it has reported fewer than two times
	P50     *float64  `json:"p50_us"`
	P99     *float64  `json:"p99_us"`
	Queue   int       `json:"queue"`
	Conns   int       `json:"connections"`
	Used    *float64  `json:"used_bytes"`
	Limit   *float64  `json:"limit_bytes"`
	Items   *float64  `json:"items"`
	Evicted *float64  `json:"evicted"` // evicted items per second
}

// Now counts for the duration `window`, and returns what the pool and the proxy did in that time.
// While it runs, it counts as a watcher.
func (s *Sampler) Now(ctx context.Context, pool *table.Pool, window time.Duration) (*Now, error) {
	w, err := s.Watch(s.p.Table(), pool)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	before, err := s.Sample()
	if err != nil {
		return nil, err
	}
	select {
	case <-time.After(window):
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.ended:
	}
	said := s.memoryOf(ctx, pool.Name)
	after, err := s.Sample()
	if err != nil {
		return nil, err
	}
	tick := tickBetween(before, after, pool.Name)
	if tick == nil {
		return nil, fmt.Errorf("pool %s was removed by a reload", pool.Name)
	}
	pool = after.Table.Pool(pool.Name) // a reload may have replaced it during the counted time
	seen, misses, err := s.keys(before, after)
	if err != nil {
		return nil, err
	}
	is := NowOf(tick, topoOf(after.Table, pool, after.Gen), said.Memory, said.Slabs, hotOf(seen, after.Table, pool), misses)
	is.Routes = routesBetween(before.Routes, after.Routes, after.Table, pool)
	is.Roll = RollOf(after.Sum, pool.Name)
	return is, nil
}

// memoryWait is how long Now waits for the servers' memory stats after the counted time.
const memoryWait = 2 * time.Second

// memoryOf returns what the servers of a pool report about their memory. It waits until they have
// reported it, or until memoryWait is over.
func (s *Sampler) memoryOf(ctx context.Context, pool string) memoryOf {
	for late := time.Now().Add(memoryWait); ; {
		s.mu.Lock()
		said := s.memory[pool]
		s.mu.Unlock()
		if said.Memory != nil || ctx.Err() != nil || time.Now().After(late) || !s.sleep(memoryWait/100) {
			return said
		}
	}
}

// NowOf combines the events of a stream into one object. m and sl are nil if the servers have not
// reported their memory. hot and misses are nil if they are not known yet.
func NowOf(t *Tick, of *Topo, m *Memory, sl *Slabs, hot *Hot, misses *Misses) *Now {
	is := &Now{Asked: m != nil, Hot: hot, Misses: misses, T: t.T, Span: t.Span, Pool: of.Pool, Overall: t.Overall, Warn: []Warning{}, List: []NowServer{}, Total: Total{
		Requests: t.Rate, Hit: t.Hit, Ops: t.Ops, Outcomes: t.Outcomes, P50: t.Latency[0], P90: t.Latency[1], P99: t.Latency[2],
		Clients: t.Clients, InFlight: t.InFlight, BytesIn: t.BytesIn, BytesOut: t.BytesOut, CPU: t.CPU,
	}}
	if sl != nil {
		is.Slabs, is.Warn = sl.Sum, append(is.Warn, sl.Warnings...)
	}
	for i, server := range of.Servers[:min(len(of.Servers), len(t.S.State))] {
		one := NowServer{
			Name: server.Name, Address: server.Addr, Share: server.Share, State: t.S.State[i], Since: time.UnixMilli(t.S.Since[i]), Why: t.S.Why[i], Next: t.S.Next[i],
			Rate: t.S.Rate[i], Own: t.S.Own[i], Fail: t.S.Fail[i], P50: t.S.P50[i], P99: t.S.P99[i], Queue: t.S.Queue[i], Conns: t.S.Conns[i],
		}
		if m != nil && len(m.Used) == len(of.Servers) {
			one.Hit, one.Used, one.Limit, one.Items, one.Evicted = m.Hit[i], m.Used[i], m.Limit[i], m.Items[i], m.Evicted[i]
		}
		is.List = append(is.List, one)
	}
	return is
}
