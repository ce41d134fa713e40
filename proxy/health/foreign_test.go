package health

import (
	"testing"

	"ringside/proxy/ablation"
	"ringside/proxy/health/resize"
)

// TestOneOfManyDisagrees checks that all of many proxies notice one that has not loaded the new list of
// servers. While it has the former list, no change begins. The change begins when it has the new list. Without the
// rule that a record stands for some pings, the others begin too early.
func TestOneOfManyDisagrees(t *testing.T) {
	for _, proxies := range []int{3, 12, 40, -12} {
		ablated := proxies < 0
		w := whole(t, max(proxies, -proxies), 3, Settings{})
		both := resize.Lists{Mine: 1, Wish: 2}
		for i, p := range w.proxies {
			l := both
			if i == 0 {
				l.Wish = 1
			}
			p.k.SetLists(l, w.now)
			p.k.Ablate(ablation.Set{Stand: ablated})
		}
		began := func() (n int) {
			for _, p := range w.proxies {
				if change, ok := p.k.Sweeps(); ok {
					w.input(p, func() { p.k.Swept(change, w.now) })
				}
				if p.k.resize.Stage() != resize.Stable {
					n++
				}
			}
			return n
		}
		for end := w.now + 120*sec; w.now < end; w.run(w.now + 100*ms) {
			if n := began(); n > 0 && ablated {
				return
			} else if n > 0 {
				t.Fatalf("%d proxies: %d have begun the change %d s before all have the list", proxies, n, (end-w.now)/sec)
			}
		}
		if ablated {
			t.Error("without the rule, no proxy begins too early")
		}
		w.proxies[0].k.SetLists(both, w.now)
		for end := w.now + 30*sec; began() == 0; w.run(w.now + 100*ms) {
			if w.now >= end {
				t.Fatalf("%d proxies: the change does not begin", proxies)
			}
		}
	}
}

// TestForeign checks that a proxy which has also loaded the next list knows all servers of one that has only the list in
// force, and not those of any other one.
func TestForeign(t *testing.T) {
	servers := []Server{{Name: "a", Address: "a"}, {Name: "b", Address: "b"}}
	both := append(servers[:2:2], Server{Name: "c", Address: "c", Joins: true})
	for i := range both {
		both[i].Next = both[i].Name
	}
	lists := resize.Lists{Mine: 1, Wish: 2, Warm: true}
	for _, c := range []struct {
		name             string
		members          []Server
		before           []Server // of the keeper before; nil: there was none
		state            resize.State
		hash             uint64 // of the other list
		differs, foreign bool
	}{
		{"the same lists", both, nil, resize.First(1), Membership("p", both), false, false},
		{"only the list in force", both, nil, resize.First(1), Membership("p", servers), true, false},
		{"only the next list", both, nil, resize.First(1), Membership("p", append(servers[:1:1], both[2])), true, true},
		{"a further server", servers, nil, resize.First(1), Membership("p", both), true, true},
		{"both lists, after the change", servers, both, resize.First(2), Membership("p", both), true, false},
		{"both lists, and the change has not ended", servers, both, resize.First(1), Membership("p", both), true, true},
		{"a list is in force that this proxy does not know", both, nil, resize.First(3), Membership("p", servers), true, true},
	} {
		k, v := New("p", c.members, Settings{Strict: true}, 1), NewView(len(c.members))
		k.SetLists(lists, 1)
		if c.before != nil {
			former, published := New("p", c.before, Settings{Strict: true}, 1), NewView(len(c.before))
			former.SetLists(lists, 1)
			former.resize.Read(c.state, 1)
			published.Publish(former, true)
			k.SetLists(resize.Lists{Mine: 2, Wish: 2, Warm: true}, 1)
			k.Resume(published)
		}
		for i := range c.members {
			k.read(i, record{hash: c.hash, resize: c.state, entries: make([]entry, len(c.members))}, sec, sec)
		}
		k.judge(sec)
		if v.Publish(k, true); v.Differs() != c.differs || v.Foreign() != c.foreign {
			t.Errorf("%s: differs %t, foreign %t", c.name, v.Differs(), v.Foreign())
		}
		k.judge(sec + foreignPings*int64(k.pace()))
		if v.Publish(k, true); v.Differs() || v.Foreign() {
			t.Errorf("%s, later: differs %t, foreign %t", c.name, v.Differs(), v.Foreign())
		}
	}
}
