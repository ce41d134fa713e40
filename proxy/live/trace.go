package live

// Keys that somebody follows: what happens to them, as it happens.

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"ringside/proxy/watch"
)

// The bounds of traces.
const (
	MostFollowers = 4
	traceGap      = time.Second / 4 // between two times that the loops are asked
	traceRows     = 500             // for one follower in that time; more of the same kind are counted, and then dropped
	traceWaiting  = 4 * traceRows   // that one follower has not taken
)

// Traced is what has happened to the keys of a follower since the last one.
type Traced struct {
	Rows    []TraceRow `json:"rows"`
	Dropped int        `json:"dropped"` // events that there was no room for
}

// TraceRow is what has become of one request, or of several alike.
type TraceRow struct {
	T       int64  `json:"t"` // Unix milliseconds
	Key     []byte `json:"key"`
	Letter  string `json:"l"` // see package watch
	Times   int    `json:"n"`
	Command string `json:"op"`
	Outcome string `json:"out"`
	Client  uint64 `json:"c"`
	Micros  int64  `json:"us"`
	Server  string `json:"s"`
	Bytes   int    `json:"b"` // of the value that was read, or of the request
}

// Follower is somebody who follows keys.
type Follower struct {
	Ready chan struct{} // something can be taken; closed when the sampler ends

	s        *Sampler
	patterns []watch.Pattern
	waiting  Traced
	over     bool
}

// ErrFollowed is what Follow returns to one too many.
var ErrFollowed = errors.New("4 already follow keys on this Ringside: end one of them")

// Follow begins to follow the keys that fit one of patterns, which must be good.
func (s *Sampler) Follow(patterns []watch.Pattern) (*Follower, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.followers) >= MostFollowers {
		return nil, ErrFollowed
	}
	f := &Follower{Ready: make(chan struct{}, 1), s: s, patterns: patterns}
	if s.closed {
		f.end()
		return f, nil
	}
	s.followers[f] = true
	s.p.Follow(s.followed())
	if len(s.followers) == 1 {
		go s.trace()
	}
	return f, nil
}

// followed are the patterns of all followers. It is called with mu held.
func (s *Sampler) followed() (all []watch.Pattern) {
	for f := range s.followers {
		all = append(all, f.patterns...)
	}
	return all
}

// Close ends f.
func (f *Follower) Close() {
	s := f.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.followers[f] {
		delete(s.followers, f)
		s.p.Follow(s.followed())
	}
	f.end()
}

func (f *Follower) end() {
	if !f.over {
		f.over = true
		close(f.Ready)
	}
}

// Take appends to dst what waits for f, as an event of a stream.
func (f *Follower) Take(dst []byte) []byte {
	f.s.mu.Lock()
	is := f.waiting
	f.waiting = Traced{}
	f.s.mu.Unlock()
	if is.Rows == nil {
		is.Rows = []TraceRow{}
	}
	b, _ := json.Marshal(is) // of such values nothing can fail
	return AppendEvent(dst, "trace", b)
}

// trace hands what the loops have traced to the followers, until there are none.
func (s *Sampler) trace() {
	for {
		select {
		case <-time.After(traceGap):
		case <-s.ended:
			return
		}
		s.mu.Lock()
		over := len(s.followers) == 0
		s.mu.Unlock()
		if over {
			return
		}
		traces, err := s.p.Traced()
		if err != nil {
			continue // the ticks say it
		}
		now := time.Now()
		s.mu.Lock()
		for f := range s.followers {
			f.hear(traces, now)
		}
		s.mu.Unlock()
	}
}

// hear takes up what is f's of what the loops have traced up to now.
func (f *Follower) hear(traces []watch.Trace, now time.Time) {
	var rows []TraceRow
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
			rows = append(rows, TraceRow{T: now.Add(time.Duration(ev.At - t.Now)).UnixMilli(), Key: key, Letter: string(ev.Letter), Times: 1,
				Command: ev.Op.String(), Outcome: ev.Out.String(), Client: ev.Client, Micros: ev.Took / 1000, Server: ev.Server, Bytes: ev.Bytes})
		}
	}
	slices.SortStableFunc(rows, func(a, b TraceRow) int { return cmp.Compare(a.T, b.T) })
	if len(rows) > traceRows {
		rows = fold(rows)
	}
	for i := range rows {
		if i >= traceRows || len(f.waiting.Rows) >= traceWaiting {
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
func fold(rows []TraceRow) (list []TraceRow) {
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
