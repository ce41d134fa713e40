package proxy_test

// Tests of reloads while servers are overridden, belong to a gutter, or have requests
// in flight.

import (
	"bytes"
	"maps"
	"strings"
	"testing"
	"time"

	"ringside/internal/memnode"
	"ringside/proxy/ablation"
	"ringside/proxy/conversation"
	"ringside/proxy/failover"
	"ringside/proxy/health"
	"ringside/proxy/table"
)

// TestReloadWatchedOnce reloads a pool with a gutter several times. Its servers must
// still report each failure to a keeper only once.
func TestReloadWatchedOnce(t *testing.T) {
	s := conversation.New(t)
	setup := func() {
		s.Pool([]string{"spare", "servers=g1,g2"})
		s.Pool([]string{"main", "servers=s1,s2", "gutter=spare"})
		s.Routes = []table.Route{{Pool: s.Pools["main"]}}
	}
	setup()
	s.Begin()
	for range 3 {
		s.Line("reload")
		setup()
		s.Proxy.SetTable(s.Listen())
		s.Wakeup(func() {})
	}
	for name, srv := range s.Engine.ByAddress {
		if n := len(s.Engine.Registrations[srv]); n != 1 {
			t.Errorf("%s: %d keepers are told of its trouble, want 1", name, n)
		}
	}
}

// TestReloadRemovesListener removes the listener of several clients. A client with requests in flight
// gets the replies and is then closed. Others are closed at once, also in the middle of a set.
func TestReloadRemovesListener(t *testing.T) {
	s := conversation.New(t)
	s.Pool([]string{"main", "servers=s1"})
	s.Begin()
	for _, line := range []string{`c1 > get a1`, `c1 > set b1 0 0 1\r\n1`, `s1 < get a1`, `s1 < set b1 0 0 1\r\n1`, `c2 > set c1 0 0 10\r\n12345\`, `c3 > mn`, `c3 < MN`} {
		s.Line(line)
	}
	s.Line("reload")
	s.Pool([]string{"main", "servers=s1"})
	next := s.Listen()
	next.Listeners[0].Address = "elsewhere"
	s.Proxy.SetTable(next)
	s.Wakeup(func() {})
	for _, line := range []string{`c2 closed`, `c3 closed`, `s1 > VALUE a1 0 1\r\nA\r\nEND`, `c1 < VALUE a1 0 1\r\nA`, `c1 < END`, `s1 > STORED`, `c1 < STORED`, `c1 closed`} {
		s.Line(line)
	}
}

// TestReloadWithoutCopies reloads a fail_fast pool so that its route no longer has
// replicas. Its keeper must be removed, but only after all servers are in.
func TestReloadWithoutCopies(t *testing.T) {
	s := conversation.New(t)
	made := func(copies string) *table.Table {
		s.Line("reload")
		s.Pool([]string{"main", "servers=s1,s2,s3"})
		s.Line("route - main copies=" + copies)
		return s.Listen()
	}
	was := failover.Publish(made("2"), nil, 1, ablation.Set{})
	view := was.Agent("main").View
	for _, suspect := range []bool{true, false} {
		view.Set(0, 0, suspect, 0, 0)
		view.Done(1, true)
		is := failover.Publish(made("1"), was, 1, ablation.Set{})
		if stays := is.Agent("main") == was.Agent("main"); stays != suspect {
			t.Errorf("with a server that is suspect %t the keeper stays %t", suspect, stays)
		}
	}
}

// TestReloadOfPlacement reloads a pool with the same servers. With another placement it
// gets a new keeper. If that keeper has seen no other list for a while, its servers
// lack the replicas that other servers had of their keys. With the same placement both
// keepers stay.
func TestReloadOfPlacement(t *testing.T) {
	s := conversation.New(t)
	setup := func(fingerprint string) {
		s.Pool([]string{"main", "servers=s1,s2,s3"})
		s.Pools["main"].Place.Fingerprint = fingerprint
		s.Line("route - main copies=2")
	}
	setup("a")
	s.Begin()
	keeper := func() *health.Keeper { return s.Proxy.Agents()[s.Proxy.Table().Pools[0]].Keeper }
	whole := s.Engine.Ledgers["main"]
	for _, next := range []struct {
		fingerprint string
		same        bool
	}{{"a", true}, {"b", false}, {"b", true}} {
		for i := range whole.Members {
			whole.Members[i].Incomplete = false
		}
		before := keeper()
		s.Line("reload")
		setup(next.fingerprint)
		s.Begin()
		if (keeper() == before) != next.same {
			t.Errorf("placement %s: the keeper goes on: %v", next.fingerprint, !next.same)
		}
		s.Line("handover is done")
		for range 3 {
			s.Now += int64(time.Minute)
			s.Wakeup(func() { s.Engine.Replicator.Tend() })
		}
		whole = s.Engine.Ledgers["main"]
		for i := range whole.Members {
			if whole.Members[i].Incomplete == next.same {
				t.Errorf("placement %s: member %d lacks keys: %v", next.fingerprint, i, next.same)
			}
		}
	}
}

// TestReloadHandsOrders adds a keeper to a pool while a server is drained. The keeper
// must get the override, and a restore must end it.
func TestReloadHandsOrders(t *testing.T) {
	var logs bytes.Buffer
	s := conversation.New(t)
	s.Logs = &logs
	s.ShowOpaques = true
	s.Pool([]string{"main", "servers=s1,s2,s3"})
	s.Begin()
	for range 3 {
		if err := s.Proxy.Override("main", "s1", health.Drain); err != nil {
			t.Fatal(err)
		}
	}
	s.Line("reload")
	s.Pool([]string{"main", "servers=s1,s2,s3", "failover=rehash"})
	s.Pools["main"].Failover.Settings = health.Settings{Ping: 250 * time.Millisecond, Lease: time.Second,
		Request: 200 * time.Millisecond, AfterFailures: 3, EjectAfter: health.EjectAfter{Silent: 3 * time.Second}}
	s.Proxy.SetTable(s.Listen())
	s.ShowOpaques = true // the nodes reply to the opaques themselves
	nodes := map[string]*memnode.Node{}
	for range 50 {
		s.Now += int64(100 * time.Millisecond)
		s.Wakeup(func() {})
		for _, a := range maps.Clone(s.Endpoints) {
			if a.Link == nil || a.Got.Len() == 0 {
				continue
			}
			if nodes[a.Name] == nil {
				var err error
				if nodes[a.Name], err = memnode.New(memnode.Options{}); err != nil {
					t.Fatal(err)
				}
			}
			answers := nodes[a.Name].Line().Do(bytes.Clone(a.Got.Bytes()))
			a.Got.Reset()
			s.Wakeup(func() { s.Engine.Bytes(a.Link, answers) })
		}
	}
	w := s.Engine.Agents[0]
	if o := w.Keeper.Verdict(0).Override; o != health.Drain {
		t.Errorf("the keeper's order is %v, want drain", o)
	}
	if o := s.Proxy.OverrideOf("main", "s1").Override; o != health.Restore {
		t.Errorf("the order stands outside of the keeper, too: %v", o)
	}
	for range 3 {
		if err := s.Proxy.Override("main", "s1", health.Restore); err != nil {
			t.Fatal(err)
		}
	}
	s.Wakeup(func() {})
	for _, order := range []string{"operator drained server", "operator restored server"} {
		if n := strings.Count(logs.String(), order); n != 1 {
			t.Errorf("%d lines with %q: an order that changes nothing has none\n%s", n, order, logs.String())
		}
	}
	if srv := s.Engine.ByAddress["tcp s1"]; srv.Draining() || w.Keeper.Verdict(0).Override != health.Restore {
		t.Error("the restore did not reach the server")
	}
}

// TestReloadAsksExpire checks a command that began before a reload and uses a server
// that the reload has removed and that hangs. The command must get its answer in time.
func TestReloadAsksExpire(t *testing.T) {
	s := conversation.New(t)
	s.Pool([]string{"main", "servers=s1,s2", "failover=rehash", "get_errors=error"})
	s.Line("s1 is WARM")
	s.Line("s2 hangs")
	s.Line("c1 > get a1")
	s.Line("s1 < get a1")
	s.Line("reload")
	s.Pool([]string{"main", "servers=s1"})
	s.Begin()
	s.Line("s1 > END") // now it asks s2
	s.Line("wait 3s")
	s.Line("c1 < SERVER_ERROR server s2 is down: no connection within the connect timeout")
}
