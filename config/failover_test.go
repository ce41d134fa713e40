package config

// Tests of failover and replication settings: defaults, presets, and what is built from them.

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"ringside/proxy/health"
	"ringside/proxy/table"
	"ringside/replicate"
	"ringside/ring/ringtest"
)

func readTable(t *testing.T, text string) (*File, *table.Table) {
	t.Helper()
	f := parse(t, text)
	built, err := f.Build()
	if err != nil {
		t.Fatal(err)
	}
	return f, built
}

func TestUsualMode(t *testing.T) {
	for _, c := range []struct {
		distribution string
		servers      int
		want         table.Mode
	}{
		{"ketama-points", 3, table.Rehash},
		{"ketama-points", 2, table.FailFast},
		{"jump", 4, table.Rehash},
		{"modulo-crc32", 3, table.Rehash},
		{"modulo-crc32", 1, table.FailFast},
		{"ketama", 5, table.FailFast},
		{"twemproxy", 5, table.FailFast},
		{"gomemcache", 5, table.FailFast},
		{"mcrouter", 5, table.FailFast},
		{"modulo-perl-fast", 5, table.FailFast},
		{"dalli", 3, table.FailFast},
	} {
		servers := make([]string, c.servers)
		for i := range servers {
			servers[i] = fmt.Sprintf("cache-%d", i)
		}
		_, built := readTable(t, fmt.Sprintf("listen: :1\npools: {main: {distribution: %s, servers: [%s]}}", c.distribution, strings.Join(servers, ", ")))
		if got := built.Pools[0].Failover.Mode; got != c.want {
			t.Errorf("%s of %d: %s, want %s", c.distribution, c.servers, got, c.want)
		}
	}
}

// TestUsualModeOfClients checks that the default mode is fail_fast for every distribution of an
// existing client, whatever that client does. A flush would remove data of its other users.
func TestUsualModeOfClients(t *testing.T) {
	rehash := map[string]bool{"ketama-points": true, "jump": true, "modulo-crc32": true}
	for _, p := range Presets() {
		if p.needs != "" {
			continue // the option hash is required
		}
		f := parse(t, "listen: :1\npools: {main: {distribution: "+p.Name+", servers: [127.0.0.1, 127.0.0.2, 127.0.0.3]}}")
		want, says := table.FailFast, "serves what it had"
		if rehash[p.Name] {
			want, says = table.Rehash, "is flushed before it serves again"
		}
		if got := f.Pools[0].Failover.Mode; got != want || !strings.Contains(f.AtReturn("main"), says) {
			t.Errorf("%s: %s, %s; want %s", p.Name, got, f.AtReturn("main"), want)
		}
	}
	f := parse(t, "listen: :1\npools: {main: {distribution: dalli, servers: [a, b, c]}}\nroutes: [{pool: main, replicas: 2}]")
	if got := f.AtReturn("main"); !strings.Contains(got, "is flushed") {
		t.Errorf("copies: %s", got)
	}
	f = parse(t, `
listen: :1
pools:
  main: {distribution: dalli, servers: [a, b, c], failover: {mode: gutter, gutter: spare}}
  spare: {distribution: dalli, servers: [d, e]}
  alone: {distribution: dalli, servers: [f, g]}
routes: [{pool: main}]
`)
	for pool, want := range map[string]string{
		"main": "a server that returns is flushed before it serves again", "alone": "a server that returns serves what it had: nothing of it is flushed",
		"spare": "a server that returns is flushed before it serves again, because pool main uses it too and ejects it",
	} {
		if got := f.AtReturn(pool); got != want {
			t.Errorf("%s: %s; want %s", pool, got, want)
		}
	}
}

// TestSharedServers checks that two pools cannot share a server that one of them ejects. Their
// failover would run independently, so one could flush data that the other has just stored.
func TestSharedServers(t *testing.T) {
	const rehash, failFast = "failover: {mode: rehash}", "failover: {mode: fail_fast}"
	pool := func(name, failover, servers string) string {
		return "  " + name + ": {distribution: ketama, servers: [" + servers + "], " + failover + "}\n"
	}
	for _, test := range []struct {
		name, pools, routes string
		want                string // part of the only error; empty: no error
	}{
		{"both fail fast", pool("p", failFast, "a, b, c") + pool("q", failFast, "a, b, c"), "{pool: p}", ""},
		{"one ejects", pool("p", failFast, "a, b, c") + pool("q", rehash, "c, d, e"), "{pool: p}", "pools.p and pools.q share the server c:11211, and q ejects it"},
		{"the other order", pool("p", rehash, "a, b, c") + pool("q", failFast, "c, d, e"), "{pool: p}", "pools.q and pools.p share the server c:11211, and p ejects it"},
		{"both eject", pool("p", rehash, "a, b, c") + pool("q", rehash, "a, b, c"), "{pool: p}", "pools.p and pools.q share the server a:11211, and q ejects it"},
		{"copies in one", pool("p", failFast, "a, b, c") + pool("q", failFast, "a, b, c"), "{prefix: x, pool: q, replicas: 2}, {pool: p}", "pools.p and pools.q share the server a:11211, and q ejects it"},
		{"by another spelling", pool("p", failFast, "a, b, c") + pool("q", rehash, "d, e, \"c:11211\""), "{pool: p}", "share the server c:11211, and q ejects it"},
		{"its gutter", pool("p", "failover: {mode: gutter, gutter: q}", "a, b, c") + pool("q", failFast, "d, e"), "{pool: p}", ""},
		{"a gutter of another", pool("p", "failover: {mode: gutter, gutter: q}", "a, b, c") + pool("q", failFast, "d, e") + pool("r", failFast, "e, f"), "{pool: p}",
			"pools.r and pools.p share the server e:11211, and p ejects it"},
		{"no server", pool("p", rehash, "a, b, c") + pool("q", rehash, "d, e, f"), "{pool: p}", ""},
	} {
		_, err := Parse("f.yaml", []byte("listen: :1\npools:\n"+test.pools+"routes: ["+test.routes+"]\n"))
		if text := fmt.Sprint(err); (err == nil) != (test.want == "") || test.want != "" && (!strings.Contains(text, test.want) || strings.Count(text, "share the server") != 1) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
}

// TestUsualModeCountsAddresses checks that three names of one address count as one server.
func TestUsualModeCountsAddresses(t *testing.T) {
	_, built := readTable(t, "listen: :1\npools: {main: {distribution: jump, servers: [{address: a, name: x}, {address: a, name: y}, {address: a, name: z}]}}")
	if got := built.Pools[0].Failover.Mode; got != table.FailFast {
		t.Errorf("%s", got)
	}
}

func TestFailoverIsRead(t *testing.T) {
	_, built := readTable(t, `
listen: :1
defaults: {failover: {mode: rehash, eject_after: 5s, lease: 4s}, timeouts: {request: 700ms}}
pools:
  main:
    distribution: ketama
    servers: [a, b, c]
    failover: {mode: gutter, gutter: spare, consistency: strict, after_failures: 5, ping: 1s, on_rejoin: warm, substitute_ttl: 2m}
  spare: {distribution: jump, servers: [d, e], failover: {on_rejoin: warm}}
`)
	main, spare := built.Pools[0], built.Pools[1]
	want := table.Failover{Mode: table.Gutter, Gutter: spare, SubstituteTTL: 2 * time.Minute, Wait: 2 * time.Second, Settings: health.Settings{
		Strict: true, AfterFailures: 5, EjectAfter: health.EjectAfter{Refused: 5 * time.Second, Silent: 5 * time.Second, Restart: 5 * time.Second}, Ping: time.Second, Lease: 4 * time.Second,
		Request: 700 * time.Millisecond, OnRejoin: health.Warm,
	}}
	if !reflect.DeepEqual(main.Failover, want) {
		t.Errorf("got  %+v\nwant %+v", main.Failover, want)
	}
	want = table.Failover{Mode: table.Rehash, SubstituteTTL: 10 * time.Minute, Settings: health.Settings{
		AfterFailures: 3, EjectAfter: health.EjectAfter{Refused: 5 * time.Second, Silent: 5 * time.Second, Restart: 5 * time.Second}, Ping: 500 * time.Millisecond, Lease: 4 * time.Second,
		Request: 700 * time.Millisecond, OnRejoin: health.Warm,
	}}
	if !reflect.DeepEqual(spare.Failover, want) {
		t.Errorf("got  %+v\nwant %+v", spare.Failover, want)
	}
	// Routes are optional, because the second pool is only a gutter.
	if r := built.Listeners[0].Routes; len(r) != 1 || r[0].Pool != main {
		t.Errorf("got routes %+v", r)
	}
}

// TestWritesWait checks the default of failover.wait: writes wait if the pool is strict or a
// route has preset: sessions, or if the file sets it.
func TestWritesWait(t *testing.T) {
	for _, c := range []struct {
		pool, routes string
		want         time.Duration
	}{
		{"", "", 0},
		{"failover: {consistency: strict}, timeouts: {deadline: 3s}", "", 3 * time.Second},
		{"failover: {consistency: strict, wait: off}", "", 0},
		{"failover: {wait: 500ms}", "", 500 * time.Millisecond},
		{"failover: {consistency: relaxed}", "routes: [{pool: main, preset: sessions}]", 4500 * time.Millisecond},
	} {
		_, built := readTable(t, fmt.Sprintf("listen: :1\npools: {main: {distribution: jump, servers: [a, b, c], %s}}\n%s", c.pool, c.routes))
		if got := built.Pools[0].Failover.Wait; got != c.want {
			t.Errorf("%s %s: waits %v, want %v", c.pool, c.routes, got, c.want)
		}
	}
}

// TestWithout checks that Without returns the rebuilt ring if the client of the preset rebuilds
// its ring, and that it is nil for other presets.
func TestWithout(t *testing.T) {
	for _, c := range []struct {
		distribution string
		rebuilds     bool
	}{{"ketama", true}, {"twemproxy", true}, {"modulo-twemproxy", true}, {"ketama-points", false}, {"jump", false}, {"mcrouter", false}, {"dalli", false}} {
		f, built := readTable(t, fmt.Sprintf("listen: :1\npools: {main: {distribution: %s, servers: [a, b, c, d], failover: {mode: rehash}}}", c.distribution))
		p := built.Pools[0]
		if (p.Without != nil) != c.rebuilds {
			t.Errorf("%s: rebuilds is %v", c.distribution, p.Without != nil)
			continue
		}
		if !c.rebuilds {
			continue
		}
		servers := f.Pools[0].placementServers()
		for _, out := range [][]bool{{false, false, false, false}, {true, false, false, false}, {false, true, true, false}, {true, true, true, true}, {true, false, false, false}} {
			want, err := BuildPlacementWithout(c.distribution, servers, PlacementOptions{}, out)
			if err != nil {
				t.Fatal(err)
			}
			got, err := p.Without(out)
			if err != nil {
				t.Fatal(err)
			}
			for _, key := range ringtest.Keys(500) {
				_, h, owner := want.Locate(key)
				if at := got.At(key, h, 0); at != owner || at >= 0 && out[at] {
					t.Fatalf("%s without %v: key %s at %d, want %d", c.distribution, out, key, at, owner)
				}
			}
		}
		if _, err := p.Without([]bool{true}); err == nil {
			t.Errorf("%s: one mark for four servers is taken", c.distribution)
		}
	}
	_, built := readTable(t, "listen: :1\npools: {main: {distribution: ketama, servers: [a, b, c]}}")
	if built.Pools[0].Without != nil {
		t.Error("a pool that moves no keys has a ring without servers")
	}
}

// TestWithoutIsBounded checks that many different outages do not cache many rings.
func TestWithoutIsBounded(t *testing.T) {
	_, built := readTable(t, "listen: :1\npools: {main: {distribution: modulo-twemproxy, servers: [a, b, c, d, e, f, g, h, i, j], failover: {mode: rehash}}}")
	for set := range 1 << 10 {
		out := make([]bool, 10)
		for i := range out {
			out[i] = set>>i&1 == 1
		}
		r, err := built.Pools[0].Without(out)
		if err != nil {
			t.Fatal(err)
		}
		if at := r.At(nil, 12345, 0); at < 0 != (set == 1<<10-1) || at >= 0 && out[at] {
			t.Fatalf("without %v: %d", out, at)
		}
	}
}

func TestPresetSessions(t *testing.T) {
	policy := replicate.Policy{Copies: 2, ReadThrough: true, RepairRate: 1000}
	for _, c := range []struct {
		name, pool, route string
		strict            bool
		ping, lease       time.Duration
		policy            replicate.Policy
		errors            bool
		why               string
	}{
		{"three servers", "servers: [a, b, c]", "", true, 250 * time.Millisecond, time.Second, policy, true, "by preset sessions, with 3 view servers"},
		{"two servers", "servers: [a, b]", "", false, 250 * time.Millisecond, time.Second, policy, true, "preset sessions is strict from three view servers on; here: 2"},
		{"two servers and a gutter", "servers: [a, b], failover: {mode: gutter, gutter: spare}", "", true, 250 * time.Millisecond, time.Second, policy, true, "by preset sessions, with 3 view servers"},
		{"the pool says otherwise", "servers: [a, b, c], failover: {consistency: relaxed, ping: 300ms, lease: 3s}", "", false, 300 * time.Millisecond, 3 * time.Second, policy, true, "as the file says"},
		{"strict with two", "servers: [a, b], failover: {consistency: strict}", "", true, 250 * time.Millisecond, time.Second, policy, true, "as the file says; below three view servers it holds for one fault at a time"},
		{"the route says otherwise", "servers: [a, b, c]", ", replicas: 3, read: spread, repair: off, get_errors: miss, ack: quorum, read_through: no, replicas_on: server",
			true, 250 * time.Millisecond, time.Second,
			replicate.Policy{Copies: 3, Read: replicate.Spread, Ack: replicate.AckQuorum, Apart: replicate.Servers}, false, "by preset sessions, with 3 view servers"},
	} {
		// The preset overrides defaults, whatever the order in the file.
		f, built := readTable(t, fmt.Sprintf(`
listen: :1
routes: [{prefix: "sess:", pool: main, preset: sessions%s}, {pool: main}]
pools:
  main: {distribution: ketama, %s}
  spare: {distribution: ketama, servers: [x]}
defaults: {get_errors: miss, failover: {lease: 2500ms, consistency: relaxed}}
`, c.route, c.pool))
		r := built.Listeners[0].Routes
		if r[0].Copies != c.policy || r[0].GetErrors == nil || *r[0].GetErrors != c.errors {
			t.Errorf("%s: got %+v", c.name, r[0])
		}
		if r[1].Copies != (replicate.Policy{}) || r[1].GetErrors != nil {
			t.Errorf("%s: the other route has %+v", c.name, r[1])
		}
		if got := r[0].Pool.Failover; got.Strict != c.strict || got.Ping != c.ping || got.Lease != c.lease || got.EjectAfter != (health.EjectAfter{Refused: 50 * time.Millisecond, Silent: 50 * time.Millisecond, Restart: 3 * time.Second}) {
			t.Errorf("%s: got %+v", c.name, got)
		}
		if got := f.Pools[0].Failover.WhyConsistency; got != c.why {
			t.Errorf("%s: %s, want %s", c.name, got, c.why)
		}
	}
}

// TestPresetSessionsKeepsStrict checks that the preset keeps consistency: strict of defaults.
func TestPresetSessionsKeepsStrict(t *testing.T) {
	f := parse(t, "listen: :1\ndefaults: {failover: {consistency: strict}}\npools: {main: {distribution: ketama, servers: [a, b]}}\nroutes: [{pool: main, preset: sessions}]")
	if got := f.Pools[0].Failover; !got.Strict || !strings.HasPrefix(got.WhyConsistency, "as the file says") {
		t.Errorf("got %+v", got)
	}
}

// TestStrictNeedsAgreement checks that consistency: strict of defaults does not apply to pools without a keeper. Commands on
// their keys would wait for leases that no such pool has.
func TestStrictNeedsAgreement(t *testing.T) {
	_, built := readTable(t, `
listen: :1
defaults: {failover: {consistency: strict}}
pools:
  main: {distribution: ketama, failover: {mode: fail_fast}, fill_from: former, servers: [a, b]}
  former: {distribution: ketama, servers: [c]}
  plain: {distribution: ketama, failover: {mode: fail_fast}, servers: [d, e]}
  resized: {distribution: ketama, failover: {mode: fail_fast}, resize: {mode: warm}, servers: [f, g]}
  moves: {distribution: ketama, failover: {mode: rehash}, servers: [h, i]}
routes: [{pool: main}, {prefix: "p:", pool: plain}, {prefix: "r:", pool: resized}, {prefix: "m:", pool: moves}]
`)
	for _, p := range built.Pools {
		if want := p.NeedsKeeper(built); p.Failover.Strict != want {
			t.Errorf("pool %s: strict %t, want %t", p.Name, p.Failover.Strict, want)
		}
	}
}

func TestCopiesAreRead(t *testing.T) {
	_, built := readTable(t, `
listen: :1
zone: z2
pools:
  a: {distribution: ketama, servers: [{address: a1, zone: z1}, {address: a2, zone: z2}, {address: a3, zone: z3}]}
  b: {distribution: ketama, servers: [{address: b1, host: m1}]}
  c: {distribution: ketama, servers: [{address: c1, host: m2}]}
routes:
  - {prefix: "all:", pool: a, replicas: all, read: fastest}
  - {prefix: "near:", pool: a, replicas: 2, replicas_on: zone, read: nearest, ack: one}
  - {prefix: "both:", pools: [b, c], prefer: c, repair: 5}
  - {prefix: "one:", pool: a, replicas: 1, get_errors: error}
`)
	a, b, c := built.Pools[0], built.Pools[1], built.Pools[2]
	loud := true
	want := []table.Route{
		{Prefix: "all:", Pool: a, Zone: "z2", Copies: replicate.Policy{Copies: replicate.All, Apart: replicate.Servers, Read: replicate.Fastest, ReadThrough: true, RepairRate: 1000}},
		{Prefix: "near:", Pool: a, Zone: "z2", Copies: replicate.Policy{Copies: 2, Apart: replicate.Zones, Read: replicate.Nearest, Ack: replicate.AckOne, ReadThrough: true, RepairRate: 1000}},
		{Prefix: "both:", Pool: b, Also: []*table.Pool{c}, Prefer: c, Zone: "z2", Copies: replicate.Policy{Copies: 2, ReadThrough: true, RepairRate: 5}},
		{Prefix: "one:", Pool: a, Zone: "z2", GetErrors: &loud},
	}
	for i, r := range built.Listeners[0].Routes {
		if !reflect.DeepEqual(r, want[i]) {
			t.Errorf("got  %+v\nwant %+v", r, want[i])
		}
	}
	if a.Servers[1].Zone != "z2" || b.Servers[0].Host != "m1" {
		t.Errorf("got %+v and %+v", a.Servers[1], b.Servers[0])
	}
}

// TestCopiesNeedEjection checks that failover settings have an effect in a pool with mode
// fail_fast if a route keeps replicas in it.
func TestCopiesNeedEjection(t *testing.T) {
	f := parse(t, `
listen: :1
pools: {main: {distribution: ketama, servers: [a, b], failover: {consistency: strict, eject_after: 1s}}}
routes: [{prefix: "s:", pool: main, replicas: 2}, {pool: main}]
`)
	if got := f.Pools[0].Failover; got.Mode != table.FailFast || !f.Ejects("main") || !got.Strict || got.EjectAfter != (health.EjectAfter{Refused: time.Second, Silent: time.Second, Restart: time.Second}) {
		t.Errorf("got %+v", got)
	}
}

// TestUsualResize checks the default of resize.mode: warm only where keys may move in a failure, the distribution is not that
// of an existing client, and keys can move with their values.
func TestUsualResize(t *testing.T) {
	for _, c := range []struct{ pool, more, routes, want, why string }{
		{"distribution: ketama-points, servers: [a, b, c]", "", "", "warm", "failover.mode rehash"},
		{"distribution: jump, servers: [a, b], failover: {mode: rehash}", "", "", "warm", "failover.mode rehash"},
		{"distribution: ketama-points, servers: {discover: dns+cache.example:11211}", "", "", "warm", "failover.mode rehash"},
		{"distribution: ketama-points, servers: [a, b]", "", "", "plain", "failover.mode fail_fast"},
		{"distribution: ketama, servers: [a, b, c]", "", "", "plain", "failover.mode fail_fast"},
		{"distribution: ketama, servers: [a, b, c], failover: {mode: rehash}", "", "", "plain", "of an existing client"},
		{"distribution: ketama-points, servers: [a, b, c], failover: {mode: gutter, gutter: spare}", "spare: {distribution: ketama, servers: [d]}", "{pool: main}", "plain", "failover.mode gutter"},
		{"distribution: ketama-points, servers: [a, b, c]", "", "{pool: main, replicas: 2, replicas_on: server}", "plain", "replicated keys"},
		{"distribution: ketama-points, servers: [a, b, c], resize: {mode: flush}", "", "", "flush", "as the file says"},
	} {
		text := "listen: :1\npools: {main: {" + c.pool + "}"
		if c.more != "" {
			text += ", " + c.more
		}
		if text += "}\n"; c.routes != "" {
			text += "routes: [" + c.routes + "]\n"
		}
		f := parse(t, text)
		is := f.Pools[0].Resize
		if is.Mode.String() != c.want || !strings.Contains(is.Why, c.why) || is.Usual != (c.want == "warm") {
			t.Errorf("%s: %+v", c.pool, is)
		}
		if built, err := f.Build(); err != nil || built.Pools[0].ResizeUsual != is.Usual && !built.Pools[0].Unknown {
			t.Errorf("%s: %v", c.pool, err)
		}
	}
	f := parse(t, "listen: :1\npools: {main: {distribution: ketama-points, servers: [a, b, c]}}\nroutes: [{pool: main, preset: cache}]")
	if is := f.Pools[0].Resize; f.CanWarm("main") != is.Usual {
		t.Errorf("a pool with a guard: %+v", is)
	}
	f = parse(t, "listen: :1\npools: {main: {distribution: ketama-points, servers: [a, b, c], fill_from: far}, far: {distribution: ketama, servers: [d]}}\nroutes: [{pool: main}]")
	if is := f.Pools[0].Resize; f.CanWarm("main") || is.Mode != table.ResizePlain {
		t.Errorf("a pool with fill_from: %+v", is)
	}
}

// TestResizeNeedsAgreement checks that failover settings by which instances agree have an effect in a pool with mode
// fail_fast if it coordinates changes of its servers.
func TestResizeNeedsAgreement(t *testing.T) {
	f := parse(t, `
listen: :1
defaults: {resize: {mode: warm}, failover: {on_rejoin: warm}}
pools:
  main: {distribution: ketama, servers: [a, b], failover: {consistency: strict, ping: 100ms, lease: 1s}}
  spare: {distribution: ketama-points, servers: [c, d, e]}
routes: [{prefix: "s:", pool: spare}, {pool: main}]
`)
	if got := f.Pools[0].Failover; got.Mode != table.FailFast || f.Ejects("main") || !f.Agrees("main") || !got.Strict {
		t.Errorf("got %+v", got)
	}
	if got := f.AtReturn("main"); !strings.Contains(got, "only one that was down while keys moved") {
		t.Error(got)
	}
	built, err := f.Build()
	if err != nil || !built.Pools[0].Stays(built) || built.Pools[1].Stays(built) {
		t.Errorf("%v, pools %+v", err, built.Pools)
	}
}

// TestEjectAfter checks that eject_after is one duration or several, and that the default of
// refused fits silent if the file sets only that.
func TestEjectAfter(t *testing.T) {
	for _, c := range []struct {
		defaults, pool, route    string
		refused, silent, restart time.Duration
	}{
		{"", "", "", 400 * time.Millisecond, 3 * time.Second, 3 * time.Second},
		{"", "eject_after: 4s", "", 4 * time.Second, 4 * time.Second, 4 * time.Second},
		{"", "eject_after: 300ms", "", 300 * time.Millisecond, 300 * time.Millisecond, 300 * time.Millisecond},
		{"", "eject_after: {refused: 1s, silent: 5s}", "", time.Second, 5 * time.Second, 3 * time.Second},
		{"", "eject_after: {silent: 200ms}", "", 200 * time.Millisecond, 200 * time.Millisecond, 3 * time.Second},
		{"", "eject_after: {refused: 2s}", "", 2 * time.Second, 3 * time.Second, 3 * time.Second},
		{"eject_after: 1s", "eject_after: {silent: 5s}", "", time.Second, 5 * time.Second, time.Second},
		{"eject_after: {refused: 100ms}", "eject_after: {silent: 5s}", "", 100 * time.Millisecond, 5 * time.Second, 3 * time.Second},
		{"eject_after: {refused: 100ms}", "", "preset: sessions", 50 * time.Millisecond, 50 * time.Millisecond, 3 * time.Second},
		{"", "eject_after: {silent: 2s}", "preset: sessions", 50 * time.Millisecond, 2 * time.Second, 3 * time.Second},
		{"", "eject_after: {silent: 200ms, restart: 9s}", "preset: sessions", 50 * time.Millisecond, 200 * time.Millisecond, 9 * time.Second},
		{"", "eject_after: {silent: 20ms}", "preset: sessions", 20 * time.Millisecond, 20 * time.Millisecond, 3 * time.Second},
	} {
		f := parse(t, fmt.Sprintf("listen: :1\ndefaults: {failover: {%s}}\npools: {main: {distribution: jump, servers: [a, b, c], failover: {%s}}}\nroutes: [{pool: main, %s}]", c.defaults, c.pool, c.route))
		if got := f.Pools[0].Failover.EjectAfter; got != (health.EjectAfter{Refused: c.refused, Silent: c.silent, Restart: c.restart}) {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestHosts(t *testing.T) {
	_, built := readTable(t, `
listen: :9
pools: {main: {distribution: ketama, servers: [A.example., "a.example:2", "127.0.0.1:1", "127.0.0.2:1", "[::1]:1", localhost, "unix:/x",
  "[2001:DB8:0::1]:1", "[2001:db8::1]:2", "[::ffff:10.0.0.1]:1", 10.0.0.1, {address: 10.0.0.2, host: own}]}}
`)
	var got []string
	for _, s := range built.Pools[0].Servers {
		got = append(got, s.Host)
	}
	l := thisHost
	if want := []string{"a.example", "a.example", l, l, l, l, l, "2001:db8::1", "2001:db8::1", "10.0.0.1", "10.0.0.1", "own"}; !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// TestDefaultRoute checks that the defaults of a route are zero values, except RepairRate and
// ReadThrough.
func TestDefaultRoute(t *testing.T) {
	usual := defaultRoute()
	usual.Copies.RepairRate, usual.Copies.ReadThrough = 0, false
	if !reflect.DeepEqual(usual, Route{}) {
		t.Errorf("got %+v", usual)
	}
}

// TestGutterWithAServerOfItsPool checks that a gutter must not have a server of its pool.
func TestGutterWithAServerOfItsPool(t *testing.T) {
	_, err := Parse("f.yaml", []byte("listen: :1\npools:\n"+
		"  p: {distribution: ketama, servers: [a, b, c], failover: {mode: gutter, gutter: q}}\n"+
		"  q: {distribution: ketama, servers: [c, d], failover: {mode: fail_fast}}\nroutes: [{pool: p}]\n"))
	if want := "pools.q is the gutter of pools.p and has the server c:11211 with it"; !strings.Contains(fmt.Sprint(err), want) {
		t.Errorf("%v, want %q", err, want)
	}
}
