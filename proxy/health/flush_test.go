package health

// Tests that only one proxy flushes a server that rejoins.

import (
	"strings"
	"testing"

	"ringside/proxy/ablation"
)

// flushesWhileRead lets a server leave and rejoin several times, while one request in four is late. It
// reports whether the server was flushed while a proxy read from it.
func flushesWhileRead(t *testing.T, seed uint64, off ablation.Set) (found bool) {
	w := newWorld(t, scenario{seed: seed, proxies: 4, pool: 3, late: 200 * ms, set: Settings{Strict: seed%2 == 0}})
	for _, p := range w.proxies {
		p.k.Ablate(off)
	}
	w.settle(10 * sec)
	w.nodes[0].flushed = func() {
		for _, p := range w.proxies {
			found = found || !unflushed(PhaseOf(p.k.Verdict(0).N))
		}
	}
	for range 10 {
		w.cutAll(0, true)
		w.until(0, Out)
		w.cutAll(0, false)
		w.until(0, In)
		w.run(w.now + w.rand.Int64N(sec))
	}
	return found
}

// TestOneFlush checks that a proxy does not flush a server that another proxy has flushed and
// published as WARM. Without the look before the flush, it does so.
func TestOneFlush(t *testing.T) {
	for seed := range uint64(16) {
		if flushesWhileRead(t, seed, ablation.Set{}) {
			t.Errorf("seed %d: a server is flushed while a proxy reads from it", seed)
		}
	}
	for seed := range uint64(100) {
		if flushesWhileRead(t, seed, ablation.Set{Look: true}) {
			t.Logf("without the look: seed %d", seed)
			return
		}
	}
	t.Error("without the look, no server was flushed while a proxy read from it")
}

// TestFlushTooLate suspends a proxy between its look and its flush until its election token may have
// expired. It must not flush the server, because another proxy may have done so.
func TestFlushTooLate(t *testing.T) {
	w := whole(t, 1, 3, Settings{})
	w.cutAll(0, true)
	w.until(0, Out)
	p := w.proxies[0]
	var look uint64
	w.asked = func(_ *proxy, r Request) {
		if p.k.pending[r.ID].kind == askLook {
			look, p.dead = r.ID, true
		}
	}
	w.cutAll(0, false)
	w.run(w.now + 10*sec)
	for _, late := range []int64{electedFor + sec, 0} {
		k := *p.k
		k.servers = append([]server(nil), p.k.servers...)
		k.pending = map[uint64]ask{look: p.k.pending[look]}
		k.Answered(look, []byte(w.nodes[0].do(MetaGet(k.keys.View))), w.now+late)
		flushes := false
		for _, r := range k.Requests() {
			flushes = flushes || strings.HasPrefix(string(r.Line), "flush_all")
		}
		if flushes != (late == 0) {
			t.Errorf("%d s later: flushes %t", late/sec, flushes)
		}
	}
}
