package inspect

import (
	"strings"
	"testing"
)

// classesFile has a route with each preset, and routes that match keys by patterns.
const classesFile = `listen: 127.0.0.1:1
pools:
  main: {distribution: ketama, servers: [a, b, c]}
  pages: {distribution: ketama, failover: {mode: rehash}, servers: [d, e]}
  kept: {distribution: ketama, servers: [f, g], flush_all: allow}
routes:
  - {prefix: "views:", pool: main, preset: counters, autocreate: {initial: 7, ttl: 1h}}
  - {prefix: "sess:", pool: main, preset: sessions}
  - {prefix: "quick:", pool: kept, preset: counters, ack: one}
  - {match: "*:alloptions", pool: pages, preset: cache}
  - {prefix: "hits:", pool: pages, autocreate: on}
  - {prefix: "told:", pool: kept, get_errors: error}
  - {pool: pages}
`

func TestCheckSaysClasses(t *testing.T) {
	out, _ := runFile(t, classesFile, "check")
	for _, want := range []string{
		"  flush_all: denied\n  consistency: strict (by preset counters, with 3 view servers)\n",
		"  consistency: relaxed (preset counters is strict from three view servers on; here: 2)\n",
		"  keys with the prefix \"views:\": pool main, 2 replicas on different hosts, read first, ack all\n" +
			"    class counters (would rather not be lost), replicas 2, consistency strict; a counter that is missing begins at 7 and lives 1h0m0s\n" +
			"    when one server dies: nothing that was acknowledged; writes of its keys wait until it is out\n",
		"    class sessions (must not be lost), replicas 2, consistency strict\n",
		"    when one server dies: no key; but writes that it had acknowledged before the others had them, with ack one\n",
		"  keys that match \"*:alloptions\": pool pages\n" +
			"    class cache (may be lost), replicas 1, consistency relaxed\n" +
			"    when one server dies: its part of the keys, up to ",
		"%; counters begin again; until it is out they miss and can't be written, then others keep them\n",
		"    class none (a preset says it: cache, counters or sessions), replicas 1, consistency relaxed\n",
		"%, and until it is back they can't be read or written\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("check lacks %q:\n%s", want, out)
		}
	}
	if n := strings.Count(out, "flush_all: denied"); n != 1 {
		t.Errorf("flush_all is denied in %d pools, want it in main alone: kept says allow\n%s", n, out)
	}
	out, _ = runFile(t, classesFile, "check", "--json")
	for _, want := range []string{
		`"prefix":"views:","class":"counters (would rather not be lost)","replicas":"2","consistency":"strict","autocreate":"a counter that is missing begins at 7 and lives 1h0m0s","lost":"nothing that was acknowledged`,
		`"match":"*:alloptions","class":"cache (may be lost)"`, `"deny_flush":true`,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("check --json lacks %q:\n%s", want, out)
		}
	}
}

// TestCheckSaysGuards checks that check prints the guard and the tags of a route, and a note
// if some keys have no route.
func TestCheckSaysGuards(t *testing.T) {
	const guard, none = "    guard: one client at a time rebuilds a value, the others ", "  all other keys: no route takes them"
	for _, c := range []struct{ route, want, not string }{
		{"pool: main", "all other keys: pool main", none},
		{"pool: main", "all other keys: pool main", "guard:"},
		{"match: \"*\", pool: main", "keys that match", none},
		{"prefix: p, pool: main", none, "guard:"},
		{"match: \"*p\", pool: main", none, "guard:"},
		{"pool: main, guard: on", guard + "wait up to 1.8s; then it is a miss\n", "tags:"},
		{"pool: main, guard: {wait: 1s, late: error, stale: 30s}", guard + "get the old one for 30s, or wait up to 1s; then it is an error\n", "tags:"},
		{"pool: main, guard: {wait: off}", guard + "miss\n", "tags:"},
		{"pool: main, guard: hide", "    guard: only hides what other instances", guard},
		{"pool: main, preset: cache", guard, none},
		{"pool: main, tags: on", "    tags: a value is no longer served once one of its tags is invalidated; a key and", "only understands"},
		{"pool: main, tags: read", "    tags: only understands what other instances", "is gone"},
	} {
		file := "listen: 127.0.0.1:1\npools: {main: {distribution: ketama, servers: [a, b, c]}}\nroutes: [{" + c.route + "}]\n"
		out, _ := runFile(t, file, "check")
		if !strings.Contains(out, c.want) || strings.Contains(out, c.not) {
			t.Errorf("check lacks %q, or has %q:\n%s\n%s", c.want, c.not, file, out)
		}
		if of, rest, ok := strings.Cut(strings.TrimSpace(c.want), ": "); ok && strings.HasPrefix(c.want, "    ") {
			out, _ := runFile(t, file, "check", "--json")
			if want := `"` + of + `":"` + of + `: ` + rest; !strings.Contains(out, want) {
				t.Errorf("check --json lacks %s:\n%s", want, out)
			}
		}
	}
}

func TestCheckSaysLongestKey(t *testing.T) {
	out, _ := runFile(t, "listen: 127.0.0.1:1\npools: {main: {distribution: ketama, servers: [a]}}\n"+
		"routes: [{prefix: \"p:\", pool: main, tags: true}, {pool: main, tags: {suffix: off, patterns: [{match: \"a{n}\", tags: [x]}]}}]\n", "check")
	for _, want := range []string{
		"    tags: a value is no longer served once one of its tags is invalidated; a key and the tags behind it have at most 250 bytes together, so with one name of 16 bytes the longest key has 228\n",
		"    tags: a value is no longer served once one of its tags is invalidated\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("check lacks %q:\n%s", want, out)
		}
	}
}

// TestCheckSaysDoubts checks that check prints what two servers cannot guarantee, and which
// settings contradict the preset.
func TestCheckSaysDoubts(t *testing.T) {
	const two, voided = "    but two servers have no majority", "    but "
	for _, c := range []struct {
		servers, pool, route string
		want                 []string
	}{
		{"a, b", "", "preset: sessions", []string{two}},
		{"a, b", "", "replicas: 2", []string{two}},
		{"a, b", ", failover: {consistency: strict}", "preset: sessions", nil},
		{"a, b", "", "preset: cache", nil},
		{"{address: a, name: x}, {address: a, name: y}, b", "", "preset: sessions", []string{two}}, // three names, two servers
		{"a, b, c", "", "preset: sessions", nil},
		{"a, b, c", "", "preset: counters", nil},
		{"a, b, c", ", get_errors: miss", "preset: sessions", nil}, // the preset sets get_errors of the route
		{"a, b, c", "", "preset: sessions, get_errors: miss, read_through: false, repair: off",
			[]string{voided + "get_errors: miss reports", voided + "read_through: false returns a miss", voided + "repair: off does not fill"}},
		{"a, b, c", "", "preset: sessions, replicas: 1", []string{voided + "replicas: 1 keeps one replica"}},
		{"a, b, c", ", failover: {consistency: relaxed}", "preset: counters", []string{voided + "consistency: relaxed lets"}},
	} {
		file := "listen: 127.0.0.1:1\npools:\n  main: {distribution: ketama, servers: [" + c.servers + "]" + c.pool + "}\nroutes: [{pool: main, " + c.route + "}]\n"
		out, _ := runFile(t, file, "check")
		for _, want := range c.want {
			if !strings.Contains(out, want) {
				t.Errorf("check lacks %q:\n%s\n%s", want, file, out)
			}
		}
		if n := strings.Count(out, voided); n != len(c.want) {
			t.Errorf("check has %d doubts, want %d:\n%s\n%s", n, len(c.want), file, out)
		}
	}
}

func TestCheckSaysDoubtsOfTwoPools(t *testing.T) {
	const doubt = "    but consistency: relaxed goes on with the other pool"
	for _, c := range []struct {
		consistency string
		want        bool
	}{{"relaxed", true}, {"strict", false}} {
		pool := "{distribution: ketama, servers: [a, b, c], failover: {consistency: " + c.consistency + "}}"
		file := "listen: 127.0.0.1:1\npools:\n  east: " + pool + "\n  west: " + strings.NewReplacer("a, b, c", "d, e, f").Replace(pool) + "\nroutes: [{pools: [east, west]}]\n"
		if out, _ := runFile(t, file, "check"); strings.Contains(out, doubt) != c.want {
			t.Errorf("%s: check says of the other pool: %t\n%s", c.consistency, !c.want, out)
		}
	}
}

func TestRouteSaysMatch(t *testing.T) {
	out, _ := runFile(t, classesFile, "route", "3:options:alloptions", "views:alloptions", "views:3:alloptions")
	for _, want := range []string{
		"3:options:alloptions\n  pool        pages, by the match \"*:alloptions\"\n",
		"views:alloptions\n  pool        pages, by the match \"*:alloptions\"\n", // the match wins, because it has 11 literal bytes and the prefix views: has 6
	} {
		if !strings.Contains(out, want) {
			t.Errorf("route lacks %q:\n%s", want, out)
		}
	}
	out, _ = runFile(t, classesFile, "route", "--json", "3:alloptions")
	if !strings.Contains(out, `"match":"*:alloptions"`) {
		t.Errorf("route --json lacks the match:\n%s", out)
	}
}
