package live

import (
	"strings"
	"testing"
	"time"

	"ringside/proxy/health"
	"ringside/proxy/health/resize"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/ring"
)

func TestResizeSentences(t *testing.T) {
	old, both := resize.Lists{Mine: 1, Wish: 1, Warm: true}, resize.Lists{Mine: 1, Wish: 2, Warm: true}
	at := func(s resize.Stage) resize.State { return resize.State{N: 12 + uint32(s), List: 1, Next: 2} }
	stable := resize.State{N: 12, List: 1}
	work := stats.ResizeWork{By: "web-2/17", Server: "b", At: 2, Of: 3, Done: 41200, Left: 9980, Listed: true, Rate: 4990}
	third := resize.Lists{Mine: 1, Wish: 2, Later: 3, Warm: true}
	taken, workBack := resize.Lists{Mine: 1, Wish: 2, Later: 1, Warm: true}, work
	workBack.Server = "d"
	back := func(s resize.Stage) resize.State { return resize.State{N: 18 + uint32(s), List: 2, Next: 1} }
	var flush stats.ResizeWork
	flush.Of = 2
	phases := []stats.PhaseSnapshot{
		{Pool: "main", Target: table.Target{Name: "a"}, Phase: health.Out, Override: health.Drain},
		{Pool: "main", Target: table.Target{Name: "b"}, Phase: health.Warming},
		{Pool: "main", Target: table.Target{Name: "d", Address: "d:1"}, Phase: health.Out, Suspect: true, Why: "connection refused"},
		{Pool: "main", Target: table.Target{Name: "e", Network: "tcp", Address: "e:1"}, Phase: health.Out, Suspect: true, Why: "connection refused"},
	}
	for _, test := range []struct {
		name string
		is   stats.ResizeSnapshot
		want string // level and text; empty: no change is due
	}{
		{"none", stats.ResizeSnapshot{Status: resize.Status{State: stable, Lists: old}}, ""},
		{"not known yet", stats.ResizeSnapshot{Status: resize.Status{Lists: both}}, ""},
		{"uses its own list", stats.ResizeSnapshot{Status: resize.Status{State: resize.State{N: 12, List: 3}, Lists: resize.Lists{Mine: 1, Wish: 1, Warm: true, Own: true}}},
			"warn: This instance uses other servers than its peers, so reads can be old. Reload this instance with the file of its peers, or restart them with its file."},
		{"waits", stats.ResizeSnapshot{Status: resize.Status{State: stable, Lists: both}, Since: 25 * time.Second},
			"good: The servers change (new: d; removed: c) when all instances have the new configuration, so far for 25 s."},
		{"waits, and a third list was loaded", stats.ResizeSnapshot{Status: resize.Status{State: stable, Lists: third}, Since: 2 * time.Second},
			"good: The servers change (new: d and e; removed: b and c) when all instances have the new configuration, so far for 2 s."},
		{"prepares, and a third list was loaded", stats.ResizeSnapshot{Status: resize.Status{State: stable, Lists: third}, Ours: true, Work: work},
			"good: The servers change (new: d and e; removed: b and c) when all instances have the new configuration, so far for 0 s."},
		{"waits for a new server of a third list", stats.ResizeSnapshot{Status: resize.Status{State: stable, Lists: third}, Waits: "server e is OUT", For: table.Target{Name: "e", Network: "tcp", Address: "e:1"}},
			"warn: The servers change (new: d and e; removed: b and c) when all instances have the new configuration, so far for 0 s. It must wait: the new server e refuses connections. Start memcached there, or take the change back."},
		{"waits for a server", stats.ResizeSnapshot{Status: resize.Status{State: stable, Lists: both}, Since: 25 * time.Second, Waits: "server a is OUT"},
			"warn: The servers change (new: d; removed: c) when all instances have the new configuration, so far for 25 s. It must wait: server a is out. Start memcached there. If it is gone for good, remove it from the file, too."},
		{"waits for a new server that is dead", stats.ResizeSnapshot{Status: resize.Status{State: stable, Lists: both}, Waits: "server d is OUT", For: table.Target{Name: "d"}},
			"warn: The servers change (new: d; removed: c) when all instances have the new configuration, so far for 0 s. It must wait: the new server d refuses connections. Start memcached there, or take the change back."},
		{"waits for a server that is drained", stats.ResizeSnapshot{Status: resize.Status{State: stable, Lists: both}, Waits: "server a is OUT", For: table.Target{Name: "a"}},
			"warn: The servers change (new: d; removed: c) when all instances have the new configuration, so far for 0 s. It must wait: server a is drained by an operator. ringside server restore ends that."},
		{"waits for a server that rejoins", stats.ResizeSnapshot{Status: resize.Status{State: stable, Lists: both}, Waits: "server b is WARM", For: table.Target{Name: "b"}},
			"warn: The servers change (new: d; removed: c) when all instances have the new configuration, so far for 0 s. It must wait: server b is rejoining."},
		{"waits for a server without the crawler", stats.ResizeSnapshot{Status: resize.Status{State: stable, Lists: both}, Ours: true, Work: stats.ResizeWork{Why: "server d can't list its keys: CLIENT_ERROR lru crawler disabled"}},
			"warn: The servers change (new: d; removed: c). The servers that gain keys are listed first, and keys that will move there are removed. This instance does it. It must wait: server d can't list its keys: CLIENT_ERROR lru crawler disabled. Send it the command lru_crawler enable, or start memcached there without no_lru_crawler."},
		{"waits for an instance", stats.ResizeSnapshot{Status: resize.Status{State: stable, Lists: both}, Since: 80 * time.Second, Waits: "instance web-2/17 has another configuration"},
			"warn: The servers change (new: d; removed: c) when all instances have the new configuration, so far for 80 s. It must wait: instance web-2/17 has another configuration. Give all instances the same file, and reload them."},
		{"waits for an operator", stats.ResizeSnapshot{Status: resize.Status{State: stable, Lists: both}, Waits: "no server in use answers, and other instances may have another server list"},
			"warn: The servers change (new: d; removed: c) when all instances have the new configuration, so far for 0 s. It must wait: no server in use answers, and other instances may have another server list. Check the network. If the servers are dead, give all instances the same file, and use ringside reload --servers-dead on each."},
		{"can't flush", stats.ResizeSnapshot{Status: resize.Status{State: stable, Lists: resize.Lists{Mine: 1, Wish: 2}}, Work: flush, Waits: "server b has answered flush_all with \"ERROR\"", For: table.Target{Name: "b"}},
			"warn: The servers change (new: d; removed: c). The servers that gain keys are flushed first. It must wait: server b has answered flush_all with \"ERROR\". Check that memcached runs there."},
		{"can't flush a new server that is dead", stats.ResizeSnapshot{Status: resize.Status{State: stable, Lists: resize.Lists{Mine: 1, Wish: 2}}, Work: flush, Waits: "server d is down: a new connection fails: connection refused", For: table.Target{Name: "d", Network: "tcp", Address: "d:1"}},
			"warn: The servers change (new: d; removed: c). The servers that gain keys are flushed first. It must wait: the new server d refuses connections. Start memcached there, or take the change back."},
		{"removes old keys", stats.ResizeSnapshot{Status: resize.Status{State: stable, Lists: both}, Ours: true, Work: stats.ResizeWork{Server: "d", At: 1, Of: 1}},
			"good: The servers change (new: d; removed: c). The servers that gain keys are listed first, and keys that will move there are removed. 0 keys removed so far; d is being listed (1 of 1 servers). This instance does it."},
		{"lists for long", stats.ResizeSnapshot{Status: resize.Status{State: stable, Lists: both}, Ours: true, Work: stats.ResizeWork{Server: "d", At: 1, Of: 1, Listing: 40}},
			"good: The servers change (new: d; removed: c). The servers that gain keys are listed first, and keys that will move there are removed. 0 keys removed so far; d is being listed, so far for 40 s (1 of 1 servers). This instance does it."},
		{"announces a pause", stats.ResizeSnapshot{Status: resize.Status{State: resize.State{N: at(resize.Pause).N, List: at(resize.Pause).List, Next: at(resize.Pause).Next, Announced: true}, Lists: both}},
			"good: Keys are about to move (new: d; removed: c), when all instances know it."},
		{"announces a pause, and is taken back", stats.ResizeSnapshot{Status: resize.Status{State: resize.State{N: at(resize.Pause).N, List: at(resize.Pause).List, Next: at(resize.Pause).Next, Announced: true}, Lists: taken}},
			"good: Keys are about to move (new: d; removed: c), when all instances know it. This configuration reverses that: nothing moves if all instances have it."},
		{"announces a pause, and a third list waits", stats.ResizeSnapshot{Status: resize.Status{State: resize.State{N: at(resize.Pause).N, List: at(resize.Pause).List, Next: at(resize.Pause).Next, Announced: true}, Lists: third}},
			"good: Keys are about to move (new: d; removed: c), when all instances know it. This configuration has other servers (new: e; removed: b): if all instances have it, nothing moves before the change to these."},
		{"pauses", stats.ResizeSnapshot{Status: resize.Status{State: at(resize.Pause), Lists: both}},
			"good: Keys are about to move (new: d; removed: c). Writes of these keys wait until all instances know it."},
		{"moves", stats.ResizeSnapshot{Status: resize.Status{State: at(resize.Move), Lists: both}, Work: work},
			"good: Keys move to other servers (new: d; removed: c). 41,200 keys moved so far, 4,990/s; 9,980 left on b, about 2 s (2 of 3 servers). Instance web-2/17 does it. a is out: keys that did not move from there before are lost."},
		{"nothing is known", stats.ResizeSnapshot{Status: resize.Status{State: at(resize.Move), Lists: both}},
			"good: Keys move to other servers (new: d; removed: c). a is out: keys that did not move from there before are lost."},
		{"a server that the pool does not have", stats.ResizeSnapshot{Status: resize.Status{State: at(resize.Move), Lists: both}, Work: stats.ResizeWork{By: "a\x1b", Server: "evil", Rejected: 3}},
			"good: Keys move to other servers (new: d; removed: c). 3 are lost: their new server has rejected them, or was out for a minute, or their old server is out. Instance a\\x1b does it. a is out: keys that did not move from there before are lost."},
		{"moves, but a server is out", stats.ResizeSnapshot{Status: resize.Status{State: at(resize.Move), Lists: both}, Ours: true, Work: stats.ResizeWork{Why: "server b is not in use"}},
			"warn: Keys move to other servers (new: d; removed: c). This instance does it. a is out: keys that did not move from there before are lost. It must wait: server b is not in use."},
		{"moves, but most servers are silent", stats.ResizeSnapshot{Status: resize.Status{State: at(resize.Move), Lists: both}, Waits: "most servers in use do not answer, so this instance may be cut off"},
			"warn: Keys move to other servers (new: d; removed: c). a is out: keys that did not move from there before are lost. It must wait: most servers in use do not answer, so this instance may be cut off. Check the network and the servers. If servers are gone for good, remove them from all files."},
		{"looks again", stats.ResizeSnapshot{Status: resize.Status{State: at(resize.Settle), Lists: both}},
			"good: Keys have moved to other servers (new: d; removed: c). The old servers are listed once more. a is out: keys that did not move from there before are lost."},
		{"ends", stats.ResizeSnapshot{Status: resize.Status{State: at(resize.Cool), Lists: both}},
			"good: Keys have moved to other servers (new: d; removed: c). The change ends within seconds. a is out: keys that did not move from there before are lost."},
		{"moves, and is taken back", stats.ResizeSnapshot{Status: resize.Status{State: at(resize.Move), Lists: taken}, Waits: "instance web-2/17 has another configuration"},
			"warn: Keys move to other servers (new: d; removed: c). This configuration reverses that: the keys move back when all instances have it. a is out: keys that did not move from there before are lost. It must wait: instance web-2/17 has another configuration. Give all instances the same file, and reload them."},
		{"has moved, and is taken back", stats.ResizeSnapshot{Status: resize.Status{State: at(resize.Settle), Lists: taken}},
			"good: Keys have moved to other servers (new: d; removed: c). The old servers are listed once more. This configuration reverses that: the keys move back when all instances have it. a is out: keys that did not move from there before are lost."},
		{"ends, and is taken back", stats.ResizeSnapshot{Status: resize.Status{State: at(resize.Cool), Lists: taken}},
			"good: Keys have moved to other servers (new: d; removed: c). The change ends within seconds. This configuration reverses that: when the change has ended, the keys move back in a further change. a is out: keys that did not move from there before are lost."},
		{"flushes, and is taken back", stats.ResizeSnapshot{Status: resize.Status{State: at(resize.Clear), Lists: taken}},
			"good: Keys move to other servers (new: d; removed: c). For a moment, they miss, and their writes wait. This configuration reverses that: when the change has ended, the keys move back in a further change."},
		{"pauses, and is taken back", stats.ResizeSnapshot{Status: resize.Status{State: at(resize.Pause), Lists: taken}},
			"good: Keys are about to move (new: d; removed: c). Writes of these keys wait until all instances know it. This configuration reverses that: the keys move back when all instances have it."},
		{"moves, and a third list waits", stats.ResizeSnapshot{Status: resize.Status{State: at(resize.Move), Lists: third}, Work: work},
			"good: Keys move to other servers (new: d; removed: c). 41,200 keys moved so far, 4,990/s; 9,980 left on b, about 2 s (2 of 3 servers). Instance web-2/17 does it. This configuration has other servers (new: e; removed: b): a further change follows when this one has ended, and all instances have it. a is out: keys that did not move from there before are lost."},
		{"moves, a third list waits, and a new server is out", stats.ResizeSnapshot{Status: resize.Status{State: at(resize.Move), Lists: third, Retreats: true}, Work: stats.ResizeWork{Why: "server d, to which keys move, is out"}},
			"good: Keys move to other servers (new: d; removed: c). This configuration has other servers (new: e; removed: b): when all instances have it, the keys move back first, because a new server is out, and a further change follows. a is out: keys that did not move from there before are lost."},
		{"moves back, and a third list waits", stats.ResizeSnapshot{Status: resize.Status{State: back(resize.Move), Lists: third}, Work: workBack},
			"good: Keys move back (new: c; removed: d). 41,200 keys moved so far, 4,990/s; 9,980 left on d, about 2 s (2 of 3 servers). Instance web-2/17 does it. This configuration has other servers (new: d and e; removed: b and c): a further change follows when this one has ended, and all instances have it. a and d are out: keys that did not move from there before are lost."},
		{"pauses before keys move back", stats.ResizeSnapshot{Status: resize.Status{State: back(resize.Pause), Lists: taken, Turns: true}},
			"good: Keys are about to move back (new: c; removed: d). Writes of these keys wait until all instances know it."},
		{"moves back", stats.ResizeSnapshot{Status: resize.Status{State: back(resize.Move), Lists: taken}, Work: workBack},
			"good: Keys move back (new: c; removed: d). 41,200 keys moved so far, 4,990/s; 9,980 left on d, about 2 s (2 of 3 servers). Instance web-2/17 does it. a and d are out: keys that did not move from there before are lost."},
		{"looks again after keys moved back", stats.ResizeSnapshot{Status: resize.Status{State: back(resize.Settle), Lists: taken}},
			"good: Keys have moved back (new: c; removed: d). The old servers are listed once more. a and d are out: keys that did not move from there before are lost."},
		{"clears", stats.ResizeSnapshot{Status: resize.Status{State: at(resize.Clear), Lists: resize.Lists{Mine: 1, Wish: 2}}},
			"good: Keys move to other servers (new: d; removed: c). For a moment, they miss, and their writes wait."},
		{"has another list", stats.ResizeSnapshot{Status: resize.Status{State: resize.State{N: 12, List: 7}, Lists: old}},
			"bad: This instance serves no keys of the pool: reads miss (or fail, with get_errors: error), and writes fail. The server list of this instance is not that of its peers. Give all instances the same configuration, and reload them."},
		{"was started during a change", stats.ResizeSnapshot{Status: resize.Status{State: at(resize.Move), Lists: resize.Lists{Mine: 2, Wish: 2}}},
			"bad: This instance serves no keys of the pool: reads miss (or fail, with get_errors: error), and writes fail. The peers of this instance are changing their servers, and it does not know both server lists. Wait until the change has ended."},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := poolOf(table.Rehash)
			p.Next = &table.List{Servers: append(p.Servers[:2:2], table.Target{Name: "d", Network: "tcp", Address: "d:1"})}
			if test.is.Lists == third {
				p.Later = &table.List{Servers: []table.Target{p.Servers[0], p.Next.Servers[2], {Name: "e", Network: "tcp", Address: "e:1"}}}
			}
			got, h := "", Health{Level: Good}
			if is := ResizeOf(&stats.Snapshot{Phases: phases, Resizes: map[string]*stats.ResizeSnapshot{"main": &test.is}}, p); is != nil {
				got = is.Level + ": " + is.Text
				is.show(&h)
				if h.Level != is.Level || strings.Contains(is.Sentence(), "\n") {
					t.Errorf("the pool is %q, and the change %q", h.Level, is.Level)
				}
			}
			if got != test.want {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}

// TestResizeLearned checks that an instance which serves by the list of its peers, and not by its file, says so.
func TestResizeLearned(t *testing.T) {
	p := poolOf(table.Rehash)
	p.Next, p.Learned = &table.List{Servers: p.Servers[1:]}, true
	sum := &stats.Snapshot{Resizes: map[string]*stats.ResizeSnapshot{"main": {Status: resize.Status{State: resize.State{N: 12, List: 1}, Lists: resize.Lists{Mine: 1, Wish: 2, Warm: true}}}}}
	is := ResizeOf(sum, p)
	if !is.Learned || is.Level != Good || !strings.HasSuffix(is.Text, "It has read their list from the servers, and serves by it.") {
		t.Errorf("%+v", is)
	}
	sum.Resizes["main"].State = resize.State{N: 12 + uint32(resize.Move), List: 1, Next: 2}
	if is := ResizeOf(sum, p); !is.Learned || is.Text != "Keys move to other servers (removed: a)." {
		t.Errorf("while keys move: %+v", is)
	}
}

// TestResizeWaitsForOldServer checks the remedy if a change waits for an old server: it may be gone for good.
func TestResizeWaitsForOldServer(t *testing.T) {
	p := poolOf(table.Rehash)
	p.Next = &table.List{Servers: append(p.Servers[:3:3], table.Target{Name: "d", Network: "tcp", Address: "d:1"})}
	sum := &stats.Snapshot{Phases: []stats.PhaseSnapshot{{Pool: "main", Target: p.Servers[1], Phase: health.Out, Suspect: true, Why: "connection refused"}}}
	is := &stats.ResizeSnapshot{Status: resize.Status{State: resize.State{N: 12, List: 1}, Lists: resize.Lists{Mine: 1, Wish: 2, Warm: true}}, For: table.Target{Name: "b"}, Waits: "server b is OUT"}
	why, remedy := waitsFor(sum, p, is)
	if want := "server b refuses connections. Start memcached there. If it is gone for good, remove it from the file, too"; why+". "+remedy != want {
		t.Errorf("got %q, want %q", why+". "+remedy, want)
	}
}

// TestResizeHealth checks that the state of the pool shows a change that can't go on, and a new server that
// owns keys and does not serve.
func TestResizeHealth(t *testing.T) {
	p := poolOf(table.Rehash)
	p.Next = &table.List{Servers: append(p.Servers[:3:3], table.Target{Name: "d", Network: "tcp", Address: "d:1"}), Place: ring.Placement{Ring: ring.NewJump([]int{0, 1, 2, 3})}}
	both := resize.Lists{Mine: 1, Wish: 2, Warm: true}
	dead := stats.PhaseSnapshot{Pool: "main", Target: p.Next.Servers[3], Phase: health.Out, Suspect: true, Why: "connection refused", Since: 19 * time.Second, InPhase: 19 * time.Second}
	suspect := dead
	suspect.Phase = health.In
	live := suspect // as in mode fail_fast, in which suspicions have no effect on requests
	live.Suspect, live.Why = false, ""
	for _, test := range []struct {
		name  string
		state resize.State
		phase stats.PhaseSnapshot
		old   string // state of server a
		want  Health
	}{
		{"can't begin", resize.State{N: 12, List: 1}, dead, Up, Health{Warn, "The change of servers must wait",
			"The new server d refuses connections. 3 servers are ready. No client is connected."}},
		{"can't begin in fail_fast", resize.State{N: 12, List: 1}, live, Up, Health{Warn, "The change of servers must wait",
			"The new server d refuses connections. 3 servers are ready. No client is connected."}},
		{"can't begin, and an old server is away", resize.State{N: 12, List: 1}, dead, Down, Health{Bad, "a refuses connections",
			"Start memcached there: Ringside does the rest. Connection refused, for 19 s. 33.3 % of the keys miss, and writes to them fail, until it answers or others take over. " +
				"The change of servers must wait: the new server d refuses connections."}},
		{"has just started", resize.State{}, dead, Up, Health{Bad, "It is not known yet which server list is in force",
			"Until most servers have answered, this instance serves no keys of the pool."}},
		{"moves", resize.State{N: 14, List: 1, Next: 2}, dead, Up, Health{Bad, "d is out",
			"Start memcached there: Ringside does the rest. Connection refused, 19 s ago. Its 25.0 % of the keys are on the next servers of the pool until it is back; then it starts empty. d is new and has keys already: the servers change."}},
		{"moves, and it is suspect", resize.State{N: 14, List: 1, Next: 2}, suspect, Up, Health{Bad, "d refuses connections",
			"Start memcached there: Ringside does the rest. Connection refused, for 19 s. 25.0 % of the keys miss, and writes to them fail, until it answers or others take over. d is new and has keys already: the servers change."}},
		{"moves, and an old server is away", resize.State{N: 14, List: 1, Next: 2}, dead, Down, Health{Bad, "a refuses connections",
			"Start memcached there: Ringside does the rest. Connection refused, for 19 s. 33.3 % of the keys miss, and writes to them fail, until it answers or others take over. d, which is new and has keys already, does not serve either."}},
	} {
		is := &stats.ResizeSnapshot{Status: resize.Status{State: test.state, Lists: both}, For: table.Target{Name: "d"}, Waits: "server d is OUT"}
		if !test.phase.Suspect {
			is.Waits = "server d is down: connection refused"
		}
		if is.Stage() != resize.Stable {
			is.Waits = ""
		}
		s := &Sample{At: time.UnixMilli(100_000), Table: &table.Table{Pools: []*table.Pool{p}},
			Sum: &stats.Snapshot{Phases: []stats.PhaseSnapshot{test.phase}, Resizes: map[string]*stats.ResizeSnapshot{"main": is}}}
		for _, m := range shown(p) {
			s.Servers = append(s.Servers, ServerState{Pool: "main", Server: m.Name, State: Up, Since: time.UnixMilli(81_000)})
		}
		s.Servers[0].State = test.old
		if test.old != Up {
			s.Servers[0].Why = "connection refused"
		}
		if got := tickBetween(s, s, "main"); got.Health != test.want {
			t.Errorf("%s:\n got %+v\nwant %+v", test.name, got.Health, test.want)
		}
	}
}
