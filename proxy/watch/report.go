package watch

// This file adds up the samples of all loops, for display.

import (
	"cmp"
	"slices"
)

// Report has the samples of several loops. The zero value has none.
type Report struct {
	Requests float64 // estimated number of requests; each sample counts as the number of requests that it represents
	Span     float64 // length of the time in which the requests were counted, in seconds
	Looks    float64 // approximate number of samples from which the counts are estimated
	Keys     []Row
	Prefixes []Row

	floors [2]float64 // how many requests a key that is not in Keys may have had, and the same for a prefix that is not in Prefixes
}

// AddTo adds the samples of one loop to the report r. It adds only the most requested keys. After
// the last loop, the keys in r are sorted by the number of requests.
func (w *Watch) AddTo(r *Report, now int64) {
	if w.at == 0 {
		return
	}
	if now-w.adaptedAt >= int64(adaptGap) { // without requests, nothing else would adapt the sampling rate to the lower load
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

// merge adds up two lists of keys and sorts the result. A key that is missing in one list may have
// had as many requests there as the floor of that list.
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
