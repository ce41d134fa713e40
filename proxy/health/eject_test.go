package health

// How soon a server is ejected that refuses connections, and one that is silent.

import "testing"

// A server that refuses is ejected after EjectAfter.Refused, one that is silent after
// EjectAfter.Silent, as soon as votes allow.
func TestRefusedIsBelievedSooner(t *testing.T) {
	for _, strict := range []bool{true, false} {
		w := whole(t, 3, 3, Settings{Strict: strict})
		w.nodes[0].down = true
		began := w.now
		w.until(0, Leaving)
		if took := w.now - began; took < 500*ms || took > 2*sec {
			t.Errorf("strict %t: LEAVING %d ms after it was killed", strict, took/ms)
		}
		wait := w.proxies[0].k.wait()
		w.until(0, Out)
		if took := w.now - began; took < 500*ms+wait {
			t.Errorf("strict %t: OUT after %d ms, and a WAIT is %d", strict, took/ms, wait/ms)
		}
		w.nodes[1].hung = true
		w.stays(1, In, 3*sec)
	}
}

// A restart that is over before EjectAfter.Refused costs no cache, though nothing is
// heard of it until the next ping.
func TestShortRestartCostsNoCache(t *testing.T) {
	w := whole(t, 2, 3, Settings{})
	for range 20 {
		w.nodes[0].down = true
		w.run(w.now + 450*ms + w.rand.Int64N(50*ms))
		w.nodes[0].down = false
		w.stays(0, In, 4*sec)
	}
}

// One silent ping among refusals, and it counts as silent.
func TestSilenceIsNoRefusal(t *testing.T) {
	w := whole(t, 1, 3, Settings{})
	k := w.proxies[0].k
	for range 5 {
		w.input(w.proxies[0], func() { k.ServerFailed(0, true, "refused", w.now) })
		w.nodes[0].hung = true
		w.stays(0, In, 600*ms)
		w.input(w.proxies[0], func() { k.ServerFailed(0, false, "no answer", w.now) })
	}
	w.until(0, Leaving)
}

// Servers that come and go at one proxy don't keep its votes from being counted.
func TestHasteDoesNotStopVotes(t *testing.T) {
	w := whole(t, 2, 4, Settings{})
	w.cutAll(0, true)
	for end := w.now + 20*sec; w.now < end && w.phase(0, 0) == In; w.run(w.now + 300*ms) {
		w.nodes[1].down = !w.nodes[1].down
	}
	if w.phase(0, 0) == In {
		t.Errorf("a server that is cut off stays: %s", w.proxies[0].k.Verdict(0).Step)
	}
}
