package config

// Tests of how the changes between two files are described.

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestChanges(t *testing.T) {
	const old = `
listen: [127.0.0.1:1, {address: "unix:/run/a", mode: 0660, routes: [{prefix: "z:", pool: main}]}]
admin: 127.0.0.1:9
pools:
  main: {distribution: ketama-points, servers: [a, {address: "10.0.0.2:1", name: b}, c], hash_tag: "{}"}
  old: {distribution: ketama, servers: [x]}
routes: [{pool: main}, {prefix: "i:", pool: old}]
`
	for _, c := range []struct {
		name, from, to string
		want           []string
	}{
		{"nothing", "", "", nil},
		{"a server comes", "servers: [a, ", "servers: [a, {address: 10.0.0.9, name: d}, e, ", []string{"pool main: +server d (10.0.0.9:11211)", "pool main: +server e:11211"}},
		{"a server goes", ", c]", "]", []string{"pool main: -server c:11211", "pool main: resize.mode warm to plain", "pool main: failover.mode rehash to fail_fast"}},
		{"a server weighs more", "name: b", "name: b, weight: 3", []string{"pool main: server b: weight 1 to 3"}},
		{"a server moves", "10.0.0.2:1", "10.0.0.3:1", []string{"pool main: server b: address 10.0.0.2:1 to 10.0.0.3:1"}},
		{"another order", `a, {address: "10.0.0.2:1", name: b}`, `{address: "10.0.0.2:1", name: b}, a`, []string{"pool main: the servers stand in another order"}},
		{"a pool goes", "  old: {distribution: ketama, servers: [x]}\nroutes: [{pool: main}, {prefix: \"i:\", pool: old}]", "  new: {distribution: ketama, servers: [x]}\nroutes: [{pool: main}]",
			[]string{"-pool old", "+pool new", `-route "i:" to old`}},
		{"a listener goes", "127.0.0.1:1, ", "", []string{"-listener 127.0.0.1:1: its clients are closed after the replies to requests in flight"}},
		{"a listener's mode", "0660", "0666", []string{"listener unix:/run/a: mode 0660 to 0666"}},
		{"a listener's route", "mode: 0660, routes: [{prefix: \"z:\", pool: main}]", "mode: 0660, routes: [{prefix: \"z:\", pool: old}]", []string{"listener unix:/run/a: route \"z:\": pool main to old"}},
		{"copies", `{prefix: "i:", pool: old}`, `{prefix: "i:", pool: main, replicas: all}`, []string{"pool main: resize.mode warm to plain", `route "i:": pool old to main`, `route "i:": replicas 1 to all`, `route "i:": replicas_on host to server`, `route "i:": read_through false to true`, `route "i:": repair off to 1000`}},
		{"max_move", `hash_tag: "{}"`, `hash_tag: "{}", max_move: 12.5%`, []string{"pool main: max_move 100% to 12.5%"}},
		{"a default", "pools:", "defaults: {timeouts: {request: 1s}}\npools:", []string{"pool main: timeouts.request 500ms to 1s", "pool old: timeouts.request 500ms to 1s"}},
		{"a pool's word", `hash_tag: "{}"`, "hash_strip_prefix: [p, q]", []string{"pool main: hash_tag {} to unset", "pool main: hash_strip_prefix unset to p, q"}},
		{"admin", "admin: 127.0.0.1:9", "admin: {address: \"127.0.0.1:10\", pprof: off}", []string{"admin.address 127.0.0.1:9 to 127.0.0.1:10", "admin.pprof loopback to off"}},
		{"no admin", "admin: 127.0.0.1:9\n", "", []string{"admin.address 127.0.0.1:9 to unset"}},
		{"the rest", "admin:", "limits: {memory: 512MiB, idle: 1m}\nlog: {level: debug, format: json}\nwatch: on\nzone: z\nadmin:",
			[]string{"zone unset to z", "limits.memory 256MiB to 512MiB", "limits.idle off to 1m", "log.level info to debug", "log.format text to json", "watch false to true"}},
		{"engine", "admin:", "engine: {loops: 2, moderation: off}\nadmin:", []string{"later: engine.loops 1 to 2", "later: engine.moderation on to off"}},
	} {
		if c.from != "" && !strings.Contains(old, c.from) {
			t.Fatalf("%s: there is no %q", c.name, c.from)
		}
		was, is := parse(t, old), parse(t, strings.Replace(old, c.from, c.to, 1))
		got := Changes(was, is)
		for _, later := range AtNextStart(was, is) {
			got = append(got, "later: "+later)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got\n  %s\nwant\n  %s", c.name, strings.Join(got, "\n  "), strings.Join(c.want, "\n  "))
		}
	}
}

// TestChangesOfUsers checks that a reload reports changed users of an auth_file, and
// shows no user or password.
func TestChangesOfUsers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "users")
	read := func(users, address string) *File {
		t.Helper()
		if err := os.WriteFile(path, []byte(users), 0o600); err != nil {
			t.Fatal(err)
		}
		config := filepath.Join(t.TempDir(), "ringside.yaml")
		text := fmt.Sprintf("listen: [{address: %q, auth_file: %s}, \"127.0.0.1:2\"]\npools: {main: {distribution: ketama, servers: [a]}}\n", address, path)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := Load(config, Environment())
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	const first = "127.0.0.1:1"
	for _, c := range []struct{ old, now, want string }{
		{"ann:a\nbob:b\n", "bob:b\n\nann:a\n", ""},
		{"ann:a\nbob:b\ncid:c\n", "bob:x\ncid:c\ndot:d\neve:e\n", "1 removed, 2 added, 1 with another password"},
		{"ann:a\n", "ann:b\n", "1 with another password"},
		{"ann:a\n", "bob:a\n", "1 removed, 1 added"},
		{"ann:a\nann:b\n", "ann:b\nann:a\n", ""}, // both passwords are valid
		{"ann:a\nann:b\n", "ann:b\n", "1 with another password"},
	} {
		var want []string
		if c.want != "" {
			want = []string{"users of listener 127.0.0.1:1 changed: " + c.want}
		}
		if got := Changes(read(c.old, first), read(c.now, first)); !slices.Equal(got, want) {
			t.Errorf("%q to %q: %q, want %q", c.old, c.now, got, want)
		}
	}
	if got := Changes(read("ann:a\n", first), read("bob:a\n", "127.0.0.1:3")); slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, "users") }) {
		t.Errorf("another listener: %q", got)
	}
}

// TestNothingChanges checks that a file has no changes compared with itself. It uses the
// example file, which has every setting.
func TestNothingChanges(t *testing.T) {
	example, err := os.ReadFile(exampleFile)
	if err != nil {
		t.Fatal(err)
	}
	f := parse(t, string(example))
	if got := Changes(f, f); len(got) > 0 {
		t.Errorf("a file changes itself: %q", got)
	}
	if got := AtNextStart(f, f); len(got) > 0 {
		t.Errorf("a file changes itself at the next start: %q", got)
	}
}
