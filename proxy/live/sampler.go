package live

// This file contains the sampler, and the watchers that get its events.

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/metrics"
	"slices"
	"sync"
	"time"

	"ringside/proxy"
	"ringside/proxy/link"
	"ringside/proxy/table"
	"ringside/proxy/watch"
)

// Intervals and limits of a Sampler.
const (
	Every     = time.Second     // time between two ticks while there is a watcher
	errandGap = 5 * time.Second // time between two requests for the stats of the same server

	MostWatchers = 16
	mostWaiting  = 64 // maximum number of events that wait until a watcher reads them
)

// Options configures a Sampler.
type Options struct {
	// Reload returns the state of the configuration, which samples contain.
	Reload func() Reload

	// Sources returns the state of the sources of servers.
	Sources func() []Source

	// CPU returns the processor time that the process has used so far. 0: it is unknown.
	CPU func() time.Duration

	Events *Events // log records to show as events; nil: none
}

// Reload describes the configuration of a running proxy.
type Reload struct {
	Err        error     // why the configuration that was read last was rejected; nil: it is in use
	At         time.Time // time at which the configuration was read last
	Succeeded  uint64    // number of configurations that were accepted since the start, without the first one
	Failed     uint64    // number of configurations that were rejected since the start
	Generation uint64    // number of the configuration in use; the first one has the number 1
	Gone       []string  // paths of unix sockets to which no client can connect, because their files were removed
}

// Sampler takes samples of a running proxy, computes ticks from them, and sends them to watchers.
type Sampler struct {
	p       *proxy.Proxy
	log     link.LimitedLog
	options Options
	wake    chan struct{} // receives when a watcher has started
	ended   chan struct{} // closed by Close
	once    sync.Once

	mu       sync.Mutex
	closed   bool
	watchers map[*Watcher]bool
	past     history
	latest   map[string]message  // last events for new watchers, by pool and topic
	memory   map[string]memoryOf // what the servers have reported last about their memory, by pool

	last    *Sample          // last sample; only the goroutine run replaces it
	routes  []*Counts        // counters of routes in the last seconds, oldest first; not empty once there is a sample; only the goroutine run uses them
	saidNow map[string]*Said // last report of each server, by network and address; saidOld has the reports before; only runErrands uses both
	saidOld map[string]*Said
}

// kept are the topics of events that are kept for new watchers. Only the last event of a topic is
// kept.
var kept = []string{"mem", "slabs", "hot", "why", "routes", "roll"}

// memoryOf is what the servers of a pool report about their memory. Both parts are nil if they have
// reported nothing while there was a watcher.
type memoryOf struct {
	Memory *Memory
	Slabs  *Slabs
}

// message is one event of a stream: its topic and its data as JSON.
type message struct {
	topic string
	data  []byte
}

// NewSampler returns a sampler of the proxy p. It takes no samples before Run.
func NewSampler(p *proxy.Proxy, o Options) *Sampler {
	if o.Events == nil {
		o.Events = &Events{}
	}
	return &Sampler{p: p, log: link.LimitedLog{Log: p.Log}, options: o, wake: make(chan struct{}, 1), ended: make(chan struct{}),
		watchers: map[*Watcher]bool{}, latest: map[string]message{}, memory: map[string]memoryOf{},
		saidNow: map[string]*Said{}, saidOld: map[string]*Said{}}
}

// Run starts the sampler, which takes samples until Close. A second call does nothing.
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
	s.log.End()
	for w := range s.watchers {
		w.end()
	}
}

func (s *Sampler) run() {
	for {
		now, err := s.Sample()
		switch {
		case err != nil: // a loop hangs: the watchers get the error and keep the old data
			s.late(err)
		case s.last == nil:
			s.keep(now)
			s.past.begin(now)
			s.publishRoutes(now)
		case now.At.Sub(s.last.At) >= Every/4:
			s.tick(now)
			s.publishKeys(s.last, now)
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

// keep stores the sample `now` as the last sample.
func (s *Sampler) keep(now *Sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = now
}

// Sample reads the state of the proxy: counters, servers, routes and the configuration.
func (s *Sampler) Sample() (*Sample, error) {
	sum, err := s.p.Snapshot()
	if err != nil {
		return nil, err
	}
	is := &Sample{At: time.Now(), Sum: sum, Table: s.p.Table(), Servers: States(s.p, sum), Routes: takeCounts(s.p, sum)}
	is.CPU, is.Memory = s.options.CPU(), held()
	config := s.options.Reload()
	is.Gen, is.Refused, is.Gone, is.Sources = config.Generation, config.Err != nil, config.Gone, s.options.Sources()
	if is.Table != s.p.Table() { // a reload happened while the sample was taken, so its parts do not match
		return s.Sample()
	}
	return is, nil
}

// held returns how much memory the Go runtime uses, in bytes.
func held() uint64 {
	is := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(is)
	return is[0].Value.Uint64() - is[1].Value.Uint64()
}

// tick sends to the watchers what has happened since the last sample, and keeps it for later
// watchers.
func (s *Sampler) tick(now *Sample) {
	watched, due := s.pools(), s.past.due(now)
	if !due && len(watched) == 0 {
		return
	}
	ticks := ticksBetween(s.last, now)
	for i, pool := range now.Table.Pools {
		if !watched[pool.Name] {
			continue
		}
		if now.Table != s.last.Table {
			s.publishJSON(pool.Name, "topo", topoOf(now.Table, pool, now.Gen))
		}
		s.publishJSON(pool.Name, "tick", ticks[i])
	}
	since := ticks
	if due && s.past.end != s.last { // there was a watcher, so the moment has several samples
		since = ticksBetween(s.past.end, now)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.past.show(ticks, now.Table)
	if !due {
		return
	}
	if err := s.past.add(since, now); err != nil {
		s.log.LogLimited(slog.LevelError, "history", "cannot encode an answer for the dashboard", "topic", "history", "error", err)
	}
}

// publishKeys sends to the watchers the most requested keys, and the miss reasons.
func (s *Sampler) publishKeys(before, now *Sample) {
	watched := s.pools()
	if len(watched) == 0 {
		return
	}
	seen, misses, err := s.keys(before, now)
	if err != nil {
		return // the error is not reported here, because the next tick fails with the same error
	}
	for _, pool := range now.Table.Pools {
		if watched[pool.Name] {
			s.publishJSON(pool.Name, "hot", hotOf(seen, now.Table, pool))
			s.publishJSON(pool.Name, "why", misses)
		}
	}
}

// keys returns the most requested keys, and the reasons of misses between two samples.
func (s *Sampler) keys(before, now *Sample) (*watch.Report, *Misses, error) {
	reasons, err := s.p.MissReport()
	if err != nil {
		return nil, nil, err
	}
	seen, err := s.p.Watched()
	if err != nil {
		return nil, nil, err
	}
	return seen, missesOf(reasons, before, now, seen), nil
}

// routeWindow is the time over which the work of routes is counted. It is longer than a second,
// because rare events would be 0 in most seconds.
const routeWindow = 10 * time.Second

// publishRoutes sends to the watchers what the routes have done recently, and the list of
// instances.
func (s *Sampler) publishRoutes(now *Sample) {
	watched := s.pools()
	for len(s.routes) > 1 && now.Routes.Since(s.routes[1]) >= routeWindow {
		s.routes = s.routes[1:]
	}
	if s.routes = append(s.routes, now.Routes); len(watched) == 0 {
		s.routes = s.routes[len(s.routes)-1:] // without a watcher, only the counters of now are needed: the counted time of the next watcher starts here
	}
	for _, pool := range now.Table.Pools {
		if watched[pool.Name] {
			s.publishJSON(pool.Name, "roll", RollOf(now.Sum, pool.Name))
			s.publishJSON(pool.Name, "routes", routesBetween(s.routes[0], now.Routes, now.Table, pool))
		}
	}
}

// late sends to the watchers that there is no tick, with the reason.
func (s *Sampler) late(err error) {
	s.publishJSON("", "late", Health{Bad, "Ringside itself does not answer", "Its loops are busy or hang: " + err.Error() + ". What you see is old."})
}

// publishJSON sends an event to the watchers of a pool. It sends nothing if what cannot be encoded,
// for example because of a NaN, which is a bug.
func (s *Sampler) publishJSON(pool, topic string, what any) {
	b, err := json.Marshal(what)
	if err != nil {
		s.log.LogLimited(slog.LevelError, topic, "cannot encode an answer for the dashboard", "topic", topic, "error", err)
		return
	}
	s.publish(pool, topic, b)
}

// publish sends an event to the watchers of a pool, or to all watchers if pool is empty.
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

// pools returns the names of the pools that have a watcher.
func (s *Sampler) pools() map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := map[string]bool{}
	for w := range s.watchers {
		list[w.pool] = true
	}
	return list
}

// Watcher receives the events of one pool. An event that is not read in time is replaced by the
// next event of its topic. Only events with the topic "event" are all kept, up to a limit.
type Watcher struct {
	Ready chan struct{} // receives when there is an event to read; closed when the watcher or the sampler is closed

	s       *Sampler
	pool    string
	waiting []message
	over    bool
}

// ErrCrowded is the error of Watch if there are already MostWatchers watchers.
var ErrCrowded = errors.New("16 already watch this instance: close one of them")

// Watch starts to watch a pool of the table t. The watcher gets some events at once: the servers of
// the pool, the moments of the last minutes, the last tick, and the last log records.
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
	list, err := s.past.events(pool.Name)
	if err != nil {
		return nil, err
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
	signal(s.wake)
	return w, nil
}

// Close removes the watcher w, which then gets no more events.
func (w *Watcher) Close() {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	delete(w.s.watchers, w)
	if len(w.s.watchers) == 0 {
		clear(w.s.latest) // without a watcher nothing updates these events, so they would be old for the next watcher
		clear(w.s.memory)
	}
	w.end()
}

// put adds the message m to the events that w has not read. Callers of put and of end must have
// locked the sampler's mu.
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
		signal(w.Ready)
	}
}

// signal tells the reader of ready that there is something to read, unless it has been told already.
func signal(ready chan<- struct{}) {
	select {
	case ready <- struct{}{}:
	default:
	}
}

func (w *Watcher) end() {
	if !w.over {
		w.over = true
		close(w.Ready)
	}
}

// Take appends the events that w has not read to dst, in the format of an event stream.
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

// AppendEvent appends an event to dst, in the format of an event stream. data is JSON on one line.
func AppendEvent(dst []byte, topic string, data []byte) []byte {
	dst = append(append(dst, "event: "...), topic...)
	dst = append(append(dst, "\ndata: "...), data...)
	return append(dst, "\n\n"...)
}
