package e2e

// Copies: a server that was started anew is filled from the others.

import "testing"

// TestRefillOfServers kills each server in turn, when the one before has been filled.
// What no client has asked for meanwhile is not lost either.
func TestRefillOfServers(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		servers, keys := startMemcacheds(t, 3), names("sess:", 1000)
		r := startRingside(t, driver+", loops: 2", front(servers)+"routes:\n  - {prefix: \"sess:\", pool: main, replicas: 2, copies_on: server, get_errors: error}\n  - {pool: main}\n")
		client := dial(t, r.address)
		for _, key := range keys {
			client.store(key, valueOf(key))
		}
		client.store("single", "x") // a key of one copy stays where it is
		for i, s := range servers {
			had, _ := dial(t, s.address).get(keys...)
			if len(had) == 0 || len(had) == len(keys) {
				t.Fatalf("server %d has %d of %d keys", i, len(had), len(keys))
			}
			s.kill()
			s.wait(t)
			for _, key := range keys[:10] {
				client.holds(key, valueOf(key))
			}
			s.restart(t)
			eventually(t, "the server is filled", func() bool {
				client.get(keys[:50]...) // all loops notice that it is another
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
			t.Errorf("a key of one copy is on %d servers", single)
		}
	})
}
