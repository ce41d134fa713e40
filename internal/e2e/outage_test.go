package e2e

// This file tests servers that die, hang, restart, or are missing when ringside starts.

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// cluster is a ringside in front of three servers that hold values.
type cluster struct {
	*ringside
	servers []*memcached
	keys    []string
	at      map[string]int // index of the server that holds each key
}

func valueOf(key string) string { return "value of " + key }

// startCluster stores 300 keys on three servers through ringside.
func startCluster(t testing.TB, driver string, more ...string) *cluster {
	t.Helper()
	c := &cluster{servers: startMemcacheds(t, 3), keys: names("key", 300)}
	c.ringside = startRingside(t, driver, front(c.servers, more...))
	client := dial(t, c.address)
	for _, key := range c.keys {
		client.store(key, valueOf(key))
	}
	c.at = owners(t, c.servers, c.keys)
	if len(c.at) != len(c.keys) {
		t.Fatalf("%d of %d keys are on the servers", len(c.at), len(c.keys))
	}
	for i := range c.servers {
		if len(c.of(i)) == 0 {
			t.Fatalf("server %d got no key", i)
		}
	}
	return c
}

// of returns the keys on server i.
func (c *cluster) of(i int) []string {
	return slices.DeleteFunc(slices.Clone(c.keys), func(key string) bool { return c.at[key] != i })
}

// others returns the keys on the other servers.
func (c *cluster) others(i int) []string {
	return slices.DeleteFunc(slices.Clone(c.keys), func(key string) bool { return c.at[key] == i })
}

// serves checks that all keys of a list have their values, with a get each and a
// multi-get.
func (c *cluster) serves(t testing.TB, keys []string) {
	t.Helper()
	client := dial(t, c.address)
	for _, key := range keys {
		client.holds(key, valueOf(key))
	}
	found, end := client.get(keys...)
	if len(found) != len(keys) || end != "END" {
		t.Fatalf("a multi-get of %d keys found %d and ended with %q", len(keys), len(found), end)
	}
}

// blames checks that an error line names the server.
func (c *cluster) blames(t testing.TB, line string, server int) {
	t.Helper()
	if !strings.HasPrefix(line, "SERVER_ERROR ") || !strings.Contains(line, c.servers[server].address) {
		t.Fatalf("got %q, want SERVER_ERROR with %s in it", line, c.servers[server].address)
	}
}

// readsFail checks the replies to reads of keys on a server that cannot reply.
func (c *cluster) readsFail(t testing.TB, getErrors string, server int) {
	t.Helper()
	client := dial(t, c.address)
	for _, key := range c.of(server)[:3] {
		if getErrors == "miss" {
			client.misses(key)
			client.ask("mg "+key+" v", "EN")
		} else {
			c.blames(t, client.question("get "+key), server)
			c.blames(t, client.question("mg "+key+" v"), server)
		}
	}
	// A multi-get loses only the keys of that server.
	found, end := client.get(c.keys...)
	for _, key := range c.others(server) {
		if found[key] != valueOf(key) {
			t.Fatalf("a multi-get lost %s, whose server is well; it ended with %q", key, end)
		}
	}
	if len(found) != len(c.others(server)) {
		t.Fatalf("a multi-get found %d keys, want %d", len(found), len(c.others(server)))
	}
	if getErrors == "miss" && end != "END" {
		t.Fatalf("a multi-get ended with %q, want END", end)
	} else if getErrors == "error" {
		c.blames(t, end, server)
	}
	c.serves(t, c.others(server))
}

// writesFail checks that every mutation of a key on that server fails with the server's
// name, and that the connection stays open.
func (c *cluster) writesFail(t testing.TB, server int) {
	t.Helper()
	client := dial(t, c.address)
	key := c.of(server)[0]
	for _, command := range []string{
		"set %s 0 0 1\r\nx", "add %s 0 0 1\r\nx", "replace %s 0 0 1\r\nx", "append %s 0 0 1\r\nx", "prepend %s 0 0 1\r\nx",
		"cas %s 0 0 1 1\r\nx", "incr %s 1", "decr %s 1", "touch %s 0", "delete %s",
		"ms %s 1\r\nx", "md %s", "ma %s",
	} {
		c.blames(t, client.question(fmt.Sprintf(command, key)), server)
	}
	well := c.others(server)[0]
	client.store(well, valueOf(well))
}

// returns waits until keys of a restarted or resumed server are served again.
func (c *cluster) returns(t testing.TB, server int) {
	t.Helper()
	client := dial(t, c.address)
	key := c.of(server)[0]
	eventually(t, "the server is used again", func() bool { return client.set(key, valueOf(key)) == "STORED" })
	for _, key := range c.of(server) {
		client.store(key, valueOf(key))
	}
	c.serves(t, c.keys)
	if at := owners(t, c.servers, c.keys); !maps.Equal(at, c.at) {
		t.Fatal("keys live elsewhere than before")
	}
}

func TestServerDies(t *testing.T) {
	t.Parallel()
	for _, getErrors := range []string{"miss", "error"} {
		t.Run(getErrors, func(t *testing.T) {
			bothDrivers(t, func(t *testing.T, driver string) {
				c := startCluster(t, driver, "get_errors: "+getErrors)
				before := dial(t, c.address)
				before.store(c.others(1)[0], valueOf(c.others(1)[0]))

				c.servers[1].Kill()
				c.readsFail(t, getErrors, 1)
				c.writesFail(t, 1)
				if got := before.stats("")["ringside_servers_missing"]; got != "1" {
					t.Errorf("stats say %q servers are missing, want 1", got)
				}
				// A client that connected before the outage is still served.
				before.holds(c.others(1)[0], valueOf(c.others(1)[0]))

				c.servers[1].restart(t)
				c.returns(t, 1)
				if got, there := before.stats("")["ringside_servers_missing"]; there && got != "0" {
					t.Errorf("stats say %q servers are missing, want none", got)
				}
			})
		})
	}
}

// TestServerRestartsWhileIdle checks that a restart between two requests has no effect,
// except that the values are lost.
func TestServerRestartsWhileIdle(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		c := startCluster(t, driver, "get_errors: error")
		client := dial(t, c.address)
		for range 3 {
			c.servers[2].Kill()
			c.servers[2].restart(t)
			key := c.of(2)[0]
			eventually(t, "the server is not taken for down", func() bool { // a connection attempt may have failed if the restart was slow
				_, end := client.get(key)
				return end == "END"
			})
			client.misses(key)
			client.store(key, "again")
			client.holds(key, "again")
		}
	})
}

func TestServerHangs(t *testing.T) {
	t.Parallel()
	for _, getErrors := range []string{"miss", "error"} {
		t.Run(getErrors, func(t *testing.T) {
			bothDrivers(t, func(t *testing.T, driver string) {
				rounds(t, 500*time.Millisecond, func(t testing.TB) {
					c := startCluster(t, driver, "get_errors: "+getErrors, "timeouts: {connect: 2s, request: 2s, deadline: 4s}")
					c.servers[1].pause(t)
					c.readsFail(t, getErrors, 1)
					c.writesFail(t, 1)
					// The late replies must not be used for later requests.
					c.servers[1].resume(t)
					c.returns(t, 1)
					c.serves(t, c.keys)
				})
			})
		})
	}
}

// TestHangingServerDelaysOnlyItsOwn checks that requests to other servers overtake those
// that wait for a hanging server.
func TestHangingServerDelaysOnlyItsOwn(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		c := startCluster(t, driver, "timeouts: {request: 5m, deadline: 5m}")
		c.servers[0].pause(t)
		waiting := make([]*conn, 20)
		for i := range waiting {
			waiting[i] = dial(t, c.address)
			waiting[i].send("get " + c.of(0)[i%len(c.of(0))] + "\r\n")
		}
		c.serves(t, c.others(0))
		c.servers[0].resume(t)
		for i, client := range waiting {
			key := c.of(0)[i%len(c.of(0))]
			if found, end := client.values(); found[key] != valueOf(key) || end != "END" {
				t.Fatalf("after the pause %s got %v and %s", key, found, end)
			}
		}
	})
}

// TestServerUnknownAtFirst checks that a server is in state unknown until its first
// reply, and then up.
func TestServerUnknownAtFirst(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		servers := startMemcacheds(t, 2)
		patient := "timeouts: {connect: 5m, request: 5m, deadline: 5m}"
		r := startRingside(t, driver, front(servers[:1], patient))
		servers[1].pause(t)
		r.reload(t, front(servers, patient))
		r.reloaded(t, reloadsDone, 0)
		up := func() (n int) {
			_, page := r.page(t, "/control/servers")
			if n = strings.Count(page, `"state":"up"`); n+strings.Count(page, `"state":"unknown"`) != 2 {
				t.Fatalf("servers are neither unknown nor up: %s", page)
			}
			return n
		}
		eventually(t, "the other server is up", func() bool { return up() == 1 })
		if _, page := r.page(t, "/metrics"); strings.Count(page, "\nringside_server_up{") != 1 {
			t.Errorf("one server has answered, and ringside_server_up is there for another number:\n%s", page)
		}
		servers[1].resume(t)
		eventually(t, "both are up", func() bool { return up() == 2 })
	})
}

// TestServerMissingAtStart checks that a missing server is detected before a client
// requests one of its keys.
func TestServerMissingAtStart(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		c := &cluster{servers: startMemcacheds(t, 3), keys: names("key", 300), at: map[string]int{}}
		c.servers[2].Kill()
		c.ringside = startRingside(t, driver, front(c.servers))
		c.logged(t, `server down" server=`+regexp.QuoteMeta(c.servers[2].address)+` `)
		eventually(t, "the others are up", func() bool {
			_, page := c.page(t, "/control/servers")
			return strings.Count(page, `"state":"up"`) == 2 && strings.Count(page, `"state":"down"`) == 1
		})
		client := dial(t, c.address)
		for _, key := range c.keys {
			if answer := client.set(key, valueOf(key)); answer != "STORED" {
				c.blames(t, answer, 2)
				c.at[key] = 2
			}
		}
		maps.Copy(c.at, owners(t, c.servers[:2], c.keys))
		c.readsFail(t, "miss", 2)

		c.servers[2].restart(t)
		c.returns(t, 2)
		c.logged(t, `server up" server=`+regexp.QuoteMeta(c.servers[2].address)+` address=\S+ out=\S+s failed=[1-9]`)
	})
}

// TestAllServersDead checks that ringside still replies when all servers are dead, with
// errors that name them.
func TestAllServersDead(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		c := startCluster(t, driver)
		for _, s := range c.servers {
			s.Kill()
		}
		client := dial(t, c.address)
		for i := range c.servers {
			client.misses(c.of(i)[0])
			c.blames(t, client.set(c.of(i)[0], "x"), i)
		}
		if version := client.question("version"); !strings.HasPrefix(version, "VERSION 1.") {
			t.Errorf("version: %q", version)
		}
		if answer := client.question("flush_all"); !strings.HasPrefix(answer, "SERVER_ERROR ") {
			t.Errorf("flush_all that reached no server: %q", answer)
		}
		if answer := client.question("stats"); !strings.HasPrefix(answer, "SERVER_ERROR ") {
			t.Errorf("stats that no server answered: %q", answer)
		}
	})
}
