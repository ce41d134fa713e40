package e2e

// This file tests the failover modes: no key moves, keys move to a gutter, and keys move
// as with the client libraries that rebuild their ring or try the next server.

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"ringside/internal/testenv"
)

// TestFailFast checks that fail_fast writes no record to the servers and moves no key. A
// server that rejoins with its values serves them.
func TestFailFast(t *testing.T) {
	eachKind(t, []kind{{distribution: "ketama-points", mode: "fail_fast"}}, func(t testing.TB, driver string, k kind) {
		o := startOuting(t, driver, 2, k, startLasting(t, 3))
		at := owners(t, o.servers, o.kept)
		const gone = 1
		s := o.servers[gone]
		mine := o.keeps(t, at, gone)
		for _, outage := range []struct {
			name        string
			begin, heal func()
			left        int
		}{
			{"stopped", func() { s.pause(t) }, func() { s.resume(t) }, mine},
			{"left and back with its values", func() { s.leave(t) }, func() { s.comeBack(t) }, mine},
			{"cut from one ringside", func() { o.ringsides[0].fault(t, gone, "partition") }, func() { o.ringsides[0].lift(t) }, mine},
			{"killed and empty", func() { s.Kill() }, func() { s.restart(t) }, 0},
		} {
			was := o.total()
			outage.begin()
			o.troubled(t, gone)
			o.more(t, 300)
			o.calm(t, 30, 0, 2)
			outage.heal()
			o.settled(t)
			if n := o.keeps(t, at, gone); n != outage.left {
				t.Errorf("%s: %d values from before are there, want %d", outage.name, n, outage.left)
			}
			o.sound(t)
			t.Logf("%s: %v", outage.name, o.total().minus(was))
		}
		for _, s := range o.servers {
			dial(t, s.address).misses("__rs_view__:main")
		}
		o.end(t)
	})
}

// TestBackToFailFast switches a pool to fail_fast by a reload while a server is out. That
// server rejoins through the usual phases. After that no server is ejected or flushed,
// because clients may access servers directly.
func TestBackToFailFast(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		servers := startLasting(t, 3)
		in := func(mode string) string {
			return front(servers, "failover: {mode: "+mode+"}", unhurriedReturn)
		}
		r := startRingside(t, driver, in("rehash, ping: 100ms, eject_after: {refused: 300ms, silent: 15s}"))
		client := dial(t, r.address)
		keys := names("key", 60)
		store := func() {
			for _, key := range keys {
				eventually(t, "a server takes a value", func() bool { return client.set(key, "value") == "STORED" })
			}
		}
		store()
		first, second := servers[1], servers[2]
		first.Kill()
		eventually(t, "a server is out", func() bool { return r.phase(first.address) == "OUT" })
		before := r.metric(t, reloadsDone)
		r.reload(t, in("fail_fast"))
		r.reloaded(t, reloadsDone, before)
		first.restart(t)
		eventually(t, "it is back", func() bool { return r.phase(first.address) == "IN" && r.calm() })
		store()
		at := owners(t, servers, keys)

		second.leave(t)
		eventually(t, "the next one is missed", func() bool {
			for key, i := range at {
				if servers[i] == second && strings.HasPrefix(client.set(key, "other"), "SERVER_ERROR") {
					return true
				}
			}
			return false
		})
		time.Sleep(2 * time.Second) // longer than the ejection of a server took before
		second.comeBack(t)
		store()
		if went := r.went(second.address, 0); len(went) > 0 {
			t.Errorf("with fail_fast a server went %v", went)
		}
	})
}

// TestFailoverGutter checks that a gutter serves the keys of servers that are out, also
// when one of its own servers fails.
func TestFailoverGutter(t *testing.T) {
	testenv.OnlyFull(t, "internal/fleet covers gutters")
	eachKind(t, []kind{{distribution: "ketama", mode: "gutter", consistency: "relaxed"}, {distribution: "ketama", mode: "gutter", consistency: "strict"}}, func(t testing.TB, driver string, k kind) {
		spare := startLasting(t, 2)
		k.more = nil
		k.after = fmt.Sprintf("  spare:\n    distribution: ketama-points\n    %s\n    %s\n    servers:\n", testTimeouts, testBackoff)
		for i, s := range spare {
			k.after += fmt.Sprintf("      - {address: %q, name: g%d}\n", s.address, i)
		}
		o := startOuting(t, driver, 1, k, startLasting(t, 3))
		r := o.ringsides[0]
		at := owners(t, o.servers, o.kept)
		const gone = 1

		o.servers[gone].leave(t)
		o.allSay(t, serverName(gone), "OUT")
		o.calm(t, 50)
		// The keys are in the gutter, under names that contain the number of this outage.
		client := dial(t, r.address)
		var moved, other []string
		for key, i := range at {
			if i == gone {
				client.store(key, valueOf(key))
				moved = append(moved, "__rs~2~"+key)
			} else {
				other = append(other, key)
			}
		}
		if found := owners(t, spare, moved); len(found) != len(moved) {
			t.Errorf("%d of %d keys of the server that is out are in the gutter", len(found), len(moved))
		}
		if found := owners(t, append(spare, o.servers[0], o.servers[2]), other); len(found) != len(other) {
			t.Errorf("%d of %d keys of the other servers are where they were", len(found), len(other))
		}

		// A flush also flushes the gutter.
		o.flushed(func() bool { return client.question("flush_all") == "OK" })
		if found := owners(t, spare, moved); len(found) != 0 {
			t.Errorf("%d keys of the server that is out have survived a flush", len(found))
		}
		for key, i := range at {
			client.misses(key)
			if i == gone {
				client.store(key, valueOf(key))
			}
		}

		// If a server of the gutter fails too, the other one serves its keys.
		spare[0].leave(t)
		o.allSay(t, "g0", "OUT")
		o.calm(t, 50)
		spare[0].comeBack(t)
		o.allSay(t, "g0", "IN")
		o.calm(t, 50)

		// The server rejoins. Values that remain in the gutter must not be read any more.
		o.servers[gone].comeBack(t)
		o.settled(t)
		if n := o.keeps(t, at, gone); n != 0 {
			t.Errorf("%d values from before are back", n)
		}

		// In a second outage, the values of the first one are still in the gutter and
		// must not be read.
		o.servers[gone].Kill()
		o.allSay(t, serverName(gone), "OUT")
		if n := o.keeps(t, at, gone); n != 0 {
			t.Errorf("%d values of an earlier outage are back", n)
		}
		o.calm(t, 50)
		o.servers[gone].restart(t)
		o.settled(t)
		o.end(t)
	})
}

// TestFailoverPresets checks that each preset of a client library moves keys as that
// library does.
func TestFailoverPresets(t *testing.T) {
	eachKind(t, []kind{
		{distribution: "modulo-twemproxy", mode: "rehash", consistency: "relaxed", more: []string{"hash: fnv1a_64"}}, // rebuilds its server list
		{distribution: "ketama", mode: "rehash", consistency: "strict"},                                              // rebuilds its ring
		{distribution: "modulo-python-memcache", mode: "rehash", consistency: "relaxed"},                             // tries the next server
	}, func(t testing.TB, driver string, k kind) {
		o := startOuting(t, driver, 1, k, startLasting(t, 4))
		at := owners(t, o.servers, o.kept)
		others := func(gone ...int) (n int) {
			for i := range o.servers {
				if i != gone[0] && i != gone[len(gone)-1] {
					n += o.keeps(t, at, i)
				}
			}
			return n
		}
		const gone, next = 1, 2
		well := others(gone, next)
		o.servers[gone].leave(t)
		o.allSay(t, serverName(gone), "OUT")
		o.calm(t, 50)
		o.servers[gone].comeBack(t)
		o.settled(t)
		// One server fails while the other is rejoining.
		o.servers[gone].leave(t)
		o.allSay(t, serverName(gone), "OUT")
		o.servers[gone].comeBack(t)
		o.allSay(t, serverName(gone), "RETURN")
		o.troubled(t, next, func() { o.servers[next].leave(t) })
		o.more(t, 300)
		o.servers[next].comeBack(t)
		o.settled(t)
		if n := others(gone, next); n != well {
			t.Errorf("%d of %d values of the other servers are left", n, well)
		}
		if n := o.keeps(t, at, gone); n != 0 {
			t.Errorf("%d values from before are back", n)
		}
		o.end(t)
	})
}

// TestFailoverTokens checks that a cas token is valid only at the server that issued it,
// and only while the key is stored there.
func TestFailoverTokens(t *testing.T) {
	eachKind(t, moving[:1], func(t testing.TB, driver string, k kind) {
		o := startOuting(t, driver, 1, k, startMemcacheds(t, 3))
		at := owners(t, o.servers, o.kept)
		const gone = 1
		key := ""
		for k, i := range at {
			if i == gone {
				key = k
			}
		}
		client := dial(t, o.ringsides[0].address)
		gets := func() string {
			client.send("gets " + key + "\r\n")
			f := strings.Fields(client.line())
			if len(f) != 5 {
				t.Fatalf("gets %s: %v", key, f)
			}
			client.line()
			client.expect("END\r\n")
			return f[4]
		}
		cas := func(token, want string) {
			t.Helper()
			if got := client.question(fmt.Sprintf("cas %s 0 0 1 %s\r\nx", key, token)); got != want {
				t.Errorf("cas with token %s: %s, want %s", token, got, want)
			}
			if want != "STORED" {
				if got := client.question(fmt.Sprintf("ms %s 1 C%s\r\nx", key, token)); got != map[string]string{"EXISTS": "EX", "NOT_FOUND": "NF"}[want] {
					t.Errorf("ms with token %s: %s, and cas: %s", token, got, want)
				}
			}
		}
		home := gets()
		cas(home, "STORED")
		home = gets()

		o.servers[gone].Kill()
		o.allSay(t, serverName(gone), "OUT")
		cas(home, "EXISTS")
		client.store(key, "away")
		cas(home, "EXISTS")
		away := gets()
		if n, err := strconv.ParseUint(away, 10, 64); err != nil || n>>52 != 2 {
			t.Errorf("the token of a key that is away is %s, want 2 in its 12 highest bits", away)
		}
		cas(away, "STORED")
		cas(away, "EXISTS")
		away = gets()

		o.servers[gone].restart(t)
		o.allSay(t, serverName(gone), "IN")
		cas(away, "NOT_FOUND") // the restarted server is empty
		client.store(key, "home")
		cas(away, "EXISTS")
		cas(gets(), "STORED")
		o.settled(t)
		o.end(t)
	})
}
