package health

import (
	"fmt"
	"strings"
	"testing"

	"ringside/proxy/health/roll"
)

const rollKey = "__rs_roll:p"

var rollTime = int64(roll.Pause(0))

// called returns the peers that proxy p knows: name, config, suspects and servers that
// lack replicas.
func (w *world) called(p int) (text string) {
	for _, e := range w.proxies[p].k.Roll().Others {
		text += fmt.Sprintf("%s %d %s;", e.Name, e.Config, e.Suspects+strings.Repeat(" lacks ", min(1, len(e.Lacks)))+e.Lacks)
	}
	return text
}

func (w *world) introduce(p int, config uint64) { w.introduceCopies(p, config, 0) }

func (w *world) introduceCopies(p int, config, copies uint64) {
	x := w.proxies[p]
	w.input(x, func() {
		x.k.introduce(roll.Instance{ID: uint64(p + 1), Name: fmt.Sprint("p", p), Version: "v", Config: config, Copies: copies}, w.now)
		x.k.Tick(w.now)
	})
}

// hears runs until proxy p knows the wanted peers.
func (w *world) hears(p int, want string) {
	w.t.Helper()
	for end := w.now + 30*sec; w.called(p) != want; w.run(w.now + 100*ms) {
		if w.now > end {
			w.t.Fatalf("p%d has heard %q, want %q", p, w.called(p), want)
		}
	}
}

// TestRollCall checks that all proxies know each other within two rounds, that changes
// are read, and that a dead proxy disappears. It also deletes and corrupts items.
func TestRollCall(t *testing.T) {
	w := whole(t, 3, 3, Settings{})
	for i, n := range w.nodes {
		if _, ok := n.value(rollKey); ok {
			t.Errorf("server %d has a roll of proxies that have no name", i)
		}
	}
	for p := range 3 {
		w.introduce(p, 7)
	}
	w.hears(0, "p1 7 ;p2 7 ;")
	w.hears(2, "p0 7 ;p1 7 ;")
	homes := 0
	for _, n := range w.nodes {
		if value, ok := n.value(rollKey); ok {
			if homes++; len(value) > 200 {
				t.Errorf("the roll has %d bytes", len(value))
			}
		}
	}
	if homes != roll.Homes {
		t.Errorf("%d servers have the roll", homes)
	}

	began := w.now
	w.introduce(1, 8)
	w.hears(0, "p1 8 ;p2 7 ;")
	if took := w.now - began; took > 2*rollTime {
		t.Errorf("a change was heard after %v ms", took/ms)
	}
	w.proxies[0].k.servers[1].incomplete = true // no other proxy could know this: it may have started later
	w.hears(1, "p0 7  lacks c1;p2 7 ;")
	w.proxies[0].k.servers[1].incomplete = false
	w.hears(1, "p0 7 ;p2 7 ;")
	for i, n := range w.nodes {
		if _, ok := n.value(rollKey); ok {
			n.put(rollKey, "\x00garbage")
			if i == 0 {
				n.drop(rollKey)
			}
		}
	}
	w.run(w.now + 2*rollTime)
	w.hears(0, "p1 8 ;p2 7 ;")
	if bad := w.proxies[0].k.Roll().Bad + w.proxies[1].k.Roll().Bad + w.proxies[2].k.Roll().Bad; bad == 0 {
		t.Error("garbage was not counted")
	}

	// A proxy that ends in the regular way signs off. Its peers do not list it after their next round.
	began = w.now
	w.input(w.proxies[2], func() { w.proxies[2].k.SignOff(w.now) })
	for w.proxies[2].k.SigningOff(w.now) {
		w.run(w.now + ms)
	}
	if took := w.now - began; took >= signOffTime {
		t.Errorf("a sign-off takes %v ms", took/ms)
	}
	w.proxies[2].dead = true
	w.run(began + rollTime + rollTime/10)
	for p, want := range []string{"p1 8 ;", "p0 7 ;"} {
		if got := w.called(p); got != want {
			t.Errorf("a round after p2 has signed off, p%d lists %q", p, got)
		}
	}
	w.run(began + 10*rollTime)
	for i, n := range w.nodes {
		if value, ok := n.value(rollKey); ok && strings.Contains(value, "=p2,") {
			t.Errorf("server %d still has the sign-off of p2: %q", i, value)
		}
	}

	// A proxy that reaches no server forgets no peer, because it reads nothing.
	for i := range w.nodes {
		w.cut[1][i] = true
	}
	w.run(w.now + 10*rollTime)
	w.hears(1, "p0 7 ;")
	if r := w.proxies[1].k.Roll(); r.Where || r.Self.Suspects == "" {
		t.Errorf("a proxy without servers says %+v", r)
	}
	w.hears(0, "")
	for i := range w.nodes {
		w.cut[1][i] = false
	}
	w.hears(0, "p1 8 ;")
}

// TestRollCallOfCopies checks that all proxies log a peer with other replica placement
// within two rounds, once. They also log the end of it, even if that peer stops.
func TestRollCallOfCopies(t *testing.T) {
	w := whole(t, 3, 3, Settings{})
	expect := func(what string, want int) {
		t.Helper()
		log := strings.Join(w.log, "\n")
		for p := range 2 {
			of := fmt.Sprintf("p%d server -1: ", p)
			if told := strings.Count(log, of+"alike -> apart") - strings.Count(log, of+"apart -> alike"); told != want {
				t.Errorf("%s: p%d tells %d times that copies are elsewhere, want %d", what, p, told, want)
			}
		}
	}
	for p := range 3 {
		w.introduceCopies(p, 7, 70)
	}
	w.run(w.now + 2*rollTime)
	expect("all alike", 0)
	w.introduceCopies(2, 8, 80)
	w.run(w.now + 4*rollTime)
	expect("one with other replicas", 1)
	w.introduceCopies(2, 8, 70)
	w.run(w.now + 2*rollTime)
	expect("mended", 0)
	w.introduceCopies(2, 8, 0)
	w.run(w.now + 2*rollTime)
	expect("one that keeps none", 1)
	w.proxies[2].dead = true
	w.run(w.now + 8*rollTime)
	expect("who has ended", 0)
}

// TestRollCallOfOldServers checks that there is no roll call if no server has meta
// commands.
// TestLongVersionIsItsOwn checks that an instance shows its own version as the others read it, so
// that a version that is too long for the list does not look like another one.
func TestLongVersionIsItsOwn(t *testing.T) {
	w := whole(t, 2, 3, Settings{})
	for p, x := range w.proxies {
		w.input(x, func() {
			x.k.introduce(roll.Instance{ID: uint64(p + 1), Name: fmt.Sprint("p", p), Version: "v0.0.0-20261128002032-c04169e9d33d", Config: 7}, w.now)
			x.k.Tick(w.now)
		})
	}
	w.hears(0, "p1 7 ;")
	w.hears(1, "p0 7 ;")
	for _, x := range w.proxies {
		if is := x.k.Roll(); len(is.Others) != 1 || is.Self.Version != is.Others[0].Version {
			t.Errorf("%+v", is)
		}
	}
}

func TestRollCallOfOldServers(t *testing.T) {
	w := newWorld(t, scenario{proxies: 2, pool: 2})
	for _, n := range w.nodes {
		n.old = true
	}
	w.introduce(0, 7)
	w.run(w.now + 5*rollTime)
	if r := w.proxies[0].k.Roll(); r.Where || len(r.Others) > 0 {
		t.Errorf("called: %+v", r)
	}
}

// TestRollCallOfOtherLists checks that proxies with lists that differ in one server
// have a server with the item in common.
func TestRollCallOfOtherLists(t *testing.T) {
	w := whole(t, 2, 4, Settings{})
	for gone := range 4 {
		k := w.proxies[0].k
		homes := k.recordServers()
		names := map[string]bool{}
		for _, i := range homes {
			names[k.members[i].Name] = true
		}
		var members []Server
		for i, m := range k.members {
			if i != gone {
				members = append(members, m)
			}
		}
		other := New("p", members, Settings{}, 1)
		for i := range other.servers {
			other.servers[i].good = 1
		}
		common := false
		for _, i := range other.recordServers() {
			common = common || names[other.members[i].Name]
		}
		if !common {
			t.Errorf("without server %d there is no home in common: %v and %v", gone, names, other.recordServers())
		}
	}
}

// TestDissentNamesLiveProxies checks that a change of servers waits for proxies that run: those that were killed, or were gone
// before this proxy has started, are not named.
func TestDissentNamesLiveProxies(t *testing.T) {
	w := whole(t, 4, 3, Settings{})
	names := func(p int) string {
		k := w.proxies[p].k
		k.wishUntil = w.now + 60*sec // a view record has another wish
		k.opposedAt = w.now
		return k.dissent(w.now)
	}
	for p := range 3 {
		w.introduce(p, 7+uint64(min(p, 1)))
	}
	w.hears(0, "p1 8 ;p2 8 ;")
	w.run(w.now + 2*rollTime)
	if got := names(0); got != "instances p1 and p2 have another configuration" {
		t.Errorf("all run: %s", got)
	}
	w.proxies[2].dead = true
	w.run(w.now + 7*rollTime/2)
	if got := names(0); got != "instance p1 has another configuration" {
		t.Errorf("p2 was killed: %s", got)
	}
	w.introduce(3, 7)
	w.hears(3, "p0 7 ;p1 8 ;p2 8 ;")
	if got := names(3); got != "another instance has another server list" {
		t.Errorf("p3 has just started: %s", got)
	}
	w.run(w.now + 2*rollTime)
	if got := names(3); got != "instance p1 has another configuration" {
		t.Errorf("p3 has started: %s", got)
	}
	w.run(w.now + foreignPings*sec)
	if got := w.proxies[3].k.dissent(w.now); got != "" {
		t.Errorf("no proxy has another wish: %s", got)
	}
}
