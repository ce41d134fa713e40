package health

// This file counts proxies, votes and reads. A tally follows a counter that every proxy increments
// at the same interval, so its growth per interval is the number of proxies. A voteCount adds up
// such counters of several servers to a majority vote. A warmth measures the hit rate of a server.

// tally follows one counter on one server. Times are in nanoseconds.
type tally struct {
	value  uint64    // the value last read
	seenAt int64     // when it was read; 0: never
	grown  [3]uint64 // increments between two reads, newest first
	known  uint64    // number of elements of grown that are set
	at     int64     // time of the newest element
}

// See records the value of the counter at time now. The caller reads the counter at the
// interval `every`. A lower value means that the counter was created again; then there
// is no increment to record.
func (t *tally) See(value uint64, every, now int64) {
	if t.seenAt != 0 && value >= t.value && now-t.seenAt < 3*every/2 {
		t.grow(value-t.value, every, now)
	}
	t.value, t.seenAt = value, now
}

// SeeNone records that the counter does not exist: no proxy has incremented it for a
// while.
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

// Fresh reports whether the count is recent. Each proxy increments the counter once in
// each interval `every`.
func (t *tally) Fresh(every, now int64) bool { return t.known > 0 && now-t.at <= 5*every/2 }

// Rate returns the rounded increment per interval, or 0 if no increment is known yet. A
// proxy that increments the counter at the moment of a read may be counted twice or
// missed. The average of three intervals limits that error to once.
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
