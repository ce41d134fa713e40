package live

import (
	"testing"
	"time"

	"ringside/proxy/health"
	"ringside/proxy/stats"
)

// A server that a person has ordered away says so, whatever the keeper last did with it.
func TestOrderIsTheReason(t *testing.T) {
	for order, want := range map[health.Override]string{health.Drain: "drained by a person", health.Down: "taken down by a person", health.Restore: "it leaves"} {
		is := ServerState{State: Up}
		is.keeperSays(&stats.MemberSnapshot{Phase: health.Out, Override: order, Why: "it leaves"}, time.Now())
		if is.Why != want {
			t.Errorf("%s: it is %s because %q, want %q", order, is.State, is.Why, want)
		}
	}
}

// Who has drained a server hears that it has died meanwhile. One that was taken down
// is suspect by that order alone.
func TestDrainedAndSuspect(t *testing.T) {
	for order, want := range map[health.Override]string{health.Drain: "drained by a person, and suspect: connection refused", health.Down: "taken down by a person"} {
		is := ServerState{State: Up}
		now := time.Now()
		is.keeperSays(&stats.MemberSnapshot{Phase: health.Out, Override: order, Suspect: true, Why: "connection refused", Since: time.Second, InPhase: time.Minute}, now)
		if is.State != Drained || is.Why != want || is.Since != now.Add(-time.Minute) {
			t.Errorf("%s: it is %s since %v because %q, want %q for a minute", order, is.State, is.Since.Sub(now), is.Why, want)
		}
	}
}
