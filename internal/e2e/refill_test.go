package e2e

// This file tests the refill of a restarted server from the other replicas.

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"ringside/internal/testenv"
)

// TestRefillOfServers kills each server in turn, once the previous one has been refilled.
// A key must survive even if no client reads it in between.
func TestRefillOfServers(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		servers, keys := startMemcacheds(t, 3), names("sess:", 1000)
		r := startRingside(t, driver+", loops: 2", front(servers)+"routes:\n  - {prefix: \"sess:\", pool: main, replicas: 2, replicas_on: server, get_errors: error}\n  - {pool: main}\n")
		client := dial(t, r.address)
		for _, key := range keys {
			client.store(key, valueOf(key))
		}
		client.store("single", "x") // a key without replicas stays where it is
		for i, s := range servers {
			had, _ := dial(t, s.address).get(keys...)
			if len(had) == 0 || len(had) == len(keys) {
				t.Fatalf("server %d has %d of %d keys", i, len(had), len(keys))
			}
			s.Kill()
			s.wait(t)
			for _, key := range keys[:10] {
				client.holds(key, valueOf(key))
			}
			s.restart(t)
			eventually(t, "the server is filled", func() bool {
				client.get(keys[:50]...) // so that all loops notice the new server process
				got, _ := dial(t, s.address).get(keys...)
				return len(got) == len(had)
			})
			for _, key := range keys {
				client.holds(key, valueOf(key))
			}
		}
		single := 0
		for _, s := range servers {
			got, _ := dial(t, s.address).get("single")
			single += len(got)
		}
		if single > 1 {
			t.Errorf("a key of one replica is on %d servers", single)
		}
	})
}

// TestRollingRestarts restarts servers that keep their memory, in pairs. The second server of a pair
// stops as soon as the first one runs again, and starts empty. So the first one must not have been
// ejected and flushed, although the preset sessions ejects a silent server after 50 ms.
func TestRollingRestarts(t *testing.T) {
	testenv.OnlyFull(t, "internal/fleet covers rolling restarts")
	t.Parallel()
	servers, keys := make([]*memcached, 3), names("sess:", 1000)
	files := make([]string, len(servers))
	for i := range servers {
		files[i] = filepath.Join(t.TempDir(), "memory")
		servers[i] = startMemcached(t, "-e", files[i])
	}
	config := front(servers, "timeouts: {request: 500ms}", "failover: {eject_after: {restart: 1m}}") +
		"routes:\n  - {pool: main, preset: sessions, replicas_on: server}\n"
	both := []*ringside{startRingside(t, "auto", config), startRingside(t, "auto", config)}
	client := dial(t, both[0].address)
	for _, key := range keys {
		client.store(key, valueOf(key))
	}
	restart := func(i int, empty bool) {
		s := servers[i]
		s.signal(t, syscall.SIGUSR1)
		s.wait(t)
		stopped := time.Now().Unix()
		if empty {
			if err := os.Remove(files[i] + ".meta"); err != nil {
				t.Fatal(err)
			}
		} else { // memcached 1.6.18 starts empty in the second of its stop
			eventually(t, "the clock shows the next second", func() bool { return time.Now().Unix() > stopped+1 })
		}
		s.restart(t)
	}
	for i := range servers {
		had := make([]int, len(servers))
		for j, s := range servers {
			got, _ := dial(t, s.address).get(keys...)
			had[j] = len(got)
		}
		other := (i + 1) % len(servers)
		restart(i, false)
		restart(other, true)
		for j, s := range servers {
			eventually(t, "each server has its keys", func() bool {
				got, _ := dial(t, s.address).get(keys...)
				return len(got) == had[j]
			})
		}
	}
	for _, r := range both {
		client := dial(t, r.address)
		for _, key := range keys {
			client.holds(key, valueOf(key))
		}
		if out := r.Output(); strings.Contains(out, "to=LEAVING") {
			t.Error("a server was ejected")
		}
	}
}
