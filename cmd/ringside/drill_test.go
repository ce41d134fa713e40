package main

// This file tests the commands ringside server and ringside drill, on the demo and on real
// memcached servers.

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"ringside/config"
	"ringside/internal/demo"
	"ringside/internal/instance"
	"ringside/internal/testenv"
)

// typed runs a ringside command, and returns its exit status and output. It repeats the command if
// a loop of the instance did not answer in time, which happens if the loop gets no CPU.
func typed(args ...string) (code int, out, errs string) {
	for end := time.Now().Add(testenv.Hang); ; {
		var o, e bytes.Buffer
		code = run(args, strings.NewReader(""), &o, &e)
		if late := strings.Contains(e.String(), "did not answer within 1s"); !late || time.Now().After(end) {
			return code, o.String(), e.String()
		}
	}
}

// undisturbed runs a drill, and repeats it up to three times if it fails and a goroutine woke up
// more than 100 ms late. Such a delay alone can make requests fail, because the clients, Ringside
// and the demo's servers share this process.
func undisturbed(t *testing.T, round func() error) {
	t.Helper()
	testenv.Undisturbed(t, 4, 100*time.Millisecond, round)
}

// demoForTests starts a demo that ends with the test. flags make commands use it.
func demoForTests(t *testing.T) (d *demo.Cluster, flags []string) {
	t.Helper()
	d, err := demo.Start("127.0.0.1:0", "127.0.0.1:0", "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.End()
		d.Close()
	})
	return d, strings.Fields(d.Flags())
}

func TestServer(t *testing.T) {
	d, flags := demoForTests(t)
	to := flags[2:]                                                         // --admin and its value
	for code, text := 1, ""; code != 0; time.Sleep(10 * time.Millisecond) { // until the keeper has reached the servers
		if code, _, text = typed("server", "restore", "demo3", to[0], to[1]); code == 2 {
			t.Fatal(text)
		}
	}
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"list", 0, "demo3"},
		{"list --pool main", 0, "up"},
		{"list --pool mian", 64, `no pool "mian"`},
		{"list --json", 0, `"server":"demo2"`},
		{"drain", 64, "something is missing: ringside server drain NAME"},
		{"drain demo4", 64, `no server "demo4"; there are demo1, demo2, demo3`},
		{"drain demo1 --pool other", 64, `no pool "other"; there are main`},
		{"drain demo1", 0, "by an operator"},
		{"list", 0, "by an operator"},
		{"restore demo1 --json", 0, `"server":"demo1"`},
		{"restore " + d.Servers()[1], 0, "up"},
		{"explode demo1", 64, `unknown command "explode"`},
	} {
		args := append([]string{"server"}, strings.Fields(c.args)...)
		if c.args != "explode demo1" {
			args = append(args, to...)
		}
		code, out, errs := typed(args...)
		if code != c.code || !strings.Contains(out+errs, c.says) {
			t.Errorf("server %s: exit %d, %s%s", c.args, code, out, errs)
		}
	}
	for args, want := range map[string]string{
		"server drain ": "demo1\ndemo2\ndemo3\n:4\n", "server list --pool ": "main\n:4\n", "drill --server ": "demo1\ndemo2\ndemo3\n:4\n",
	} {
		words := append([]string{"__complete"}, strings.Fields(args)[0])
		words = append(append(append(words, to...), strings.Fields(args)[1:]...), "")
		if words[1] == "server" { // the flags follow the complete command
			words = append(append([]string{"__complete", "server", strings.Fields(args)[1]}, to...), append(strings.Fields(args)[2:], "")...)
		}
		if code, out, errs := typed(words...); code != 0 || out != want {
			t.Errorf("completing %q: %d %q %s", words, code, out, errs)
		}
	}
	for before, want := range map[string]string{"": "all\nrefuse\n", "refuse,hang,": "refuse,hang,delay\nrefuse,hang,drop\n"} {
		if code, out, errs := typed("__complete", "drill", "--fault", before); code != 0 || !strings.HasPrefix(out, want) || strings.Contains(out, "hang,hang") {
			t.Errorf("completing --fault %q: %d %q %s", before, code, out, errs)
		}
	}
	if code, _, errs := typed("server", "list", "--admin", "127.0.0.1:1"); code != 1 || !strings.Contains(errs, "no answer from the admin interface at 127.0.0.1:1") {
		t.Errorf("nobody there: %d %s", code, errs)
	}
	if code, _, errs := typed("server", "list", "--admin", "here"); code != 64 || !strings.Contains(errs, "want host:port or unix:/path") {
		t.Errorf("no address: %d %s", code, errs)
	}
}

// TestServerDrainIsSeen checks that writes to a drained server fail with an error that names
// the command to restore it. Reads are misses.
func TestServerDrainIsSeen(t *testing.T) {
	listen := free(t)
	path := startFile(t, fmt.Sprintf("listen: %s\nadmin: %s\npools: {main: {distribution: ketama, servers: [{address: \"%s\", name: one}, {address: \"%s\", name: two}]}}\n",
		listen, free(t), memcached(t), memcached(t)))
	for _, name := range []string{"one", "two"} {
		if code, out, errs := typed("server", "drain", name, "-c", path); code != 0 || !strings.Contains(out, "drained by an operator") {
			t.Fatal(out, errs)
		}
	}
	c, err := net.Dial("tcp", listen)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(testenv.Hang))
	buf := make([]byte, 200)
	fmt.Fprint(c, "set k 0 0 1\r\nx\r\n")
	n, _ := c.Read(buf)
	if got := string(buf[:n]); !strings.HasPrefix(got, "SERVER_ERROR server ") || !strings.Contains(got, "is drained by an operator: ringside server restore ") {
		t.Errorf("set: %q", got)
	}
	fmt.Fprint(c, "get k\r\n")
	if n, _ = c.Read(buf); string(buf[:n]) != "END\r\n" {
		t.Errorf("get: %q", buf[:n])
	}
}

// TestServerDrainedDies checks that the list of servers shows that a drained server has died.
func TestServerDrainedDies(t *testing.T) {
	dies := testenv.StartMemcached(t)
	path := startFile(t, fmt.Sprintf("listen: %s\nadmin: %s\npools: {main: {distribution: ketama, failover: {mode: rehash, ping: 100ms, lease: 1s}, servers: [{address: \"%s\", name: one}, {address: \"%s\", name: two}, {address: \"%s\", name: three}]}}\n",
		free(t), free(t), dies.Address, memcached(t), memcached(t)))
	lists := func(what string) {
		t.Helper()
		out := ""
		for end := time.Now().Add(testenv.Hang); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if _, out, _ = typed("server", "list", "-c", path); strings.Contains(out, what) {
				return
			}
		}
		t.Fatalf("the list does not say %q:\n%s", what, out)
	}
	for code, errs := 1, ""; code != 0; time.Sleep(10 * time.Millisecond) { // until the keeper has reached the servers
		if code, _, errs = typed("server", "drain", "one", "-c", path); code == 2 {
			t.Fatal(errs)
		}
	}
	lists("drained by an operator\n")
	dies.Kill()
	lists("drained by an operator, and suspect: ")
}

// TestServerDrainCopies drains and restores servers of keys with two replicas. The first drain
// warns that keys may be left with one replica. The drain of the other server is rejected,
// because it may have the only replica. restore waits until the server has all its keys again.
func TestServerDrainCopies(t *testing.T) {
	listen, one, two := free(t), memcached(t), memcached(t)
	path := startFile(t, fmt.Sprintf("listen: %s\nadmin: %s\npools: {main: {distribution: ketama, failover: {ping: 100ms, lease: 1s}, servers: [{address: \"%s\", name: one}, {address: \"%s\", name: two}]}}\nroutes: [{pool: main, replicas: 2, replicas_on: server}]\n",
		listen, free(t), one, two))
	const keys = 300
	ask := func(address, request, want string) {
		t.Helper()
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(testenv.Hang))
		fmt.Fprint(c, request)
		got := make([]byte, len(want))
		if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
			t.Fatalf("%.40q: %q, %v", request, got, err)
		}
	}
	for i := range keys {
		ask(listen, fmt.Sprintf("set k%d 0 0 1\r\nx\r\n", i), "STORED\r\n")
	}
	if code, _, errs := typed("server", "drain", "two", "-c", path); code != 0 || !strings.Contains(errs, "warning: keys of pool main that have one of their 2 replicas on two may be left with one replica") {
		t.Fatalf("drain: exit %d, %s", code, errs)
	}
	if code, _, errs := typed("server", "drain", "one", "-c", path); code != 64 || !strings.Contains(errs, "one may have the only usable replica of keys of pool main") {
		t.Fatalf("drain of the other: exit %d, %s", code, errs)
	}
	if code, _, errs := typed("server", "restore", "two", "-c", path); code != 0 || !strings.HasSuffix(errs, "two is filled: its keys have 2 replicas again\n") {
		t.Fatalf("restore: exit %d, %s", code, errs)
	}
	for i := range keys {
		ask(two, fmt.Sprintf("get k%d\r\n", i), fmt.Sprintf("VALUE k%d 0 1\r\nx\r\nEND\r\n", i))
	}
}

// moving are the flags of a drill that is long enough for keys to move to other servers.
var moving = []string{"--for", "2s", "--before", "1s", "--settle", "200ms", "--rate", "600", "--clients", "8", "--keys", "64"}

// short are the flags of a drill of some seconds.
var short = []string{"--for", "800ms", "--before", "100ms", "--settle", "200ms", "--rate", "600", "--clients", "8", "--keys", "64"}

func TestDrillOnDemo(t *testing.T) {
	_, flags := demoForTests(t)
	args := slices.Concat([]string{"drill"}, flags, short)
	undisturbed(t, func() error {
		code, out, errs := typed(append(args, "--fault", "refuse,hang", "--server", "demo2")...)
		if code != 0 || !strings.Contains(out, "refuse") || !strings.Contains(out, "hang") || !strings.Contains(errs, "hang on demo2: done") {
			return fmt.Errorf("exit %d\n%s%s", code, out, errs)
		}
		code, out, errs = typed(append(args, "--fault", "refuse", "--max-refused", "0", "--max-return", "1ns")...)
		if code != 1 || !strings.Contains(out, "refuse: EXCEEDED: ") || !strings.Contains(out, "refused writes, at most 0") || !strings.Contains(errs, "1 of 1 faults exceeded a limit") {
			return fmt.Errorf("limits: exit %d\n%s%s", code, out, errs)
		}
		return nil
	})
}

// TestDrillThroughSeveral sends traffic through two instances, and injects a fault into one of
// them. Clients of the other must see no effect except misses.
func TestDrillThroughSeveral(t *testing.T) {
	servers := fmt.Sprintf("{name: one, address: \"%s\"}, {name: two, address: \"%s\"}, {name: three, address: \"%s\"}", memcached(t), memcached(t), memcached(t))
	var at, paths []string
	for range 2 {
		listen := free(t)
		at = append(at, listen)
		paths = append(paths, startFile(t, fmt.Sprintf("listen: %s\nadmin: {address: \"%s\", allow_faults: true}\npools: {main: {distribution: ketama, servers: [%s]}}\n", listen, free(t), servers)))
	}
	undisturbed(t, func() error {
		code, out, errs := typed(slices.Concat([]string{"drill", "-c", paths[0], "--through", at[1], "--fault", "refuse"}, short)...)
		if code != 0 || !strings.Contains(out, "refuse on one: ") || !strings.Contains(out, "verdict: ") || strings.Contains(out, "NOT GOOD") || !strings.Contains(out, "no read returned a value that was never written") {
			return fmt.Errorf("exit %d\n%s%s", code, out, errs)
		}
		return nil
	})
	for _, c := range []struct{ through, says string }{
		{at[0], "it is asked already"},
		{at[1] + "," + at[1], "it is asked already"},
		{"nonsense", "--through nonsense: want host:port"},
		{"192.0.2.1:11211", "say --yes"},
	} {
		if code, _, errs := typed(slices.Concat([]string{"drill", "-c", paths[0], "--through", c.through}, short)...); code != 64 || !strings.Contains(errs, c.says) {
			t.Errorf("--through %s: exit %d, %s", c.through, code, errs)
		}
	}
}

func TestDrillRefuses(t *testing.T) {
	_, flags := demoForTests(t)
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"--fault melt", 64, "it is one of refuse, hang, delay, drop, reset, partition, or all"},
		{"--percent 0", 64, "--percent is from 1 to 100"},
		{"--delay 2m", 64, "--delay"},
		{"--for -1s", 64, "--for"},
		{"--clients 0", 64, "--clients"},
		{"--rate 0", 64, "--rate"},
		{"--keys 3", 64, "--keys"},
		{"--settle 0s", 64, "--settle"},
		{"--server demo9", 64, `no server "demo9"`},
		{"--pool other", 64, `no pool "other"; there are main`},
		{"--to 192.0.2.1:11211", 64, "say --yes"},
		{"--admin 0.0.0.0:9151", 64, "say --yes"},
		{"--to nonsense", 64, "want host:port"},
		{"--admin 127.0.0.1:1", 1, "no answer from the admin interface"},
		{"extra", 64, `"extra" is one word too many: ringside drill`},
	} {
		if code, out, errs := typed(slices.Concat([]string{"drill"}, flags, strings.Fields(c.args))...); code != c.code || !strings.Contains(out+errs, c.says) {
			t.Errorf("drill %s: exit %d, %s%s", c.args, code, out, errs)
		}
	}
}

// startFile starts an instance with a configuration, and returns the path of the file for -c.
func startFile(t *testing.T, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "ringside.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := config.Load(path, config.Environment())
	if err != nil {
		t.Fatal(err)
	}
	r, err := instance.Start(f, "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.End() })
	return path
}

// free returns an address on which no process listens.
func free(t *testing.T) string {
	t.Helper()
	return testenv.FreeAddress(t, testenv.OwnHost())
}

// memcached starts a real memcached server, and returns its address.
func memcached(t *testing.T) string {
	t.Helper()
	return testenv.StartMemcached(t).Address
}

// TestDrillNotAllowed checks that a drill names the setting that allows faults if they are not
// allowed.
func TestDrillNotAllowed(t *testing.T) {
	path := startFile(t, fmt.Sprintf("listen: %s\nadmin: %s\npools: {main: {distribution: ketama, servers: [\"%s\"]}}\n", free(t), free(t), free(t)))
	if code, _, errs := typed("drill", "-c", path); code != 1 || !strings.Contains(errs, "admin.allow_faults") {
		t.Errorf("exit %d: %s", code, errs)
	}
}

// TestDrillOnMemcached injects faults into a pool of three real memcached servers, with both
// drivers. No client may read a stale or wrong value or get stuck. A pool that does not move keys
// gets all kinds of faults. A pool that moves keys gets the faults that make a server
// unreachable.
func TestDrillOnMemcached(t *testing.T) {
	drivers := []string{"portable"}
	if runtime.GOOS == "linux" {
		drivers = append(drivers, "epoll")
	}
	for _, driver := range drivers {
		for _, c := range []struct {
			name, pool string
			args       []string
			kinds      int
		}{
			{"fail_fast", "distribution: ketama", short, 6},
			{"rehash", "distribution: ketama-points, failover: {eject_after: 100ms, ping: 100ms, lease: 1s}", append([]string{"--fault", "refuse,hang,partition"}, moving...), 3},
		} {
			drillOnMemcached(t, driver+" "+c.name, fmt.Sprintf("engine: {driver: %s}\npools: {main: {%s, servers: [\"%s\", \"%s\", \"%s\"]}}\n",
				driver, c.pool, memcached(t), memcached(t), memcached(t)), c.args, c.kinds)
		}
	}
}

func drillOnMemcached(t *testing.T, name, file string, args []string, kinds int) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		path := startFile(t, fmt.Sprintf("listen: %s\nadmin: {address: \"%s\", allow_faults: true}\n", free(t), free(t))+file)
		undisturbed(t, func() error { return drilled(slices.Concat([]string{"--json", "-c", path}, args), kinds) })
	})
}

// drilled runs a drill, and checks its result for each fault.
func drilled(args []string, kinds int) error {
	code, out, errs := typed(append([]string{"drill"}, args...)...)
	if code != 0 {
		return fmt.Errorf("exit %d: %s", code, errs)
	}
	seen := map[string]bool{}
	for line := range strings.Lines(out) {
		var r struct {
			Fault                                                  string
			Requests, Errors, Misses, Refused, Stale, Wrong, Stuck int
			Notice                                                 *float64 `json:"notice_ms"`
			Eject                                                  *float64 `json:"eject_ms"`
			RateBefore                                             float64  `json:"rate_before"`
			BelowHalf                                              *float64 `json:"below_half_ms"`
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return fmt.Errorf("%s: %w", line, err)
		}
		kind, _, _ := strings.Cut(r.Fault, " ")
		seen[kind] = true
		if r.Requests == 0 || r.RateBefore == 0 || r.BelowHalf == nil || r.Stale != 0 || r.Wrong != 0 || r.Stuck != 0 {
			return errors.New(line)
		}
		if kind != "drop" && (r.Notice == nil || r.Refused == 0) { // drop discards a fifth of the segments, which may be none of the few that are sent
			return fmt.Errorf("nobody noticed: %s", line)
		}
		if kind == "refuse" && r.Eject == nil {
			return fmt.Errorf("not taken for down: %s", line)
		}
	}
	if len(seen) != kinds {
		return fmt.Errorf("%d kinds:\n%s", len(seen), out)
	}
	return nil
}
