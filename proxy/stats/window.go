package stats

// What was counted between two snapshots.

// Since is what h has counted since before was its copy. A histogram that has begun
// anew since then counts from nothing.
func (h *Histogram) Since(before *Histogram) (d Histogram) {
	if before.Sum > h.Sum {
		return *h
	}
	d.Sum = h.Sum - before.Sum
	for i := range h.Buckets {
		d.Buckets[i] = Since(h.Buckets[i], before.Buckets[i])
	}
	return d
}

// Since is what a counter has counted since it was before.
func Since(now, before uint64) uint64 {
	if before > now {
		return now
	}
	return now - before
}
