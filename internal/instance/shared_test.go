package instance

// Tests of instances with different files that share a server.

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ringside/internal/memnode"
)

// sharing returns a configuration with one pool of servers.
func sharing(pool, mode string, servers ...string) string {
	return fmt.Sprintf("listen: \"127.0.0.1:0\"\nadmin: {address: \"127.0.0.1:0\"}\npools: {%s: {distribution: ketama, failover: {mode: %s}, servers: [%s]}}\n", pool, mode, strings.Join(servers, ", "))
}

// TestPoolsShareAServer checks instances with files that put a server into different
// pools. They report it if another instance ejects the server, or does not eject a
// server that they eject. Instances with the same pool do not report each other, and
// neither do those without ejection.
func TestPoolsShareAServer(t *testing.T) {
	before := poolsEvery
	poolsEvery = 200 * time.Millisecond
	t.Cleanup(func() { poolsEvery = before })
	var s []string
	for i := range 6 {
		n, err := memnode.Start(memnode.Options{MemoryLimit: 8 << 20})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { n.Close() })
		s = append(s, fmt.Sprintf("{name: s%d, address: %q}", i, n.Addr()))
	}
	serve := func(text string) *served { return serveFile(t, filepath.Join(t.TempDir(), "ringside.yaml"), text) }
	usual := sharing("a", "rehash", s[0], s[1], s[2])
	first, second := serve(usual), serve(usual)
	stays := serve(sharing("b", "fail_fast", s[2], s[3]))
	named := serve(sharing("a", "fail_fast", s[2]))
	foreign := serve(sharing("c", "rehash", s[2], s[4], s[5]))
	told := func(r *served, other string) bool {
		message := "another instance ejects a server; no pool of this instance does\" server=s2 "
		name, keeps := strings.CutPrefix(other, "!")
		if keeps {
			message = "another instance has a server in a pool that does not eject it; this instance ejects it\" server=s2 "
		}
		for line := range strings.Lines(r.journal.String()) {
			if strings.Contains(line, message) && strings.Contains(line, " other="+name+" ") {
				return true
			}
		}
		return false
	}
	shared := func(r *served, others string) func() bool { // a late round can make entries of others expire for a moment
		return func() bool {
			var names []string
			sum, err := r.proxy.Snapshot()
			if err != nil {
				return false
			}
			for _, is := range sum.Shared {
				name := is.Other
				if is.Keeps {
					name = "!" + name
				}
				if names = append(names, name); is.Pool != r.proxy.Table().Pools[0].Name || is.Server != "s2" {
					t.Errorf("it reports %+v", is)
				}
			}
			return strings.Join(names, " ") == others
		}
	}
	for _, x := range []struct {
		who    string
		r      *served
		others string
	}{{"first", first, "!a !b c"}, {"second", second, "!a !b c"}, {"stays", stays, "a c"}, {"named", named, "a c"}, {"foreign", foreign, "!a !b a"}} {
		for _, other := range strings.Fields(x.others) {
			eventually(t, x.who+" logs pool "+other, func() bool { return told(x.r, other) })
		}
		eventually(t, x.who+" reports "+x.others, shared(x.r, x.others))
	}
	eventually(t, "the metric counts the server", func() bool {
		for _, r := range []*served{first, stays, foreign} {
			pool := r.proxy.Table().Pools[0].Name
			if !strings.Contains(metricsOf(t, r), fmt.Sprintf("ringside_pool_servers_shared{pool=%q} 1\n", pool)) {
				return false
			}
		}
		return true
	})
	eventually(t, "server list reports a pool that ejects nothing", func() bool {
		_, out, _ := typed("server", "list", "--admin", first.admin)
		return strings.Contains(out, "Another instance does not eject s2 (in its pool a) and s2 (in its pool b), and loses what it has stored there")
	})
	eventually(t, "server list reports both", func() bool {
		_, out, _ := typed("server", "list", "--admin", stays.admin)
		return strings.Contains(out, "Another instance ejects s2 (in its pool a) and s2 (in its pool c), and flushes a server when it returns")
	})

	// All instances that eject now use the same file.
	foreign.write(usual)
	foreign.reloads(0)
	for _, r := range []*served{first, second, foreign} {
		eventually(t, "those that eject agree", shared(r, "!a !b"))
	}
	eventually(t, "the other pool is gone", shared(stays, "a"))
	wants(t, first.journal.String(), "no other instance ejects the server any more\" server=s2 ")
	for _, r := range []*served{first, second} {
		if told(r, "a") {
			t.Error("instances with the same pool report each other")
		}
	}
	for _, r := range []*served{stays, named} {
		if told(r, "!a") || told(r, "!b") {
			t.Error("instances that eject nothing report each other")
		}
	}
	first.write(sharing("b", "fail_fast", s[2], s[3]))
	first.reloads(0)
	second.write(sharing("b", "fail_fast", s[2], s[3]))
	second.reloads(0)
	foreign.write(sharing("b", "fail_fast", s[2], s[3]))
	foreign.reloads(0)
	for _, r := range []*served{first, second, foreign, stays, named} {
		eventually(t, "no server is ejected, so there is no conflict", shared(r, ""))
	}
}

// metricsOf returns the metrics page.
func metricsOf(t *testing.T, r *served) string {
	t.Helper()
	answer, err := http.Get("http://" + r.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
