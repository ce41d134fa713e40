package proxy

// This file defines the state that all engines of a process share.

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"ringside/proxy/ablation"
	"ringside/proxy/failover"
	"ringside/proxy/health/resize"
	"ringside/proxy/link"
	"ringside/proxy/near"
	"ringside/proxy/routing"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/tags"
	"ringside/proxy/tags/stamp"
	"ringside/proxy/task"
	"ringside/proxy/watch"
	"ringside/proxy/watch/missreason"
)

// Proxy is the state that all engines of a process share: the table, and the totals
// that limits apply to.
type Proxy struct {
	Log     *slog.Logger
	Started time.Time
	Version string // Ringside's version, for stats
	Name    string // name of this process in the list of instances; empty: it does not list itself
	PID     int    // process ID, for stats; set by the driver
	Seed    uint64 // seed of random choices, and the ID of this process in the list of instances

	// Hash hashes a key, with the same result on all loops. It differs between
	// processes, unless a test needs reproducible runs.
	Hash func(key []byte) uint64

	// Joined is called when a pool uses its peers' list instead of the configured one: see table.Table.Join. The
	// configuration must then be set again, like that of a reload. nil: nothing is called.
	Joined func()

	// Ablation has the rules that a test turns off, to show that each is needed. It must be set
	// before the first table.
	Ablation ablation.Set

	published atomic.Pointer[failover.Published] // current table and the keepers of its pools
	overrides atomic.Pointer[overrideMap]        // overrides of servers in pools without a keeper; nil: none was set yet
	memory    atomic.Int64                       // bytes used by all engines: see link/memory.go
	clients   atomic.Int64                       // number of connected clients, all engines
	logLimit  link.LogLimit                      // limits the lines of all engines in the log
	moving    atomic.Int32                       // number of engines with replicated keys that a reload moves to other servers: see package replication
	doubtful  atomic.Int32                       // number of engines that know of replicas that missed a write: see package replication

	lastClient atomic.Uint64 // ID of the client that connected last
	rejected   sync.Map      // of *atomic.Uint64, by the name of a table.Permission: how many commands were rejected because of it

	learned // statistics of the features of routes, over all loops and tables

	invalidations stats.Invalidations

	reports reports       // runs one stats command at a time that needs data of all loops
	tracing sync.Mutex    // guards traced
	traced  []watch.Trace // what engines have traced, for the next call of Traced
	listing sync.Mutex    // is locked while Clients runs, so that only one list is made at a time

	book atomic.Pointer[missreason.Book] // explains misses; nil: disabled

	engines atomic.Pointer[[]*Engine] // a slice that is never changed but replaced, because every command on a replicated key reads it without a lock
	mu      sync.Mutex                // protects changes of engines, overrides and book

	// Ordering is locked by a caller that checks whether an override is allowed and
	// then sets it. No other override can change the checked state in between.
	Ordering sync.Mutex
}

// NewProxy returns a proxy that serves t.
func NewProxy(t *table.Table, version string, log *slog.Logger) *Proxy {
	p := &Proxy{Log: log, Started: time.Now(), Version: version}
	p.Seed = uint64(p.Started.UnixNano())
	seed := maphash.MakeSeed()
	p.Hash = func(key []byte) uint64 { return maphash.Bytes(seed, key) }
	t.Begin()
	t.Inherit(nil)
	p.published.Store(failover.Publish(t, nil, p.Seed, p.Ablation))
	return p
}

// Table returns the table that new requests use.
func (p *Proxy) Table() *table.Table { return p.published.Load().Table }

// Agents returns the agents of the keepers, by pool, of the current table. Pools
// without a keeper are not in the map. The caller must not change it.
func (p *Proxy) Agents() map[*table.Pool]*failover.Agent { return p.published.Load().Agents }

// Ends reports whether the change of the servers of a pool of the current table ends even if a further table does
// not have its list.
func (p *Proxy) Ends(pool *table.Pool) bool {
	w := p.Agents()[pool]
	return w != nil && w.View.Resize().Ends()
}

// SetTable makes t the table that new requests use. It wakes all engines, and each adopts t
// at its next wakeup. Requests in flight complete with the table that they started
// with.
//
// A pool whose instances change their servers together keeps its servers until they do: see
// table.Table.Hold.
func (p *Proxy) SetTable(t *table.Table) {
	p.resized()
	was := p.published.Load()
	t.Hold(was.Table, func(pool *table.Pool) (holds, moving, begins bool) {
		w := was.Agents[pool]
		if w == nil {
			return false, false, false
		}
		is := w.View.Resize()
		return is.Holds(), is.Moves(), is.Stage() == resize.Stable
	})
	t.Inherit(was.Table)
	p.published.Store(failover.Publish(t, p.published.Load(), p.Seed, p.Ablation))
	p.wake()
}

// CutOff returns the names of the pools that change their servers when an operator says that the servers in use are dead, sorted.
func (p *Proxy) CutOff() (pools []string) {
	for pool, w := range p.Agents() {
		if w.View.Resize().Cut {
			pools = append(pools, pool.Name)
		}
	}
	slices.Sort(pools)
	return pools
}

// DeclareDead tells the keepers of pools that their servers in use are dead: see health.View.DeclareDead.
func (p *Proxy) DeclareDead(pools []string) {
	for pool, w := range p.Agents() {
		if slices.Contains(pools, pool.Name) {
			w.View.DeclareDead()
		}
	}
	p.wake()
}

// part publishes the current table again, without the keepers that are no longer needed. If a
// reload publishes a table at the same time, part does nothing, because the reload has the same
// effect.
func (p *Proxy) part() {
	old := p.published.Load()
	if p.published.CompareAndSwap(old, failover.Publish(old.Table, old, p.Seed, p.Ablation)) {
		p.wake()
	}
}

// resized publishes the current table again. Pools whose new servers are in force use them.
func (p *Proxy) resized() {
	old := p.published.Load()
	p.replace(old, old.Table.Advance(func(pool *table.Pool) (due, drops bool) {
		w := old.Agents[pool]
		if w == nil {
			return false, false
		}
		is := w.View.Resize()
		return is.Superseded() || is.Forgets(), is.Drops
	}))
}

// learnLists publishes the current table again. The pool of w serves by the lists of its peers from then on: see table.Table.Learn.
func (p *Proxy) learnLists(w *failover.Agent, list, next *table.List, turned bool) {
	old := p.published.Load()
	for pool, is := range old.Agents {
		if is == w {
			p.replace(old, old.Table.Learn(pool, list, next, turned))
			return
		}
	}
}

// join publishes the current table again. The pool of w uses a list of its peers from then on: see table.Table.Join.
func (p *Proxy) join(w *failover.Agent, list *table.List) {
	old := p.published.Load()
	for pool, is := range old.Agents {
		if is == w && p.replace(old, old.Table.Join(pool, list)) && p.Joined != nil {
			p.Joined()
		}
	}
}

// Joins reports whether a pool uses its peers' list instead of the configured one: see table.Table.Join.
func (p *Proxy) Joins() bool {
	return slices.ContainsFunc(p.Table().Pools, func(pool *table.Pool) bool { return pool.Joins != nil })
}

// replace publishes the table next in place of old, and reports whether it did. It does not if next is nil, or if a reload
// publishes a table at the same time.
func (p *Proxy) replace(old *failover.Published, next *table.Table) bool {
	if next == nil {
		return false
	}
	next.Inherit(old.Table)
	if !p.published.CompareAndSwap(old, failover.Publish(next, old, p.Seed, p.Ablation)) {
		return false
	}
	p.wake()
	return true
}

func (p *Proxy) wake() {
	for _, e := range p.Engines() {
		e.Post(func(*Engine) {}) // starts a wakeup, in which Begin adopts the table
	}
}

// learned contains the counters and learned values of routes, by label, over all loops
// and tables of the process.
type learned struct {
	mu     sync.Mutex
	guards map[string]*stats.GuardStats
	tags   map[string]*stats.TagStats
	nears  map[string]*stats.Near
	marks  *near.Marks // counts writes, so that a near cache does not serve an older value; nil: no route has had a near cache yet
}

// Guarded returns the guard statistics of the route with this label.
func (l *learned) Guarded(label string) *stats.GuardStats {
	return learnedOf(l, &l.guards, label, &stats.GuardStats{Route: label})
}

// Tagged returns the tag statistics of the route with this label.
func (l *learned) Tagged(label string) *stats.TagStats {
	return learnedOf(l, &l.tags, label, &stats.TagStats{Route: label})
}

// near returns the near cache statistics of the routes with this label.
func (l *learned) near(label string) *stats.Near {
	return learnedOf(l, &l.nears, label, &stats.Near{Route: label})
}

// learnedOf returns the statistics of the route with this label. At first they are those in `first`.
func learnedOf[S any](l *learned, of *map[string]*S, label string, first *S) *S {
	l.mu.Lock()
	defer l.mu.Unlock()
	if *of == nil {
		*of = map[string]*S{}
	}
	if (*of)[label] == nil {
		(*of)[label] = first
	}
	return (*of)[label]
}

// nearMarks returns the write counters with which the near caches of the process detect writes.
// It returns nil if no route of t has a near cache.
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

// Nears returns the statistics of all routes that have or had a near cache.
func (l *learned) Nears() []*stats.Near { return sorted(l, l.nears) }

// Guards returns the statistics of all routes that are or were guarded.
func (l *learned) Guards() []*stats.GuardStats { return sorted(l, l.guards) }

// Tags returns the statistics of all routes that have or had tags.
func (l *learned) Tags() []*stats.TagStats { return sorted(l, l.tags) }

func sorted[T any](l *learned, m map[string]T) (list []T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, label := range slices.Sorted(maps.Keys(m)) {
		list = append(list, m[label])
	}
	return list
}

// InvalidateTags invalidates tags on all servers that may have values with them, or
// only on those of one pool. It returns the answer of each server. ErrUnsure means that
// the servers may have been asked; any other error means that none was. The caller must
// have checked the names (table.CheckTagNames). Many tags are invalidated in parts, one after the
// other, because each needs requests in the queues of servers that keepers need, too.
func (p *Proxy) InvalidateTags(names []string, pool string) (all []tags.Answer, err error) {
	list, err := p.Table().TagsOf(names)
	if err != nil {
		return nil, err
	}
	until := time.Now().Add(invalidationPatience)
	for part := range slices.Chunk(list, invalidationPart) {
		answers, full := p.invalidate(part, pool)
		for ; full != "" && time.Now().Before(until); answers, full = p.invalidate(part, pool) {
			time.Sleep(10 * time.Millisecond)
		}
		switch {
		case full != "":
			return nil, fmt.Errorf("%s: %w", full, ErrUnsure)
		case answers == nil:
			return nil, fmt.Errorf("the servers have not answered: %w", ErrUnsure)
		case len(answers) == 0:
			return nil, fmt.Errorf("no pool %q has routes with tags", pool)
		}
		for _, a := range answers {
			i := slices.IndexFunc(all, func(o tags.Answer) bool { return o.Pool == a.Pool && o.Server == a.Server })
			if i < 0 {
				all = append(all, a)
			} else {
				all[i].Why, all[i].Skipped = cmp.Or(all[i].Why, a.Why), all[i].Skipped && a.Skipped
			}
		}
	}
	bad := slices.DeleteFunc(slices.Clone(all), func(a tags.Answer) bool { return a.Why == "" })
	p.keeperLoop().Post(func(e *Engine) {
		e.LogLimited(slog.LevelInfo, "", "operator invalidated tags", "tags", names, "servers", len(all), "failed", len(bad))
	})
	return all, nil
}

// invalidate invalidates a part of the tags of InvalidateTags. It returns why they must wait, or nil if the servers have not
// answered.
func (p *Proxy) invalidate(list []stamp.Tag, pool string) (answers []tags.Answer, full string) {
	told, waits := make(chan []tags.Answer, 1), make(chan string, 1)
	p.keeperLoop().Post(func(e *Engine) {
		if why := e.tags.Crowded(); why != "" {
			waits <- why
			return
		}
		pools, most := []*routing.BoundPool{}, time.Duration(0)
		for _, bp := range e.tags.Pools {
			if pool == "" || bp.Pool.Name == pool {
				pools, most = append(pools, bp), max(most, bp.Pool.Timeouts.Deadline)
			}
		}
		e.tags.Invalidate(list, pools, e.Now+int64(most), func(answers []tags.Answer, _ bool) { told <- append([]tags.Answer{}, answers...) })
	})
	select {
	case answers = <-told:
		return answers, ""
	case full = <-waits:
		return nil, full
	case <-time.After(invalidationPatience):
		return nil, ""
	}
}

// invalidationPart is how many tags InvalidateTags invalidates at the same time.
const invalidationPart = 100

// invalidationPatience is longer than any practical deadline of a pool.
const invalidationPatience = time.Minute

// Invalidations returns the counters of tag invalidations by this process.
func (p *Proxy) Invalidations() stats.InvalidationCounts { return p.invalidations.Snapshot() }

// Engines returns the engines made so far. The caller must not change the slice.
func (p *Proxy) Engines() []*Engine {
	if list := p.engines.Load(); list != nil {
		return *list
	}
	return nil
}

// loops adapts the engines of a proxy to the interface that tasks use.
type loops struct{ *Proxy }

// Owner returns the tasks of the engine that runs the commands on the replicated keys
// with this hash.
func (p loops) Owner(hash uint64) *task.Tasks { return &p.owner(hash).Tasks }

func (p *Proxy) owner(hash uint64) *Engine {
	engines := p.Engines()
	return engines[hash%uint64(len(engines))]
}

// HashKey hashes a key, with the same result on all loops.
func (p loops) HashKey(key []byte) uint64 { return p.Hash(key) }

// Count returns how many engines there are, and the index of the engine with the tasks t.
func (p loops) Count(t *task.Tasks) (n, index int) {
	engines := p.Engines()
	return len(engines), slices.IndexFunc(engines, func(e *Engine) bool { return &e.Tasks == t })
}

// keeperLoop returns the engine that runs the keepers.
func (p *Proxy) keeperLoop() *Engine { return p.Engines()[0] }

// each calls add for every engine on that engine's goroutine, one at a time. The last engine
// then calls done.
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

// waited calls each and waits until add has run for every engine. It fails after one
// second.
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

// collect returns what add adds up of all loops. It waits for them, and fails if one does not answer
// within one second. A late loop may then still add to the result, which is not returned.
func collect[T any](p *Proxy, add func(e *Engine, into *T)) (*T, error) {
	into := new(T)
	if err := p.waited(func(e *Engine) { add(e, into) }); err != nil {
		return nil, err
	}
	return into, nil
}

// Bounds returns how often each limit was reached since the start. It costs the loops
// little. It returns an error in the same cases as Snapshot.
func (p *Proxy) Bounds() (*stats.Bounds, error) {
	return collect(p, func(e *Engine, sum *stats.Bounds) {
		sum.Add(&e.Count)
		for _, srv := range e.List {
			sum.AddServer(srv.Target.Name, &srv.Count)
		}
	})
}

// Snapshot returns the counters of all engines. It waits for them, and fails if an engine does
// not answer within one second.
func (p *Proxy) Snapshot() (*stats.Snapshot, error) { return collect(p, (*Engine).Snapshot) }

// Snapshot adds the counters of e to into. It must be called on the goroutine that
// drives e: see Post.
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
	e.Replicator.AddTo(into)
	for _, l := range e.InOrder {
		l.AddTo(into)
	}
}

// Watched returns what the engines have recorded about the sampled keys. It returns an
// error in the same cases as Snapshot.
func (p *Proxy) Watched() (*watch.Report, error) {
	return collect(p, func(e *Engine, is *watch.Report) { e.Watch.AddTo(is, e.Now) })
}

// Follow traces the keys that match one of patterns, and stops all other traces.
func (p *Proxy) Follow(patterns []watch.Pattern) {
	for _, e := range p.Engines() {
		e.Post(func(e *Engine) { e.Watch.Follow(patterns) })
	}
}

// EndLog writes the lines of the log that wait, because the process ends.
func (p *Proxy) EndLog() { p.logLimit.End(p.Log) }

// Traced returns what the engines have traced since the previous call. It waits for them for at most one
// second. What a late engine has traced is returned by a later call.
func (p *Proxy) Traced() []watch.Trace {
	_ = p.waited(func(e *Engine) {
		p.tracing.Lock()
		defer p.tracing.Unlock()
		p.traced = append(p.traced, e.Watch.Take(e.Now))
	})
	p.tracing.Lock()
	defer p.tracing.Unlock()
	list := p.traced
	p.traced = nil
	return list
}

// Decided returns a number that changes whenever a keeper has decided something, for example a
// phase or a suspicion. If it has changed, the phases in a Snapshot may have changed, too.
func (p *Proxy) Decided() (sum uint64) {
	for _, w := range p.Agents() {
		sum += w.View.Gen()
	}
	return sum
}
