// Package tally follows counts: one that every proxy adds one to in the same rhythm, so that by
// how much it grows is how many they are; and of the reads of a server, how warm it is.
package tally

// Tally follows one counter on one server.
type Tally struct {
	value  uint64    // last seen
	seenAt int64     // 0: never
	grown  [3]uint64 // by how much between two looks, newest first
	looks  uint64    // how many of those there are
	at     int64     // of the newest
}

// See takes what the counter says at a look at time now; looks are every apart. A
// counter that has shrunk was made anew: that says nothing.
func (t *Tally) See(value uint64, every, now int64) {
	if t.seenAt != 0 && value >= t.value && now-t.seenAt < 3*every/2 {
		t.grow(value-t.value, every, now)
	}
	t.value, t.seenAt = value, now
}

// SeeNone takes that there is no counter: nobody has counted for a while.
func (t *Tally) SeeNone(every, now int64) {
	t.grow(0, every, now)
	t.value, t.seenAt = 0, now
}

func (t *Tally) grow(by uint64, every, now int64) {
	if !t.Fresh(every, now) {
		t.looks = 0
	}
	t.grown[2], t.grown[1], t.grown[0] = t.grown[1], t.grown[0], by
	t.looks = min(t.looks+1, uint64(len(t.grown)))
	t.at = now
}

// Fresh says whether the count is of now: additions are every apart.
func (t *Tally) Fresh(every, now int64) bool { return t.looks > 0 && now-t.at <= 5*every/2 }

// Rate is by how much the counter grows from one addition of a proxy to its next,
// rounded; 0 before the first look. Over three looks a proxy that counts at the same
// moment as this one is seen twice, or missed, at most once.
func (t *Tally) Rate() uint64 {
	if t.looks == 0 {
		return 0
	}
	var sum uint64
	for _, by := range t.grown[:t.looks] {
		sum += by
	}
	return (2*sum + t.looks) / (2 * t.looks)
}
