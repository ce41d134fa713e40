package e2e

// This file tests the refill of a restarted server from the other replicas.

import "testing"

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
