package proxy

// What the engines of a process share.

import (
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"ringside/proxy/failover"
	"ringside/proxy/guard"
	"ringside/proxy/health"
	"ringside/proxy/link"
	"ringside/proxy/near"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/tags"
	"ringside/proxy/task"
	"ringside/proxy/watch"
	"ringside/proxy/watch/why"
)

// Proxy is what all engines of a process share: the table, and the few
// numbers that limits count over all loops.
type Proxy struct {
	Log     *slog.Logger
	Started time.Time
	Version string // Ringside's own, for stats
	Name    string // what others call this process; empty: it tells nobody that it is there
	PID     int    // of this process, for stats; the driver sets it
	Seed    uint64 // of what keepers leave to chance

	// Hash makes one number of a key, for all loops. It is another in each
	// process, unless a test wants each run to be the same.
	Hash func(key []byte) uint64

	// What keepers and guards leave out, in tests that show what it is for.
	Ablation      health.Ablation
	GuardAblation guard.Ablation

	published atomic.Pointer[failover.Published] // the table in force, and the keepers of its pools
	overrides atomic.Pointer[overrideMap]        // of pools without a keeper
	memory    atomic.Int64                       // bytes held by all engines: see link/memory.go
	clients   atomic.Int64                       // connected, of all engines
	logLimit  link.LogLimit                      // of all engines
	moving    atomic.Int32                       // engines whose keys of several copies get other holders: see package copies/handover
	doubtful  atomic.Int32                       // engines that know of writes which copies have missed: see package copies

	lastClient atomic.Uint64 // number given to a client

	learned // by routes, over all tables

	invalidations stats.Invalidations

	book atomic.Pointer[why.Book] // of why keys miss; nil: nobody looks

	engines atomic.Pointer[[]*Engine] // a slice that never changes: every command on copies reads it
	mu      sync.Mutex                // held by those who change engines or overrides

	// Ordering is held by who looks whether an order may be given, and gives it: between
	// the two nobody else's order may change what was seen.
	Ordering sync.Mutex
}

// NewProxy makes a proxy that serves t.
func NewProxy(t *table.Table, version string, log *slog.Logger) *Proxy {
	p := &Proxy{Log: log, Started: time.Now(), Version: version}
	p.Seed = uint64(p.Started.UnixNano())
	seed := maphash.MakeSeed()
	p.Hash = func(key []byte) uint64 { return maphash.Bytes(seed, key) }
	p.published.Store(failover.Publish(t, nil, p.Seed, p.Ablation))
	return p
}

// Table is the generation that new requests get.
func (p *Proxy) Table() *table.Table { return p.published.Load().Table }

// Agents returns the keepers of the pools of the current table that have one. The
// caller must not change the map.
func (p *Proxy) Agents() map[*table.Pool]*failover.Agent { return p.published.Load().Agents }

// Swap makes t the generation that new requests get. Each engine takes it up
// at its next wakeup, which begins now; requests in flight finish on the one
// they began with.
func (p *Proxy) Swap(t *table.Table) {
	p.published.Store(failover.Publish(t, p.published.Load(), p.Seed, p.Ablation))
	p.wake()
}

// part makes the table in force anew, without the keepers that it needs no more. A
// reload that comes first does the same.
func (p *Proxy) part() {
	old := p.published.Load()
	if p.published.CompareAndSwap(old, failover.Publish(old.Table, old, p.Seed, p.Ablation)) {
		p.wake()
	}
}

func (p *Proxy) wake() {
	for _, e := range p.Engines() {
		e.Post(func(*Engine) {}) // wakes it: Begin takes up the table
	}
}

// learned is what routes have counted and learned, by label, over all loops and
// tables of the process.
type learned struct {
	mu     sync.Mutex
	guards map[string]*stats.Guard
	tags   map[string]*stats.Tags
	nears  map[string]*stats.Near
	marks  *near.Marks // of what is written; nil: no route has kept values yet
}

// Guarded is what the route with a label has learned of its guard.
func (l *learned) Guarded(label string) *stats.Guard {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.guards[label] == nil {
		if l.guards == nil {
			l.guards = map[string]*stats.Guard{}
		}
		l.guards[label] = &stats.Guard{Route: label}
	}
	return l.guards[label]
}

// Tagged is what the route with a label has learned of its tags.
func (l *learned) Tagged(label string) *stats.Tags {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tags[label] == nil {
		if l.tags == nil {
			l.tags = map[string]*stats.Tags{}
		}
		l.tags[label] = &stats.Tags{Route: label}
	}
	return l.tags[label]
}

// near is what is kept of the routes with a label.
func (l *learned) near(label string) *stats.Near {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.nears[label] == nil {
		if l.nears == nil {
			l.nears = map[string]*stats.Near{}
		}
		l.nears[label] = &stats.Near{Route: label}
	}
	return l.nears[label]
}

// nearMarks are the Marks of the process, if a route of t keeps values.
func (l *learned) nearMarks(t *table.Table) *near.Marks {
	if !t.KeepsNear() {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.marks == nil {
		l.marks = new(near.Marks)
	}
	return l.marks
}

// Nears are the routes that there have been that keep values.
func (l *learned) Nears() []*stats.Near { return sorted(l, l.nears) }

// Guards are the guarded routes that there have been.
func (l *learned) Guards() []*stats.Guard { return sorted(l, l.guards) }

// Tags are the routes with tags that there have been.
func (l *learned) Tags() []*stats.Tags { return sorted(l, l.tags) }

func sorted[T any](l *learned, m map[string]T) (list []T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, label := range slices.Sorted(maps.Keys(m)) {
		list = append(list, m[label])
	}
	return list
}

// InvalidateTags invalidates tags on all servers that may keep values with them, or on
// those of one pool. It says what each of them has answered. The error says that
// nothing was asked. Whoever calls it has checked the names (table.CheckTagNames).
func (p *Proxy) InvalidateTags(names []string, pool string) ([]tags.Answer, error) {
	list, err := p.Table().TagsOf(names)
	if err != nil {
		return nil, err
	}
	told := make(chan []tags.Answer, 1)
	p.keeperLoop().Post(func(e *Engine) {
		pools, most := []*routing.BoundPool{}, time.Duration(0)
		for _, bp := range e.tags.Pools {
			if pool == "" || bp.Pool.Name == pool {
				pools, most = append(pools, bp), max(most, bp.Pool.Timeouts.Deadline)
			}
		}
		e.tags.Invalidate(list, pools, e.Now+int64(most), func(answers []tags.Answer, _ bool) { told <- answers })
	})
	select {
	case answers := <-told:
		if len(answers) == 0 {
			return nil, fmt.Errorf("no pool %q has routes with tags", pool)
		}
		bad := slices.DeleteFunc(slices.Clone(answers), func(a tags.Answer) bool { return a.Why == "" })
		p.Log.Info("a person invalidates tags", "tags", names, "servers", len(answers), "failed", len(bad))
		return answers, nil
	case <-time.After(invalidationPatience):
		return nil, fmt.Errorf("the servers have not answered: %w", ErrUnsure)
	}
}

// invalidationPatience is above any deadline that pools have in use.
const invalidationPatience = time.Minute

// Invalidations are those of tags by this process.
func (p *Proxy) Invalidations() stats.InvalidationCounts { return p.invalidations.Snapshot() }

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

// keeperLoop is the engine that lets the keepers work.
func (p *Proxy) keeperLoop() *Engine { return p.Engines()[0] }

// Collect asks every engine for what it has counted and calls done with the
// sum, on one of the engines' goroutines or on the caller's. Nothing waits
// for it.
func (p *Proxy) Collect(done func(*stats.Snapshot)) {
	sum := &stats.Snapshot{}
	p.each(func(e *Engine) { e.Snapshot(sum) }, func() { done(sum) })
}

// each calls add for every engine, one at a time, on the engines' goroutines,
// and then done on that of the last.
func (p *Proxy) each(add func(*Engine), done func()) {
	engines := p.Engines()
	var mu sync.Mutex
	missing := len(engines)
	for _, e := range engines {
		e.Post(func(e *Engine) {
			mu.Lock()
			defer mu.Unlock()
			add(e)
			if missing--; missing == 0 {
				done()
			}
		})
	}
}

// waited waits for what each begins; it fails after a second.
func (p *Proxy) waited(add func(*Engine)) error {
	done := make(chan struct{})
	p.each(add, func() { close(done) })
	select {
	case <-done:
		return nil
	case <-time.After(time.Second):
		return errors.New("a loop did not report within 1s")
	}
}

// Bounds is how often bounds were reached since the start. It asks little of the
// loops, and fails as Snapshot does.
func (p *Proxy) Bounds() (stats.Bounds, error) {
	sum := &stats.Bounds{} // a loop that is late may still add to it
	err := p.waited(func(e *Engine) {
		sum.Add(&e.Count)
		for _, srv := range e.List {
			sum.AddServer(srv.Target.Name, &srv.Count)
		}
	})
	if err != nil {
		return stats.Bounds{}, err
	}
	return *sum, nil
}

// Snapshot is Collect for those who can wait. It fails when an engine does
// not answer within a second.
func (p *Proxy) Snapshot() (*stats.Snapshot, error) {
	sum := &stats.Snapshot{}
	if err := p.waited(func(e *Engine) { e.Snapshot(sum) }); err != nil {
		return nil, err
	}
	return sum, nil
}

// Snapshot adds what e has counted to into. It must be called on the
// goroutine that drives e: see Post.
func (e *Engine) Snapshot(into *stats.Snapshot) {
	into.Counters.Add(&e.Count)
	into.Memory += e.Buffers.Held
	into.Kept += e.Buffers.Kept()
	e.Clients.AddTo(into)
	e.Tasks.AddTo(into)
	e.Counters.AddTo(into)
	e.Servers.AddTo(into)
	e.Keepers.AddTo(into)
	e.addShared(into)
	e.Copies.AddTo(into)
	for _, l := range e.InOrder {
		l.AddTo(into)
	}
}

// Watched is what the engines have seen of keys. It fails as Snapshot does.
func (p *Proxy) Watched() (*watch.Report, error) {
	is := &watch.Report{} // a loop that is late may still add to it
	if err := p.waited(func(e *Engine) { e.Watch.AddTo(is, e.Now) }); err != nil {
		return nil, err
	}
	return is, nil
}

// Follow traces the keys that fit one of patterns, and no other.
func (p *Proxy) Follow(patterns []watch.Pattern) {
	for _, e := range p.Engines() {
		e.Post(func(e *Engine) { e.Watch.Follow(patterns) })
	}
}

// Traced is what the engines have traced since the last time. It fails as Snapshot
// does.
func (p *Proxy) Traced() ([]watch.Trace, error) {
	var list []watch.Trace
	if err := p.waited(func(e *Engine) { list = append(list, e.Watch.Take(e.Now)) }); err != nil {
		return nil, err
	}
	return list, nil
}

// Decided is another number whenever a keeper has decided something, a phase or
// a suspicion: then Snapshot has other Members.
func (p *Proxy) Decided() (sum uint64) {
	for _, w := range p.Agents() {
		sum += w.View.Gen()
	}
	return sum
}
