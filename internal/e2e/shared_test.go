package e2e

// This file tests two instances that have the same server in different pools.

import (
	"strings"
	"testing"
	"time"

	"ringside/internal/testenv"
)

// TestServerOfTwoFiles runs two instances that share a server. The pool of one instance can eject
// the server, and the pool of the other cannot. Both must log this. The instance that ejects
// logs it some two minutes after the other.
func TestServerOfTwoFiles(t *testing.T) {
	t.Parallel()
	testenv.OnlyFull(t, "processes ask once a minute; TestPoolsShareAServer in internal/instance shortens that")
	servers := startMemcacheds(t, 4)
	ejects := startRingside(t, "auto", strings.Replace(front(servers[:3], "failover: {mode: rehash}"), "  main:", "  ejects:", 1))
	keeps := startRingside(t, "auto", strings.Replace(front(servers[2:], "failover: {mode: fail_fast}"), "  main:", "  keeps:", 1))
	for _, c := range []struct {
		r          *ringside
		pool, says string
	}{
		{keeps, "keeps", "another instance ejects a server; no pool of this instance does"},
		{ejects, "ejects", "another instance has a server in a pool that does not eject it; this instance ejects it"},
	} {
		for range 5 { // minutes
			if strings.Contains(c.r.Output(), c.says) {
				break
			}
			time.Sleep(time.Minute)
		}
		if !strings.Contains(c.r.Output(), c.says) {
			t.Errorf("pool %s: it does not log that %s", c.pool, c.says)
		}
		if n := c.r.metric(t, `ringside_pool_servers_shared{pool="`+c.pool+`"}`); n != 1 {
			t.Errorf("pool %s: the metric is %v", c.pool, n)
		}
	}
}
