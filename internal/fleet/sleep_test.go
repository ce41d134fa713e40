package fleet

// Tests of a proxy that sleeps while a server rejoins.

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"ringside/proxy/health"
	"ringside/proxy/health/resize"
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
		for end := f.now + 100*second; f.now < end && s.phases()[0].Phase != p && f.broken == ""; {
			f.run(f.now + 20*milli)
		}
		if got := s.phases()[0].Phase; got != p {
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

// TestSleepInMove checks a proxy that sleeps in the middle of sets while keys move to other servers. Meanwhile a
// client of the other proxy sets the same keys. When the first proxy wakes, its clients get errors, and their
// values must not be found any more.
func TestSleepInMove(t *testing.T) {
	seeds := uint64(4)
	if hurried() {
		seeds = 1
	}
	interrupted := 0
	for seed := range seeds {
		n, why := sleepInMove(seed)
		if interrupted += n; why != "" {
			t.Errorf("seed %d: %s", seed, why)
		}
	}
	if interrupted == 0 {
		t.Error("no set was interrupted")
	}
}

// sleepInMove runs one seed. It returns the number of sets that the sleep interrupted, and what went wrong, or "".
func sleepInMove(seed uint64) (interrupted int, broken string) {
	const clients = 24
	f := newFleet(scenario{sidecars: 2, apps: clients, servers: 4, mode: table.Rehash, strict: true, resize: table.ResizeWarm, rate: 1, cold: 300, remember: true, exact: true}, seed, false)
	f.quiet = true
	sleeper, far, near := f.sidecars[0], f.apps[:clients], f.apps[clients:]
	ask := func(a *app, o *op) {
		a.todo = append(a.todo, func() *op { return o })
		a.next()
	}
	store := func(apps []*app) (list []*fwrite) {
		for i, a := range apps {
			o := a.store(f.values[i], "set")
			list = append(list, o.w)
			ask(a, o)
		}
		return list
	}
	f.settle("at the start", 30*second)
	for _, k := range f.values { // so many that the move takes minutes
		near[0].todo = append(near[0].todo, func() *op { return near[0].store(k, "set") })
	}
	near[0].next()
	f.run(f.now + 10*second)
	f.reload(func(l *layout) { l.gone = 2 })
	for end := f.now + 60*second; f.now < end && slices.ContainsFunc(f.stages(), func(is resize.Status) bool { return is.Stage() != resize.Move }); {
		f.run(f.now + 10*milli)
	}
	slow := func(delay int64) {
		for _, p := range f.paths[0] {
			p.slow = delay
		}
	}
	slow(10 * milli)
	f.run(f.now + second)
	late := store(far)
	f.run(f.now + 25*milli + f.upTo(50*milli))
	sleeper.pause()
	f.run(f.now + 6*second) // their placeholders expire
	newer := store(near)
	f.run(f.now + second)
	for i, s := range f.stages() {
		if s.Stage() != resize.Move {
			f.wrong("", "p%d is in stage %v", i, s.Stage())
		}
	}
	slow(0)
	sleeper.resume()
	f.run(f.now + 5*second)
	for i, k := range f.values[:clients] {
		if late[i].acked || late[i].answered == 0 || !newer[i].acked {
			continue
		}
		interrupted++
		for _, n := range f.nodes {
			if found := string(n.store.Line().Do([]byte("get " + k.name + "\r\n"))); strings.Contains(found, late[i].value) {
				f.wrong(k.name, "%s has %q, whose client got an error at %.4f, though a newer value was stored", n.name, late[i].value, sec(late[i].answered))
			}
		}
	}
	return interrupted, f.broken
}
