package live

import (
	"strings"
	"testing"
	"time"

	"ringside/proxy/stats"
	"ringside/proxy/table"
)

func TestFillingInHealth(t *testing.T) {
	far := &table.Pool{Name: "far", Servers: []table.Target{{Name: "x", Network: "tcp", Address: "10.0.0.9:1"}, {Name: "y", Network: "tcp", Address: "10.0.0.8:1"}}}
	pool := &table.Pool{Name: "main", Fill: &table.Fill{From: far, Rate: 100}}
	const effect = " Keys that the pool lacks miss, and commands that need their values fail. Keys that it has are not affected. All is well. Clients are served."
	for _, test := range []struct {
		name string
		is   stats.FillCounters
		down []string // addresses
		want string   // level, title and text
	}{
		{"serves", stats.FillCounters{Hits: 60, Misses: 40, Copied: 50}, nil, "good: All is well. Clients are served. Pool main fills from pool far: 100 reads/s there, 60 hits/s, 50 copies/s."},
		{"is limited", stats.FillCounters{Hits: 60, Limited: 7}, nil,
			"good: All is well. Clients are served. Pool main fills from pool far: 60 reads/s there, 60 hits/s, 0 copies/s. 7 more reads/s miss because of fill_from.rate."},
		{"one is down", stats.FillCounters{Hits: 5, Failed: 5}, []string{"tcp 10.0.0.9:1"},
			"warn: The pool fills from pool far, where x refuses connections. Start memcached there (10.0.0.9:1). To go on without it, set fill_from.rate to 0." + effect},
		{"all are down", stats.FillCounters{}, []string{"tcp 10.0.0.9:1", "tcp 10.0.0.8:1"},
			"warn: The pool fills from pool far, where x and y are down. Start memcached there (10.0.0.9:1). To go on without it, set fill_from.rate to 0." + effect},
		{"some reads fail", stats.FillCounters{Hits: 5, Failed: 15}, nil,
			"warn: The pool fills from pool far, where 15 of 20 reads/s fail. Check the load of its servers, and whether they can be reached from here." + effect},
	} {
		before := &Sample{At: time.Unix(1000, 0), Sum: &stats.Snapshot{}}
		after := &Sample{At: time.Unix(1001, 0), Sum: &stats.Snapshot{Fills: map[string]*stats.FillCounters{"main": &test.is}}}
		after.Sum.Servers = map[string]*stats.ServerSnapshot{}
		for _, at := range test.down {
			after.Sum.Servers[at] = &stats.ServerSnapshot{Down: 1, Why: "connection refused"}
		}
		h := Health{Level: Good, Title: "All is well", Text: "Clients are served."}
		fillingOf(before, after, pool).show(&h)
		if got := h.Level + ": " + h.Title + ". " + h.Text; got != test.want {
			t.Errorf("%s:\n%s, not\n%s", test.name, got, test.want)
		}
	}
	// The views also show it if there are several pools and all are healthy.
	pool.Servers = []table.Target{{Name: "a"}}
	now := &Sample{At: time.Unix(1001, 0), Sum: &stats.Snapshot{}, Routes: &Counts{}, Servers: []ServerState{{State: Up}, {State: Up}},
		Table: &table.Table{Pools: []*table.Pool{pool, {Name: "other", Servers: []table.Target{{Name: "b"}}}}}}
	if h := ticksBetween(now, now)[0].Health; h.Level != Good || !strings.Contains(h.Text, "Pool main fills from pool far: 0 reads/s there") {
		t.Error(h)
	}
	pool.Fill.Rate = 0
	if fillingOf(nil, nil, pool) != nil {
		t.Error("a source that is not read is shown")
	}
}
