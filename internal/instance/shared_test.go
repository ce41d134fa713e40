package instance

// Pools of several files that share a server.

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ringside/internal/memnode"
)

// sharing is the file of a pool with servers.
func sharing(pool, mode string, servers ...string) string {
	return fmt.Sprintf("listen: \"127.0.0.1:0\"\nadmin: {address: \"127.0.0.1:0\"}\npools: {%s: {distribution: ketama, failover: {mode: %s}, servers: [%s]}}\n", pool, mode, strings.Join(servers, ", "))
}

// Ringsides whose files give a server to different pools report it, where another one ejects the
// server. Ringsides with the same pool don't report each other.
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
		return strings.Contains(r.journal.String(), "another Ringside ejects a server by a pool that does not eject it here\" server=s2 ") && strings.Contains(r.journal.String(), " other="+other+" ")
	}
	shared := func(r *served, others string) func() bool { // a round that is late makes others gone for a moment
		return func() bool {
			var names []string
			sum, err := r.proxy.Snapshot()
			if err != nil {
				return false
			}
			for _, is := range sum.Shared {
				if names = append(names, is.Other); is.Pool != r.proxy.Table().Pools[0].Name || is.Server != "s2" {
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
	}{{"first", first, "c"}, {"second", second, "c"}, {"stays", stays, "a c"}, {"named", named, "a c"}, {"foreign", foreign, "a"}} {
		for _, other := range strings.Fields(x.others) {
			eventually(t, x.who+" logs pool "+other, func() bool { return told(x.r, other) })
		}
		eventually(t, x.who+" reports "+x.others, shared(x.r, x.others))
	}
	eventually(t, "server list reports both", func() bool {
		_, out, _ := typed("server", "list", "--admin", stays.admin)
		return strings.Contains(out, "Another Ringside ejects s2 (by its pool a) and s2 (by its pool c), and flushes a server when it returns")
	})

	// One file for those that eject.
	foreign.write(usual)
	foreign.reloads(0)
	for _, r := range []*served{first, second, foreign} {
		eventually(t, "they agree", shared(r, ""))
	}
	eventually(t, "the other pool is gone", shared(stays, "a"))
	wants(t, first.journal.String(), "no other Ringside ejects a server any more by that pool, which does not eject it here\" server=s2 ")
	for _, r := range []*served{first, second} {
		if told(r, "a") {
			t.Error("Ringsides with the same pool report each other")
		}
	}
	if told(first, "b") || told(foreign, "b") {
		t.Error("a pool that ejects nothing is reported")
	}
}
