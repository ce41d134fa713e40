package drill

import (
	"testing"

	"ringside/proxy/live"
)

// TestAllBrokenServersAreNamed checks that every server of the pool that is not up is named,
// and no other one.
func TestAllBrokenServersAreNamed(t *testing.T) {
	others := []live.ServerState{
		{Server: "s1", Pool: "main", State: "out", Why: "refused"}, {Server: "s2", Pool: "main", State: "out"},
		{Server: "s3", Pool: "main", State: live.Drained}, {Server: "s4", Pool: "other", State: "out"},
	}
	want := "server s1 of pool main is out: refused, server s2 of pool main is out"
	if got := describeBroken(live.ServerState{Server: "s0", Pool: "main"}, others); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
