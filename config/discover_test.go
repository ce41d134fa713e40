package config

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"ringside/proxy/serverlist"
)

// listsOf returns Lists from texts such as "a:1 b:2=10.0.0.1:3*5": by source, the names of servers, with
// their addresses and weights.
func listsOf(by map[string]string) Lists {
	return func(pool, source string) (list []serverlist.Server, known bool) {
		text, known := by[source]
		for word := range strings.FieldsSeq(text) {
			s := serverlist.Server{Weight: 1}
			word, heavy := strings.CutSuffix(word, "*5")
			if heavy {
				s.Weight = 5
			}
			s.Name, s.Address, _ = strings.Cut(word, "=")
			if s.Address == "" {
				s.Address = s.Name
			}
			list = append(list, s)
		}
		return list, known
	}
}

const discovering = `
listen: 127.0.0.1:11211
pools:
  main:
    distribution: ketama-points
    servers:
      - 10.0.0.9
      - dnssrvnoa+_memcached._tcp.mc
      - {discover: file+/etc/servers, weights: {"big-*": 2}}
      - 10.0.0.1
routes: [{prefix: "", pool: main, replicas: 2}]
`

func serversOf(p *Pool) string {
	var words []string
	for _, s := range p.Servers {
		words = append(words, s.label()+strings.Repeat("+", s.Weight-1))
	}
	return strings.Join(words, " ")
}

func TestDiscoveredServers(t *testing.T) {
	f := parse(t, strings.Replace(discovering, `prefix: "", `, "", 1))
	p := &f.Pools[0]
	if !p.Unknown() || p.Servers != nil || len(p.Sources) != 2 || !slices.Equal(f.Unknown(), []string{"main"}) {
		t.Fatalf("%+v", p)
	}
	built, err := f.Build()
	if err != nil {
		t.Fatal(err)
	}
	if b := built.Pools[0]; !b.Unknown || b.NeedsKeeper(built) || len(b.Servers) > 0 || built.Listeners[0].Routes[0].Copies.Copies != 0 {
		t.Errorf("%+v", b)
	}
	if _, _, i := built.Pools[0].Place.Locate([]byte("key")); i >= 0 {
		t.Error("a pool without servers has one for a key")
	}
	one := map[string]string{"dnssrvnoa+_memcached._tcp.mc": "mc-2.mc.:11211 mc-10.mc.:11211"}
	if f, err = f.With(listsOf(one)); err != nil || !f.Pools[0].Unknown() {
		t.Fatalf("one of two sources has answered: %v", err)
	}
	one["file+/etc/servers"] = "big-1=10.1.1.1:11211 small=10.1.1.2:11211*5 10.1.1.3:11211"
	if f, err = f.With(listsOf(one)); err != nil {
		t.Fatal(err)
	}
	p = &f.Pools[0]
	if is := serversOf(p); is != "10.0.0.9:11211 mc-2.mc.:11211 mc-10.mc.:11211 big-1+ small++++ 10.1.1.3:11211 10.0.0.1:11211" {
		t.Errorf("servers %s", is)
	}
	if dial := f.Dial(); !maps.Equal(dial, map[string]string{"big-1@main:0": "10.1.1.1:11211", "small@main:0": "10.1.1.2:11211"}) {
		t.Errorf("dial %v", dial)
	}
	if p.Failover.Mode.String() != "rehash" || len(f.Warnings) > 0 {
		t.Errorf("mode %v, warnings %v", p.Failover.Mode, f.Warnings)
	}
	old := f
	one["file+/etc/servers"] = "small=10.1.1.9:11211*5"
	if f, err = f.With(listsOf(one)); err != nil {
		t.Fatal(err)
	}
	if is := Changes(old, f); !slices.Equal(is, []string{"pool main: -server big-1 (big-1@main:0)", "pool main: -server 10.1.1.3:11211"}) {
		t.Errorf("changes %q", is)
	}
	if len(f.Warnings) != 1 || !strings.Contains(f.Warnings[0], `:9:49: pools.main: no server of file+/etc/servers has a name that matches "big-*", so its weight has no effect`) {
		t.Errorf("warnings %q", f.Warnings)
	}
	if f.Dial()["small@main:0"] != "10.1.1.9:11211" {
		t.Errorf("dial %v", f.Dial())
	}
}

func TestWrongLists(t *testing.T) {
	f := parse(t, strings.Replace(discovering, `prefix: "", `, "", 1))
	const dns, file = "dnssrvnoa+_memcached._tcp.mc", "file+/etc/servers"
	for _, c := range []struct {
		dns, file string
		want      string
	}{
		{"a:1", "a:1", ""}, // the same server in both
		{"a:1", "a:1=10.0.0.1:1", `two sources have the server "a:1" with different addresses: a:1 in dnssrvnoa+_memcached._tcp.mc, 10.0.0.1:1 in file+/etc/servers`},
		{"10.0.0.1:11211", "b:1", `pools.main has the server "10.0.0.1:11211" twice; the first is in line 8`},
		{"a b:1", "c:1", ""},
		{"a:0", "b:1", ""}, // a name, and no address
		{"\x01:1", "b:1", `the source dnssrvnoa+_memcached._tcp.mc has a server with the unusable name "\x01:1"`},
	} {
		_, err := f.With(listsOf(map[string]string{dns: c.dns, file: c.file}))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%q, %q: %v; want %s", c.dns, c.file, err, c.want)
		}
	}
	one := parse(t, "listen: :1\npools: {m: {distribution: ketama-points, servers: dns+mc:1}}\nroutes: [{pool: m, replicas: 2}]")
	if _, err := one.With(listsOf(map[string]string{"dns+mc:1": "10.0.0.1:1"})); err == nil || !strings.Contains(err.Error(), "replicas: 2 is more than pools.m has servers: at most 1") {
		t.Errorf("one server: %v", err)
	}
	heavy := parse(t, "listen: :1\npools: {m: {distribution: jump-dskit, servers: {discover: file+/x, weights: {a: 2}}}}")
	if _, err := heavy.With(listsOf(map[string]string{"file+/x": "a"})); err == nil || !strings.Contains(err.Error(), "the distribution jump-dskit knows no weights") {
		t.Errorf("weights: %v", err)
	}
}

// TestServersAtOneAddress checks that servers with different names are one server if they are at one address,
// and that a server can't be this instance itself under another name.
func TestServersAtOneAddress(t *testing.T) {
	f := parse(t, "listen: 127.0.0.1:7\nadmin: 127.0.0.1:8\ndefaults: {distribution: ketama-points}\npools:\n  p: {servers: file+/p, failover: {mode: rehash}}\n  q: {servers: file+/q, failover: {mode: fail_fast}}\n"+
		"  r: {servers: file+/r, failover: {mode: gutter, gutter: s}}\n  s: {servers: file+/s, failover: {mode: fail_fast}}\nroutes: [{prefix: q, pool: q}, {prefix: r, pool: r}, {pool: p}]")
	with := func(p, q, r, s string) (*File, error) {
		return f.With(listsOf(map[string]string{"file+/p": p, "file+/q": q, "file+/r": r, "file+/s": s}))
	}
	for _, c := range []struct{ p, q, r, s, want string }{
		{"a=10.0.0.1:1 b=10.0.0.2:1", "a=10.0.0.3:1", "a=10.0.0.4:1", "a=10.0.0.5:1", ""},
		{"a=10.0.0.1:1 b=10.0.0.2:1", "c=10.0.0.2:1", "a=10.0.0.4:1", "a=10.0.0.5:1", "pools.q and pools.p share the server c, and p ejects it"},
		{"10.0.0.1:1", "c=10.0.0.1:1", "a=10.0.0.4:1", "a=10.0.0.5:1", "pools.q and pools.p share the server c, and p ejects it"},
		{"a=10.0.0.1:1", "10.0.0.1:1", "a=10.0.0.4:1", "a=10.0.0.5:1", "pools.q and pools.p share the server 10.0.0.1:1, and p ejects it"},
		{"10.0.0.1:1=10.0.0.2:1", "10.0.0.1:1=10.0.0.3:1", "a=10.0.0.4:1", "a=10.0.0.5:1", "pools.q and pools.p share the server 10.0.0.1:1, and p ejects it"},
		{"a=10.0.0.1:1", "b=10.0.0.2:1", "a=10.0.0.4:1", "b=10.0.0.4:1", "pools.s is the gutter of pools.r and has the server b with it"},
		{"a=10.0.0.1:1", "a=127.0.0.1:7", "a=10.0.0.4:1", "a=10.0.0.5:1", "pools.q: the server 127.0.0.1:7 is this instance itself, which listens on 127.0.0.1:7"},
		{"a=127.0.0.1:8", "a=10.0.0.1:1", "a=10.0.0.4:1", "a=10.0.0.5:1", "pools.p: the server 127.0.0.1:8 is this instance's admin interface"},
	} {
		if _, err := with(c.p, c.q, c.r, c.s); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v", c, err)
		}
	}

	// A source of another pool does not redirect a server that a source, or the file, has at its own address.
	shared := parse(t, "listen: 127.0.0.1:7\ndefaults: {distribution: jump, failover: {mode: fail_fast}}\npools: {p: {servers: file+/p}, q: {servers: file+/q}}\nroutes: [{prefix: q, pool: q}, {pool: p}]")
	g, err := shared.With(listsOf(map[string]string{"file+/p": "10.0.0.1:1", "file+/q": "10.0.0.1:1=10.0.0.9:1 10.0.0.2:1=10.0.0.8:1"}))
	if err != nil {
		t.Fatal(err)
	}
	if dial := g.Dial(); !maps.Equal(dial, map[string]string{"10.0.0.2:1": "10.0.0.8:1"}) {
		t.Error(dial)
	}

	// The servers p.a and q.b exchange their addresses, but a new list of q is rejected, so q keeps b.
	before, err := with("a=10.0.0.1:1", "b=10.0.0.2:1", "a=10.0.0.4:1", "a=10.0.0.5:1")
	if err != nil {
		t.Fatal(err)
	}
	for list, want := range map[string]string{"c=10.0.0.1:1": "10.0.0.1:1", "b=10.0.0.1:1": "10.0.0.2:1"} {
		now, err := with("a=10.0.0.2:1", list, "a=10.0.0.4:1", "a=10.0.0.5:1")
		if err != nil {
			t.Fatal(err)
		}
		if is := before.At(now).Dial()["a@p:0"]; is != want {
			t.Errorf("q has %s: p.a is at %s, want %s", list, is, want)
		}
	}
}

// TestWithKeepsVariables checks that a change of the servers needs neither the environment nor other
// files again.
func TestWithKeepsVariables(t *testing.T) {
	asked := 0
	f, err := ParseWith("x.yaml", []byte("listen: ${L}\nzone: \"${file:/zone}\"\npools: {m: {distribution: ketama-points, servers: \"dns+${H}:1\"}}"), Variables{
		Lookup:   func(name string) (string, bool) { asked++; return map[string]string{"L": ":1", "H": "mc"}[name], true },
		ReadFile: func(string) ([]byte, error) { asked++; return []byte("secret-zone"), nil },
	})
	if err != nil || asked != 3 {
		t.Fatal(asked, err)
	}
	for range 2 {
		if f, err = f.With(listsOf(map[string]string{"dns+mc:1": "10.0.0.1:1 10.0.0.2:1"})); err != nil || asked != 3 {
			t.Fatalf("asked %d, %v", asked, err)
		}
	}
	if f.Zone != "secret-zone" || len(f.Pools[0].Servers) != 2 || f.Hide("secret-zone") != "${file:/zone}" || f.Variables["H"] != "mc" {
		t.Errorf("%+v", f)
	}
}

// TestSourcesOfAddresses checks the warning about sources that know servers by addresses, which pods change.
func TestSourcesOfAddresses(t *testing.T) {
	for source, want := range map[string]int{"dns+mc:1": 1, "dnssrv+_memcached._tcp.mc": 1, "dnssrvnoa+_memcached._tcp.mc": 0, "k8s+prod/mc:1": 0, "elasticache+mc:1": 0, "file+/x": 0} {
		f := parse(t, "listen: 127.0.0.1:1\npools: {m: {distribution: ketama-points, servers: "+source+"}}")
		if len(f.Warnings) != want || want > 0 && !strings.Contains(f.Warnings[0], "moves keys; dnssrvnoa+ and k8s+ know them by names") {
			t.Errorf("%s: %q", source, f.Warnings)
		}
	}
}

// TestPrintOfLists checks that instances with different lists differ in the roll call, and that
// instances that know a server by different addresses do not.
func TestPrintOfLists(t *testing.T) {
	f := parse(t, "listen: :1\npools: {m: {distribution: ketama-points, servers: file+/x}}")
	printOf := func(list string) uint64 {
		g, err := f.With(listsOf(map[string]string{"file+/x": list}))
		if err != nil {
			t.Fatal(err)
		}
		built, err := g.Build()
		if err != nil {
			t.Fatal(err)
		}
		return built.Print()
	}
	first := printOf("a=10.0.0.1:1 b=10.0.0.2:1")
	if printOf("a=10.0.0.1:1 b=10.0.0.9:1") != first {
		t.Error("another address of a server is another configuration")
	}
	for _, other := range []string{"a=10.0.0.1:1", "a=10.0.0.1:1 b=10.0.0.2:1 c=10.0.0.3:1", "a=10.0.0.1:1 b=10.0.0.2:1*5"} {
		if printOf(other) == first {
			t.Errorf("the list %s does not differ", other)
		}
	}
}
