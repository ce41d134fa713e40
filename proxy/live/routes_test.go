package live

import (
	"encoding/json"
	"testing"
	"time"

	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/replicate"
)

// TestRoutes checks the report about the routes to a pool, as rates over the time
// between two moments. Routes that only forward requests are not reported.
func TestRoutes(t *testing.T) {
	pool, other := &table.Pool{Name: "main", Servers: []table.Target{{Name: "a"}, {Name: "b"}, {Name: "c"}}}, &table.Pool{Name: "x", Servers: []table.Target{{Name: "a"}}}
	at := time.Unix(1e9, 0)
	var took stats.Histogram
	took.Observe(2e6)
	counts := func(at time.Time, n uint64) *Counts {
		var g stats.GuardSnapshot
		g.Events[stats.GuardLeaseGranted], g.Events[stats.GuardSaved], g.Events[stats.GuardStale], g.Events[stats.GuardGone] = n, 2*n, n, n
		if g.Waiting = 7; n > 0 {
			g.Rebuilt = took
		}
		var tags stats.TagSnapshot
		tags.Events[stats.TagHit], tags.Events[stats.TagBroken] = n, n
		c := &Counts{at: at, guards: map[string]stats.GuardSnapshot{"p:": g}, tags: map[string]stats.TagSnapshot{"p:": tags}, repairs: [3]uint64{n, 0, n},
			near: map[nearRoute]stats.NearCounts{{"main", "p:"}: {Hits: 3 * n, Asked: n, Age: 15e6 * n}, {"x", "p:"}: {Hits: n}}, kept: map[string][2]int64{"p:": {4096, 3}}}
		if n > 0 {
			c.voided = stats.InvalidationCounts{Taken: took, Bad: 1}
		}
		return c
	}
	tab := &table.Table{Listeners: []table.Listener{{Routes: []table.Route{
		{Prefix: "p:", Pool: pool, Guard: &table.GuardSettings{}, Tags: &table.TagSettings{}, Near: &table.NearSettings{}}, {Prefix: "c:", Pool: pool, Copies: replicate.Policy{Copies: 2}}, {Prefix: "o:", Pool: other},
	}}}}
	now := counts(at.Add(10*time.Second), 20)
	now.lacks = map[[2]string]stats.Lack{{"x", "a"}: {Filling: true}, {"main", "c"}: {Filling: true, Copied: 1234, Missed: 1, Waiting: 3}}
	b, err := json.Marshal(routesBetween(counts(at, 0), now, tab, pool))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"win":10,"guards":[{"route":"cDo=","leases":2,"stored":0,"saved":4,"old":2,"late":0,"refused":2,"waiting":7,"ever":60,"p50_ms":2.097,"p99_ms":2.097}],` +
		`"tags":[{"route":"cDo=","hits":2,"invalid":0,"late_sets":0,"broken":20,"known":0}],"near":[{"route":"cDo=","hits":6,"asked":2,"share":0.75,"age_ms":5,"bytes":4096,"values":3}],"invalidations":{"rate":0.1,"ever":1,"bad":1,"p99_ms":2.097},` +
		`"replicas":{"repaired":2,"dropped":0,"refilled":2},"lacks":[{"server":2,"text":"is empty until it is filled: 1234 keys copied to it so far; has missed writes of 1 key; 3 keys to be deleted there or copied to it",` +
		`"filling":true,"copied":1234,"missed":1,"waiting":3}]}`
	if string(b) != want {
		t.Errorf("told\n%s, want\n%s", b, want)
	}
	if is := routesBetween(now, now, tab, pool); is.Window != 0 || is.Guards[0].Leases != 0 || is.Guards[0].Ever != 60 {
		t.Errorf("without time between, told %+v", is)
	}
	if is := routesBetween(counts(at, 0), now, tab, other); is != nil {
		t.Errorf("of a pool without such routes, told %+v", is)
	}
}
