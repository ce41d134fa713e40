package fleet

// This file restarts servers with restartable memory (memcached -e).

import (
	"testing"
	"time"
)

// TestRestartKeepsItems restarts servers with their memory. They are back within the time before an ejection, less one ping. So no
// server is ejected, and all items remain. Each loop of each instance first takes such a process for another memcached, because its
// uptime includes that of the former process.
func TestRestartKeepsItems(t *testing.T) {
	const eject, ping = 3 * second, 250 * milli
	for _, c := range []scenario{{}, {strict: true}, {strict: true, engines: 2}} {
		c.sidecars, c.apps, c.servers, c.remember, c.restart = 2, 1, 3, true, time.Duration(eject)
		f := stocked(t, c, c.servers, 1)
		all := len(f.values)
		for i := range 60 {
			n := f.nodes[i%c.servers]
			n.die()
			f.run(f.now + eject - ping - int64(i%6)*60*milli)
			n.start()
			f.settle("after a restart", 5*second)
			f.run(f.now + f.upTo(second))
		}
		for _, s := range f.sidecars {
			s.count()
		}
		if n := f.reads(0); f.broken != "" || f.ejected > 0 || n != all {
			t.Errorf("strict %t, engines %d: %d ejections, %d of %d keys are read. %s", c.strict, c.engines, f.ejected, n, all, f.broken)
		}
	}
}
