package live

// This file contains the followers, which read events of traced keys, and the collection of these
// events.

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"time"

	"ringside/proxy"
	"ringside/proxy/watch"
	"ringside/proxy/watch/missreason"
)

// Limits of traces of keys.
const (
	mostFollowers    = 4
	gap              = time.Second / 4   // time between two requests to the loops for events of traced keys
	mostTraceRows    = 500               // maximum number of rows for one follower in each gap; above it equal rows are merged, and then rows are dropped
	mostTraceWaiting = 4 * mostTraceRows // maximum number of rows that wait until a follower reads them
)

// Traced contains the events of traced keys that a follower has not read yet.
type Traced struct {
	Rows    []Row `json:"rows"`
	Dropped int   `json:"dropped"` // number of events that were dropped because they were too many
}

// Row describes one request on a traced key, or several equal requests in a row.
type Row struct {
	T       int64  `json:"t"` // time of the request, in milliseconds since 1970
	Key     []byte `json:"key"`
	Letter  string `json:"l"` // letter for the kind of event; package watch has the list
	Times   int    `json:"n"`
	Command string `json:"op"`
	Outcome string `json:"out"`
	Client  uint64 `json:"c"`
	Micros  int64  `json:"us"`
	Server  string `json:"s"`
	Bytes   int    `json:"b"`             // size of the value that was read, or of the request, in bytes
	Why     string `json:"why,omitempty"` // why the read missed; empty: no miss, or the reason is not known. Package missreason has the list
	Cause   string `json:"x,omitempty"`   // letter for the cause of a miss, X or F; empty: another cause. See watch.Cause
}

// Tracer collects the events of traced keys from the loops of a proxy, and passes them to its
// followers.
type Tracer struct {
	p *proxy.Proxy

	mu        sync.Mutex
	followers map[*Follower]bool
	asks      bool // true while a goroutine collects events from the loops
}

// NewTracer returns a Tracer of the proxy p. A proxy must have only one Tracer, because the events
// of the loops can be read only once.
func NewTracer(p *proxy.Proxy) *Tracer { return &Tracer{p: p, followers: map[*Follower]bool{}} }

// Follower receives the events of the keys that match its patterns.
type Follower struct {
	Ready chan struct{} // receives when there are events to read; Close closes it

	t        *Tracer
	patterns []watch.Pattern
	person   bool
	waiting  Traced
	over     bool
}

// errFollowed is the error of Follow if mostFollowers interactive followers exist already.
var errFollowed = errors.New("4 already follow keys on this instance: end one of them")

// Follow adds an interactive follower of the keys that match one of the patterns. The patterns must
// be valid.
func (t *Tracer) Follow(patterns []watch.Pattern) (*Follower, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	people := 0
	for f := range t.followers {
		if f.person {
			people++
		}
	}
	if people >= mostFollowers {
		return nil, errFollowed
	}
	return t.add(patterns, true), nil
}

// Record adds a follower that is not interactive, for example one that writes a file.
func (t *Tracer) Record(patterns []watch.Pattern) *Follower {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.add(patterns, false)
}

// add adds a follower. person means that it is interactive. Callers of add and of followed must
// have locked t.mu.
func (t *Tracer) add(patterns []watch.Pattern, person bool) *Follower {
	f := &Follower{Ready: make(chan struct{}, 1), t: t, patterns: patterns, person: person}
	t.followers[f] = true
	t.p.Follow(t.followed())
	if !t.asks {
		t.asks = true
		go t.ask()
	}
	return f
}

func (t *Tracer) followed() (all []watch.Pattern) {
	for f := range t.followers {
		all = append(all, f.patterns...)
	}
	return all
}

// Close removes the follower f, which then gets no more events.
func (f *Follower) Close() {
	t := f.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if f.over {
		return
	}
	f.over = true
	close(f.Ready)
	delete(t.followers, f)
	t.p.Follow(t.followed())
}

// Take returns the events that f has not read yet.
func (f *Follower) Take() Traced {
	f.t.mu.Lock()
	is := f.waiting
	f.waiting = Traced{}
	f.t.mu.Unlock()
	if is.Rows == nil {
		is.Rows = []Row{}
	}
	return is
}

// ask passes events from the loops to the followers until there are no followers left.
func (t *Tracer) ask() {
	for {
		time.Sleep(gap)
		t.mu.Lock()
		t.asks = len(t.followers) > 0
		over := !t.asks
		t.mu.Unlock()
		if over {
			return
		}
		traces := t.p.Traced()
		now := time.Now()
		t.mu.Lock()
		for f := range t.followers {
			f.hear(traces, now)
		}
		t.mu.Unlock()
	}
}

// hear adds to f those events in traces that are about a key that matches f's patterns.
func (f *Follower) hear(traces []watch.Trace, now time.Time) {
	var rows []Row
	dropped := 0
	for i := range traces {
		t := &traces[i]
		dropped += t.Dropped
		for j := range t.Events {
			ev := &t.Events[j]
			key := t.Key(ev)
			if !slices.ContainsFunc(f.patterns, func(p watch.Pattern) bool { return p.Fits(key) }) {
				continue
			}
			r := Row{T: now.Add(time.Duration(ev.At - t.Now)).UnixMilli(), Key: key, Letter: string(ev.Letter), Times: 1,
				Command: ev.Op.String(), Outcome: ev.Out.String(), Client: ev.Client, Micros: ev.Took / 1000, Server: ev.Server, Bytes: ev.Bytes, Cause: watch.Cause(ev.Why)}
			if ev.Why != missreason.Unsure {
				r.Why = ev.Why.String()
			}
			rows = append(rows, r)
		}
	}
	slices.SortStableFunc(rows, func(a, b Row) int { return cmp.Compare(a.T, b.T) })
	if len(rows) > mostTraceRows {
		rows = fold(rows)
	}
	for i := range rows {
		if i >= mostTraceRows || len(f.waiting.Rows) >= mostTraceWaiting {
			dropped += rows[i].Times
			continue
		}
		f.waiting.Rows = append(f.waiting.Rows, rows[i])
	}
	f.waiting.Dropped += dropped
	if len(f.waiting.Rows) == 0 && f.waiting.Dropped == 0 || f.over {
		return
	}
	signal(f.Ready)
}

// fold makes one row of consecutive hits of the same key. It does the same for consecutive
// increments or decrements.
func fold(rows []Row) (list []Row) {
	last := map[string]int{} // for each key, the index of its last row in list
	for _, r := range rows {
		if i, ok := last[string(r.Key)]; ok && list[i].Letter == r.Letter && (r.Letter == "H" || r.Letter == "I") {
			list[i].Times++
			continue
		}
		last[string(r.Key)] = len(list)
		list = append(list, r)
	}
	return list
}
