package watch

// The samples of all loops, for display.

import (
	"cmp"
	"slices"
)

// Report has the samples of several loops. The zero value has none.
type Report struct {
	Requests float64 // estimated number of requests: each sample counts with its weight
	Span     float64 // seconds in which these Requests were made
	Looks    float64 // approximate number of samples
	Keys     []Row
	Prefixes []Row

	floors [2]float64 // of keys and prefixes: how many requests a key that is not listed may have
}

// AddTo adds the samples of w to r, with a limited number of keys. When all loops are added,
// the most requested keys come first.
func (w *Watch) AddTo(r *Report, now int64) {
	if w.at == 0 {
		return
	}
	if now-w.adaptedAt >= int64(adaptGap) { // without requests nothing else adapts the sampling rate
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

// merge adds up two lists. A key that is missing in one of them may have had its floor there.
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
