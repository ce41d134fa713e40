package proxy

// Exports internals for the tests, which are all in package proxy_test.

import "ringside/proxy/watch/missreason"

// ReliefWait is reliefWait.
const ReliefWait = reliefWait

// SocketName is socketName.
var SocketName = socketName

// Loops returns the engines of p through the interface that tasks use.
func Loops(p *Proxy) loops { return loops{p} }

// HeldMemory returns how many bytes all engines of p use.
func (p *Proxy) HeldMemory() int64 { return p.memory.Load() }

// OverrideCount returns the number of overrides in pools without a keeper. ever is
// false if p has never had any.
func (p *Proxy) OverrideCount() (n int, ever bool) {
	m := p.overrides.Load()
	if m == nil {
		return 0, false
	}
	return len(*m), true
}

// CountEvictions reports to the book of misses that the servers at these addresses have
// evicted n items.
func (e *Engine) CountEvictions(n uint64, addresses ...string) {
	for _, address := range addresses {
		e.Shared.book.Load().Counted(e.Now, address, missreason.Counters{Evictions: n})
	}
}
