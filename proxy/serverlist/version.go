package serverlist

// This file decides which of the numbered lists of an ElastiCache endpoint counts.

import (
	"fmt"
	"time"
)

// Version is the number of the list of an ElastiCache cluster that counts. Nodes learn of a change one
// after the other, so a node may still report an earlier list.
type Version struct {
	Number uint64 // number of the list that counts; 0: none yet

	lower uint64    // a lower number that the endpoint has reported since the time since
	since time.Time // the zero Time: it has reported none
}

// Take reports whether a list with this number counts, at the time now. A number that is not lower
// than the previous one counts. A lower number counts if the source has repeated it for the time keep,
// because a cluster that was restored from a snapshot counts from the beginning. If the number does not
// count, err says why.
func (v *Version) Take(now time.Time, number uint64, keep time.Duration) error {
	switch {
	case number >= v.Number:
	case number != v.lower || v.since.IsZero():
		v.lower, v.since = number, now
		fallthrough
	case now.Sub(v.since) < keep:
		return fmt.Errorf("its list has the version %d, which is lower than the version %d before; it counts when it has been repeated for %v", number, v.Number, keep)
	}
	*v = Version{Number: number}
	return nil
}
