package config

import (
	"testing"
	"time"
)

// TestGuardWait checks the default of guard.wait: 3s, or the deadline minus 200ms if that is
// less. preset: cache raises the deadline, unless the pool sets one.
func TestGuardWait(t *testing.T) {
	for _, c := range []struct {
		timeouts, route string
		wait, deadline  time.Duration
	}{
		{"", "guard: true", 1800 * time.Millisecond, 2 * time.Second},
		{"", "preset: cache", 3 * time.Second, 3500 * time.Millisecond},
		{"deadline: 2s", "preset: cache", 1800 * time.Millisecond, 2 * time.Second},
		{"deadline: 10s", "guard: true", 3 * time.Second, 10 * time.Second},
		{"deadline_total: 3s", "preset: cache", 2800 * time.Millisecond, 3 * time.Second},
		{"request: 100ms, deadline: 150ms", "guard: true", 0, 150 * time.Millisecond},
		{"", "guard: {wait: 1s}", time.Second, 2 * time.Second},
		{"", "guard: {wait: off}", 0, 2 * time.Second},
		{"", "preset: cache, guard: {wait: 1s}", time.Second, 2 * time.Second},
	} {
		f := parse(t, "listen: :1\npools: {main: {distribution: ketama, servers: [a, b], timeouts: {"+c.timeouts+"}}}\nroutes: [{pool: main, "+c.route+"}]")
		if wait, deadline := f.Routes[0].Guard.Wait, f.Pools[0].Timeouts.Deadline; wait != c.wait || deadline != c.deadline {
			t.Errorf("%s, %s: wait %v, deadline %v; want %v and %v", c.timeouts, c.route, wait, deadline, c.wait, c.deadline)
		}
	}
}
