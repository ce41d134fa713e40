package health

import (
	"testing"

	"ringside/proxy/health/barrier"
)

// TestResumeWaits checks that a keeper which a reload has recreated with new settings
// waits as long as any other. It does not know yet whether a proxy has another list.
func TestResumeWaits(t *testing.T) {
	members := []Server{{Name: "s1", Address: "tcp s1"}, {Name: "s2", Address: "tcp s2"}}
	v := NewView(len(members))
	before := New("main", members, Settings{}, 1)
	tell := func(k *Keeper, arrangement uint64, now int64) {
		v.Handover.Arrange(arrangement, 0, false)
		v.Tell(k, now)
		k.Tick(now)
		v.Publish(k, true)
	}
	tell(before, 7, 1000*sec)
	tell(before, 8, 1001*sec)
	k := New("main", members, Settings{AfterFailures: 2}, 1)
	k.Resume(v)
	for now := 1002 * sec; now < 1010*sec; now += sec {
		tell(k, 8, now)
		if got := v.Handover.Status().Stage(8); got != barrier.Waiting {
			t.Fatalf("after %d s it is in stage %d", (now-1001*sec)/sec, got)
		}
	}
	tell(k, 8, 1012*sec)
	if got := v.Handover.Status().Stage(8); got != barrier.Pausing {
		t.Errorf("at last it is in stage %d", got)
	}
}

// TestRemovedServerStaysOut checks that a server that a reload of one proxy has removed from a pool with
// replicas does not rejoin while another proxy has the former list, even after that proxy restarts.
// The server rejoins when all proxies have it again.
func TestRemovedServerStaysOut(t *testing.T) {
	for _, strict := range []bool{false, true} {
		w := whole(t, 3, 4, Settings{Strict: strict})
		begin := func(p *proxy, members []Server, n uint32) {
			w.start(p)
			p.k = New("p", members, w.set, uint64(p.life))
			p.k.copies = true
			for _, m := range w.members()[len(members):] {
				p.k.Departed(m.Name, n, 0)
			}
			w.input(p, func() { p.k.Tick(w.now) })
		}
		for _, p := range w.proxies {
			p.k.copies = true
		}
		begin(w.proxies[2], w.members()[:3], 0)
		last := w.proxies[2]
		w.proxies = w.proxies[:2]
		w.until(3, Out)
		w.stays(3, Out, 30*sec)
		for range 40 { // a client flushes all servers again and again, so the view records are lost
			for i, n := range w.nodes {
				n.do([]byte("flush_all\r\n"))
				w.input(w.proxies[0], func() { w.proxies[0].k.Flushed(i, w.now) })
			}
			w.stays(3, Out, 110*ms)
		}
		for i := range 10 {
			w.run(w.now + int64(i)*137*ms)
			begin(w.proxies[1], w.members(), 0)
			w.run(w.now + 300*ms)
			w.stays(3, Out, 6*sec)
		}
		for _, p := range w.proxies {
			if got := p.k.servers[3].step; got != "stays out: an instance had no such server in the pool some seconds ago" {
				t.Errorf("p%d says %q", p.id, got)
			}
		}
		begin(last, w.members(), 0)
		w.proxies = append(w.proxies, last)
		w.settle(30 * sec)
	}
}

// TestRemovedServerLeavesFirst checks that a server that a reload of one proxy removes from a pool with
// replicas is not OUT for any proxy while it is still IN for another one. The same holds if a second
// reload adds the server back before the others know that it was removed, or removes it in another proxy, too.
func TestRemovedServerLeavesFirst(t *testing.T) {
	for _, second := range []string{"", "adds it back", "of another proxy"} {
		for delay := range int64(30) {
			w := whole(t, 3, 4, Settings{Strict: true})
			for _, p := range w.proxies {
				p.k.copies = true
			}
			begin := func(p *proxy, members []Server) {
				n := p.k.servers[3].n
				w.start(p)
				p.k = New("p", members, w.set, uint64(p.life))
				p.k.copies = true
				p.k.Departed(w.members()[3].Name, n, 0)
				w.input(p, func() { p.k.Tick(w.now) })
			}
			has := w.proxies // the proxies with the server in their lists
			begin(has[2], w.members()[:3])
			switch w.run(w.now + delay*ms/4); second {
			case "":
				has = has[:2]
			case "adds it back":
				w.proxies[2].k.servers = append(w.proxies[2].k.servers, server{}) // the state at the first reload
				begin(has[2], w.members())
			default:
				has = has[1:2]
				begin(w.proxies[0], w.members()[:3])
			}
			for out := 0; out < len(has); w.run(w.now + ms/10) {
				in := 0
				out = 0
				for _, p := range has {
					switch PhaseOf(p.k.servers[3].n) {
					case In:
						in++
					case Out:
						out++
					}
				}
				if in > 0 && out > 0 || w.now > 100*sec {
					w.fail("second reload %q after %d ms: the server is IN for %d proxies and OUT for %d", second, delay/4, in, out)
				}
			}
		}
	}
}

// TestSecondReloadWhileWithheld reloads a proxy that has removed a server, with strict consistency, before
// the others know that. The new keeper waits for that as the former one did.
func TestSecondReloadWhileWithheld(t *testing.T) {
	members := []Server{{Name: "s1", Address: "tcp s1"}, {Name: "s2", Address: "tcp s2"}}
	v := NewView(len(members))
	v.copies.Store(true)
	v.Publish(New("main", members, Settings{Strict: true}, 1), true)
	begin := func(departed ...string) *Keeper {
		k := New("main", members, Settings{Strict: true}, 1)
		k.Resume(v)
		for _, name := range departed {
			k.Departed(name, 0, 0)
		}
		k.Tick(1000 * sec)
		v.Publish(k, true)
		return k
	}
	begin("s3")
	k := begin() // s3 is back in the list, or no longer known
	if !v.Handover.Status().Withheld {
		t.Error("after the second reload, writes do not wait")
	}
	for now := 1001 * sec; v.Handover.Status().Withheld; now += sec {
		if k.Tick(now); now > 1100*sec {
			t.Fatal("writes wait for ever")
		}
		v.Publish(k, true)
	}
}
