package e2e

// This file tests many kinds of faults at the same time. They may cause errors and
// misses, but nothing worse.

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"syscall"
	"testing"
	"time"

	"ringside/internal/testenv"
)

// TestFailoverFaults injects faults of all kinds, one after another. They follow each
// other faster than servers are ejected and rejoin, so that they hit all phases.
func TestFailoverFaults(t *testing.T) {
	eachKind(t, moving, func(t testing.TB, driver string, k kind) {
		o := startOuting(t, driver, 1, k, startMemcacheds(t, 3))
		r := o.ringsides[0]
		for i, fault := range []struct {
			kind string
			more []any
		}{
			{kind: "delay", more: []any{"delay", "60ms"}},
			{kind: "delay", more: []any{"delay", "3s"}},
			{kind: "reset"},
			{kind: "drop", more: []any{"percent", 20}},
			{kind: "hang"},
			{kind: "partition"},
			{kind: "refuse"},
		} {
			was := o.total()
			r.fault(t, i%2, fault.kind, fault.more...)
			o.more(t, 300)
			r.lift(t)
			o.calm(t, 10)
			o.sound(t)
			t.Logf("%v: %v", fault, o.total().minus(was))
		}
		o.settled(t)
		o.end(t)
	})
}

// TestFailoverBlackHole tests a server on a host that drops connection attempts: the port
// is listened on, but no connection is accepted.
func TestFailoverBlackHole(t *testing.T) {
	eachKind(t, moving[:1], func(t testing.TB, driver string, k kind) {
		o := startOuting(t, driver, 1, k, startMemcacheds(t, 3))
		const gone = 2
		o.servers[gone].Kill()
		open := blackHole(t, o.servers[gone].address)
		o.allSay(t, serverName(gone), "OUT")
		o.calm(t, 50)
		open()
		o.servers[gone].restart(t)
		o.settled(t)
		o.end(t)
	})
}

// blackHole listens at address with a full queue until open is called.
func blackHole(t testing.TB, address string) (open func()) {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	s, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	closed := false
	open = func() {
		if !closed {
			closed = true
			syscall.Close(s)
		}
	}
	t.Cleanup(open)
	at := &syscall.SockaddrInet4{Port: number}
	copy(at.Addr[:], net.ParseIP(host).To4())
	syscall.SetsockoptInt(s, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	eventually(t, "the port is free", func() bool { return syscall.Bind(s, at) == nil })
	if err := syscall.Listen(s, 0); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the queue is full", func() bool {
		c, err := net.DialTimeout("tcp", address, 300*time.Millisecond)
		if err == nil {
			t.Cleanup(func() { c.Close() })
		}
		return err != nil
	})
	return open
}

// TestFailoverAllServers stops all servers at once. None is ejected, because the cause
// might be this machine. Values that return with the servers are current.
func TestFailoverAllServers(t *testing.T) {
	testenv.OnlyFull(t, "internal/fleet covers the loss of all servers")
	eachKind(t, moving, func(t testing.TB, driver string, k kind) {
		o := startOuting(t, driver, 1, k, startLasting(t, 3))
		for _, how := range []struct {
			name        string
			begin, heal func(*memcached)
		}{
			{"stopped", func(m *memcached) { m.pause(t) }, func(m *memcached) { m.resume(t) }},
			{"left and back with their values", func(m *memcached) { m.leave(t) }, func(m *memcached) { m.comeBack(t) }},
			{"killed and empty", func(m *memcached) { m.Kill() }, func(m *memcached) { m.restart(t) }},
		} {
			was := o.total()
			for _, m := range o.servers {
				how.begin(m)
			}
			for i := range o.servers {
				o.troubled(t, i)
			}
			o.more(t, 100)
			for _, m := range o.servers {
				how.heal(m)
			}
			o.settled(t)
			o.sound(t)
			t.Logf("%s: %v", how.name, o.total().minus(was))
		}
		o.end(t)
	})
}

// TestFailoverFlapping stops and restarts servers at random moments, also while they are
// rejoining.
func TestFailoverFlapping(t *testing.T) {
	testenv.OnlyFull(t, "internal/fleet covers servers that come and go")
	eachKind(t, moving, func(t testing.TB, driver string, k kind) {
		o := startOuting(t, driver, 1, k, startLasting(t, 3))
		seed := uint64(time.Now().UnixNano())
		t.Log("seed", seed)
		dice := rand.New(rand.NewPCG(seed, 0))
		pause := func() { o.more(t, 1+dice.IntN(1000)) }
		for range 6 {
			m := o.servers[dice.IntN(2)]
			switch dice.IntN(3) {
			case 0:
				m.Kill()
				pause()
				m.restart(t)
			case 1:
				m.leave(t)
				pause()
				m.comeBack(t)
			case 2:
				m.pause(t)
				pause()
				m.resume(t)
			}
			pause()
			o.sound(t)
		}
		o.settled(t)
		o.end(t)
	})
}

// TestFailoverViews runs three instances that reach different servers.
func TestFailoverViews(t *testing.T) {
	eachKind(t, moving, func(t testing.TB, driver string, k kind) {
		o := startOuting(t, driver, 3, k, startMemcacheds(t, 3))
		const gone = 1
		for _, cut := range []struct {
			kind string
			from map[int][]int // unreachable servers by instance
			out  bool          // most instances suspect the server, so it is ejected
		}{
			{kind: "refuse", from: map[int][]int{0: {gone}}},
			{kind: "partition", from: map[int][]int{0: {gone}, 1: {gone}}, out: true},
			{kind: "partition", from: map[int][]int{2: {0, 1, 2}}},
			{kind: "hang", from: map[int][]int{1: {gone}, 2: {gone}}, out: true},
		} {
			name := fmt.Sprintf("%s %v", cut.kind, cut.from)
			was := o.total()
			for r, servers := range cut.from {
				for _, s := range servers {
					o.ringsides[r].fault(t, s, cut.kind)
				}
			}
			if cut.out {
				o.allSay(t, serverName(gone), "OUT")
				o.calm(t, 100)
			} else {
				o.more(t, 1500)
				for i, r := range o.ringsides {
					if phase := r.phase(serverName(gone)); phase != "IN" {
						t.Errorf("%s: ringside %d says that the server is %s, which most of them reach", name, i, phase)
					}
				}
			}
			for r := range cut.from {
				o.ringsides[r].lift(t)
			}
			o.settled(t)
			if k.consistency == "relaxed" && cut.out {
				t.Logf("%s: %d stale values while they disagreed", name, o.forgive())
			}
			o.sound(t)
			t.Logf("%s: %v", name, o.total().minus(was))
		}
		o.more(t, 500)
		o.end(t)
	})
}
