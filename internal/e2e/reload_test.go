package e2e

// This file tests reloads by SIGHUP: the clients stay connected, and use the new table.

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"syscall"
	"testing"
)

// answers repeats a request to the admin interface until the status is 200, and returns the page.
// Ringside rejects the request if one of its loops does not answer within a second, which
// happens if the loop gets no CPU.
func (r *ringside) answers(t testing.TB, path string) (body string) {
	t.Helper()
	eventually(t, path+" answers", func() (ok bool) {
		status, text := r.page(t, path)
		body = text
		return status == http.StatusOK
	})
	return body
}

// metric returns the value of one series of /metrics. name may have labels.
func (r *ringside) metric(t testing.TB, name string) float64 {
	t.Helper()
	page := r.answers(t, "/metrics")
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`).FindStringSubmatch(page)
	if found == nil {
		t.Fatalf("/metrics has no %s:\n%s", name, page)
	}
	v, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

const (
	reloadsDone   = `ringside_config_reloads_total{result="success"}`
	reloadsFailed = `ringside_config_reloads_total{result="failure"}`
)

// reloaded waits until the counter of reloads with that name is greater than before.
func (r *ringside) reloaded(t testing.TB, name string, before float64) {
	t.Helper()
	eventually(t, name+" counts the reload", func() bool { return r.metric(t, name) > before })
}

func TestReloadAddsServerUnderTraffic(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		servers := startMemcacheds(t, 5)
		r := startRingside(t, driver, front(servers[:3]))
		f := startTraffic(t, r.address, 8, tolerance{})
		// Servers are only added. A key that moved back to a server would have its old value there.
		for _, n := range []int{4, 5} {
			before := r.metric(t, reloadsDone)
			r.reload(t, front(servers[:n]))
			r.reloaded(t, reloadsDone, before)
			f.more(t, 2000)
		}
		f.halt(t)
		if f.misses.Load() == 0 {
			t.Error("no key moved, although a server came")
		}
		keys := names("after", 300)
		client := dial(t, r.address)
		for _, key := range keys {
			client.store(key, key)
		}
		if at := owners(t, servers, keys); len(at) != len(keys) {
			t.Errorf("%d of %d keys are on the servers", len(at), len(keys))
		}
		for _, s := range servers[3:] {
			if len(owners(t, []*memcached{s}, keys)) == 0 {
				t.Error("a new server got no key")
			}
		}
	})
}

// TestReloadOfTheSameFileMissesNothing checks that reloads of an unchanged file cause no misses
// and keep the connections to servers.
func TestReloadOfTheSameFileMissesNothing(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		servers := startMemcacheds(t, 3)
		r := startRingside(t, driver, front(servers))
		f := startTraffic(t, r.address, 8, tolerance{})
		connections := dial(t, servers[0].address).stats("")["total_connections"]
		for range 5 {
			before := r.metric(t, reloadsDone)
			r.reload(t, front(servers))
			r.reloaded(t, reloadsDone, before)
			f.more(t, 500)
		}
		f.halt(t)
		if n := f.misses.Load(); n > 0 {
			t.Errorf("%d stored keys were missed", n)
		}
		// The connections to servers are still open, so the only new one is this test's.
		was, _ := strconv.Atoi(connections)
		if is, _ := strconv.Atoi(dial(t, servers[0].address).stats("")["total_connections"]); is != was+1 {
			t.Errorf("%d connections to a server were opened", is-was-1)
		}
	})
}

func TestBadReloadKeepsTheTable(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		c := startCluster(t, driver)
		f := startTraffic(t, c.address, 4, tolerance{})
		for name, config := range map[string]string{
			"unknown key":  front(c.servers) + "servrs: []\n",
			"no such pool": front(c.servers) + "routes: [{pool: none}]\n",
			"not yaml":     "pools: {\n",
		} {
			before := c.metric(t, reloadsFailed)
			c.reload(t, config)
			c.reloaded(t, reloadsFailed, before)
			f.more(t, 200)
			if !c.Running() {
				t.Fatalf("%s: ringside ended", name)
			}
		}
		before := c.metric(t, reloadsFailed)
		if err := os.Remove(c.file); err != nil {
			t.Fatal(err)
		}
		c.signal(t, syscall.SIGHUP)
		c.reloaded(t, reloadsFailed, before)

		c.logged(t, regexp.QuoteMeta(c.file)+`:\d+:\d+: .*servrs`)
		c.serves(t, c.keys)
		f.halt(t)
		if n := f.misses.Load(); n > 0 {
			t.Errorf("%d stored keys were missed", n)
		}

		// A valid file is applied afterwards.
		done := c.metric(t, reloadsDone)
		c.reload(t, front(c.servers))
		c.reloaded(t, reloadsDone, done)
		c.serves(t, c.keys)
	})
}

// TestReloadChangesListeners adds a listener with one reload and removes another with the next.
// Clients of the remaining listener must stay connected.
func TestReloadChangesListeners(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		servers := startMemcacheds(t, 2)
		first, second := freeAddress(t, ownHost()), freeAddress(t, ownHost())
		r, err := tryRingside(t, driver, []string{first}, fmt.Sprintf("listen: %s\n%s", first, front(servers)))
		if err != nil {
			t.Fatal(err)
		}
		old := dial(t, first)
		old.store("a", "1")

		before := r.metric(t, reloadsDone)
		r.write(t, fmt.Sprintf("listen: [%s, %s]\n%s", first, second, front(servers)))
		r.signal(t, syscall.SIGHUP)
		r.reloaded(t, reloadsDone, before)
		if err := r.Ready(second); err != nil {
			t.Fatal(err)
		}
		added := dial(t, second)
		added.holds("a", "1")

		before = r.metric(t, reloadsDone)
		r.write(t, fmt.Sprintf("listen: %s\n%s", second, front(servers)))
		r.signal(t, syscall.SIGHUP)
		r.reloaded(t, reloadsDone, before)
		eventually(t, "the old address refuses clients", func() bool {
			c, err := dialError(first)
			if err == nil {
				c.Close()
			}
			return err != nil
		})
		added.holds("a", "1")
	})
}
