package health

// This file counts proxies, votes and reads. A tally follows a counter that every proxy increments
// at the same interval, so its growth per interval is the number of proxies. A voteCount adds up
// such counters of several servers to a majority vote. A warmth measures the hit rate of a server.

// tally follows one counter on one server. Times are in nanoseconds.
type tally struct {
	value  uint64    // the value of the counter that was last read
	seenAt int64     // when the counter was last read; 0: never
	grown  [3]uint64 // increments of the counter between two reads, newest first
	known  uint64    // number of elements of grown that are set
	at     int64     // when the newest element of grown was set
}

// See records the value of the counter at time now. The caller reads the counter at the
// interval `every`. If the value is lower than before, the counter was created again, and See
// records no increment.
func (t *tally) See(value uint64, every, now int64) {
	if t.seenAt != 0 && value >= t.value && now-t.seenAt < 3*every/2 {
		t.grow(value-t.value, every, now)
	}
	t.value, t.seenAt = value, now
}

// SeeNone records that the counter does not exist, because no proxy has incremented it for a while:
// the increment is 0.
func (t *tally) SeeNone(every, now int64) {
	t.grow(0, every, now)
	t.value, t.seenAt = 0, now
}

func (t *tally) grow(by uint64, every, now int64) {
	if !t.Fresh(every, now) {
		t.known = 0
	}
	t.grown[2], t.grown[1], t.grown[0] = t.grown[1], t.grown[0], by
	t.known = min(t.known+1, uint64(len(t.grown)))
	t.at = now
}

// Fresh reports whether the newest known increment of the counter is recent. Each proxy increments
// the counter once in each interval `every`.
func (t *tally) Fresh(every, now int64) bool { return t.known > 0 && now-t.at <= 5*every/2 }

// Rate returns the average increment of the counter per interval, rounded, or 0 if no increment is
// known yet. A proxy that increments the counter at the moment of a read may be counted twice or
// not at all in one interval. The average of three intervals reduces that error.
func (t *tally) Rate() uint64 {
	if t.known == 0 {
		return 0
	}
	var sum uint64
	for _, by := range t.grown[:t.known] {
		sum += by
	}
	return (2*sum + t.known) / (2 * t.known)
}
