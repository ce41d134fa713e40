package health

// Tests of how soon a server is ejected that refuses connections or only stops
// replying.

import (
	"cmp"
	"testing"
	"time"
)

// TestRefusedIsBelievedSooner checks the time to LEAVING and to OUT. A server that
// refuses connections is LEAVING right after EjectAfter.Refused, because by then all
// proxies have reported it to each other. A WAIT later it is OUT for all of them. A
// silent server is still IN after 3 s.
func TestRefusedIsBelievedSooner(t *testing.T) {
	for _, strict := range []bool{true, false} {
		w := whole(t, 2, 3, Settings{Strict: strict})
		for range 10 {
			w.nodes[0].down = true
			began := w.now
			for _, p := range w.proxies {
				w.input(p, func() { p.k.ServerFailed(0, true, "refused", w.now) })
			}
			for w.phase(0, 0) == In && w.phase(1, 0) == In {
				w.run(w.now + 10*ms)
			}
			if took := w.now - began; took < 400*ms || took > 500*ms {
				t.Errorf("strict %t: LEAVING %d ms after it was killed", strict, took/ms)
			}
			wait := w.proxies[0].k.wait()
			w.until(0, Out)
			if took := w.now - began; took < 400*ms+wait || took > 600*ms+wait {
				t.Errorf("strict %t: OUT after %d ms, and a WAIT is %d", strict, took/ms, wait/ms)
			}
			w.nodes[0].restart()
			w.settle(60 * sec)
			w.run(w.now + sec + w.rand.Int64N(sec))
		}
		w.nodes[1].hung = true
		w.stays(1, In, 3*sec)
	}
}

// TestOneThatIsRefusedIsOne checks that a single refused proxy ejects no server,
// however often it is refused. It reports refusals at long intervals, so the others
// count it once.
func TestOneThatIsRefusedIsOne(t *testing.T) {
	w := whole(t, 2, 3, Settings{})
	for i := range 60 {
		w.input(w.proxies[0], func() { w.proxies[0].k.ServerFailed(0, i%4 != 3, "failed", w.now) })
		w.stays(0, In, 150*ms)
	}
}

// TestShortRestartCostsNoCache checks that a restart shorter than EjectAfter.Refused
// does not cause a flush, although no ping succeeds until the server is back.
func TestShortRestartCostsNoCache(t *testing.T) {
	w := whole(t, 2, 3, Settings{EjectAfter: EjectAfter{Refused: 1500 * time.Millisecond}})
	for range 40 {
		w.nodes[0].down = true
		w.run(w.now + 1350*ms + w.rand.Int64N(149*ms))
		w.nodes[0].down = false
		w.stays(0, In, 6*sec)
	}
}

// TestRestartWithMemory checks a server with restartable memory under a short EjectAfter.Silent. A
// restart shorter than EjectAfter.Restart does not eject it, although two good pings end only after
// that time. A longer one does, and so does a short one of a server without such memory.
func TestRestartWithMemory(t *testing.T) {
	for _, c := range []struct {
		memory memory
		down   int64
		stays  bool
	}{
		{memoryKept, 2400 * ms, true},
		{memoryKept, 8 * sec, false},
		{memoryLost, 2400 * ms, false},
	} {
		w := whole(t, 2, 3, Settings{Strict: true, EjectAfter: EjectAfter{Refused: 50 * time.Millisecond, Silent: 50 * time.Millisecond}})
		for _, p := range w.proxies {
			p.k.servers[0].memory = c.memory
		}
		w.nodes[0].down = true
		for _, p := range w.proxies {
			w.input(p, func() { p.k.ServerFailed(0, true, "refused", w.now) })
		}
		w.run(w.now + c.down)
		w.nodes[0].down = false
		w.run(w.now + sec)
		if n := w.proxies[0].k.Verdict(0).N; (n == 0) != c.stays {
			t.Errorf("%+v: phase number %d", c, n)
		}
	}
}

// TestRejectedProcessIsPinged checks a server with restartable memory whose new process is rejected by another loop when
// EjectAfter.Restart has just ended. It is not ejected, because a ping shows that it is the server. It is ejected if it does not
// reply to that ping.
func TestRejectedProcessIsPinged(t *testing.T) {
	for _, replies := range []bool{true, false} {
		w := whole(t, 2, 3, Settings{EjectAfter: EjectAfter{Refused: 50 * time.Millisecond, Silent: 50 * time.Millisecond}})
		began := w.now
		w.nodes[0].down = true
		for _, p := range w.proxies {
			p.k.servers[0].memory = memoryKept
			w.input(p, func() { p.k.ServerFailed(0, true, "refused", w.now) })
		}
		w.run(began + 2600*ms)
		w.nodes[0].down = false
		w.run(began + 2999*ms)
		if p := w.proxies[0].k.servers[0]; !p.suspect || p.n != 0 {
			t.Fatalf("replies %t: suspect %t, phase number %d", replies, p.suspect, p.n)
		}
		w.nodes[0].down = !replies
		w.run(began + 3*sec)
		for _, p := range w.proxies {
			w.input(p, func() {
				p.k.Rejected(0, w.now)
				p.k.ServerFailed(0, false, "another memcached", w.now)
			})
		}
		w.run(w.now + sec)
		if n := w.proxies[0].k.Verdict(0).N; (n == 0) != replies {
			t.Errorf("replies %t: phase number %d", replies, n)
		}
	}
}

// TestTheOnlyCopyStays checks a silent server while another server lacks replicas: it
// may have the last copy of a key, so it is not ejected for half a minute. A server
// that refuses connections has lost its data and is ejected.
func TestTheOnlyCopyStays(t *testing.T) {
	for _, c := range []struct {
		name             string
		copies, complete bool
		down             bool
		stays            int64
	}{
		{"no replicas are kept", false, false, false, 0},
		{"all are complete", true, true, false, 0},
		{"one lacks copies", true, false, false, 20 * sec},
		{"it has none either", true, false, true, 0},
	} {
		w := whole(t, 2, 3, Settings{Strict: true})
		for _, p := range w.proxies {
			p.k.copies, p.k.servers[1].incomplete = c.copies, !c.complete
		}
		w.nodes[0].down, w.nodes[0].hung = c.down, !c.down
		if c.down {
			for _, p := range w.proxies {
				w.input(p, func() { p.k.ServerFailed(0, true, "refused", w.now) })
			}
		}
		if c.stays > 0 {
			w.stays(0, In, c.stays)
		}
		began := w.now
		w.until(0, Out)
		if took := w.now - began; c.stays == 0 && took > 12*sec {
			t.Errorf("%s: OUT after %d ms", c.name, took/ms)
		}
		// A server that is OUT is not complete either.
		if c.copies {
			w.nodes[2].hung = true
			w.stays(2, In, 20*sec)
		}
	}
}

// TestWhoCanOnlyBeEmptiedLeaves checks that a server which must be flushed is ejected
// although it replies, whichever proxy reports it. It is not ejected while another
// server lacks replicas, and only once.
func TestWhoCanOnlyBeEmptiedLeaves(t *testing.T) {
	w := whole(t, 2, 3, Settings{Strict: true})
	for _, p := range w.proxies {
		p.k.copies, p.k.servers[1].incomplete = true, true
	}
	flushes, flushed := 0, w.nodes[0].flushed
	w.nodes[0].flushed = func() { flushes++; flushed() }
	view := NewView(3)
	view.SayUnfit(0, 0)
	tell := func() {
		view.Publish(w.proxies[1].k, true)
		w.proxies[1].k.servers[0].unfit = view.Unfit(0)
	}
	tell()
	w.stays(0, In, 10*sec)
	for _, p := range w.proxies {
		p.k.servers[1].incomplete = false
	}
	for w.phase(0, 0) != Warming || w.phase(1, 0) != Warming {
		tell()
		w.run(w.now + 10*ms)
		if w.now > 60*sec {
			t.Fatalf("it has not come to WARM in a minute, but to %v", w.phase(0, 0))
		}
	}
	if flushes == 0 {
		t.Error("it was not flushed")
	}
	tell()
	w.settle(60 * sec)
	tell()
	w.stays(0, In, 10*sec)
}

// TestWhoCanOnlyBeEmptiedAndCannotLeave checks a pool with a server without meta
// commands, in which no server can be ejected. A server that replies but must be
// flushed does not become suspect there.
func TestWhoCanOnlyBeEmptiedAndCannotLeave(t *testing.T) {
	w := whole(t, 1, 3, Settings{})
	w.nodes[2].old = true
	w.run(w.now + 10*sec)
	k := w.proxies[0].k
	k.servers[0].unfit = true
	w.stays(0, In, 10*sec)
	if v := k.Verdict(0); v.Suspect || v.Step != "must be flushed, but can't be: a server doesn't know meta commands" {
		t.Errorf("%+v", v)
	}
	w.cutAll(0, true)
	w.run(w.now + 10*sec)
	if v := k.Verdict(0); !v.Suspect || v.Step != "suspect for this instance only: a server doesn't know meta commands" {
		t.Errorf("%+v", v)
	}
}

// TestSilenceIsNoRefusal checks that one failure of another kind, or one unanswered
// ping, between refusals makes the server count as silent.
func TestSilenceIsNoRefusal(t *testing.T) {
	w := whole(t, 1, 3, Settings{Request: 5 * time.Second, Ping: 5 * time.Second, Lease: 6 * time.Second,
		EjectAfter: EjectAfter{Refused: 500 * time.Millisecond, Silent: 20 * time.Second}})
	w.nodes[0].hung = true
	for i := range 100 {
		w.input(w.proxies[0], func() { w.proxies[0].k.ServerFailed(0, i%2 == 0, "failed", w.now) })
		w.stays(0, In, 150*ms)
	}
	w = whole(t, 1, 3, Settings{Request: 300 * time.Millisecond})
	w.nodes[0].hung = true
	for range 4 {
		w.input(w.proxies[0], func() { w.proxies[0].k.ServerFailed(0, true, "refused", w.now) })
		w.stays(0, In, 700*ms)
	}
}

// TestWholePoolGone checks a pool without any reachable server. Votes are impossible,
// so no server is ejected. Each keeper reports that the pool is gone, but not before a
// single server would have been ejected.
func TestWholePoolGone(t *testing.T) {
	for _, c := range []struct {
		name   string
		refuse bool
		least  int64
		most   int64
	}{{"refuses", true, 400 * ms, 1600 * ms}, {"is silent", false, 3 * sec, 8 * sec}} {
		w := whole(t, 2, 3, Settings{})
		gone := func() bool { return w.proxies[0].k.gone && w.proxies[1].k.gone }
		began := w.now
		for i, n := range w.nodes {
			n.down, n.hung = c.refuse, !c.refuse
			if c.refuse {
				for _, p := range w.proxies {
					w.input(p, func() { p.k.ServerFailed(i, true, "refused", w.now) })
				}
			}
		}
		for !gone() && w.now < began+20*sec {
			w.run(w.now + 10*ms)
		}
		if took := w.now - began; took < c.least || took > c.most {
			t.Errorf("a pool that %s is gone after %d ms", c.name, took/ms)
		}
		for i := range w.nodes {
			w.stays(i, In, 5*sec)
		}
		gen := w.proxies[0].k.Gen()
		for _, n := range w.nodes[:1] {
			n.down, n.hung = false, false
		}
		w.run(w.now + 3*sec)
		if gone() || w.proxies[0].k.Gen() == gen {
			t.Errorf("a pool that %s is gone though one of its servers is back", c.name)
		}
	}
	w := whole(t, 2, 3, Settings{})
	for _, n := range w.nodes[:2] {
		n.hung = true
	}
	w.run(w.now + 20*sec)
	if w.proxies[0].k.gone {
		t.Error("a pool of which a server answers is gone")
	}
}

// TestMostHangAndGoOn checks that no server is ejected if most servers hang, and then go on one shortly after the other: when the
// first of them replies, more than half of the servers reply again.
func TestMostHangAndGoOn(t *testing.T) {
	w := whole(t, 2, 3, Settings{})
	for _, n := range w.nodes[:2] {
		n.hung = true
	}
	w.run(w.now + 20*sec)
	w.nodes[0].hung = false
	for range 150 {
		w.run(w.now + 10*ms)
		for i := range w.nodes {
			if got := w.phase(0, i); got != In {
				t.Fatalf("server %d is %v while the servers go on", i, got)
			}
		}
	}
	w.nodes[1].hung = false
	for i := range w.nodes {
		w.stays(i, In, 5*sec)
	}
}

// TestPartingTakesNobodyOut checks that no server is ejected after Part, and that
// servers which are out rejoin.
func TestPartingTakesNobodyOut(t *testing.T) {
	w := whole(t, 2, 4, Settings{})
	w.cutAll(0, true)
	w.until(0, Out)
	for _, p := range w.proxies {
		p.k.Part(true)
	}
	w.cutAll(1, true)
	w.stays(1, In, 20*sec)
	if v := w.proxies[0].k.Verdict(1); !v.Suspect || v.Step != "stays: since a reload, the keys of the pool do not move" {
		t.Errorf("%+v", v)
	}
	w.cutAll(0, false)
	w.until(0, In)
	w.cutAll(1, false)
	w.settle(60 * sec)
}

// TestAllHearThatItLeaves checks that all proxies read OUT within half a ping after the
// first one, even those without requests to the server. Until then their clients get
// errors.
func TestAllHearThatItLeaves(t *testing.T) {
	w := whole(t, 3, 3, Settings{})
	for range 20 {
		w.nodes[0].down = true
		w.input(w.proxies[0], func() { w.proxies[0].k.ServerFailed(0, true, "refused", w.now) })
		var first int64
		for ready := 0; ready < 3; ready = 0 {
			w.run(w.now + ms)
			for p := range w.proxies {
				if w.phase(p, 0) == Out {
					ready++
					first = cmp.Or(first, w.now)
				}
			}
			if ready == 3 {
				break
			}
		}
		if took := w.now - first; took > 250*ms {
			t.Errorf("OUT for all %d ms after it was for one", took/ms)
		}
		w.nodes[0].restart()
		w.settle(60 * sec)
		w.run(w.now + sec + w.rand.Int64N(sec))
	}
}

// TestWhyServerIsOut checks the reason that operators read while a server is out: why it does not serve, not which step of
// the protocol was the last one.
func TestWhyServerIsOut(t *testing.T) {
	w := whole(t, 2, 3, Settings{})
	w.nodes[0].down = true
	for _, p := range w.proxies {
		w.input(p, func() { p.k.ServerFailed(0, true, "refused", w.now) })
	}
	w.until(0, Out)
	for _, stays := range []bool{false, true} { // true: as in mode fail_fast with resize
		for i, p := range w.proxies {
			p.k.set.Stays = stays
			if is := p.k.Verdict(0); is.Why != "refused" || is.Suspect == stays {
				t.Errorf("proxy %d: %+v", i, is)
			}
			p.k.set.Stays = false
		}
	}
	w.nodes[0].restart()
	for w.proxies[0].k.servers[0].good == 0 {
		w.run(w.now + ms)
	}
	w.run(w.now + 10*ms)
	for _, p := range w.proxies {
		p.k.servers[0].suspect = false // as it is after further pings, until most proxies reach the server
		if is := p.k.Verdict(0); p.k.servers[0].good > 0 && is.Why != Answered {
			t.Errorf("it answers again: %+v", is)
		}
	}

	w = whole(t, 3, 3, Settings{})
	w.cut[0][0], w.cut[1][0] = true, true
	w.until(0, Out)
	if is := w.proxies[2].k.Verdict(0); is.Why == Answered || is.Why == "all instances know that it leaves" {
		t.Errorf("a proxy that reaches it: %+v", is)
	}
}
