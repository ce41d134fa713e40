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
