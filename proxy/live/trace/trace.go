package trace

// Who follows keys, and what each is told.

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"time"

	"ringside/proxy"
	"ringside/proxy/watch"
	"ringside/proxy/watch/why"
)

// The bounds of traces.
const (
	MostFollowers = 4
	gap           = time.Second / 4 // between two times that the loops are asked
	mostRows      = 500             // for one follower in that time; more of the same kind are counted, and then dropped
	mostWaiting   = 4 * mostRows    // that one follower has not taken
)

// Traced is what has happened to the keys of a follower since the last one.
type Traced struct {
	Rows    []Row `json:"rows"`
	Dropped int   `json:"dropped"` // events that there was no room for
}

// Row is what has become of one request, or of several alike.
type Row struct {
	T       int64  `json:"t"` // Unix milliseconds
	Key     []byte `json:"key"`
	Letter  string `json:"l"` // see package watch
	Times   int    `json:"n"`
	Command string `json:"op"`
	Outcome string `json:"out"`
	Client  uint64 `json:"c"`
	Micros  int64  `json:"us"`
	Server  string `json:"s"`
	Bytes   int    `json:"b"`             // of the value that was read, or of the request
	Why     string `json:"why,omitempty"` // of a miss, where admin.misses knows it: see package why
	Cause   string `json:"x,omitempty"`   // of a miss, X or F: see watch.Cause
}

// Tracer asks the loops of a proxy for what happens to the keys that somebody follows.
type Tracer struct {
	p *proxy.Proxy

	mu        sync.Mutex
	followers map[*Follower]bool
	asks      bool // a goroutine asks the loops
}

// New makes a Tracer. A proxy has one: what the loops have traced is taken once.
func New(p *proxy.Proxy) *Tracer { return &Tracer{p: p, followers: map[*Follower]bool{}} }

// Follower is somebody who follows keys.
type Follower struct {
	Ready chan struct{} // something can be taken; closed by Close

	t        *Tracer
	patterns []watch.Pattern
	person   bool
	waiting  Traced
	over     bool
}

// ErrFollowed is what Follow returns to one too many.
var ErrFollowed = errors.New("4 already follow keys on this Ringside: end one of them")

// Follow lets a person follow the keys that fit one of patterns, which must be good.
func (t *Tracer) Follow(patterns []watch.Pattern) (*Follower, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	people := 0
	for f := range t.followers {
		if f.person {
			people++
		}
	}
	if people >= MostFollowers {
		return nil, ErrFollowed
	}
	return t.add(patterns, true), nil
}

// Record is Follow for what is no person.
func (t *Tracer) Record(patterns []watch.Pattern) *Follower {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.add(patterns, false)
}

// add is called with mu held, as followed is.
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

// Close ends f.
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

// Take takes what waits for f.
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

// ask hands what the loops have traced to the followers, until there are none.
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
		traces, err := t.p.Traced()
		if err != nil {
			continue // the ticks say it
		}
		now := time.Now()
		t.mu.Lock()
		for f := range t.followers {
			f.hear(traces, now)
		}
		t.mu.Unlock()
	}
}

// hear takes up what is f's of what the loops have traced up to now.
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
			if ev.Why != why.Unsure {
				r.Why = ev.Why.String()
			}
			rows = append(rows, r)
		}
	}
	slices.SortStableFunc(rows, func(a, b Row) int { return cmp.Compare(a.T, b.T) })
	if len(rows) > mostRows {
		rows = fold(rows)
	}
	for i := range rows {
		if i >= mostRows || len(f.waiting.Rows) >= mostWaiting {
			dropped += rows[i].Times
			continue
		}
		f.waiting.Rows = append(f.waiting.Rows, rows[i])
	}
	f.waiting.Dropped += dropped
	if len(f.waiting.Rows) == 0 && f.waiting.Dropped == 0 || f.over {
		return
	}
	select {
	case f.Ready <- struct{}{}:
	default:
	}
}

// fold makes one row of hits of a key, and of counts of one, that follow each other
// there.
func fold(rows []Row) (list []Row) {
	last := map[string]int{} // by key, where its last row is
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
