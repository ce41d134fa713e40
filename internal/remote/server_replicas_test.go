package remote

// This file tests how long a restore waits.

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"ringside/internal/cli"
	"ringside/proxy/admin"
	"ringside/proxy/live"
)

// TestRestoreEnds runs restore with servers that make no progress. It must print the reason, and
// end. With progress, it waits for a refill without a time limit.
func TestRestoreEnds(t *testing.T) {
	before := lookTime
	lookTime = time.Millisecond
	defer func() { lookTime = before }()
	is := func(state, why, next string, filling bool) live.ServerState {
		return live.ServerState{Pool: "main", Server: "two", State: state, Why: why, Failover: &live.Failover{Next: next},
			Replicas: &live.ReplicaState{Of: 2, Left: 1, Repair: true, Filling: filling}}
	}
	for _, c := range []struct {
		what  string
		looks []live.ServerState // replies to successive polls; the last one repeats
		err   string
		says  string
	}{
		{"suspect, and nobody has ordered it away", []live.ServerState{is("suspect", "connection refused", "stays: no other server could take over", false)},
			"two is suspect: connection refused; stays: no other server could take over. The order is in force", "two is suspect: connection refused; stays"},
		{"drained, and dead meanwhile", []live.ServerState{is("out", "connection refused", "next: RETURN, when it answers", false)},
			"two is out: connection refused; next: RETURN, when it answers. The order is in force", "next: RETURN, when it answers\n"},
		{"filled for long", append(many(is("out", "", "next: RETURN", false), 5), append(many(is(live.Up, "", "", true), 2*looksUntilOver), is(live.Up, "", "", false))...),
			"", "two is filled: its keys have 2 replicas again\n"},
		{"a reload ended the replication meanwhile", []live.ServerState{is(live.Up, "", "", true), {Pool: "main", Server: "two", State: live.Up}},
			"", "since a reload no route keeps replicas in pool main any more\n"},
	} {
		t.Run(c.what, func(t *testing.T) {
			n := 0
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				json.NewEncoder(w).Encode(map[string]any{"servers": c.looks[n : n+1]})
				n = min(n+1, len(c.looks)-1)
			}))
			defer s.Close()
			client := admin.NewClient("tcp", s.Listener.Addr().String())
			defer client.Close()
			cmd, said := &cobra.Command{}, &strings.Builder{}
			cmd.SetErr(said)
			err := waitForCopies(t.Context(), client, cli.RemarksOf(cmd), &c.looks[0])
			if (err == nil) != (c.err == "") || err != nil && !strings.HasPrefix(err.Error(), c.err) {
				t.Errorf("%v, want %q", err, c.err)
			}
			if !strings.Contains(said.String(), c.says) {
				t.Errorf("says %q, want %q", said, c.says)
			}
		})
	}
}

func many(s live.ServerState, n int) (list []live.ServerState) {
	for range n {
		list = append(list, s)
	}
	return list
}
