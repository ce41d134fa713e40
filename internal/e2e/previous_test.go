package e2e

// This file runs the previous release and this one together in front of one pool: each must
// understand what the other one stores on the servers.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"ringside/internal/testenv"
)

// buildPrevious compiles the previous release from its commit: the tag or commit in the variable
// PREVIOUS, the last tag before this commit, or, without tags, the parent of this commit.
var buildPrevious = sync.OnceValues(func() (string, error) {
	git := func(args ...string) (string, error) {
		c := exec.Command("git", args...)
		c.Dir = "../.."
		out, err := c.CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, out)
		}
		return strings.TrimSpace(string(out)), nil
	}
	tag, _ := git("describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD^") // fails without tags
	if strings.HasPrefix(tag, "fatal") {
		tag = ""
	}
	commit := cmp.Or(os.Getenv("PREVIOUS"), tag, "HEAD^")
	dir := filepath.Join(scratch, "previous")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	if _, err := git("archive", "-o", dir+".tar", commit); err != nil {
		return "", err
	}
	if out, err := exec.Command("tar", "-xf", dir+".tar", "-C", dir).CombinedOutput(); err != nil {
		return "", fmt.Errorf("tar: %w: %s", err, out)
	}
	c := exec.Command("go", "build", "-buildvcs=false", "-ldflags", "-X main.version=previous-"+commit, "-o", dir+"-ringside", "./cmd/ringside")
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build of %s: %w\n%s", commit, err, out)
	}
	return dir + "-ringside", nil
})

// startMixed starts n instances with one configuration. Every second one is of the previous release,
// beginning with the first.
func startMixed(t testing.TB, driver string, n int, config string) (all []*ringside) {
	t.Helper()
	previous, err := buildPrevious()
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if i%2 == 0 {
			all = append(all, startBinary(t, driver, config, previous))
		} else {
			all = append(all, startRingside(t, driver, config))
		}
	}
	return all
}

// misunderstood matches log lines of an instance that could not use what another one has stored.
var misunderstood = regexp.MustCompile(`(?m)^.*(level=ERROR|view record refused|not a view record|instances have different|reply fault|broke the protocol).*$`)

// understands fails the test if an instance could not use what another one has stored.
func understands(t testing.TB, all ...*ringside) {
	t.Helper()
	for _, r := range all {
		for _, line := range misunderstood.FindAllString(r.Output(), -1) {
			t.Errorf("%s logged: %s", r.Cmd.Path, line)
		}
	}
	for _, r := range all {
		if n := r.metric(t, `ringside_peers_unreadable_total{pool="main"}`); n != 0 {
			t.Errorf("%s could not read %v entries of the roll call", r.Cmd.Path, n)
		}
	}
}

// beside returns a reason to run tests with the previous release in the full tier only.
const beside = "it builds the previous release; the view record of this one is tested in every tier"

// TestPreviousFailover kills and hangs servers of a pool that moves keys, with two instances of the
// previous release and one of this one.
func TestPreviousFailover(t *testing.T) {
	testenv.OnlyFull(t, beside)
	eachKind(t, moving, func(t testing.TB, driver string, k kind) {
		o := &outing{servers: startMemcacheds(t, 3)}
		o.ringsides = startMixed(t, driver, 3, k.config(o.servers))
		o.fill(t)
		s := o.servers[1]
		for _, fault := range []struct{ begin, end func() }{
			{s.Kill, func() { s.restart(t) }},
			{func() { s.pause(t) }, func() { s.resume(t) }},
		} {
			was := o.total()
			fault.begin()
			o.allSay(t, serverName(1), "OUT")
			o.calm(t, 100)
			fault.end()
			o.settled(t)
			o.sound(t)
			t.Logf("%v", o.total().minus(was))
		}
		o.end(t)
		understands(t, o.ringsides...)
	})
}

// TestPreviousReplicas checks histories of keys with replicas through two instances of the previous
// release and one of this one.
func TestPreviousReplicas(t *testing.T) {
	testenv.OnlyFull(t, beside)
	t.Parallel()
	rounds(t, testTolerance, func(t testing.TB) {
		assault{name: "beside the previous release", driver: "auto", fronts: 3, faults: []string{"kill", "hang", "black hole"}, mixed: true}.play(t, seeded(t))
	})
}

// TestPreviousTags checks that no instance of either release returns a value that the other one has
// invalidated. The route also has a guard.
func TestPreviousTags(t *testing.T) {
	testenv.OnlyFull(t, beside)
	t.Parallel()
	h := &tagHistory{servers: startMemcacheds(t, 3), rounds: 240}
	all := startMixed(t, "auto", 4, tagRoute(h.servers, historyRoute))
	for _, r := range all {
		h.addresses = append(h.addresses, r.address)
	}
	h.play(t)
	for _, s := range h.stale {
		t.Error(s)
	}
	if h.read.Load() < 100 || h.invalidated.Load() < 250 {
		t.Error("too little was read, or invalidated, to show anything")
	}
}

// TestPreviousUpgrade replaces both instances in front of a pool by this release, one after the other,
// while a server is out. Then it goes back to the previous release. Clients lose no value and read no
// old one.
func TestPreviousUpgrade(t *testing.T) {
	testenv.OnlyFull(t, beside)
	previous, err := buildPrevious()
	if err != nil {
		t.Fatal(err)
	}
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	t.Parallel()
	rounds(t, testTolerance, func(t testing.TB) {
		k := kind{distribution: "ketama", mode: "rehash", consistency: "strict", driver: "auto",
			after: "limits: {drain: 1s}\nroutes:\n  - {pool: main, replicas: 2, replicas_on: server}\n"}
		o := &outing{servers: startMemcacheds(t, 3)}
		for range 2 {
			o.ringsides = append(o.ringsides, startBinary(t, "auto", k.config(o.servers), previous))
		}
		names := names("key", 60)
		o.load = startLoad(t, names, func(string) int { return 0 }, loadClients, false, o.ringsides[0].address, o.ringsides[1].address)
		o.calm(t, 100)
		replace := func(i int, binary string) {
			t.Helper()
			old := o.ringsides[i]
			next := *old
			next.process = start(t, binary, "serve", "--take-over", "-c", old.file)
			o.ringsides[i] = &next
			if code := old.wait(t); code != 0 {
				t.Errorf("the replaced instance ended with status %d", code)
			}
			o.more(t, 300)
			understands(t, &next)
			for _, line := range misunderstood.FindAllString(old.Output(), -1) {
				t.Errorf("the replaced instance logged: %s", line)
			}
		}
		phase := func(want string) {
			t.Helper()
			for i, r := range o.ringsides {
				eventually(t, fmt.Sprintf("instance %d has the server in phase %s", i, want), func() bool { return r.phaseNow(t, serverName(1)) == want })
			}
		}
		replace(0, binary)
		o.servers[1].Kill()
		phase("OUT")
		o.calm(t, 100)
		replace(1, binary)
		phase("OUT") // the new process has read it from the view record
		o.servers[1].restart(t)
		phase("IN")
		o.calm(t, 100)
		for i := range o.ringsides {
			replace(i, previous)
		}
		o.calm(t, 100)
		o.end(t)
		if total := o.total(); total.lost > 0 {
			t.Errorf("values were lost: %v\n%s", total, o.examples())
		} else {
			t.Logf("%v", total)
		}
	})
}

// phaseNow returns the phase of a server that r reports.
func (r *ringside) phaseNow(t testing.TB, server string) string {
	t.Helper()
	_, text := r.page(t, "/control/servers")
	var all struct {
		Servers []struct {
			Server   string
			Failover *struct{ Phase string }
		}
	}
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		t.Fatalf("/control/servers: %v\n%s", err, text)
	}
	for _, s := range all.Servers {
		if s.Server == server && s.Failover != nil {
			return s.Failover.Phase
		}
	}
	return ""
}
