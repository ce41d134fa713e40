package stats

// This file computes differences between two snapshots.

// Since returns what h has counted since `before` was copied from it. If h was reset after that, it
// returns all of h.
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

// Since returns how much a counter has grown from before to now. If now is less, the counter was
// reset, and the result is now.
func Since(now, before uint64) uint64 {
	if before > now {
		return now
	}
	return now - before
}
