package e2e

// This file tests the combined statistics of several servers.

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// sum adds up one statistic over the servers themselves.
func (c *cluster) sum(t *testing.T, what, name string) (total int) {
	t.Helper()
	for _, s := range c.servers {
		n, err := strconv.Atoi(dial(t, s.address).stats(what)[name])
		if err != nil {
			t.Fatalf("stats %s of %s: %s: %v", what, s.address, name, err)
		}
		total += n
	}
	return total
}

// TestCacheMemlimit sends cache_memlimit as pymemcache's own tests do. It must reach
// every server.
func TestCacheMemlimit(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		servers := startMemcacheds(t, 2)
		address := startRingside(t, driver, front(servers)).address
		dial(t, address).ask("cache_memlimit 100", "OK")
		for _, s := range servers {
			if got := dial(t, s.address).stats("settings")["maxbytes"]; got != strconv.Itoa(100<<20) {
				t.Errorf("%s: maxbytes is %s", s.address, got)
			}
		}
		dial(t, address).ask("slabs automove 1", "CLIENT_ERROR ask one server directly for slabs")
	})
}

func TestStats(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		c := startCluster(t, driver)
		client := dial(t, c.address)
		client.get(c.keys...)
		client.misses("absent")

		all := client.stats("")
		for _, name := range slices.Sorted(maps.Keys(dial(t, c.servers[0].address).stats(""))) {
			if _, there := all[name]; !there {
				t.Errorf("stats lack %s", name)
			}
		}
		for _, name := range []string{"curr_items", "total_items", "cmd_set", "get_hits", "get_misses", "bytes", "limit_maxbytes"} {
			if want := strconv.Itoa(c.sum(t, "", name)); all[name] != want {
				t.Errorf("%s is %s, the servers have %s together", name, all[name], want)
			}
		}
		if want := strconv.Itoa(c.Cmd.Process.Pid); all["pid"] != want {
			t.Errorf("pid %s, want %s", all["pid"], want)
		}
		if all["version"] != dial(t, c.servers[0].address).stats("")["version"] {
			t.Errorf("version %s", all["version"])
		}

		settings := client.stats("settings")
		if settings["item_size_max"] != strconv.Itoa(4<<20) || settings["cas_enabled"] != "yes" {
			t.Errorf("settings: item_size_max %s, cas_enabled %s", settings["item_size_max"], settings["cas_enabled"])
		}
		if settings["tcpport"] != "mixed" {
			t.Errorf("settings: tcpport %s, although each server has its own", settings["tcpport"])
		}

		for name, value := range client.stats("items") {
			if strings.HasSuffix(name, ":number") {
				if want := strconv.Itoa(c.sum(t, "items", name)); value != want {
					t.Errorf("%s is %s, the servers have %s together", name, value, want)
				}
			}
		}
		slabs := client.stats("slabs")
		if got, want := slabs["total_malloced"], strconv.Itoa(c.sum(t, "slabs", "total_malloced")); got != want {
			t.Errorf("slabs: total_malloced is %s, the servers have %s together", got, want)
		}

		one := dial(t, c.address)
		one.ask("version", "VERSION "+all["version"])
		conns := 0
		for name := range client.stats("conns") {
			if strings.HasSuffix(name, ":addr") {
				conns++
			}
		}
		if conns < 2 {
			t.Errorf("stats conns lists %d clients, at least 2 are there", conns)
		}

		own := client.stats("proxy")
		if own["pid"] != all["pid"] || own["curr_connections"] == "" {
			t.Errorf("stats proxy: %v", own)
		}
		var known []string
		for name, value := range client.stats("servers") {
			if strings.HasSuffix(name, ":address") {
				known = append(known, value)
			}
		}
		var want []string
		for _, s := range c.servers {
			want = append(want, s.address)
		}
		slices.Sort(known)
		slices.Sort(want)
		if !slices.Equal(known, want) {
			t.Errorf("stats servers names %v, want %v", known, want)
		}

		client.ask("stats reset", "RESET")
		for _, s := range c.servers {
			if got := dial(t, s.address).stats("")["get_hits"]; got != "0" {
				t.Errorf("after stats reset a server counts %s hits", got)
			}
		}
		client.ask("stats nonsense", "ERROR")
		client.ask("version", "VERSION "+all["version"])
	})
}

func TestFlushAllReachesEveryServer(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		for _, command := range []string{"flush_all", "flush_all 0", "flush_all noreply"} {
			c := startCluster(t, driver)
			client := dial(t, c.address)
			client.send(command + "\r\n")
			if !strings.HasSuffix(command, "noreply") {
				client.expect("OK\r\n")
			}
			client.ask("mn", "MN")
			if left := owners(t, c.servers, c.keys); len(left) != 0 {
				t.Errorf("%s left %d keys", command, len(left))
			}
		}
	})
}

func TestFlushAllLater(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		c := startCluster(t, driver)
		client := dial(t, c.address)
		client.ask("flush_all 1000", "OK") // long enough for any machine to check the keys before
		if left := len(owners(t, c.servers, c.keys)); left != len(c.keys) {
			t.Errorf("flush_all 1000 took %d keys at once", len(c.keys)-left)
		}
		client.ask("flush_all 1", "OK")
		eventually(t, "all keys are gone", func() bool { return len(owners(t, c.servers, c.keys)) == 0 })
	})
}

// TestFlushAllOfPools checks that flush_all reaches the servers of all pools of the
// listener, and none if one of the pools denies it.
func TestFlushAllOfPools(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		for _, setting := range []string{"allow", "deny"} {
			servers := startMemcacheds(t, 2)
			r := startRingside(t, driver, fmt.Sprintf(`pools:
  main: {distribution: ketama, servers: [%q]}
  other: {distribution: ketama, servers: [%q], flush_all: %s}
routes: [{pool: main}, {prefix: "o:", pool: other}]
`, servers[0].address, servers[1].address, setting))
			client := dial(t, r.address)
			client.store("a", "1")
			client.store("o:a", "1")
			if setting == "allow" {
				client.ask("flush_all", "OK")
				client.misses("a")
				client.misses("o:a")
				continue
			}
			client.ask("flush_all", "CLIENT_ERROR flush_all not allowed")
			client.holds("a", "1")
			client.holds("o:a", "1")
		}
	})
}

func TestAdminPages(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		c := startCluster(t, driver)
		for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
			c.answers(t, path)
		}
		if got := c.metric(t, `ringside_requests_total{command="set",outcome="stored"}`); got != 300 {
			t.Errorf("%v sets were counted, want 300", got)
		}
		dial(t, c.address).get(append(c.keys[:100:100], "absent")...)
		if got := c.metric(t, `ringside_keys_total{result="hit"}`); got != 100 {
			t.Errorf("%v hits were counted, want 100", got)
		}
		// The client sees a miss, but the metric counts a failed key.
		c.servers[0].Kill()
		dial(t, c.address).misses(c.of(0)[0])
		if got := c.metric(t, `ringside_keys_total{result="failed"}`); got != 1 {
			t.Errorf("%v failed keys were counted, want 1", got)
		}
		if got := c.metric(t, `ringside_keys_total{result="miss"}`); got != 1 {
			t.Errorf("%v misses were counted, want 1", got)
		}
	})
}
