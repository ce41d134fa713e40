package e2e

// This file contains what the tests of failover share: a pool that moves keys, the
// instances in front of it, their phases and their faults.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ringside/internal/testenv"
)

// outing is a pool that is about to lose servers, and a load on it.
type outing struct {
	servers   []*memcached
	ringsides []*ringside
	*load
	kept     []string // keys that are stored once at the start
	textOnly bool     // the load sends no meta commands
}

// kind describes how a pool fails over.
type kind struct {
	distribution string
	mode         string
	consistency  string
	more         []string // lines appended to the pool's settings
	after        string   // sections of the configuration after the pool
	driver       string   // engine driver of the instances
	timeouts     string   // empty: testTimeouts
	eject        string   // empty: testEject
}

func (k kind) String() string { return strings.Trim(k.distribution+"-"+k.mode+"-"+k.consistency, "-") }

// Times for tests of failover. They are short because the tests wait for them to expire.
// A healthy server that gets no CPU for longer looks dead: see rounds.
const (
	testTimeouts  = "timeouts: {connect: 1s, request: 1s, deadline: 3s}"
	testEject     = "eject_after: {refused: 500ms, silent: 1500ms}"
	testFailover  = "ping: 150ms, lease: 700ms"
	testBackoff   = "backoff: {first: 20ms, max: 200ms}"
	testTolerance = 150 * time.Millisecond // longest CPU starvation allowed in a round: the shortest of these times
)

// unhurriedReturn are timeouts for tests in which servers fail and rejoin. Each phase may
// last as long as a request, so longer timeouts would make the tests slow.
const unhurriedReturn = "timeouts: {connect: 5s, request: 5s, deadline: 5s}"

// config returns the configuration of a pool of this kind.
func (k kind) config(servers []*memcached) string {
	var b strings.Builder
	fmt.Fprintf(&b, "pools:\n  main:\n    distribution: %s\n    get_errors: error\n    %s\n    %s\n", k.distribution, cmp.Or(k.timeouts, testTimeouts), testBackoff)
	switch k.mode {
	case "fail_fast":
		b.WriteString("    failover: {mode: fail_fast}\n")
	case "gutter":
		fmt.Fprintf(&b, "    failover: {mode: gutter, gutter: spare, consistency: %s, %s, %s}\n", k.consistency, cmp.Or(k.eject, testEject), testFailover)
	default:
		fmt.Fprintf(&b, "    failover: {mode: %s, consistency: %s, %s, %s}\n", k.mode, k.consistency, cmp.Or(k.eject, testEject), testFailover)
	}
	for _, line := range k.more {
		fmt.Fprintf(&b, "    %s\n", line)
	}
	b.WriteString("    servers:\n")
	for i, s := range servers {
		fmt.Fprintf(&b, "      - {address: %q, name: %s}\n", listenText(s.address), serverName(i))
	}
	fmt.Fprintf(&b, "%sengine: {driver: %s, loops: 2}\n", k.after, k.driver)
	return b.String()
}

// startOuting starts instances in front of the servers and waits until they serve.
func startOuting(t testing.TB, driver string, ringsides int, k kind, servers []*memcached) *outing {
	t.Helper()
	o := &outing{servers: servers}
	for range ringsides {
		o.ringsides = append(o.ringsides, startRingside(t, driver, k.config(servers)))
	}
	o.fill(t)
	return o
}

const loadClients = 4 // clients per instance

// fill stores the kept keys, determines the owner of each key and starts the load.
func (o *outing) fill(t testing.TB) {
	t.Helper()
	var addresses []string
	for _, r := range o.ringsides {
		addresses = append(addresses, r.address)
	}
	o.kept = names("kept", 60)
	loaded := names("key", 60)
	client := dial(t, addresses[0])
	all := append(slices.Clone(o.kept), loaded...)
	var at map[string]int
	eventually(t, "all keys are at home", func() bool { // a server that gets no CPU may be out at first
		for _, key := range all {
			if client.set(key, valueOf(key)) != "STORED" {
				return false
			}
		}
		at = owners(t, o.servers, all)
		return len(at) == len(all)
	})
	for _, key := range loaded {
		if answer := client.question("delete " + key); answer != "DELETED" {
			t.Fatalf("delete %s: %s", key, answer)
		}
	}
	o.load = startLoad(t, loaded, func(key string) int { return at[key] }, loadClients, o.textOnly, addresses...)
	for i := range o.servers {
		if o.of(i); len(o.groups) <= i {
			t.Fatalf("server %d owns no key", i)
		}
	}
	o.calm(t, 30)
}

// keeps counts the kept keys of server i that are still present.
func (o *outing) keeps(t testing.TB, at map[string]int, i int) (hits int) {
	t.Helper()
	client := dial(t, o.ringsides[0].address)
	for _, key := range o.kept {
		if at[key] != i {
			continue
		}
		for range 3 { // a server that gets no CPU also causes a miss
			found, _ := client.get(key)
			value, hit := found[key]
			if hit && value != valueOf(key) {
				t.Fatalf("%s: %q", key, value)
			}
			if hit {
				hits++
				break
			}
		}
	}
	return hits
}

// phase returns the phase of a server that r logged last, or IN.
func (r *ringside) phase(server string) string {
	if went := r.went(server, 0); len(went) > 0 {
		return went[len(went)-1]
	}
	return "IN"
}

// went returns the phases of a server that r has logged. It skips the start of the log:
// the parameter `since` is a number of bytes.
func (r *ringside) went(server string, since int) (phases []string) {
	line := regexp.MustCompile(fmt.Sprintf(`"server state changed" pool=main server=%s from=[A-Z]+ to=([A-Z]+)`, server))
	for _, change := range line.FindAllStringSubmatch(r.Output()[since:], -1) {
		phases = append(phases, change[1])
	}
	return phases
}

// allSay waits until every instance has logged that phase of a server.
func (o *outing) allSay(t testing.TB, server, phase string) {
	t.Helper()
	for i, r := range o.ringsides {
		eventually(t, fmt.Sprintf("ringside %d says that server %s is %s", i, server, phase), func() bool { return r.phase(server) == phase })
	}
}

// serverName returns the name of server i in the configuration.
func serverName(i int) string { return fmt.Sprint("s", i) }

// settled waits until every instance says that every server is in, and no request fails
// any more.
func (o *outing) settled(t testing.TB) {
	t.Helper()
	for i := range o.servers {
		o.allSay(t, serverName(i), "IN")
	}
	o.calm(t, 50)
}

// steer sends a request to the control API.
func (r *ringside) steer(t testing.TB, method, path, body string) {
	t.Helper()
	request, err := http.NewRequest(method, "http://"+r.admin+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Ringside-Control", "1")
	request.Header.Set("Content-Type", "application/json")
	client := http.Client{Timeout: patience}
	answer, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if text, _ := io.ReadAll(answer.Body); answer.StatusCode/100 != 2 {
		t.Fatalf("%s %s %s: %s: %s", method, path, body, answer.Status, text)
	}
}

// fault injects a fault into r's connections to a server. The parameter `more` has
// further fields of the request.
func (r *ringside) fault(t testing.TB, server int, kind string, more ...any) {
	t.Helper()
	fields := map[string]any{"server": serverName(server), "kind": kind}
	for i := 0; i < len(more); i += 2 {
		fields[more[i].(string)] = more[i+1]
	}
	body, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	r.steer(t, "POST", "/control/faults", string(body))
}

// lift ends all faults of r.
func (r *ringside) lift(t testing.TB) {
	t.Helper()
	r.steer(t, "DELETE", "/control/faults", "")
}

// startLasting runs memcacheds that keep their items across a restart, so a pool ejects them
// after eject_after.restart, or after eject_after.silent if that is longer. They are like a server that
// was partitioned.
func startLasting(t testing.TB, n int, args ...string) []*memcached {
	t.Helper()
	dir := shortDir(t)
	all := make([]*memcached, n)
	for i := range all {
		all[i] = startMemcached(t, append(slices.Clone(args), "-m", "64", "-e", filepath.Join(dir, fmt.Sprint("memory", i)))...)
	}
	return all
}

// leave ends m so that its items survive.
func (m *memcached) leave(t testing.TB) {
	t.Helper()
	m.signal(t, syscall.SIGUSR1)
	m.wait(t)
	if _, err := os.Stat(m.Cmd.Args[len(m.Cmd.Args)-1] + ".meta"); err != nil {
		t.Fatalf("memcached left nothing to start with: %v\n%s", err, m.Output())
	}
}

// comeBack starts m with the items that it had when it ended. memcached requires that at
// least a second has passed.
func (m *memcached) comeBack(t testing.TB) {
	t.Helper()
	left := m.Cmd.ProcessState.ExitCode()
	if left != 0 {
		t.Fatalf("memcached did not leave, but ended with status %d", left)
	}
	time.Sleep(time.Until(m.Ended.Truncate(time.Second).Add(1100 * time.Millisecond)))
	m.restart(t)
	if out := m.Output(); strings.Contains(out, "incompatible") || strings.Contains(out, "clean cache") {
		t.Fatalf("memcached came back without what it held:\n%s", out)
	}
}

// eachKind runs a test with every kind and every driver of this tier, all in parallel, in
// rounds. Outside the full tier, only the last kind runs: internal/fleet tests all kinds
// on the simulated clock.
func eachKind(t *testing.T, kinds []kind, test func(t testing.TB, driver string, k kind)) {
	t.Helper()
	t.Parallel()
	for _, k := range ofTier(kinds) {
		t.Run(k.String(), func(t *testing.T) {
			eachDriver(t, func(t *testing.T, driver string) {
				k := k
				k.driver = driver
				rounds(t, testTolerance, func(t testing.TB) { test(t, driver, k) })
			})
		})
	}
}

func ofTier(kinds []kind) []kind {
	if testenv.Full() {
		return kinds
	}
	return kinds[len(kinds)-1:]
}

var moving = []kind{
	{distribution: "ketama-points", mode: "rehash", consistency: "relaxed"},
	{distribution: "ketama-points", mode: "rehash", consistency: "strict"},
}

// TestFailoverReturn kills a server, restarts it with its values, and hangs it. After
// each outage the server must rejoin empty.
func TestFailoverReturn(t *testing.T) {
	eachKind(t, moving, func(t testing.TB, driver string, k kind) {
		o := startOuting(t, driver, 1, k, startLasting(t, 3))
		r := o.ringsides[0]
		at := owners(t, o.servers, o.kept)
		const gone = 1
		s := o.servers[gone]
		mine := o.keeps(t, at, gone)
		if mine == 0 {
			t.Fatal("the server owns no kept key")
		}
		others := func() int { return o.keeps(t, at, 0) + o.keeps(t, at, 2) }
		well := others()

		// A short hang makes the server suspect. It is not ejected, so it keeps its
		// values.
		since := len(r.Output())
		s.pause(t)
		o.troubled(t, gone)
		s.resume(t)
		o.calm(t, 30)
		if went := r.went(serverName(gone), since); len(went) == 0 {
			if n := o.keeps(t, at, gone); n != mine {
				t.Errorf("after a short hang %d of %d values are left", n, mine)
			}
		} else {
			t.Logf("the hang was not short enough on this machine: %v", went)
		}
		o.settled(t)

		for _, outage := range []struct {
			name        string
			begin, heal func()
		}{
			{"killed and empty", func() { s.Kill() }, func() { s.restart(t) }},
			{"left and back with its values", func() { s.leave(t) }, func() { s.comeBack(t) }},
			{"stopped for long", func() { s.pause(t) }, func() { s.resume(t) }},
		} {
			client := dial(t, r.address)
			for key, i := range at {
				if i == gone {
					client.store(key, valueOf(key))
				}
			}
			since := len(r.Output())
			was := o.total()
			began := time.Now()
			outage.begin()
			o.allSay(t, serverName(gone), "OUT")
			out := time.Since(began)
			o.calm(t, 50) // its keys have moved by now: all requests succeed
			outage.heal()
			healed := time.Now()
			o.allSay(t, serverName(gone), "IN")
			in := time.Since(healed)
			o.settled(t)
			if n := o.keeps(t, at, gone); n != 0 {
				t.Errorf("%s: %d values from before the outage are back", outage.name, n)
			}
			if n := others(); n != well {
				t.Errorf("%s: %d of %d values of the other servers are left", outage.name, n, well)
			}
			want := "LEAVING OUT RETURN WARM SETTLE IN"
			if went := strings.Join(r.went(serverName(gone), since), " "); !strings.HasSuffix(went, want) {
				t.Errorf("%s: the server went %s, want %s", outage.name, went, want)
			}
			t.Logf("%s: out after %v, in %v after it was back; %v", outage.name, out.Round(time.Millisecond), in.Round(time.Millisecond), o.total().minus(was))
		}
		o.end(t)
	})
}

// TestFailoverShare checks that a dead server affects only its own keys. The timeouts are
// so long that a busy machine does not exceed them. No request for a key of another
// server may fail.
func TestFailoverShare(t *testing.T) {
	k := moving[0]
	k.timeouts, k.eject = unhurriedReturn, "eject_after: {refused: 500ms, silent: 1m}"
	eachKind(t, []kind{k}, func(t testing.TB, driver string, k kind) {
		o := startOuting(t, driver, 2, k, startMemcacheds(t, 3))
		const gone = 1
		was := o.of(0, 2)
		o.servers[gone].Kill()
		o.allSay(t, serverName(gone), "OUT")
		o.calm(t, 50)
		o.servers[gone].restart(t)
		o.settled(t)
		if is := o.of(0, 2).minus(was); is.trouble() > 0 {
			t.Errorf("the keys of the other servers: %v\n%s", is, o.examples())
		}
		o.end(t)
	})
}
