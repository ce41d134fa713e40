package remote

import (
	"strings"
	"testing"

	"ringside/proxy/live"
)

// TestServerListShowsPresentAddresses checks that the list of servers shows where a server that a source lists is now.
func TestServerListShowsPresentAddresses(t *testing.T) {
	var out strings.Builder
	err := showServers(&out, []live.ServerState{{Pool: "main", Server: "mc-0", Address: "mc-0.mc:11211", At: "10.0.0.7:11211", State: live.Up}, {Pool: "main", Server: "b", Address: "b:1", State: live.Up}}, false)
	if text := out.String(); err != nil || !strings.Contains(text, "  mc-0.mc:11211, now 10.0.0.7:11211  up") || strings.Count(text, "now") != 1 {
		t.Errorf("%v\n%s", err, text)
	}
}
