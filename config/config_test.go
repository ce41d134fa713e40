package config

// Tests of the errors of wrong files, and of the results of valid files.

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"ringside/proxy/table"
)

var update = flag.Bool("update", false, "write what is said about the files in testdata/errors into them")

const divider = "----\n"

// TestErrors checks the exact errors of the files in testdata/errors. Each has a configuration
// file, a line of dashes, and the errors.
func TestErrors(t *testing.T) {
	files, err := filepath.Glob("testdata/errors/*.txt")
	if err != nil || len(files) < 30 {
		t.Fatalf("found %d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			input, want, ok := strings.Cut(string(text), divider)
			if !ok {
				t.Fatalf("%s has no line of four dashes", file)
			}
			f, err := Parse("ringside.yaml", []byte(input))
			if err == nil {
				t.Fatalf("the file is right: %+v", f)
			}
			got := err.Error() + "\n"
			if *update {
				if err := os.WriteFile(file, []byte(input+divider+got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != want {
				t.Errorf("got:\n%swant:\n%s", got, want)
			}
		})
	}
}

// TestErrorsOfBytes checks errors that the YAML library reports without a position, and files
// that are too large for testdata.
func TestErrorsOfBytes(t *testing.T) {
	for _, c := range []struct{ name, input, want string }{
		{"not UTF-8", "listen: :1\nlog: {format: \"\xff\"}\n", "f:2:16: byte 0xff is not UTF-8 text"},
		{"UTF-16", "\xff\xfel\x00i\x00", "f:1:1: byte 0xff is not UTF-8 text"},
		{"a column after other letters", "listen: :1\nlog: {format: \"äöü\x02\"}\n", "f:2:19: the control character U+0002 is not allowed in YAML"},
		{"too big", strings.Repeat("#", maxBytes+1), "f:1:1: the file has more than 4194304 bytes"},
		{"too many values", "x-list: [" + strings.Repeat("1,", maxNodes) + "]", "f:1:400004: the file holds more than 200000 values, with what its aliases repeat"},
	} {
		_, err := Parse("f", []byte(c.input))
		if err == nil || err.Error() != c.want {
			t.Errorf("%s: got %v, want %s", c.name, err, c.want)
		}
		var one *Error
		if !errors.As(err, &one) || one.File != "f" {
			t.Errorf("%s: no *Error in %T", c.name, err)
		}
	}
}

func TestLoadOfNoFile(t *testing.T) {
	if _, err := Load(filepath.Join(t.TempDir(), "ringside.yaml"), Environment()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want a file that does not exist", err)
	}
}

func parse(t *testing.T, text string) *File {
	t.Helper()
	f, err := Parse("ringside.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// least is a small file with routes.
const least = `
listen: 127.0.0.1:11211
admin: 127.0.0.1:9151
pools:
  main:
    distribution: ketama
    servers:
      - 10.0.0.1:11211
      - {address: "10.0.0.2:11211", name: b, weight: 2}
routes:
  - {prefix: "img:", pool: main}
  - {pool: main}
`

func TestLeastFile(t *testing.T) {
	f := parse(t, least)
	want := defaultFile()
	want.Source = []byte(least)
	want.Listen = []Listener{{Address: Address{"tcp4", "127.0.0.1:11211"}}}
	want.Admin.Address = Address{"tcp4", "127.0.0.1:9151"}
	pool := defaultPool()
	pool.Name, pool.Distribution = "main", "ketama"
	pool.Failover.WhyMode, pool.Failover.WhyConsistency = "the default of ketama, which is that of an existing client", "the default"
	pool.Resize.Why = "the default with failover.mode fail_fast"
	pool.Servers = []Server{
		{Address: Address{"tcp", "10.0.0.1:11211"}, Weight: 1},
		{Address: Address{"tcp", "10.0.0.2:11211"}, Name: "b", Weight: 2},
	}
	want.Pools = []Pool{pool}
	want.Routes = []Route{{Prefix: "img:", Pool: "main"}, {Pool: "main"}}
	want.read, want.index, want.Variables, want.secrets = f.read, f.index, f.Variables, f.secrets
	if !reflect.DeepEqual(*f, want) {
		t.Errorf("got  %+v\nwant %+v", *f, want)
	}
	built, err := f.Build()
	if err != nil {
		t.Fatal(err)
	}
	p := built.Pools[0]
	wantTargets := []table.Target{
		{Name: "10.0.0.1:11211", Network: "tcp", Address: "10.0.0.1:11211", Weight: 1, Host: "10.0.0.1"},
		{Name: "b", Network: "tcp", Address: "10.0.0.2:11211", Weight: 2, Host: "10.0.0.2"},
	}
	if !reflect.DeepEqual(p.Servers, wantTargets) {
		t.Errorf("got servers %+v, want %+v", p.Servers, wantTargets)
	}
	wantRoutes := []table.Route{{Prefix: "img:", Pool: p}, {Pool: p}}
	if got := built.Listeners[0].Routes; !reflect.DeepEqual(got, wantRoutes) {
		t.Errorf("got routes %+v, want %+v", got, wantRoutes)
	}
}

func TestRoutesAreOptionalWithOnePool(t *testing.T) {
	f := parse(t, "listen: :1\npools: {main: {distribution: ketama, servers: [a]}}")
	if want := []Route{{Pool: "main"}}; !reflect.DeepEqual(f.Routes, want) {
		t.Errorf("got %+v, want %+v", f.Routes, want)
	}
	f = parse(t, `
listen: [{address: "127.0.0.1:1", routes: [{pool: a}]}, {address: "127.0.0.1:2", routes: [{pool: b, prefix: x, strip_prefix: true}]}]
pools: {a: {distribution: ketama, servers: [a]}, b: {distribution: ketama, servers: [a]}}
`)
	built, err := f.Build()
	if err != nil {
		t.Fatal(err)
	}
	one, two := built.Listeners[0].Routes, built.Listeners[1].Routes
	if len(one) != 1 || one[0].Pool != built.Pools[0] || len(two) != 1 || two[0].Pool != built.Pools[1] || !two[0].Strip {
		t.Errorf("got %+v and %+v", one, two)
	}
}

func TestAddresses(t *testing.T) {
	for _, c := range []struct {
		text           string
		listen, server Address // empty: rejected
	}{
		{"127.0.0.1:11211", Address{"tcp4", "127.0.0.1:11211"}, Address{"tcp", "127.0.0.1:11211"}},
		{"[::1]:11211", Address{"tcp6", "[::1]:11211"}, Address{"tcp", "[::1]:11211"}},
		{"[fe80::1%eth0]:11211", Address{"tcp6", "[fe80::1%eth0]:11211"}, Address{"tcp", "[fe80::1%eth0]:11211"}},
		{":11211", Address{"tcp", ":11211"}, Address{}},
		{":0", Address{"tcp", ":0"}, Address{}},
		{"cache_1.internal:1", Address{"tcp", "cache_1.internal:1"}, Address{"tcp", "cache_1.internal:1"}},
		{"unix:/run/x.sock", Address{"unix", "/run/x.sock"}, Address{"unix", "/run/x.sock"}},
		{"unix://run/./x.sock/", Address{"unix", "/run/x.sock"}, Address{"unix", "/run/x.sock"}},
		{"unix:/run/link/../x.sock", Address{"unix", "/run/link/../x.sock"}, Address{"unix", "/run/link/../x.sock"}}, // of a symbolic link, .. is the parent of its target
		{"cache1", Address{}, Address{"tcp", "cache1:11211"}},
		{"10.0.0.1", Address{}, Address{"tcp", "10.0.0.1:11211"}},
		{"[::1]", Address{}, Address{"tcp", "[::1]:11211"}},
		{"cache1:0", Address{"tcp", "cache1:0"}, Address{}},
		{"::1", Address{}, Address{}},
		{"a:b:c", Address{}, Address{}},
		{"a:", Address{}, Address{}},
		{"-a:1", Address{}, Address{}},
		{"10.0.0.256:1", Address{}, Address{}},
		{"unix:", Address{}, Address{}},
		{"http://a:1", Address{}, Address{}},
	} {
		listen, listenErr := listenAddress(c.text)
		server, serverErr := serverAddress(c.text)
		if listen != c.listen || (listenErr == nil) != (c.listen != Address{}) {
			t.Errorf("listen %q: got %v, %v; want %v", c.text, listen, listenErr, c.listen)
		}
		if server != c.server || (serverErr == nil) != (c.server != Address{}) {
			t.Errorf("server %q: got %v, %v; want %v", c.text, server, serverErr, c.server)
		}
	}
}

func TestPoolsInheritDefaults(t *testing.T) {
	f := parse(t, `
listen: {address: "unix:/run/x", mode: 0660}
pools:
  own: {distribution: jump, servers: [a], timeouts: {request: 1s}, get_errors: miss, hash_strip_prefix: p}
  all: {servers: [a]}
defaults:
  distribution: ketama
  get_errors: error
  timeouts: {connect: 1s500ms}
  hash_strip_prefix: [q, r]
routes: [{pool: own}]
`)
	own, all := f.Pools[0], f.Pools[1]
	if own.Distribution != "jump" || own.GetErrors || !slices.Equal(own.Placement.HashStripPrefix, []string{"p"}) ||
		own.Timeouts != (table.Timeouts{Connect: 1500 * time.Millisecond, Request: time.Second, Deadline: 2 * time.Second}) {
		t.Errorf("got %+v", own)
	}
	if all.Distribution != "ketama" || !all.GetErrors || !slices.Equal(all.Placement.HashStripPrefix, []string{"q", "r"}) ||
		all.Timeouts != (table.Timeouts{Connect: 1500 * time.Millisecond, Request: 500 * time.Millisecond, Deadline: 2 * time.Second}) {
		t.Errorf("got %+v", all)
	}
	if f.Listen[0].Mode != 0o660 {
		t.Errorf("got mode %o", f.Listen[0].Mode)
	}
}

func TestKeepalive(t *testing.T) {
	f := parse(t, `
listen: :1
pools:
  usual: {distribution: ketama, servers: [x]}
  off: {distribution: ketama, servers: [x], keepalive: off}
  zero: {distribution: ketama, servers: [x], keepalive: 0s}
  short: {distribution: ketama, servers: [x], keepalive: 1s}
routes: [{pool: usual}]
`)
	built, err := f.Build()
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []time.Duration{30 * time.Second, 0, 0, time.Second} {
		if p := built.Pools[i]; p.Keepalive != want {
			t.Errorf("%s: got %v, want %v", p.Name, p.Keepalive, want)
		}
	}
}

func TestAliasesAndMerges(t *testing.T) {
	f := parse(t, `
x-pool: &pool {distribution: ketama, queue: 7, connections: 3}
x-other: &other {queue: 8, flush_all: deny}
listen: :1
pools:
  a: &a {<<: [*pool, *other], connections: 4, servers: &servers [x, y]}
  b: {<<: *a, servers: *servers, queue: 9}
routes: [{pool: a}]
`)
	a, b := f.Pools[0], f.Pools[1]
	if a.Queue != 7 || a.Connections != 4 || !a.DenyFlush || b.Queue != 9 || b.Connections != 4 || len(b.Servers) != 2 {
		t.Errorf("got %+v and %+v", a, b)
	}
}

func TestSettingsAreRead(t *testing.T) {
	f := parse(t, `
listen: :1
pools: {main: {distribution: ketama, servers: [a]}}
admin: {address: "127.0.0.1:2", pprof: off}
limits: {value: 1048576, line: 64KiB, memory: 1GiB, idle: 1m, drain: off}
engine:
  driver: portable
  loops: 2
  moderation: false
log: {level: debug, format: json, slow: off}
`)
	if f.Admin.Pprof != "off" || f.Limits.Value != 1<<20 || f.Limits.Line != 64<<10 || f.Limits.Memory != 1<<30 ||
		f.Limits.Idle != time.Minute || f.Limits.Drain != 0 || f.Log != (Log{slog.LevelDebug, "json", 0}) {
		t.Errorf("got %+v", f)
	}
	if want := (Engine{Driver: "portable", Loops: 2}); f.Engine != want {
		t.Errorf("got %+v, want %+v", f.Engine, want)
	}
}

// TestSmallMemoryLowersOutputHard checks that a memory below the default of output_hard lowers
// that default and is not an error.
func TestSmallMemoryLowersOutputHard(t *testing.T) {
	f, err := Parse("small", []byte(least+"limits: {memory: 16MiB}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if f.Limits.OutputHard != 16<<20 {
		t.Errorf("output_hard is %d", f.Limits.OutputHard)
	}
}

// TestBuildIsDeterministic checks that two tables of the same file are equal, because a reload
// compares tables.
func TestBuildIsDeterministic(t *testing.T) {
	data, err := os.ReadFile("../deploy/ringside.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	build := func() (*File, *table.Table) {
		f := parse(t, string(data))
		table, err := f.Build()
		if err != nil {
			t.Fatal(err)
		}
		return f, table
	}
	f1, t1 := build()
	f2, t2 := build()
	if !reflect.DeepEqual(f1, f2) {
		t.Error("two files of the same text differ")
	}
	for i := range t1.Pools {
		a, b := &t1.Pools[i].Place, &t2.Pools[i].Place
		for k := range 10_000 {
			key := fmt.Appendf(nil, "key:%d:{%d}", k, k%7)
			_, hashA, serverA := a.Locate(key)
			_, hashB, serverB := b.Locate(key)
			if hashA != hashB || serverA != serverB {
				t.Fatalf("pool %s, key %s: %d and %d", t1.Pools[i].Name, key, serverA, serverB)
			}
		}
		if !reflect.DeepEqual(a.Ring, b.Ring) || !reflect.DeepEqual(a.Part, b.Part) {
			t.Errorf("pool %s: the rings differ", t1.Pools[i].Name)
		}
		a.Hash, b.Hash = nil, nil // functions are never equal
		t1.Pools[i].ReadList, t2.Pools[i].ReadList = nil, nil
		if from := t1.Pools[i].From; from != nil {
			from.Place.Hash, t2.Pools[i].From.Place.Hash = nil, nil
		}
		if fill := t1.Pools[i].Fill; fill != nil {
			fill.From.Place.Hash, t2.Pools[i].Fill.From.Place.Hash = nil, nil
			fill.From.ReadList, t2.Pools[i].Fill.From.ReadList = nil, nil
		}
	}
	if !reflect.DeepEqual(t1, t2) {
		t.Errorf("two tables of the same file differ:\n%+v\n%+v", t1, t2)
	}
}

// TestCacheHasGuard checks that preset: cache has a guard, unless the route sets guard, or
// settings that exclude a guard.
func TestCacheHasGuard(t *testing.T) {
	for _, c := range []struct {
		beside string
		want   Guard
	}{
		{"", defaultGuard()},
		{", guard: off", Guard{}},
		{", guard: hide", Guard{On: true, GuardSettings: table.GuardSettings{Hide: true}}},
		{", replicas: 2, replicas_on: server", defaultGuard()},
		{", autocreate: on", Guard{}},
		{", buffer: {}", Guard{}},
	} {
		f := parse(t, "listen: :1\npools: {main: {distribution: ketama, servers: [a, b]}}\nroutes: [{pool: main, preset: cache"+c.beside+"}]")
		if got := f.Routes[0].Guard; got != c.want {
			t.Errorf("preset: cache%s: %+v, want %+v", c.beside, got, c.want)
		}
		if said := slices.ContainsFunc(f.Warnings, func(w string) bool { return strings.Contains(w, "preset: cache has no guard beside") }); said != (!c.want.On && c.beside != ", guard: off") {
			t.Errorf("preset: cache%s: its guard is gone, warnings: %q", c.beside, f.Warnings)
		}
	}
}

// TestShortLease checks that a lease that can end while other clients wait causes a warning.
func TestShortLease(t *testing.T) {
	for guard, want := range map[string]bool{"{lease: 1s}": true, "{lease: 1s, wait: 333ms}": false, "{wait: 1900ms}": false, "{lease: 5s, wait: 1900ms}": true, "{lease: 5s}": true, "{lease: 6s}": false, "true": false, "hide": false} {
		f := parse(t, "listen: :1\npools: {main: {distribution: ketama, servers: [a, b]}}\nroutes: [{pool: main, guard: "+guard+"}]")
		if said := slices.ContainsFunc(f.Warnings, func(w string) bool { return strings.Contains(w, "three times guard.wait") }); said != want {
			t.Errorf("guard: %s: warned %v, want %v: %q", guard, said, want, f.Warnings)
		}
	}
}
