package fleet

// Tests of a proxy that sleeps while a server rejoins.

import (
	"fmt"
	"testing"

	"ringside/proxy/health"
	"ringside/proxy/table"
)

// TestSleepInWarm checks a proxy that sleeps in WARM while another one goes on to IN. When it
// wakes, it has commands of clients to run before it can learn the phase. It must not copy a
// value back that a client of the other proxy has deleted meanwhile, and clients of that one
// must see no placeholder.
func TestSleepInWarm(t *testing.T) {
	for _, c := range []struct {
		name   string
		strict bool
		rejoin health.OnRejoin
		ask    string
	}{
		{"relaxed, get", false, health.Warm, "get %s\r\n"},
		{"relaxed, mg", false, health.Warm, "mg %s v\r\n"},
		{"relaxed, touch", false, health.Flush, "touch %s 0\r\n"},
		{"relaxed, gat", false, health.Warm, "gat 0 %s\r\n"},
		{"relaxed, replace", false, health.Flush, "replace %s 0 0 1\r\n"},
		{"strict, get", true, health.Warm, "get %s\r\n"},
		{"strict, touch", true, health.Flush, "touch %s 0\r\n"},
	} {
		for _, early := range []bool{false, true} { // the command is sent before its proxy sleeps
			t.Run(fmt.Sprintf("%s, early: %v", c.name, early), func(t *testing.T) {
				t.Parallel()
				seeds := uint64(4) // with most of them the command is being carried out when its proxy falls asleep
				if !early || hurried() {
					seeds = 1
				}
				one := scenario{sidecars: 2, apps: 1, servers: 3, mode: table.Rehash, strict: c.strict, rejoin: c.rejoin, exact: true}
				for seed := range seeds {
					if why := sleepInWarm(one, seed, c.ask, early); why != "" {
						t.Errorf("seed %d: %s", seed, why)
					}
				}
			})
		}
	}
}

// sleepInWarm runs one case. It returns what went wrong, or "".
func sleepInWarm(c scenario, seed uint64, text string, early bool) string {
	f := newFleet(c, seed, false)
	f.quiet = true
	sleeper, other := f.sidecars[0], f.sidecars[1]
	far, near, k := f.apps[0], f.apps[1], f.values[0]
	for _, k = range f.values {
		if hash([]byte(k.name))%3 == 0 { // its own server is the first one
			break
		}
	}
	ask := func(a *app, o *op) {
		a.todo = append(a.todo, func() *op { return o })
		a.next()
	}
	reach := func(s *sidecar, p health.Phase) {
		for end := f.now + 100*second; f.now < end && s.snapshot().Phases[0].Phase != p && f.broken == ""; {
			f.run(f.now + 20*milli)
		}
		if got := s.snapshot().Phases[0].Phase; got != p {
			f.wrong(k.name, "p%d is in %v, not in %v", s.id, got, p)
		}
	}
	command := func() *op {
		o := &op{kind: "line", keys: []*fkey{k}, text: fmt.Appendf(nil, text, k.name)}
		switch text[:3] {
		case "get", "gat":
			o.kind = "values"
		case "rep":
			o.w = f.newWrite(k)
			o.text = fmt.Appendf(nil, "replace %s 0 0 %d\r\n%s\r\n", k.name, len(o.w.value), o.w.value)
		}
		return o
	}
	f.settle("at the start", 30*second)
	ask(far, far.getOf(k)) // it has a connection
	f.run(f.now + second)
	sleeper.order("main", f.nodes[0], health.Drain)
	reach(sleeper, health.Out)
	reach(other, health.Out)
	ask(near, near.store(k, "set")) // at the substitute server only
	f.run(f.now + second)
	sleeper.order("main", f.nodes[0], health.Restore)
	reach(sleeper, health.Warming)
	if early {
		ask(far, command())
		f.run(f.now + f.upTo(4*milli))
	}
	sleeper.pause()
	reach(other, health.In)
	ask(near, near.removeOf(k))
	f.run(f.now + f.upTo(second))
	if !early {
		ask(far, command())
	}
	f.run(f.now + f.upTo(second))
	sleeper.resume()
	for end := f.now + second; f.now < end && f.broken == ""; f.run(f.now + milli/10) {
		if near.op == nil {
			ask(near, near.getOf(k))
		}
	}
	f.settle("after the sleep", settleLimit)
	f.run(f.now + 2*second)
	for _, a := range f.apps {
		ask(a, a.getOf(k))
		f.run(f.now + second)
	}
	if f.broken == "" && len(f.stale) > 0 {
		return f.stale[0]
	}
	return f.broken
}
