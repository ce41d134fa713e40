package live

// This file contains the sampler and its watchers.

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/metrics"
	"slices"
	"sync"
	"time"

	"ringside/proxy"
	"ringside/proxy/table"
)

// Intervals and limits of the sampler.
const (
	Every      = time.Second     // between ticks while there is a watcher
	historyGap = 5 * time.Second // between ticks that are kept
	historyLen = 36              // number of kept ticks, for new watchers: three minutes
	errandGap  = 5 * time.Second // between two requests for a server's stats

	MostWatchers = 16
	mostWaiting  = 64 // maximum number of events that wait for one watcher
)

// Options configures a Sampler.
type Options struct {
	// Reload returns the state of the configuration.
	Reload func() Reload

	// CPU returns the processor time that the process has used so far. nil: unknown.
	CPU func() time.Duration

	Events *Events // nil: no events
}

// Reload describes the configuration of a running proxy.
type Reload struct {
	Err        error     // why the configuration that was read last was rejected; nil: it is in force
	At         time.Time // when it was read
	Succeeded  uint64    // configurations accepted since the start, without the first
	Failed     uint64    // configurations rejected since the start
	Generation uint64    // number of the table in force; 1 is the first
}

// Sampler computes ticks of a running proxy and passes them to watchers.
type Sampler struct {
	p       *proxy.Proxy
	options Options
	wake    chan struct{} // a watcher has started
	ended   chan struct{} // closed by Close
	once    sync.Once

	mu       sync.Mutex
	closed   bool
	watchers map[*Watcher]bool
	history  map[string][][]byte // ticks as JSON by pool, oldest first
	latest   map[string]message  // by pool and topic: events that a new watcher gets at once

	last    *Sample          // written only by run
	routes  []*Counts        // of the last seconds, oldest first; never empty once there is a sample; only run uses it
	saidNow map[string]*Said // last reports of the servers by network and address, and in saidOld those before; only runErrands uses both
	saidOld map[string]*Said
}

// kept are the topics with a last event that is kept for new watchers.
var kept = []string{"mem", "slabs", "hot", "why", "routes", "roll"}

// message is one event of a stream.
type message struct {
	topic string
	data  []byte
}

// NewSampler returns a sampler of p. It does nothing before Run.
func NewSampler(p *proxy.Proxy, o Options) *Sampler {
	if o.CPU == nil {
		o.CPU = func() time.Duration { return 0 }
	}
	if o.Events == nil {
		o.Events = &Events{}
	}
	return &Sampler{p: p, options: o, wake: make(chan struct{}, 1), ended: make(chan struct{}),
		watchers: map[*Watcher]bool{}, history: map[string][][]byte{}, latest: map[string]message{},
		saidNow: map[string]*Said{}, saidOld: map[string]*Said{}}
}

// Run starts sampling, which continues until Close. A second call does nothing.
func (s *Sampler) Run() {
	s.once.Do(func() {
		s.options.Events.subscribe(s, true)
		go s.runErrands()
		go s.run()
	})
}

// Close stops the sampler and ends all watchers.
func (s *Sampler) Close() {
	s.options.Events.subscribe(s, false)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	close(s.ended)
	for w := range s.watchers {
		w.end()
	}
}

func (s *Sampler) run() {
	kept := time.Time{}
	for {
		now, err := s.Sample()
		switch {
		case err != nil: // a loop hangs: the watchers keep the old data and get the error
			s.late(err)
		case s.last == nil:
			s.keep(now)
			s.publishRoutes(now)
		case now.At.Sub(s.last.At) >= Every/4:
			keep := now.At.Sub(kept) >= historyGap-Every/2
			if keep {
				kept = now.At
			}
			s.tick(now, keep)
			s.publishHot(now.Table)
			s.publishMisses(s.last, now)
			s.publishRoutes(now)
			s.keep(now)
		}
		pause := historyGap
		if len(s.pools()) > 0 {
			pause = Every
		}
		select {
		case <-time.After(pause):
		case <-s.wake:
		case <-s.ended:
			return
		}
	}
}

// keep stores the sample `now` as the last one.
func (s *Sampler) keep(now *Sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = now
}

// Sample takes a sample.
func (s *Sampler) Sample() (*Sample, error) {
	sum, err := s.p.Snapshot()
	if err != nil {
		return nil, err
	}
	is := &Sample{At: time.Now(), Sum: sum, Table: s.p.Table(), Servers: States(s.p, sum), Routes: takeCounts(s.p, sum)}
	is.CPU, is.Memory = s.options.CPU(), held()
	config := s.options.Reload()
	is.Gen, is.Refused = config.Generation, config.Err != nil
	if is.Table != s.p.Table() { // a reload happened in between
		return s.Sample()
	}
	return is, nil
}

// held returns how many bytes of memory the runtime uses.
func held() uint64 {
	is := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(is)
	return is[0].Value.Uint64() - is[1].Value.Uint64()
}

// tick publishes what happened since the last sample. If keep is set the tick is also
// kept for later watchers.
func (s *Sampler) tick(now *Sample, keep bool) {
	watched := s.pools()
	if !keep && len(watched) == 0 {
		return
	}
	ticks := ticksBetween(s.last, now)
	for i, pool := range now.Table.Pools {
		if !keep && !watched[pool.Name] {
			continue
		}
		b, err := json.Marshal(ticks[i])
		if err != nil {
			s.p.Log.Error("cannot encode an update of the dashboard", "error", err) // a bug: NaN
			continue
		}
		if now.Table != s.last.Table {
			s.publishJSON(pool.Name, "topo", topoOf(now.Table, pool, now.Gen))
		}
		s.publish(pool.Name, "tick", b)
		if keep {
			s.mu.Lock()
			list := append(s.history[pool.Name], b)
			s.history[pool.Name] = slices.Delete(list, 0, max(0, len(list)-historyLen))
			s.mu.Unlock()
		}
	}
	if now.Table != s.last.Table { // kept ticks have other columns
		s.mu.Lock()
		clear(s.history)
		s.mu.Unlock()
	}
}

// publishHot publishes the most requested keys to the watchers.
func (s *Sampler) publishHot(t *table.Table) {
	watched := s.pools()
	if len(watched) == 0 {
		return
	}
	is, err := s.p.Watched()
	if err != nil {
		return // the next tick reports the error
	}
	for _, pool := range t.Pools {
		if watched[pool.Name] {
			s.publishJSON(pool.Name, "hot", hotOf(is, t, pool))
		}
	}
}

// routeWindow is the time over which the work of routes is counted. It is long because
// rare events would be 0 in most seconds.
const routeWindow = 10 * time.Second

// publishRoutes publishes the recent work of the routes, and the list of instances, to the
// watchers.
func (s *Sampler) publishRoutes(now *Sample) {
	watched := s.pools()
	for len(s.routes) > 1 && now.Routes.Since(s.routes[1]) >= routeWindow {
		s.routes = s.routes[1:]
	}
	if s.routes = append(s.routes, now.Routes); len(watched) == 0 {
		s.routes = s.routes[len(s.routes)-1:] // the next watcher's first window starts here
	}
	for _, pool := range now.Table.Pools {
		if watched[pool.Name] {
			s.publishJSON(pool.Name, "roll", RollOf(now.Sum, pool.Name))
			s.publishJSON(pool.Name, "routes", routesBetween(s.routes[0], now.Routes, now.Table, pool))
		}
	}
}

// late publishes that there is no tick, and the reason.
func (s *Sampler) late(err error) {
	s.publishJSON("", "late", Health{Bad, "Ringside itself does not answer", "Its loops are busy or hang: " + err.Error() + ". What you see is old."})
}

func (s *Sampler) publishJSON(pool, topic string, what any) {
	b, err := json.Marshal(what)
	if err != nil {
		s.p.Log.Error("cannot encode an answer for the dashboard", "topic", topic, "error", err)
		return
	}
	s.publish(pool, topic, b)
}

// publish passes an event to the watchers of a pool, or to all watchers if pool is
// empty.
func (s *Sampler) publish(pool, topic string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(kept, topic) {
		s.latest[pool+" "+topic] = message{topic, data}
	}
	for w := range s.watchers {
		if pool == "" || pool == w.pool {
			w.put(message{topic, data})
		}
	}
}

// pools returns the watched pools.
func (s *Sampler) pools() map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := map[string]bool{}
	for w := range s.watchers {
		list[w.pool] = true
	}
	return list
}

// Watcher receives the events of one pool. For each topic it keeps only the last unread
// event; for "event" it keeps a list of limited length. So a slow watcher skips events.
type Watcher struct {
	Ready chan struct{} // an event can be read; closed when the sampler ends

	s       *Sampler
	pool    string
	waiting []message
	over    bool
}

// ErrCrowded is returned by Watch if there are already MostWatchers watchers.
var ErrCrowded = errors.New("16 already watch this instance: close one of them")

// Watch starts watching a pool of the table in force. The watcher gets the pool, the
// ticks of the last minutes and the last events at once.
func (s *Sampler) Watch(t *table.Table, pool *table.Pool) (*Watcher, error) {
	topo, err := json.Marshal(topoOf(t, pool, s.options.Reload().Generation))
	if err != nil {
		return nil, err
	}
	events := s.options.Events.Last()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.watchers) >= MostWatchers {
		return nil, ErrCrowded
	}
	w := &Watcher{Ready: make(chan struct{}, 1), s: s, pool: pool.Name}
	if s.closed {
		w.end()
		return w, nil
	}
	var list [][]byte
	for _, b := range s.history[pool.Name] {
		list = append(list, fmt.Appendf(nil, `["tick",%s]`, b))
	}
	for _, b := range events {
		list = append(list, fmt.Appendf(nil, `["event",%s]`, b))
	}
	w.put(message{"topo", topo})
	w.put(message{"history", fmt.Appendf(nil, `{"list":[%s]}`, bytes.Join(list, []byte{','}))})
	for _, topic := range kept {
		if m := s.latest[pool.Name+" "+topic]; m.data != nil {
			w.put(m)
		}
	}
	s.watchers[w] = true
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return w, nil
}

// Close ends w.
func (w *Watcher) Close() {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	delete(w.s.watchers, w)
	if len(w.s.watchers) == 0 {
		clear(w.s.latest) // will be outdated
	}
	w.end()
}

// put queues a message. The sampler's mu must be locked, for end as well.
func (w *Watcher) put(m message) {
	at := -1
	if m.topic != "event" {
		at = slices.IndexFunc(w.waiting, func(is message) bool { return is.topic == m.topic })
	}
	switch {
	case at >= 0:
		w.waiting[at] = m
	case len(w.waiting) >= mostWaiting:
	default:
		w.waiting = append(w.waiting, m)
	}
	if !w.over {
		select {
		case w.Ready <- struct{}{}:
		default:
		}
	}
}

func (w *Watcher) end() {
	if !w.over {
		w.over = true
		close(w.Ready)
	}
}

// Take appends the waiting events to dst, in the format of an event stream.
func (w *Watcher) Take(dst []byte) []byte {
	w.s.mu.Lock()
	list := w.waiting
	w.waiting = nil
	w.s.mu.Unlock()
	for _, m := range list {
		dst = AppendEvent(dst, m.topic, m.data)
	}
	return dst
}

// AppendEvent appends an event in the format of an event stream. data is JSON on one
// line.
func AppendEvent(dst []byte, topic string, data []byte) []byte {
	dst = append(append(dst, "event: "...), topic...)
	dst = append(append(dst, "\ndata: "...), data...)
	return append(dst, "\n\n"...)
}
