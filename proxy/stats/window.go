package stats

// Differences between two snapshots.

// Since returns what h has counted after the parameter `before` was copied from it. If
// h was reset in between, all of h counts.
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

// Since returns how much a counter has grown. If it was reset in between, all of it
// counts.
func Since(now, before uint64) uint64 {
	if before > now {
		return now
	}
	return now - before
}
