package live

import (
	"log/slog"
	"testing"
	"time"

	"ringside/proxy"
	"ringside/proxy/health/resize"
	"ringside/proxy/stats"
	"ringside/proxy/table"
)

// TestJoiningServerHasRow checks that a server that only the next list has, and one of a list that waits, are the last rows of
// their pool in all views, that the real state is shown if that is a problem, and that they do not count as servers of the pool.
func TestJoiningServerHasRow(t *testing.T) {
	lists := resize.Lists{Mine: 1, Wish: 2, Warm: true}
	for _, test := range []struct {
		name       string
		is         resize.State
		down       bool
		waits      string
		state, why string
	}{
		{"waits", resize.State{N: 12, List: 1}, false, "", Joins, "new, not used yet"},
		{"waits, and is down", resize.State{N: 12, List: 1}, true, "", Down, "connection refused"},
		{"waits, and can't be flushed", resize.State{N: 12, List: 1}, false, "server d is down: connection refused", Down, "connection refused"},
		{"moves", resize.State{N: 12 + uint32(resize.Move), List: 1, Next: 2}, false, "", Joins, "new, keys move to it"},
		{"moves back", resize.State{N: 18 + uint32(resize.Move), List: 2, Next: 1}, false, "", Joins, "its keys move back"},
	} {
		t.Run(test.name, func(t *testing.T) {
			first, second := poolOf(table.FailFast), poolOf(table.FailFast)
			second.Name = "second"
			joins := table.Target{Name: "d", Network: "tcp", Address: "d:1"}
			first.Next = &table.List{Servers: append(first.Servers[:3:3], joins)}
			first.Later = &table.List{Servers: []table.Target{first.Servers[0], joins, {Name: "a", Network: "tcp", Address: "e:1"}}}
			p := proxy.NewProxy(&table.Table{Pools: []*table.Pool{first, second}}, "", slog.New(slog.DiscardHandler))
			sum := &stats.Snapshot{Servers: map[string]*stats.ServerSnapshot{}, Resizes: map[string]*stats.ResizeSnapshot{"main": {Status: resize.Status{State: test.is, Lists: lists}, Waits: test.waits, For: joins}}}
			if test.down {
				sum.Servers["tcp d:1"] = &stats.ServerSnapshot{Down: 1, Why: test.why}
			}
			list := States(p, sum)
			if len(list) != 8 || list[4].State != Joins || list[4].Address != "e:1" || list[4].Why != "new, not used yet" || list[3].Server != "d" || !list[3].Joins || list[3].State != test.state || list[3].Why != test.why || list[2].Joins || list[5].Pool != "second" {
				t.Fatalf("the rows are %+v", list)
			}
			now := &Sample{At: time.Now(), Sum: sum, Table: p.Table(), Servers: list}
			ticks := ticksBetween(now, now)
			if s := ticks[0].S.State; len(s) != 5 || s[3] != test.state || s[4] != Joins || len(ticks[1].S.State) != 3 {
				t.Errorf("the columns are %q and %q", s, ticks[1].S.State)
			}
			if topo := topoOf(p.Table(), first, 1); len(topo.Servers) != 5 || !topo.Servers[4].Joins || !topo.Servers[3].Joins || topo.Servers[3].Share != 0 {
				t.Errorf("the pool has %+v", topo.Servers)
			}
		})
	}
}
