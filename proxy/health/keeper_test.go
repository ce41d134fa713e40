package health

// Tests of single steps, in small simulated pools with explicit faults.

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"ringside/proxy/health/divert"
	"ringside/proxy/health/resize"
)

// whole starts a world and runs it until all servers are in use.
func whole(t *testing.T, proxies, pool int, s Settings) *world {
	t.Helper()
	w := newWorld(t, scenario{proxies: proxies, pool: pool, set: s})
	w.settle(20 * sec)
	w.run(w.now + sec)
	return w
}

func (w *world) phase(p, server int) Phase { return PhaseOf(w.proxies[p].k.Verdict(server).N) }

// until runs until server is in phase for all proxies.
func (w *world) until(server int, phase Phase) {
	w.t.Helper()
	for end := w.now + 100*sec; w.now < end; w.run(w.now + 10*ms) {
		n := 0
		for p := range w.proxies {
			if w.phase(p, server) == phase {
				n++
			}
		}
		if n == len(w.proxies) {
			return
		}
	}
	w.fail("server %d never was %v: %s", server, phase, w.proxies[0].k.Verdict(server).Step)
}

// stays runs for some time and fails if server leaves phase.
func (w *world) stays(server int, phase Phase, time int64) {
	w.t.Helper()
	for end := w.now + time; w.now < end; w.run(w.now + 10*ms) {
		for p := range w.proxies {
			if got := w.phase(p, server); got != phase {
				w.fail("server %d is %v, must stay %v", server, got, phase)
			}
		}
	}
}

func (w *world) cutAll(server int, cut bool) {
	for p := range w.cut {
		w.cut[p][server] = cut
	}
}

func (w *world) logged(what string) bool {
	return slices.ContainsFunc(w.log, func(l string) bool { return strings.Contains(l, what) })
}

func TestStrictStartWaits(t *testing.T) {
	w := newWorld(t, scenario{proxies: 2, pool: 3, set: Settings{Strict: true}})
	w.run(w.now + w.proxies[0].k.wait())
	for i := range w.nodes {
		if v := w.proxies[0].k.Verdict(i); v.ValidUntil > w.now {
			t.Errorf("server %d is used before others must have lost their leases", i)
		}
		if keys := w.nodes[i].Keys(); len(keys) > 2 { // the counter of live proxies, but no record
			t.Errorf("server %d has a record already: %v", i, keys)
		}
	}
	w.settle(5 * sec)
}

func TestStrictJoinsAtOnce(t *testing.T) {
	w := whole(t, 2, 3, Settings{Strict: true})
	w.start(w.proxies[1])
	if v := w.proxies[1].k.Verdict(0); v.ValidUntil > w.now {
		t.Error("a proxy serves before it has read any record")
	}
	w.run(w.now + 20*ms)
	if v := w.proxies[1].k.Verdict(0); v.ValidUntil <= w.now {
		t.Error("a proxy that has read all records doesn't serve")
	}
}

func TestRelaxedStartsAtOnce(t *testing.T) {
	w := newWorld(t, scenario{proxies: 1, pool: 3})
	if v := w.proxies[0].k.Verdict(0); v.ValidUntil != math.MaxInt64 {
		t.Errorf("valid until %d", v.ValidUntil)
	}
	w.run(w.now + 20*ms)
	for i, n := range w.nodes {
		if _, ok := n.value("__rs_view__:p"); !ok {
			t.Errorf("server %d has no record", i)
		}
	}
}

func TestWaits(t *testing.T) {
	members, _ := testServers("a", "b", "c")
	strict := New("p", members, Settings{Strict: true, Lease: 2 * time.Second, Request: 500 * time.Millisecond}, 1)
	if got := strict.wait(); got != 2850*ms {
		t.Errorf("strict: %d ms", got/ms)
	}
	if got := New("p", members, Settings{Ping: 300 * time.Millisecond}, 1).wait(); got != 600*ms {
		t.Errorf("relaxed: %d ms", got/ms)
	}
}

func TestMajorities(t *testing.T) {
	for n, want := range []int{0, 1, 2, 2, 3, 3, 4, 4} {
		if got := majorityOf(n); got != want {
			t.Errorf("of %d servers %d, want %d", n, got, want)
		}
	}
}

func TestTroubleIsSuspicion(t *testing.T) {
	w := whole(t, 1, 3, Settings{})
	k := w.proxies[0].k
	gen := k.Gen()
	w.input(w.proxies[0], func() { k.ServerFailed(1, true, "refused", w.now) })
	v := k.Verdict(1)
	if !v.Suspect || v.Why != "refused" || v.Since != w.now || k.Gen() == gen {
		t.Errorf("%+v, gen %d after %d", v, k.Gen(), gen)
	}
	w.input(w.proxies[0], func() { k.ServerFailed(1, false, "it rejects the login", w.now) })
	if next := k.Verdict(1); next.Why != "it rejects the login" || next.Since != v.Since {
		t.Errorf("a new reason: %+v", next)
	}
	gen = k.Gen()
	w.run(w.now + 2*sec)
	if k.Verdict(1).Suspect || k.Gen() == gen || k.Verdict(1).N != 0 {
		t.Errorf("good pings don't end a suspicion: %+v", k.Verdict(1))
	}
}

func TestShortHangCostsNoCache(t *testing.T) {
	w := whole(t, 2, 3, Settings{})
	w.nodes[0].hung = true
	w.run(w.now + 3*sec)
	if !w.proxies[0].k.Verdict(0).Suspect {
		t.Error("a server that hangs for 3 s is not suspect")
	}
	w.wake(0)
	w.stays(0, In, 20*sec)
}

func TestOutageFromEndToEnd(t *testing.T) {
	for _, strict := range []bool{true, false} {
		w := whole(t, 3, 3, Settings{Strict: strict})
		w.nodes[0].put("old", "x")
		w.cutAll(0, true)
		w.until(0, Out)
		w.stays(0, Out, 10*sec)
		w.cutAll(0, false)
		w.until(0, In)
		if _, ok := w.nodes[0].value("old"); ok || w.flushes != 1 {
			t.Errorf("strict %t: %d flushes", strict, w.flushes)
		}
		if n := w.proxies[0].k.Verdict(0).N; n != 6 {
			t.Errorf("strict %t: n is %d", strict, n)
		}
	}
}

func TestOneOfThreeDoesNotEject(t *testing.T) {
	w := whole(t, 3, 3, Settings{Strict: true})
	w.cut[1][0] = true
	w.stays(0, In, 30*sec)
	v := w.proxies[1].k.Verdict(0)
	if !v.Suspect || !strings.Contains(v.Step, "most instances reach it") {
		t.Errorf("%+v", v)
	}
	w.cut[1][0] = false
	w.settle(5 * sec)
}

func TestTwoOfThreeEject(t *testing.T) {
	w := whole(t, 3, 3, Settings{Strict: true})
	w.cut[0][0], w.cut[1][0] = true, true
	w.until(0, Out)
	w.stays(0, Out, 20*sec) // the third proxy reaches it, but knows that the others do not
	w.cut[0][0] = false
	w.until(0, In)
	w.cut[1][0] = false
	w.settle(60 * sec)
}

func TestMoreThanHalfIsMe(t *testing.T) {
	w := whole(t, 1, 3, Settings{})
	w.cutAll(0, true)
	w.cutAll(1, true)
	w.stays(0, In, 30*sec)
	w.stays(1, In, 10*ms)
	if !w.logged("server -1: closed -> fail-open (2 of 3 servers are suspect)") {
		t.Error("nobody says so")
	}
}

func TestTheLastServerStays(t *testing.T) {
	w := whole(t, 1, 2, Settings{})
	w.cutAll(0, true)
	w.until(0, Out)
	w.cutAll(1, true)
	w.stays(1, In, 20*sec)
	one := whole(t, 1, 1, Settings{Strict: true})
	one.cutAll(0, true)
	one.stays(0, In, 20*sec)
}

func TestTwoServersStrict(t *testing.T) {
	w := whole(t, 2, 2, Settings{Strict: true})
	w.cutAll(0, true)
	w.until(0, Leaving)
	w.run(w.now + 2500*ms)
	if v := w.proxies[0].k.Verdict(1); v.ValidUntil > w.now {
		t.Error("of two servers one is used without the other while that isn't OUT")
	}
	w.until(0, Out)
	if v := w.proxies[0].k.Verdict(1); v.ValidUntil <= w.now {
		t.Error("the other server is OUT and the one that is left isn't used")
	}
}

// TestFailsAgain makes a server fail in each phase of its return.
func TestFailsAgain(t *testing.T) {
	for _, phase := range []Phase{Returning, Warming, Settling} {
		w := whole(t, 2, 3, Settings{Strict: true})
		w.cutAll(0, true)
		w.until(0, Out)
		w.cutAll(0, false)
		w.until(0, phase)
		w.cutAll(0, true)
		w.until(0, Leaving)
		if n := w.proxies[0].k.Verdict(0).N; n != 7 {
			t.Errorf("from %v it goes to %d", phase, n)
		}
		w.until(0, Out)
		w.cutAll(0, false)
		w.until(0, In)
	}
}

// TestLeavingGoesOut makes a server reachable again while it is LEAVING.
func TestLeavingGoesOut(t *testing.T) {
	w := whole(t, 2, 3, Settings{Strict: true})
	w.cutAll(0, true)
	w.until(0, Leaving)
	w.cutAll(0, false)
	w.until(0, Out)
	w.until(0, In)
}

// TestDriverDies stops the proxy that received the overrides, in each phase.
func TestDriverDies(t *testing.T) {
	for _, phase := range []Phase{Leaving, Out, Returning, Warming, Settling} {
		w := whole(t, 2, 3, Settings{Strict: true})
		if err := w.give(0, 0, Drain); err != nil {
			t.Fatal(err)
		}
		w.until(0, Out)
		if err := w.give(0, 0, Restore); err != nil {
			t.Fatal(err)
		}
		if phase == Leaving {
			w.until(0, In)
			w.cutAll(0, true)
		}
		if phase == Out {
			w.run(w.now + 200*ms) // the other proxies must have read the override
		} else {
			w.until(0, phase)
		}
		w.proxies[0].dead = true
		w.proxies = w.proxies[1:]
		w.cutAll(0, false)
		w.until(0, In)
	}
}

// TestFlush checks the requests of a flush.
func TestFlush(t *testing.T) {
	w := whole(t, 3, 3, Settings{Strict: true})
	w.cutAll(0, true)
	w.until(0, Out)
	w.cutAll(0, false)
	w.until(0, Returning)
	var lines []string
	w.asked = func(p *proxy, r Request) {
		if r.Server == 0 && (r.Conn != 0 || strings.Contains(string(r.Line), divert.Reserved+"_fl") || strings.HasPrefix(string(r.Line), "stats s")) {
			head, _, _ := strings.Cut(string(r.Line), "\r\n")
			if f := strings.Fields(head); f[0] == "ms" {
				head = strings.Join(append(f[:2], f[3:]...), " ") // without the size
			}
			lines = append(lines, fmt.Sprintf("%s conn %d close %t", head, r.Conn, r.Close))
		}
	}
	w.until(0, Warming)
	want := []string{
		"ms __rs_fl:p:3 ME T30 conn 0 close false",
		"stats settings conn 0 close false",
		"mn conn 1 close true",
		"mn conn 2 close true",
		"mn conn 3 close true",
		"flush_all conn 4 close false",
		"ms __rs_fl:p:3 ME T30 conn 4 close false",
		"ms __rs_view__:p ME conn 4 close false",
		"mn conn 4 close true",
	}
	lines = slices.DeleteFunc(lines, func(l string) bool { return l == want[0] })
	if !slices.Equal(lines, want[1:]) {
		t.Errorf("sent:\n%s", strings.Join(lines, "\n"))
	}
}

// TestFullServerIsFlushed lets a server rejoin that has no memory for the election token. It is
// flushed all the same.
func TestFullServerIsFlushed(t *testing.T) {
	w := whole(t, 2, 3, Settings{Strict: true})
	w.nodes[0].full = true
	w.cutAll(0, true)
	w.until(0, Out)
	w.cutAll(0, false)
	w.until(0, Warming)
	if w.nodes[0].full {
		t.Error("the server was not flushed")
	}
}

func TestServerThatRefusesTheFlush(t *testing.T) {
	w := whole(t, 2, 3, Settings{Strict: true})
	w.nodes[0].refuse = true
	w.cutAll(0, true)
	w.until(0, Out)
	w.cutAll(0, false)
	w.until(0, Warming)
	for _, p := range w.proxies {
		if got := p.k.Renamed(0); got != 3 {
			t.Errorf("p%d: renamed %d", p.id, got)
		}
	}
	w.until(0, In)
	w.start(w.proxies[1]) // a new proxy learns it from the record
	w.settle(5 * sec)
	if got := w.proxies[1].k.Renamed(0); got != 3 {
		t.Errorf("a new proxy: renamed %d", got)
	}
	w.nodes[0].refuse = false
	w.cutAll(0, true)
	w.until(0, Out)
	w.cutAll(0, false)
	w.until(0, In)
	if got := w.proxies[0].k.Renamed(0); got != 3 || w.flushes != 1 {
		t.Errorf("after a flush: renamed %d, %d flushes", got, w.flushes)
	}
}

func TestWarm(t *testing.T) {
	w := whole(t, 1, 3, Settings{OnRejoin: Warm})
	p := w.proxies[0]
	w.cutAll(0, true)
	w.until(0, Out)
	w.cutAll(0, false)
	w.until(0, Warming)
	read := func(asks, hits uint64) {
		w.input(p, func() { p.k.Warmed(0, asks, hits, w.now) })
	}
	read(1000, 0)
	w.stays(0, Warming, 10*sec)
	read(1099, 99) // too few to count
	w.stays(0, Warming, 5*sec)
	read(1200, 150)
	w.stays(0, Warming, 5*sec)
	read(1300, 239) // 89 of 100
	w.stays(0, Warming, 5*sec)
	read(1400, 329)
	w.run(w.now + sec)
	if w.phase(0, 0) != Settling {
		t.Errorf("90 of 100: %v", w.phase(0, 0))
	}
	w.until(0, In)
	w.cutAll(0, true)
	w.until(0, Out)
	w.cutAll(0, false)
	w.until(0, Warming)
	w.stays(0, Warming, 59*sec)
	w.until(0, In)
}

// TestSettleOutlastsPlaceholders checks that no proxy is in IN before the placeholders of
// WARM have expired, however short the pings and leases are. A proxy may still act as in
// WARM for a WAIT after the first one is in SETTLE.
func TestSettleOutlastsPlaceholders(t *testing.T) {
	for _, s := range []Settings{
		{},
		{Ping: 50 * time.Millisecond, Lease: 700 * time.Millisecond},
		{Ping: 50 * time.Millisecond, Lease: 200 * time.Millisecond, Request: 50 * time.Millisecond, Strict: true},
		{Strict: true},
	} {
		w := whole(t, 2, 3, s)
		w.cutAll(0, true)
		w.until(0, Out)
		w.cutAll(0, false)
		first := func(p Phase) int64 {
			for end := w.now + 60*sec; w.now < end && w.phase(0, 0) != p && w.phase(1, 0) != p; {
				w.run(w.now + ms)
			}
			return w.now
		}
		settling := first(Settling)
		took := first(In) - settling
		if least := w.proxies[0].k.wait() + PlaceholderLife*sec; took < least {
			t.Errorf("%+v: SETTLE takes %d ms, and a WAIT and the TTL of a placeholder take %d", s, took/ms, least/ms)
		}
	}
}

func TestOtherMembershipListSuspends(t *testing.T) {
	w := whole(t, 2, 3, Settings{Strict: true})
	p, other := w.proxies[0], w.proxies[1]
	other.k.hash++ // as if it had another server list
	w.run(w.now + 2*sec)
	for _, p := range w.proxies {
		if v := p.k.Verdict(0); v.ValidUntil != math.MaxInt64 {
			t.Errorf("p%d serves no more: %+v", p.id, v)
		}
	}
	if err := w.give(1, 0, Drain); err != nil {
		t.Fatal(err)
	}
	w.until(0, Out) // they still exchange their records
	if err := w.give(0, 0, Restore); err != nil {
		t.Fatal(err)
	}
	w.until(0, In)
	w.run(w.now + 60*sec)
	if p.k.strict() || other.k.strict() {
		t.Error("they forget that they differ")
	}
	v := NewView(len(p.k.members))
	if v.Publish(p.k, true); !v.Foreign() {
		t.Error("the view does not say that they differ")
	}
	other.dead = true
	w.run(w.now + 30*sec)
	if v.Publish(p.k, true); v.Foreign() {
		t.Error("the view says that they differ when they don't")
	}
	if !p.k.strict() || p.k.Verdict(0).ValidUntil <= w.now {
		t.Error("the guarantee does not come back")
	}
	if !w.logged("server -1: kept -> other-servers (instances have different server lists: a view record was written under another list, by another instance or by this one before a reload)") || !w.logged("-> kept") {
		t.Error("nobody says so")
	}
}

// TestOtherSettingsSuspend runs a strict proxy and a relaxed one with shorter pings on the
// same servers. Both say that they differ. Package internal/fleet checks what clients of both read.
func TestOtherSettingsSuspend(t *testing.T) {
	for seed := range uint64(5) {
		last := Settings{Ping: 50 * time.Millisecond}
		w := newWorld(t, scenario{seed: seed, proxies: 2, pool: 3, set: Settings{Strict: true}, last: &last})
		w.settle(60 * sec)
		for range 4 {
			if err := w.give(1, 0, Drain); err != nil {
				t.Fatal(err)
			}
			w.until(0, Out)
			w.run(w.now + 5*sec)
			if err := w.give(1, 0, Restore); err != nil {
				t.Fatal(err)
			}
			w.until(0, In)
		}
		for _, p := range w.proxies {
			if p.k.pool != poolUnlike {
				t.Errorf("p%d is %s", p.id, p.k.pool)
			}
		}
		p := w.proxies[0]
		if !p.k.strict() || p.k.Verdict(0).ValidUntil == math.MaxInt64 {
			t.Error("the strict proxy does not check its leases")
		}
		if !w.logged("server -1: kept -> other-settings (instances have a different consistency or ping: a view record was written with other settings, by another instance or by this one before a reload)") {
			t.Error("nobody says so")
		}
		w.proxies[1].dead = true
		w.run(w.now + 30*sec)
		if p.k.pool != poolKept {
			t.Error("the guarantee does not come back")
		}
	}
}

// TestOlderReleaseKeepsSettings checks that proxies of a release that does not know the
// settings in the record, and proxies of this one, do not take each other for different.
func TestOlderReleaseKeepsSettings(t *testing.T) {
	w := whole(t, 2, 3, Settings{Strict: true})
	k := w.proxies[0].k
	r, err := parseRecord([]byte("rs1 "+string(appendNumber(nil, k.hash))+" 1"), by(k.index), 3)
	if err != nil || r.settings != 0 {
		t.Fatal(err)
	}
	k.read(0, r, w.now, w.now)
	if k.judge(w.now); k.pool != poolKept {
		t.Errorf("a record without settings: %s", k.pool)
	}
	w.run(w.now + 5*sec)
	if got := k.servers[0].record.settings; got != k.like {
		t.Errorf("settings in the record afterwards: %d", got)
	}
}

func TestServerWithoutMetaCommands(t *testing.T) {
	w := whole(t, 1, 3, Settings{Strict: true})
	w.nodes[2].old = true
	w.run(w.now + 10*sec)
	k := w.proxies[0].k
	if v := k.Verdict(2); v.Suspect || v.ValidUntil != math.MaxInt64 {
		t.Errorf("%+v", v)
	}
	w.cutAll(0, true)
	w.stays(0, In, 30*sec)
	if v := k.Verdict(0); !v.Suspect || !strings.Contains(v.Step, "meta commands") {
		t.Errorf("%+v", v)
	}
	if !w.logged("suspect-only (a server doesn't know meta commands)") {
		t.Error("nobody says so")
	}
	w.nodes[2].old = false // it was upgraded
	w.until(0, Out)
}

// TestResizeWithoutMetaCommands checks that a change of the list of servers waits for a server without meta commands only if the
// mode is not the default.
func TestResizeWithoutMetaCommands(t *testing.T) {
	for _, own := range []bool{false, true} {
		w := whole(t, 2, 3, Settings{})
		w.nodes[2].old = true
		set := func(wish uint32) {
			for _, p := range w.proxies {
				w.input(p, func() { p.k.SetLists(resize.Lists{Mine: 1, Wish: wish, Warm: true, Own: own}, w.now) })
			}
		}
		set(1)
		w.run(w.now + 10*sec)
		set(2)
		w.run(w.now + 30*sec)
		for i, p := range w.proxies {
			if is := p.k.resize.Status; is.Stage() != resize.Stable || is.Superseded() != own {
				t.Errorf("own %t: p%d is in %+v", own, i, is)
			}
		}
	}
}

// TestServerWithoutCas checks that a pool with a server without cas ejects no server. Its view record
// can't be replaced, so a phase could not be published.
func TestServerWithoutCas(t *testing.T) {
	for _, strict := range []bool{false, true} {
		w := newWorld(t, scenario{proxies: 2, pool: 3, set: Settings{Strict: strict}})
		w.nodes[2].noCas = true
		w.run(w.now + 10*sec)
		w.cutAll(0, true)
		w.stays(0, In, 30*sec)
		if v := w.proxies[0].k.Verdict(0); !v.Suspect || !strings.Contains(v.Step, "start memcached without -C") {
			t.Errorf("%+v", v)
		}
		w.cutAll(0, false)
		w.nodes[2].restart() // still without cas
		w.run(w.now + 10*sec)
		for i := range 3 {
			if v := w.proxies[1].k.Verdict(i); v.Suspect || v.N != 0 || v.ValidUntil != math.MaxInt64 {
				t.Errorf("server %d: %+v", i, v)
			}
		}
		if n := strings.Count(strings.Join(w.log, "\n"), "suspect-only (a server has no cas"); n != 2 {
			t.Errorf("two instances have %d log lines", n)
		}
		w.nodes[2].noCas = false // it was started without -C
		w.nodes[2].restart()
		w.run(w.now + 10*sec)
		w.cutAll(0, true)
		w.until(0, Out)
	}
}

func TestBrokenRecordIsReplaced(t *testing.T) {
	w := whole(t, 1, 3, Settings{Strict: true})
	for _, garbage := range []string{"", "rs2 1 1", "\x00\xff", "rs1 1 1 c0=?"} {
		w.nodes[1].put("__rs_view__:p", garbage)
		w.log = nil
		w.run(w.now + 2*sec)
		if !w.logged("view record refused") {
			t.Errorf("%q: nobody says so", garbage)
		}
		record, _ := w.nodes[1].value("__rs_view__:p")
		if _, err := parseRecord([]byte(record), by(nil), 0); err != nil {
			t.Errorf("%q stays: %v", garbage, err)
		}
	}
}

// TestLostRecordRestartsTheWait deletes a record that contains a LEAVING.
func TestLostRecordRestartsTheWait(t *testing.T) {
	w := whole(t, 2, 3, Settings{Strict: true})
	w.cutAll(0, true)
	w.until(0, Leaving)
	w.run(w.now + 2500*ms)
	w.nodes[1].drop("__rs_view__:p")
	w.stays(0, Leaving, 2800*ms)
	w.until(0, Out)
}

// TestMajorityOfRecordsLost restarts two of the three servers that are left while
// another one is out.
func TestMajorityOfRecordsLost(t *testing.T) {
	w := whole(t, 2, 4, Settings{Strict: true})
	w.cutAll(0, true)
	w.until(0, Out)
	w.nodes[1].restart()
	w.nodes[2].restart()
	w.run(w.now + 60*sec)
	for i := 1; i < 4; i++ {
		if v := w.proxies[0].k.Verdict(i); v.ValidUntil <= w.now {
			t.Errorf("server %d is not used any more", i)
		}
	}
	w.cutAll(0, false)
	w.settle(60 * sec)
}

func TestGutterServerLeavesToo(t *testing.T) {
	w := newWorld(t, scenario{proxies: 2, pool: 3, gutter: 2, set: Settings{Strict: true}})
	w.settle(20 * sec)
	w.cutAll(3, true)
	w.until(3, Out)
	w.cutAll(4, true)
	w.stays(4, In, 20*sec) // no server could take over
	w.cutAll(3, false)
	w.cutAll(4, false)
	w.settle(60 * sec)
}

func TestVerdictAllocatesNothing(t *testing.T) {
	w := whole(t, 1, 5, Settings{Strict: true})
	w.cutAll(0, true)
	w.until(0, Leaving)
	k := w.proxies[0].k
	if n := testing.AllocsPerRun(100, func() {
		for i := range 5 {
			k.Verdict(i)
		}
		k.Gen()
		k.Next()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestNextIsNotNow checks that a keeper does not keep its driver busy.
func TestNextIsNotNow(t *testing.T) {
	w := whole(t, 3, 3, Settings{Strict: true})
	asked := 0
	w.asked = func(*proxy, Request) { asked++ }
	for range 5 {
		w.nodes[0].down = true
		w.run(w.now + 20*sec)
		w.nodes[0].restart()
		w.run(w.now + 20*sec)
	}
	// Pings, votes and little else.
	if limit := 200 * 3 * 3 * 6; asked > limit {
		t.Errorf("%d requests in 200 s, more than %d", asked, limit)
	}
}

func TestUnknownAnswersAreIgnored(t *testing.T) {
	w := whole(t, 1, 3, Settings{})
	k := w.proxies[0].k
	gen := k.Gen()
	k.Answered(1, []byte("VA 3 c1\r\nabc\r\n"), w.now)
	k.Unanswered(math.MaxUint64, true, "refused", w.now)
	if k.Gen() != gen {
		t.Error("they change something")
	}
}

// TestResizeEvents checks that the log of a change of the servers says what has changed for clients: nothing
// for an instance that starts with the list of its peers.
func TestResizeEvents(t *testing.T) {
	stable := func(n, list uint32) resize.State { return resize.State{N: 6 * n, List: list} }
	during := func(n uint32, s resize.Stage, list, next uint32) resize.State {
		return resize.State{N: 6*n + uint32(s), List: list, Next: next}
	}
	for _, test := range []struct {
		name   string
		lists  resize.Lists
		states []resize.State
		want   []string // from>to
	}{
		{"starts among peers", resize.Lists{Mine: 1, Wish: 1}, []resize.State{stable(1, 1)}, nil},
		{"starts among peers during a change", resize.Lists{Mine: 1, Wish: 1}, []resize.State{during(1, resize.Move, 1, 2)}, []string{"started>outdated"}},
		{"has another list", resize.Lists{Mine: 2, Wish: 2}, []resize.State{stable(1, 1), during(1, resize.Clear, 1, 2), stable(2, 2)}, []string{"started>outdated", "outdated>resized"}},
		{"uses its own list until keys move", resize.Lists{Mine: 2, Wish: 2, Warm: true, Own: true}, []resize.State{stable(1, 1), stable(2, 1), during(2, resize.Pause, 1, 2), during(2, resize.Move, 1, 2), stable(3, 2)}, []string{"started>outdated", "outdated>outdated", "outdated>resized"}},
		{"changes", resize.Lists{Mine: 1, Wish: 2, Warm: true}, []resize.State{stable(1, 1), during(1, resize.Pause, 1, 2), during(1, resize.Move, 1, 2), stable(2, 2)}, []string{"resized>resizing", "resizing>resized"}},
		{"announces a change", resize.Lists{Mine: 1, Wish: 2, Warm: true}, []resize.State{stable(1, 1), {N: 6 + uint32(resize.Pause), List: 1, Next: 2, Announced: true}, during(1, resize.Pause, 1, 2), during(1, resize.Move, 1, 2)}, []string{"resized>resizing"}},
		{"misses a change", resize.Lists{Mine: 1, Wish: 2}, []resize.State{stable(1, 1), stable(2, 2)}, []string{"resizing>resized"}},
		{"was cut off", resize.Lists{Mine: 1, Wish: 1}, []resize.State{stable(1, 1), stable(2, 2), stable(3, 1)}, []string{"resized>outdated", "outdated>resized"}},
	} {
		k := &Keeper{}
		k.SetLists(test.lists, 0)
		for i, s := range test.states {
			k.readResize(record{resize: s}, int64(i))
		}
		var got []string
		for _, e := range k.events {
			got = append(got, e.From+">"+e.To)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}
