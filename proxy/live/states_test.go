package live

import (
	"testing"
	"time"

	"ringside/proxy/health"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/replicate"
)

// TestOrderIsTheReason checks that an override is shown as the reason, whatever the
// keeper did last.
func TestOrderIsTheReason(t *testing.T) {
	for order, want := range map[health.Override]string{health.Drain: "drained by an operator", health.Down: "taken down by an operator", health.Restore: "it leaves"} {
		is := ServerState{State: Up}
		is.keeperSays(&stats.PhaseSnapshot{Phase: health.Out, Override: order, Why: "it leaves"}, time.Now())
		if is.Why != want {
			t.Errorf("%s: it is %s because %q, want %q", order, is.State, is.Why, want)
		}
	}
}

// TestDrainedAndSuspect checks that the failure of a drained server is shown. A server
// that was taken down is suspect because of the override alone.
func TestDrainedAndSuspect(t *testing.T) {
	for order, want := range map[health.Override]string{health.Drain: "drained by an operator, and suspect: connection refused", health.Down: "taken down by an operator"} {
		is := ServerState{State: Up}
		now := time.Now()
		is.keeperSays(&stats.PhaseSnapshot{Phase: health.Out, Override: order, Suspect: true, Why: "connection refused", Since: time.Second, InPhase: time.Minute}, now)
		if is.State != Drained || is.Why != want || is.Since != now.Add(-time.Minute) {
			t.Errorf("%s: it is %s since %v because %q, want %q for a minute", order, is.State, is.Since.Sub(now), is.Why, want)
		}
	}
}

// TestCopiesLeft checks how many replicas remain without a server. This depends on the
// other servers of all pools of a route.
func TestCopiesLeft(t *testing.T) {
	east, west := &table.Pool{Name: "east"}, &table.Pool{Name: "west"}
	for _, p := range []*table.Pool{east, west} {
		p.Servers = []table.Target{{Name: "a"}, {Name: "b"}}
	}
	inEast := func(n int) table.Route { return table.Route{Pool: east, Copies: replicate.Policy{Copies: n}} }
	spread := table.Route{Pool: west, Also: []*table.Pool{east}}
	for _, c := range []struct {
		what     string
		routes   []table.Route
		b, other string // state of b in the pool, and of b in the other pool
		fills    string // a server that is being filled
		heard    string // a server that another instance reports as being filled
		want     ReplicaState
	}{
		{"all up", []table.Route{inEast(3), inEast(2), inEast(0)}, Up, Up, "", "", ReplicaState{Of: 2, Left: 1}},
		{"the other server of the pool down", []table.Route{inEast(2)}, Down, Up, "", "", ReplicaState{Of: 2, Lacking: "b is down"}},
		{"being filled", []table.Route{inEast(2)}, Up, Up, "east b", "", ReplicaState{Of: 2, Lacking: "b is being filled"}},
		{"being filled, as another instance reports", []table.Route{inEast(2)}, Up, Up, "", "east b", ReplicaState{Of: 2, Lacking: "b lacks replicas, as another instance reports"}},
		{"itself being filled", []table.Route{inEast(2)}, Up, Up, "east a", "", ReplicaState{Of: 2, Left: 1, Filling: true}},
		{"one of three down", []table.Route{inEast(3)}, Down, Up, "", "", ReplicaState{Of: 3, Left: 1, Lacking: "b is down"}},
		{"one in each pool, another of this one down", []table.Route{spread}, Down, Up, "", "", ReplicaState{Of: 2, Left: 1}},
		{"one in each pool, one of the other down", []table.Route{spread}, Up, Down, "", "", ReplicaState{Of: 2, Lacking: "b of pool west is down"}},
		{"one in each pool, one of the other being filled", []table.Route{spread}, Up, Up, "west b", "", ReplicaState{Of: 2, Lacking: "b of pool west is being filled"}},
		{"both kinds, another of this one down", []table.Route{spread, inEast(3)}, Down, Up, "", "", ReplicaState{Of: 2, Left: 1, Lacking: "b is down"}},
		{"both kinds, one of the other down", []table.Route{inEast(3), spread}, Up, Down, "", "", ReplicaState{Of: 2, Lacking: "b of pool west is down"}},
	} {
		list := []ServerState{
			{Pool: "east", Server: "a", State: Up}, {Pool: "east", Server: "b", State: c.b},
			{Pool: "west", Server: "a", State: Up}, {Pool: "west", Server: "b", State: c.other},
		}
		addReplicas(list, &table.Table{Pools: []*table.Pool{east, west}, Listeners: []table.Listener{{Routes: c.routes}}},
			func(is *ServerState) bool { return is.Pool+" "+is.Server == c.fills },
			func(is *ServerState) bool { return is.Pool+" "+is.Server == c.heard })
		if got := list[0].Replicas; got == nil || *got != c.want {
			t.Errorf("%s: %+v, want %+v", c.what, got, c.want)
		}
	}
}
