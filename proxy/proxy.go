package proxy

// What the engines of a process share.

import (
	"context"
	"errors"
	"hash/maphash"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"ringside/proxy/failover"
	"ringside/proxy/health"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/task"
)

// Proxy is what all engines of a process share: the table, and the few
// numbers that limits count over all loops.
type Proxy struct {
	Log     *slog.Logger
	Started time.Time
	Version string // Ringside's own, for stats
	PID     int    // of this process, for stats; the driver sets it
	Seed    uint64 // of what keepers leave to chance

	// Hash makes one number of a key, for all loops. It is another in each
	// process, unless a test wants each run to be the same.
	Hash func(key []byte) uint64

	Ablation health.Ablation // what keepers leave out, in tests that show what it is for

	debug     bool // Log wants to know of every connection
	published atomic.Pointer[failover.Published]
	orders    atomic.Pointer[orders]
	memory    atomic.Int64 // bytes held by all engines: see memory.go
	clients   atomic.Int64

	lastClient atomic.Uint64 // number given

	engines atomic.Pointer[[]*Engine] // a slice that never changes: every command on copies reads it
	mu      sync.Mutex                // of those who change engines or orders
}

// NewProxy makes a proxy that serves t.
func NewProxy(t *table.Table, version string, log *slog.Logger) *Proxy {
	p := &Proxy{debug: log.Enabled(context.Background(), slog.LevelDebug), Log: log, Started: time.Now(), Version: version}
	p.Seed = uint64(p.Started.UnixNano())
	seed := maphash.MakeSeed()
	p.Hash = func(key []byte) uint64 { return maphash.Bytes(seed, key) }
	p.published.Store(failover.Publish(t, nil, p.Seed, p.Ablation))
	return p
}

// Table is the generation that new requests get.
func (p *Proxy) Table() *table.Table { return p.published.Load().Table }

// Swap makes t the generation that new requests get. Each engine takes it up
// at its next wakeup, which begins now; requests in flight finish on the one
// they began with.
func (p *Proxy) Swap(t *table.Table) {
	p.published.Store(failover.Publish(t, p.published.Load(), p.Seed, p.Ablation))
	for _, e := range p.Engines() {
		e.Post(func(*Engine) {})
	}
}

// Engines returns the engines made so far. The caller must not change the slice.
func (p *Proxy) Engines() []*Engine {
	if list := p.engines.Load(); list != nil {
		return *list
	}
	return nil
}

// loops are the engines of a proxy as tasks see them.
type loops struct{ *Proxy }

// Owner is the engine that leads the commands on a key of several copies.
func (p loops) Owner(hash uint64) *task.Tasks {
	engines := p.Engines()
	return &engines[hash%uint64(len(engines))].Tasks
}

// HashKey makes one number of a key, the same for all loops.
func (p loops) HashKey(key []byte) uint64 { return p.Hash(key) }

// Count is how many engines there are, and which of them t belongs to.
func (p loops) Count(t *task.Tasks) (n, index int) {
	engines := p.Engines()
	return len(engines), slices.IndexFunc(engines, func(e *Engine) bool { return &e.Tasks == t })
}

// first is the engine that lets the keepers work.
func (p *Proxy) keeperLoop() *Engine { return p.Engines()[0] }

// Collect asks every engine for what it has counted and calls done with the
// sum, on one of the engines' goroutines or on the caller's. Nothing waits
// for it.
func (p *Proxy) Collect(done func(*stats.Snapshot)) {
	engines := p.Engines()
	var mu sync.Mutex
	sum, missing := &stats.Snapshot{}, len(engines)
	for _, e := range engines {
		e.Post(func(e *Engine) {
			mu.Lock()
			defer mu.Unlock()
			e.Snapshot(sum)
			if missing--; missing == 0 {
				done(sum)
			}
		})
	}
}

// Snapshot is Collect for those who can wait. It fails when an engine does
// not answer within a second.
func (p *Proxy) Snapshot() (*stats.Snapshot, error) {
	got := make(chan *stats.Snapshot, 1)
	p.Collect(func(s *stats.Snapshot) { got <- s })
	select {
	case s := <-got:
		return s, nil
	case <-time.After(time.Second):
		return nil, errors.New("a loop did not report within 1s")
	}
}

// Snapshot adds what e has counted to into. It must be called on the
// goroutine that drives e: see Post.
func (e *Engine) Snapshot(into *stats.Snapshot) {
	into.Counters.Add(&e.Count)
	into.Memory += e.Buffers.Held
	into.Kept += e.Buffers.Kept()
	e.Clients.AddTo(into)
	e.Tasks.AddTo(into)
	e.Servers.AddTo(into)
	e.Keepers.AddTo(into)
}

// Decided is another number whenever a keeper has decided something, a phase or
// a suspicion: then Snapshot has other Members.
func (p *Proxy) Decided() (sum uint64) {
	for _, w := range p.published.Load().Agents {
		sum += w.View.Gen()
	}
	return sum
}
