package live

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"ringside/proxy/health"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/proxy/wire"
	"ringside/ring"
)

// poolOf returns a pool of servers a, b, c with equal shares.
func poolOf(mode table.Mode) *table.Pool {
	p := &table.Pool{Name: "main", Place: ring.Placement{Ring: ring.NewJump([]int{0, 1, 2})},
		Failover: table.Failover{Mode: mode, Gutter: &table.Pool{Name: "spare"}, Settings: health.Settings{}}}
	for _, name := range []string{"a", "b", "c"} {
		p.Servers = append(p.Servers, table.Target{Name: name, Network: "tcp", Address: name + ":1"})
	}
	return p
}

func TestHealth(t *testing.T) {
	const (
		flow  = "100 requests/s, hit rate 75.0 %, p99 1.5 ms."
		start = "Start memcached there: Ringside does the rest."
		reach = "Check that its host runs and can be reached from here: Ringside does the rest."
	)
	for _, test := range []struct {
		name   string
		mode   table.Mode
		states [3]string
		change func(*Tick)
		want   Health
	}{
		{"well", table.Rehash, [3]string{Up, Up, Up}, nil, Health{Good, "All 3 servers serve", flow + " Nothing fails."}},
		{"fails", table.Rehash, [3]string{Up, Up, Up}, func(k *Tick) { k.Outcomes.Fail = 3 }, Health{Warn, "3 requests/s fail", "All 3 servers are up. " + flow}},
		{"nobody", table.Rehash, [3]string{Up, Unknown, Up}, func(k *Tick) { k.Ops = nil; k.Clients = 0 },
			Health{Good, "3 servers are ready", "No client is connected."}},
		{"fails a little", table.Rehash, [3]string{Up, Up, Up}, func(k *Tick) { k.Outcomes.Fail = .4 }, Health{Good, "All 3 servers serve", flow + " 0.4 requests/s fail."}},
		{"fails at one", table.Rehash, [3]string{Up, Up, Up}, func(k *Tick) { k.Outcomes.Fail = 3; k.S.Fail = []float64{0, 2, 1} },
			Health{Warn, "3 requests/s fail", "All 3 servers are up. Most failures are at b. " + flow}},
		{"fails at one for a reason", table.Rehash, [3]string{Up, Up, Up}, func(k *Tick) {
			k.Outcomes.Fail, k.S.Fail, k.S.Cause = 3, []float64{0, 2, 1}, []string{"", "its queue is full", ""}
		}, Health{Warn, "3 requests/s fail", "All 3 servers are up. Most failures are at b: its queue is full. " + flow}},
		{"all fail for one reason", table.Rehash, [3]string{Up, Up, Up}, func(k *Tick) {
			k.Outcomes.Fail, k.S.Fail, k.S.Cause = 9, []float64{3, 4, 2}, []string{"its queue is full", "its queue is full", "it is down"}
		}, Health{Warn, "9 requests/s fail", "All 3 servers are up. Most failures have the same cause, on 2 servers: their queues are full. " + flow}},
		{"all fail for several reasons", table.Rehash, [3]string{Up, Up, Up}, func(k *Tick) {
			k.Outcomes.Fail, k.S.Fail, k.S.Cause = 9, []float64{3, 3, 3}, []string{"its queue is full", "", "it is down"}
		}, Health{Warn, "9 requests/s fail", "All 3 servers are up. " + flow}},
		{"suspect", table.Rehash, [3]string{Up, "suspect", Up}, nil,
			Health{Bad, "b refuses connections", start + " Connection refused, for 19 s. 33.3 % of the keys miss, and writes to them fail, until it answers or others take over."}},
		{"suspect for so short", table.Rehash, [3]string{Up, "suspect", Up}, func(k *Tick) { k.S.Next[1] = "next: LEAVING, if it does not answer" },
			Health{Bad, "b refuses connections", start + " Connection refused, for 19 s. 33.3 % of the keys miss, and writes to them fail, until it answers or others take over."}},
		{"suspect here", table.Rehash, [3]string{Up, "suspect", Up}, func(k *Tick) { k.S.Why[1], k.S.Next[1] = "no answer", "stays: most instances reach it" },
			Health{Bad, "b does not answer", "Check that its host runs and can be reached from here: Ringside does the rest. No answer, for 19 s. 33.3 % of the keys miss, and writes to them fail, until it answers. No other server takes over: most instances reach it."}},
		{"two suspect", table.Rehash, [3]string{"suspect", "suspect", Up}, func(k *Tick) {
			k.S.Since[1] = -20_000
			k.S.Next[0] = "stays: more than half of the servers are suspect, so it may be this instance that is cut off"
		},
			Health{Bad, "a and b are not serving", start + " Connection refused, for 2 min. 66.7 % of the keys miss, and writes to them fail, until they answer. No other server takes over: more than half of the servers are suspect, so it may be this instance that is cut off."}},
		{"two silent", table.FailFast, [3]string{Down, Down, Up}, func(k *Tick) { k.S.Why[0], k.S.Why[1] = "no answer", "no answer" },
			Health{Bad, "a and b are not serving", "Check that their hosts run and can be reached from here: Ringside does the rest. No answer, for 19 s. 66.7 % of the keys miss, and writes to them fail, until they answer."}},
		{"two for different reasons", table.FailFast, [3]string{Down, Down, Up}, func(k *Tick) { k.S.Why[1] = "no answer" },
			Health{Bad, "a and b are not serving", "Start memcached there (a). Check that its host runs and can be reached from here (b): Ringside does the rest. a: connection refused; b: no answer, for 19 s. 66.7 % of the keys miss, and writes to them fail, until they answer."}},
		{"one out, one suspect", table.Rehash, [3]string{"out", "suspect", Up}, nil,
			Health{Bad, "a and b are not serving", start + " Connection refused, for 19 s. 33.3 % of the keys miss, and writes to them fail, until b answers or others take over."}},
		{"two suspect, strict", table.Rehash, [3]string{"suspect", "suspect", Up}, func(k *Tick) {
			k.S.Sure, k.S.Next[0] = []bool{false, false, false}, "stays: more than half of the servers are suspect"
		}, Health{Bad, "a and b are not serving", start + " Connection refused, for 19 s. All keys miss, and writes to them fail, until they answer. No other server takes over: more than half of the servers are suspect. With strict consistency, c can't serve either until more servers answer: it is not certain which server has a key."}},
		{"one suspect, strict, and one not certain", table.Rehash, [3]string{"suspect", Up, Up}, func(k *Tick) { k.S.Sure = []bool{false, false, true} },
			Health{Bad, "a refuses connections", start + " Connection refused, for 19 s. 66.7 % of the keys miss, and writes to them fail, until it answers or others take over. With strict consistency, b can't serve either until more servers answer: it is not certain which server has a key."}},
		{"not certain", table.Rehash, [3]string{Up, Up, Up}, func(k *Tick) { k.S.Sure, k.Outcomes.Fail = []bool{false, true, true}, 7 },
			Health{Warn, "7 requests/s fail", "All 3 servers are up. With strict consistency, no key of a is served: it is not certain which server has it. " + flow}},
		{"all drained", table.Rehash, [3]string{Drained, Drained, Drained}, nil,
			Health{Warn, "a, b and c are drained", "By an operator, 19 s ago: ringside server restore brings them back. All keys miss, and writes to them fail, because no server of the pool is in use. " + flow}},
		{"down", table.FailFast, [3]string{Up, Down, Up}, nil,
			Health{Bad, "b refuses connections", start + " Connection refused, for 19 s. 33.3 % of the keys miss, and writes to them fail, until it answers."}},
		{"silent", table.FailFast, [3]string{Up, Down, Up}, func(k *Tick) { k.S.Why[1] = "3 requests in a row were not answered in time" },
			Health{Bad, "b does not answer", reach + " 3 requests in a row were not answered in time, for 19 s. 33.3 % of the keys miss, and writes to them fail, until it answers."}},
		{"wants a login", table.FailFast, [3]string{Up, Down, Up}, func(k *Tick) {
			k.S.Why[1] = "server b (10.0.0.1:11211) is down: its first reply is CLIENT_ERROR unauthenticated"
		},
			Health{Bad, "b answers with an error", "Set auth of its pool and reload, or start memcached there without -Y: Ringside does the rest. Its first reply is CLIENT_ERROR unauthenticated, for 19 s. 33.3 % of the keys miss, and writes to them fail, until it answers."}},
		{"is full, and out", table.Rehash, [3]string{Up, "out", Up}, func(k *Tick) {
			k.S.Why[1] = "server b (10.0.0.1:11211) is down: its first reply is ERROR Too many open connections"
		},
			Health{Bad, "b is out", "Raise memcached's limit of connections there (-c), or close some: Ringside does the rest. Its first reply is ERROR Too many open connections, 19 s ago. Its 33.3 % of the keys are on a and c until it is back; then it starts empty."}},
		{"is not memcached", table.FailFast, [3]string{Up, Down, Up}, func(k *Tick) { k.S.Why[1] = "server b (10.0.0.1:11211) is down: its first reply is ERROR" },
			Health{Bad, "b answers with an error", "Check that memcached runs at its address: Ringside does the rest. Its first reply is ERROR, for 19 s. 33.3 % of the keys miss, and writes to them fail, until it answers."}},
		{"leaving", table.Rehash, [3]string{Up, "leaving", Up}, nil,
			Health{Bad, "b is leaving", "Connection refused. All instances agree on it first; then its 33.3 % of the keys move to a and c."}},
		{"two out that answer again", table.Rehash, [3]string{"out", "out", Up}, func(k *Tick) { k.S.Why[0], k.S.Why[1] = health.Answered, health.Answered },
			Health{Bad, "a and b are not serving", "Wait until they are back: Ringside does the rest. Answered again, 19 s ago. Their 66.7 % of the keys are on c until they are back; then they start empty."}},
		{"rejoins in fail_fast", table.FailFast, [3]string{"settle", Up, Up}, nil,
			Health{Warn, "a is rejoining", "It answers again, and starts empty, so that no old value is served. Its 33.3 % of the keys miss, and writes to them fail, until it is up."}},
		{"two rejoin in fail_fast", table.FailFast, [3]string{"settle", "return", Up}, nil,
			Health{Warn, "a and b are rejoining", "They answer again, and start empty, so that no old value is served. Their 66.7 % of the keys miss, and writes to them fail, until they are up."}},
		{"two leaving", table.Rehash, [3]string{"leaving", "leaving", Up}, func(k *Tick) { k.S.Why[1] = "the view record on c says so" },
			Health{Bad, "a and b are not serving", "a: connection refused; b: another instance says so. All instances agree on it first; then their 66.7 % of the keys move to c."}},
		{"leaving and suspect", table.Rehash, [3]string{"leaving", "suspect", Up}, nil,
			Health{Bad, "a and b are not serving", start + " Connection refused, for 19 s. 66.7 % of the keys miss, and writes to them fail, until they answer or others take over."}},
		{"two returning", table.Rehash, [3]string{"settle", "return", Up}, nil,
			Health{Warn, "a and b are rejoining", "They start empty. ringside server list shows how far each of them is."}},
		{"out", table.Rehash, [3]string{Up, "out", Up}, nil,
			Health{Bad, "b is out", start + " Connection refused, 19 s ago. Its 33.3 % of the keys are on a and c until it is back; then it starts empty."}},
		{"kept out", table.Rehash, [3]string{Up, "out", Up}, func(k *Tick) { k.S.Next[1] = "stays out: most instances don't reach it" },
			Health{Bad, "b is out", "It stays out: most instances don't reach it. Connection refused, 19 s ago. Its 33.3 % of the keys are on a and c until it is back; then it starts empty."}},
		{"gutter", table.Gutter, [3]string{Up, "out", Up}, nil,
			Health{Bad, "b is out", start + " Connection refused, 19 s ago. Its 33.3 % of the keys are on pool spare until it is back; then it starts empty."}},
		{"two out", table.Rehash, [3]string{"out", "out", Up}, nil,
			Health{Bad, "a and b are not serving", start + " Connection refused, 19 s ago. Their 66.7 % of the keys are on c until they are back; then they start empty."}},
		{"out and drained", table.Rehash, [3]string{Drained, "out", Up}, nil,
			Health{Bad, "b is out", start + " Connection refused, 19 s ago. Its 33.3 % of the keys are on c until it is back; then it starts empty. a is drained by an operator."}},
		{"returning", table.Rehash, [3]string{Up, "return", Up}, nil,
			Health{Warn, "b is rejoining", "It answers again and is being flushed, so that no old value is served."}},
		{"drained", table.Rehash, [3]string{Up, Drained, Up}, nil,
			Health{Warn, "b is drained", "By an operator, 19 s ago: ringside server restore brings it back. Its 33.3 % of the keys are on a and c until then; it starts empty. " + flow}},
		{"drained and dead", table.Rehash, [3]string{Up, Drained, Up}, func(k *Tick) {
			k.S.Why[1] = "drained by an operator, and suspect: server b (10.0.0.1:11211) is down: connection refused"
		},
			Health{Warn, "b is drained", "By an operator, 19 s ago: ringside server restore brings it back. It is suspect, too: connection refused. Its 33.3 % of the keys are on a and c until then; it starts empty. " + flow}},
		{"out, and drained and dead", table.Rehash, [3]string{Drained, "out", Up}, func(k *Tick) { k.S.Why[0] = "drained by an operator, and suspect: connection refused" },
			Health{Bad, "b is out", start + " Connection refused, 19 s ago. Its 33.3 % of the keys are on c until it is back; then it starts empty. a is drained by an operator. It is suspect, too: connection refused."}},
		{"taken down", table.FailFast, [3]string{Up, Down, Up}, func(k *Tick) { k.S.Order, k.S.Why[1] = []string{"", "down", ""}, "taken down by an operator" },
			Health{Warn, "b is taken down", "By an operator, 19 s ago: ringside server restore brings it back. Its 33.3 % of the keys miss, and writes to them fail, unless they have another replica. " + flow}},
		{"drained for good", table.FailFast, [3]string{Up, Drained, Up}, nil,
			Health{Warn, "b is drained", "By an operator, 19 s ago: ringside server restore brings it back. Its 33.3 % of the keys miss, and writes to them fail, unless they have another replica. " + flow}},
	} {
		us := 1500.0
		k := &Tick{Moment: Moment{T: 100_000, Ops: map[string]float64{"get": 60, "set": 40}, Keys: [3]float64{75, 25}, Latency: [3]*float64{&us, &us, &us}, Clients: 2}}
		for _, s := range test.states {
			why := ""
			if StateOf(s).Away {
				why = "server x (10.0.0.1:11211) is down: connection refused"
			}
			k.S.State, k.S.Since, k.S.Why, k.S.Next = append(k.S.State, s), append(k.S.Since, 81_000), append(k.S.Why, why), append(k.S.Next, "")
			k.S.Fail = append(k.S.Fail, 0)
		}
		if test.change != nil {
			test.change(k)
		}
		if got := healthOf(k, poolOf(test.mode)); got != test.want {
			t.Errorf("%s:\n got %+v\nwant %+v", test.name, got, test.want)
		}
	}
}

// TestLoss checks that the texts say what happens to reads of keys that no server serves: by get_errors of
// the routes, they miss or fail.
func TestLoss(t *testing.T) {
	yes, no := true, false
	for _, test := range []struct {
		pool   bool // get_errors of the pool
		routes []*bool
		want   string
	}{
		{false, nil, "miss, and writes to them fail"},
		{true, nil, "are not served: reads and writes fail"},
		{true, []*bool{nil}, "are not served: reads and writes fail"},
		{false, []*bool{&yes}, "are not served: reads and writes fail"},
		{true, []*bool{&no, &no}, "miss, and writes to them fail"},
		{false, []*bool{nil, &yes}, "miss (or their reads fail, with get_errors: error), and writes to them fail"},
	} {
		other := poolOf(table.FailFast)
		for mode, states := range map[table.Mode][3]string{table.FailFast: {Up, Down, "settle"}, table.Rehash: {Drained, Drained, Drained}} {
			p := poolOf(mode)
			p.GetErrors, other.GetErrors = test.pool, !test.pool
			l := table.Listener{Routes: []table.Route{{Pool: other}}}
			for _, errors := range test.routes {
				l.Routes = append(l.Routes, table.Route{Pool: p, GetErrors: errors})
			}
			of := &table.Table{Listeners: []table.Listener{l}, Pools: []*table.Pool{p}}
			k := &Tick{S: Columns{State: states[:], Since: make([]int64, 3), Why: make([]string, 3), Next: make([]string, 3), Fail: make([]float64, 3)}}
			if is := k.health(p, lossOf(of, p), 1, false).Text; !strings.Contains(is, " keys "+test.want+", ") {
				t.Errorf("%+v: it says %s", test, is)
			}
			if _, is := topoOf(of, p, 1).Orders["drain"].About(&TopoServer{}, 0); mode == table.FailFast && !strings.Contains(is, test.want+", until it is restored") {
				t.Errorf("%+v: it asks %s", test, is)
			}
		}
	}
}

// healthOf returns the health of a single pool.
func healthOf(k *Tick, p *table.Pool) Health {
	pools := []*table.Pool{p}
	return overall(pools, []*Tick{k}, []Health{k.health(p, lossOf(&table.Table{}, p), 1, false)}).Health
}

// TestOverall checks that the worst pool provides the sentence, which names it,
// whichever pool is watched, and that each pool has its level.
func TestOverall(t *testing.T) {
	const flow = "100 requests/s to all pools."
	type server struct {
		state, why, order string
		fail, errors      float64
	}
	up, dead := server{state: Up}, server{state: Down, why: "server x is down: connection refused", fail: 5}
	for _, test := range []struct {
		name          string
		main, session [2]server
		fail          float64
		want          Health
		worst         string
		levels        [2]string
	}{
		{"well", [2]server{up, up}, [2]server{up, up}, 0, Health{Good, "All 4 servers of 2 pools serve", flow + " Nothing fails."}, "main", [2]string{Good, Good}},
		{"one dead in the second", [2]server{up, up}, [2]server{up, dead}, 30,
			Health{Bad, "Pool sessions: sessions-1 refuses connections", "Start memcached there: Ringside does the rest. Connection refused, for 19 s. 50.0 % of the keys miss, and writes to them fail, until it answers."}, "sessions", [2]string{Good, Bad}},
		{"drained here, dead there", [2]server{{state: Drained, order: "drain"}, up}, [2]server{up, dead}, 30,
			Health{Bad, "Pool sessions: sessions-1 refuses connections", "Start memcached there: Ringside does the rest. Connection refused, for 19 s. 50.0 % of the keys miss, and writes to them fail, until it answers. Also pool main: main-0 is drained."}, "sessions", [2]string{Warn, Bad}},
		{"out here, suspect there", [2]server{{state: "out", why: "connection refused"}, up}, [2]server{{state: "suspect", why: "connection refused"}, up}, 0,
			Health{Bad, "Pool sessions: sessions-0 refuses connections", "Start memcached there: Ringside does the rest. Connection refused, for 19 s. 50.0 % of the keys miss, and writes to them fail, until it answers. Also pool main: main-0 is out."}, "sessions", [2]string{Bad, Bad}},
		{"fails in the second", [2]server{up, up}, [2]server{up, {state: Up, fail: 3}}, 3,
			Health{Warn, "Pool sessions: 3 requests/s fail", "All 2 servers are up. Most failures are at sessions-1: no answer in time; check its load and the network. " + flow}, "sessions", [2]string{Good, Warn}},
		{"fails somewhere", [2]server{up, up}, [2]server{up, up}, 3,
			Health{Warn, "Pool main: 3 requests/s fail", "All 2 servers are up. " + flow + " Also pool sessions: 3 requests/s fail."}, "main", [2]string{Warn, Warn}},
		{"SERVER_ERROR in the second", [2]server{up, up}, [2]server{up, {state: Up, errors: 3}}, 3,
			Health{Warn, "Pool sessions: 3 requests/s fail", "All 2 servers are up. Most failures are at sessions-1: it replies SERVER_ERROR out of memory; check its memory and its log. " + flow}, "sessions", [2]string{Good, Warn}},
		{"dead here, SERVER_ERROR there", [2]server{dead, up}, [2]server{up, {state: Up, errors: 40}}, 45,
			Health{Bad, "Pool main: main-0 refuses connections", "Start memcached there: Ringside does the rest. Connection refused, for 19 s. 50.0 % of the keys miss, and writes to them fail, until it answers. Also pool sessions: 40 requests/s fail."}, "main", [2]string{Bad, Warn}},
		{"dead, and its failures are not counted there", [2]server{up, up}, [2]server{up, {state: Down, why: dead.why}}, 30,
			Health{Bad, "Pool sessions: sessions-1 refuses connections", "Start memcached there: Ringside does the rest. Connection refused, for 19 s. 50.0 % of the keys miss, and writes to them fail, until it answers."}, "sessions", [2]string{Good, Bad}},
		{"replies SERVER_ERROR, but another replica succeeds", [2]server{up, up}, [2]server{up, {state: Up, errors: 3}}, 0,
			Health{Good, "All 4 servers of 2 pools serve", flow + " Nothing fails."}, "main", [2]string{Good, Good}},
	} {
		sample := func(failed float64) *Sample {
			s := &Sample{At: time.UnixMilli(100_000), Sum: &stats.Snapshot{Servers: map[string]*stats.ServerSnapshot{}}, Table: &table.Table{}}
			s.Sum.Requests[wire.Get][stats.TimedOut] = uint64(test.fail * failed)
			s.Sum.Requests[wire.Get][stats.Okay] = uint64((100 - test.fail) * failed)
			for name, list := range map[string][2]server{"main": test.main, "sessions": test.session} {
				p := &table.Pool{Name: name, Place: ring.Placement{Ring: ring.NewJump([]int{0, 1})}, Failover: table.Failover{Mode: table.FailFast}}
				for i, is := range list {
					at := fmt.Sprint(name, "-", i)
					p.Servers = append(p.Servers, table.Target{Name: at, Network: "tcp", Address: at})
					s.Servers = append(s.Servers, ServerState{Pool: name, Server: at, State: is.state, Why: is.why, Order: is.order, Since: time.UnixMilli(81_000)})
					n := &stats.ServerSnapshot{}
					n.Failed, n.TimedOut, n.Errors = uint64(is.fail*failed), uint64(is.fail*failed), uint64(is.errors*failed)
					n.Error = "SERVER_ERROR out of memory"
					s.Sum.Servers["tcp "+at] = n
				}
				s.Table.Pools = append(s.Table.Pools, p)
			}
			if s.Table.Pools[0].Name != "main" {
				slices.Reverse(s.Table.Pools)
				s.Servers = append(s.Servers[2:], s.Servers[:2]...)
			}
			return s
		}
		before, after := sample(0), sample(1)
		before.At = before.At.Add(-time.Second)
		for _, watched := range []string{"main", "sessions"} {
			is := tickBetween(before, after, watched)
			if is.Health != test.want || is.Worst != test.worst || len(is.Pools) != 2 || is.Pools[0].Level != test.levels[0] || is.Pools[1].Level != test.levels[1] {
				t.Errorf("%s, seen from %s:\n got %+v\nwant %+v of %s, %v", test.name, watched, is.Overall, test.want, test.worst, test.levels)
			}
		}
		after.Refused = true
		if is := tickBetween(before, after, "main"); is.Health.Level == Good || !strings.Contains(is.Health.Sentence(), "The configuration read last was refused; the old one is in force.") {
			t.Errorf("%s, and the configuration refused: %+v", test.name, is.Health)
		}
		after.Gone = []string{"/run/a"}
		if is := tickBetween(before, after, "main"); is.Health.Level == Good || !strings.Contains(is.Health.Sentence(), "No client can connect to unix:/run/a: its file was removed. ringside reload creates it again.") {
			t.Errorf("%s, and the file of a socket is gone: %+v", test.name, is.Health)
		}
	}
}

// TestEjectedElsewhere checks the text about servers that other instances eject: it
// names the other pool, and only the first servers of many.
func TestEjectedElsewhere(t *testing.T) {
	sum := &stats.Snapshot{Shared: []stats.Shared{{Pool: "main", Server: "s1", Other: "o\x1b"}}}
	const end = ", and flushes a server when it returns, with what this pool has stored there by then. Give all instances the same pools, or each pool its own servers."
	for i, want := range []string{`s1 (in its pool o\x1b)`, `s1 (in its pool o\x1b) and s2 (in its pool o2)`, `s1 (in its pool o\x1b), s2 (in its pool o2) and s2 (in its pool o3)`,
		`s1 (in its pool o\x1b), s2 (in its pool o2), s2 (in its pool o3) and 1 more`} {
		if got := ejectedElsewhere(sum, "main"); got != "Another instance ejects "+want+end {
			t.Errorf("%d: it says %q", i, got)
		}
		sum.Shared = append(sum.Shared, stats.Shared{Pool: "main", Server: "s2", Other: fmt.Sprint("o", i+2)})
	}
	both := &stats.Snapshot{Shared: []stats.Shared{{Pool: "main", Server: "s1", Other: "o1"}, {Pool: "main", Server: "s2", Other: "o2", Keeps: true}}}
	if got, want := ejectedElsewhere(both, "main"), "Another instance ejects s1 (in its pool o1), and flushes a server when it returns, with what this pool has stored there by then. "+
		"Another instance does not eject s2 (in its pool o2), and loses what it has stored there when this one flushes a server that returns. "+
		"Give all instances the same pools, or each pool its own servers."; got != want {
		t.Errorf("it says %q", got)
	}
	if ejectedElsewhere(sum, "other") != "" || SharedServers(sum, "other") != 0 || SharedServers(sum, "main") != 2 {
		t.Error("the servers of another pool are told, or some twice")
	}
	pool := &table.Pool{Name: "main", Servers: []table.Target{{Name: "s1"}}, Place: ring.Placement{Ring: ring.NewJump([]int{0})}}
	s := &Sample{At: time.UnixMilli(1), Sum: sum, Table: &table.Table{Pools: []*table.Pool{pool}}, Servers: []ServerState{{Pool: "main", Server: "s1", State: Up}}}
	if is := tickBetween(s, s, "main"); is.Health.Level != Warn || !strings.HasPrefix(is.Health.Title+". "+is.Health.Text, "Another instance ejects ") || !strings.Contains(is.Health.Title+". "+is.Health.Text, end) {
		t.Errorf("the pool is %+v", is.Health)
	}
}

// TestHealthOfSeveralPools checks that the figures are those of the whole instance,
// whichever pool is watched.
func TestHealthOfSeveralPools(t *testing.T) {
	k := &Tick{Moment: Moment{Ops: map[string]float64{"get": 100}}, S: Columns{State: []string{Up, Up, Up}}}
	if got, want := k.health(poolOf(table.Rehash), "", 2, false).Text, "100 requests/s to all pools. Nothing fails."; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestUnits(t *testing.T) {
	for got, want := range map[string]string{
		Count(0): "0", Count(2.5): "2.5", Count(999): "999", Count(1234567): "1,234,567",
		Micros(386): "386 µs", Micros(1500): "1.5 ms", Micros(39_000): "39 ms", Micros(2.5e6): "2.5 s",
		Bytes(17): "17 B", Bytes(1536): "1.5 KiB", Bytes(300 << 20): "300 MiB", Bytes(5 << 40): "5.0 TiB",
		Percent(.3126): "31.3 %", Percent(1): "100 %", Ago(19e9): "19 s", Ago(600e9): "10 min", Ago(7200e9): "2 h", Ago(0): "0 s",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestRemedyHasTheAddress checks that the remedy for one server has its address, unless the name begins it.
// Each reason that package upstream or the driver gives for a server has a title that is true.
func TestProblems(t *testing.T) {
	for why, does := range map[string]string{
		"it rejects the login of user u: CLIENT_ERROR authentication failure":         "rejects the login",
		"it does not ask for a login: start it with -Y, or remove auth from its pool": "does not ask for a login",
		"it does not speak TLS":                                             "does not speak TLS",
		"x509: certificate has expired":                                     "has no certificate that its pool accepts",
		"remote error: tls: certificate required":                           "rejects the TLS handshake",
		"the other end has closed the connection":                           "breaks connections",
		"tls: server selected unsupported protocol version 302":             "fails the TLS handshake",
		"lookup mc-1: no such host":                                         "has a name without an address",
		"it sent an invalid reply to version":                               "does not speak memcached's protocol",
		"it sent a reply without a request":                                 "does not speak memcached's protocol",
		"it sent more than 1 MiB in reply to a request of Ringside's own":   "does not speak memcached's protocol",
		"it replied with another key or opaque than requested":              "does not speak memcached's protocol",
		"it did not end its reply to a request of Ringside's own within 2s": "does not speak memcached's protocol",
		"server b: sent an invalid reply to mg":                             "does not speak memcached's protocol",
		"server b: replied with another key or opaque than requested":       "does not speak memcached's protocol",
		"ping: SERVER_ERROR out of memory":                                  "answers pings with an error",
		"server b sent nothing for 1s, and did not answer":                  "does not answer",
		"no connection within the connect timeout":                          "does not answer",
		"no answer within 1s of connecting":                                 "does not answer",
	} {
		if got := problemOf(why).does; got != does {
			t.Errorf("%s: it %s, want: it %s", why, got, does)
		}
	}
}

func TestRemedyHasTheAddress(t *testing.T) {
	pool := &table.Pool{Servers: []table.Target{{Name: "cache1", Address: "10.0.0.1:11211"}, {Name: "cache2", Address: "cache2:11211"}, {Name: "cache3", Address: "cache3:11211"}}}
	w := wording{Tick: &Tick{S: Columns{Why: []string{"connection refused", "no answer", "no answer"}}}, pool: pool}
	for want, bad := range map[string][]int{
		"Start memcached there (10.0.0.1:11211)":                                                         {0},
		"Check that its host runs and can be reached from here":                                          {1},
		"Start memcached there (cache1). Check that its host runs and can be reached from here (cache2)": {0, 1},
		"Check that their hosts run and can be reached from here":                                        {1, 2},
	} {
		if is := w.remedy(bad); is != want {
			t.Errorf("%v: %q, want %q", bad, is, want)
		}
	}
}

// TestCauseAfterRepair checks that the cause of failures does not contradict the state of a server.
func TestCauseAfterRepair(t *testing.T) {
	at := table.Target{Name: "a", Network: "tcp", Address: "a:1"}
	sample := func(refused uint64) *Sample {
		n := &stats.ServerSnapshot{}
		n.Refused = refused
		return &Sample{Sum: &stats.Snapshot{Servers: map[string]*stats.ServerSnapshot{"tcp a:1": n}}}
	}
	for _, test := range []struct {
		is   ServerState
		want string
	}{{ServerState{State: Up}, "it was down, and is up again"}, {ServerState{State: Up, LoopsDown: 1}, isDown}, {ServerState{State: Down}, isDown}} {
		var c Columns
		if c.add(&test.is, sample(0), sample(9), at); c.Cause[0] != test.want {
			t.Errorf("%+v: %q, want %q", test.is, c.Cause[0], test.want)
		}
	}
}

// TestHealthOfRemovedServer checks that a server that is out and that the next server list lacks needs nothing. A server that is not ejected
// yet delays the change of servers.
func TestHealthOfRemovedServer(t *testing.T) {
	for _, test := range []struct{ state, want string }{
		{"out", "Nothing is needed: this configuration removes it. "},
		{"suspect", "Start memcached there: Ringside does the rest. "},
	} {
		p := poolOf(table.Rehash)
		next := *p.List()
		next.Servers = append(next.Servers[:1:1], next.Servers[2])
		p.Next = &next
		w := &wording{Tick: &Tick{}, pool: p, pools: 1, shares: make([]float64, 3)}
		w.S.State, w.S.Why, w.S.Next, w.S.Since = []string{Up, test.state, Up}, []string{"", "connection refused", ""}, make([]string, 3), make([]int64, 3)
		if got := w.trouble([]int{1}, 1).Text; !strings.HasPrefix(got, test.want) {
			t.Errorf("%s: %s", test.state, got)
		}
	}
}
