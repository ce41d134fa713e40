package e2e

// This file tests sessions on a route with `preset: sessions`. Real session stores and
// clients count in them while each server in turn dies and hangs.

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"ringside/internal/testenv"
)

// counters are programs that count in sessions and print what they did. Each program has
// its own sessions.
var counters = []struct {
	name  string
	run   []string // command below testdata; the address and the session names are appended
	many  int
	keys  string // format of the key of a session on the servers
	names []string
}{
	{"php-memcached", []string{"php", "sessions/session.php", "text"}, 2, "memc.sess.key.%s", names("php", 3)},
	{"php-memcached, binary", []string{"php", "sessions/session.php", "binary"}, 3, "memc.sess.key.%s", names("bin", 3)},
	{"pymemcache", []string{"/usr/bin/python3", "sessions/lock.py"}, 2, "%s", names("sess:py", 3)},
	{"node-memcached", []string{"node", "clients/node/cas.js"}, 2, "%s", names("sess:node", 3)},
}

func TestSessions(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		rounds(t, testTolerance, func(t testing.TB) { countSessions(t, driver) })
	})
}

func countSessions(t testing.TB, driver string) {
	random := seeded(t)
	servers := startMemcacheds(t, 3)
	r := startRingside(t, driver, front(servers,
		"timeouts: {connect: 1s, request: 500ms, deadline: 2s}",
		"failover: {ping: 100ms, lease: 900ms, eject_after: 500ms}")+`
routes:
  - {prefix: "memc.sess.key.", pool: main, preset: sessions, replicas_on: server}
  - {prefix: "lock.", pool: main, preset: sessions, replicas_on: server}
  - {prefix: "sess:", pool: main, preset: sessions, replicas_on: server}
`)
	programs := map[string][]*process{}
	var keys []string
	for _, c := range counters {
		for range c.many {
			programs[c.name] = append(programs[c.name], startIn(t, "testdata", c.run[0], slices.Concat(c.run[1:], []string{r.address}, c.names)...))
		}
		for _, s := range c.names {
			keys = append(keys, fmt.Sprintf(c.keys, s))
		}
	}
	// more waits until every program has counted ten more times and all keys are on two
	// servers. It is called before, between and after faults.
	more := func() {
		goals := map[*process]int{}
		for _, list := range programs {
			for _, p := range list {
				goals[p] = strings.Count(p.Output(), "ok ") + 10
			}
		}
		for p, goal := range goals {
			eventually(t, p.Name+" counts on", func() bool {
				return strings.Count(p.Output(), "ok ") >= goal || !p.Running()
			})
		}
		whole(t, []*ringside{r}, servers, keys, func(string) bool { return true })
	}
	// Each server is killed once and paused once; in the default tier, two servers are.
	// Of all these faults, up to two last long enough for an ejection.
	long := 2500 * time.Millisecond
	kills, hangs := []time.Duration{0, 200 * time.Millisecond, long}, []time.Duration{50 * time.Millisecond, 700 * time.Millisecond, long}
	random.Shuffle(3, func(i, j int) { kills[i], kills[j] = kills[j], kills[i] })
	random.Shuffle(3, func(i, j int) { hangs[i], hangs[j] = hangs[j], hangs[i] })
	broken := random.Perm(len(servers))
	if !testenv.Full() {
		broken = broken[:2]
	}
	for _, i := range broken {
		more()
		servers[i].Kill()
		time.Sleep(kills[i])
		servers[i].restart(t)
		more()
		servers[i].pause(t)
		time.Sleep(hangs[i])
		servers[i].resume(t)
	}
	more()
	for _, c := range counters {
		var tries []try
		for _, p := range programs[c.name] {
			p.signal(t, syscall.SIGTERM)
		}
		for _, p := range programs[c.name] {
			if status := p.wait(t); status != 0 {
				t.Errorf("%s ended with status %d", c.name, status)
			}
			tries = append(tries, triesOf(t, p.Output())...)
		}
		judge(t, c.name, c.names, tries)
	}
}

// startIn runs a program in a directory until the test ends.
func startIn(t testing.TB, dir, program string, args ...string) *process {
	t.Helper()
	dir, err := filepath.Abs(dir)
	if err != nil {
		t.Fatal(err)
	}
	path := need(t, program)
	return start(t, "env", append([]string{"-C", dir, path}, args...)...)
}

// try is one line of output of a program: one attempt to increment.
type try struct {
	what              string // "ok" or "error"
	session           string
	n                 int   // number written, or attempted; 0: failed before the number was known
	began, read, done int64 // ns; read is when the previous number was known
}

func triesOf(t testing.TB, printed string) (all []try) {
	t.Helper()
	for line := range strings.Lines(printed) {
		f := strings.Fields(line)
		if len(f) != 6 || f[0] != "ok" && f[0] != "error" {
			continue // an error message for people
		}
		y := try{what: f[0], session: f[1]}
		for i, to := range []*int64{&y.began, &y.read, &y.done} {
			var err error
			if *to, err = strconv.ParseInt(f[3+i], 10, 64); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
		}
		y.n, _ = strconv.Atoi(f[2])
		all = append(all, y)
	}
	return all
}

// judge checks each session of a program against what Ringside promises.
func judge(t testing.TB, name string, sessions []string, tries []try) {
	t.Helper()
	for _, session := range sessions {
		mine := slices.DeleteFunc(slices.Clone(tries), func(y try) bool { return y.session != session })
		report, ok := kept(mine)
		t.Logf("%s, %s: %s", name, session, report)
		if !ok {
			t.Errorf("%s, %s: a promise is broken", name, session)
		}
	}
}

// kept reports whether the promises for one session were kept: the session was not lost,
// and no number was written twice (a lock held twice, or a cas that succeeded twice). The
// number also never decreased, and never exceeded the number of attempts.
func kept(tries []try) (report string, ok bool) {
	slices.SortFunc(tries, func(a, b try) int { return cmp.Compare(a.began, b.began) })
	counted, failed, last := map[int]int{}, 0, 0
	var done []try // successful attempts, in the order in which they ended
	for _, y := range tries {
		if y.what == "ok" {
			counted[y.n]++
			last = max(last, y.n)
			done = append(done, y)
		} else {
			failed++
		}
	}
	slices.SortFunc(done, func(a, b try) int { return cmp.Compare(a.done, b.done) })
	report = fmt.Sprintf("%d increments came to %d, with %d errors", len(counted), last, failed)
	ok = last > 0 && last <= len(counted)+failed
	least := 0 // lowest number that the session may have when y begins
	for _, y := range tries {
		for len(done) > 0 && done[0].done < y.began {
			least = max(least, done[0].n)
			done = done[1:]
		}
		if y.n > 0 && y.n <= least {
			ok = false
			report += fmt.Sprintf("; after %d was written, %d was read (0: the session was lost): %+v", least, y.n-1, y)
		}
	}
	for n, times := range counted {
		if times > 1 {
			ok = false
			report += fmt.Sprintf("; %d was written %d times", n, times)
		}
	}
	return report, ok
}

// TestJudgeOfSessions checks that kept accepts correct histories and rejects others.
func TestJudgeOfSessions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		tries string // "what n began done" of attempts in order
		ok    bool
	}{
		{"ok 1 0 1; ok 2 2 3; ok 3 4 5", true},
		{"ok 1 0 1; error 2 2 3; ok 2 4 5", true},
		{"ok 1 0 1; error 2 2 3; ok 3 4 5", true},
		{"ok 1 0 1; error 0 2 3; ok 2 4 5", true},
		{"ok 1 0 5; ok 2 2 9; ok 3 4 7", true},
		{"ok 1 0 1; ok 1 2 3", false},
		{"ok 1 0 5; ok 1 2 7", false},
		{"ok 1 0 1; ok 2 2 3; error 1 4 5", false},
		{"ok 1 0 1; ok 2 2 3; error 2 4 5", false},
		{"ok 1 0 1; ok 3 2 3", false},
		{"error 1 0 1", false},
	} {
		var tries []try
		for _, line := range strings.Split(c.tries, "; ") {
			var y try
			if _, err := fmt.Sscan(line, &y.what, &y.n, &y.began, &y.done); err != nil {
				t.Fatal(err)
			}
			tries = append(tries, y)
		}
		if report, ok := kept(tries); ok != c.ok {
			t.Errorf("%s: %t, want %t: %s", c.tries, ok, c.ok, report)
		}
	}
}
