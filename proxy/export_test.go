package proxy

// What tests of this package, which are all in package proxy_test, need of its internals.

import "ringside/proxy/watch/why"

// ReliefWait is reliefWait.
const ReliefWait = reliefWait

// SocketName is socketName.
var SocketName = socketName

// Loops returns the engines of p as tasks see them.
func Loops(p *Proxy) loops { return loops{p} }

// HeldMemory returns how many bytes all engines of p hold.
func (p *Proxy) HeldMemory() int64 { return p.memory.Load() }

// ClientCount returns how many clients all engines of p count.
func (p *Proxy) ClientCount() int64 { return p.clients.Load() }

// OverrideCount returns of how many pools without a keeper p has overrides, and
// false if there have never been any.
func (p *Proxy) OverrideCount() (n int, ever bool) {
	m := p.overrides.Load()
	if m == nil {
		return 0, false
	}
	return len(*m), true
}

// CountEvictions tells the book of misses that the servers at these addresses have evicted
// so many items.
func (e *Engine) CountEvictions(n uint64, addresses ...string) {
	for _, address := range addresses {
		e.Shared.book.Load().Counted(e.Now, address, why.Counters{Evictions: n})
	}
}
