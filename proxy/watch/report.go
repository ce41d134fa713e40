package watch

// What all loops have seen, for people.

import (
	"cmp"
	"slices"
)

// Report is what some loops have seen. The zero Report has seen nothing.
type Report struct {
	Requests float64 // each as often as it stands for others
	Span     float64 // seconds in which they were
	Looks    float64 // how many of the requests were looked at, about
	Keys     []Row
	Prefixes []Row

	floors [2]float64 // of keys and prefixes: how much a key that is not there may have
}

// AddTo adds what w has seen to r, of so many keys at most, which are Most again when
// all is added up.
func (w *Watch) AddTo(r *Report, now int64) {
	if w.at == 0 {
		return
	}
	if now-w.adaptedAt >= int64(adaptGap) { // nobody else sees that it has become quiet
		w.adapt(now)
	}
	w.age(now)
	r.Requests += w.requests
	r.Looks += w.requests / float64(w.every)
	r.Span = max(r.Span, w.span/1e9)
	r.Keys = merge(r.Keys, r.floors[0], w.keys.top(mostKeys), w.keys.floor())
	r.Prefixes = merge(r.Prefixes, r.floors[1], w.prefixes.top(mostPrefixes), w.prefixes.floor())
	r.floors[0] += w.keys.floor()
	r.floors[1] += w.prefixes.floor()
}

// merge adds up two lists. A key that one of them lacks may have as much there as its floor.
func merge(a []Row, floorA float64, b []Row, floorB float64) []Row {
	at := make(map[string]int, len(a))
	for i := range a {
		at[a[i].Key] = i
	}
	both := make([]bool, len(a))
	for i := range b {
		if j, ok := at[b[i].Key]; ok {
			both[j] = true
			a[j].add(&b[i].Counts)
			continue
		}
		b[i].Requests += floorA
		b[i].Over += floorA
		a = append(a, b[i])
	}
	for i, ok := range both {
		if !ok {
			a[i].Requests += floorB
			a[i].Over += floorB
		}
	}
	slices.SortStableFunc(a, func(x, y Row) int { return cmp.Compare(y.Likely(), x.Likely()) })
	return a
}

func (c *Counts) add(o *Counts) {
	c.Requests += o.Requests
	c.Over += o.Over
	c.Noise += o.Noise
	c.Reads += o.Reads
	c.Hits += o.Hits
	c.Bytes += o.Bytes
}
