package health

// The decisions of a keeper, published for other goroutines.

import (
	"sync/atomic"

	"ringside/proxy/health/barrier"
	"ringside/proxy/health/roll"
)

// View is the published state of a pool's keeper, as atomic words. The goroutine that
// runs the keeper writes it; all goroutines read it. Servers have the same indexes as
// in the list passed to New.
type View struct {
	learned  atomic.Bool   // the keeper knows which servers are out
	gen      atomic.Uint64 // Gen of the published state
	allIn    atomic.Bool   // every server is In, not suspect, and its keys have their own names
	foreign  atomic.Bool   // other proxies have another server list
	copies   atomic.Bool   // routes keep replicas on the pool's servers
	gone     atomic.Bool   // none of the pool's own servers replies
	self     atomic.Pointer[roll.Instance]
	Handover barrier.Published // handover state exchanged by the loops and the keeper
	servers  []published
}

// published is the published state of one server.
type published struct {
	state           atomic.Uint64 // n in the upper 32 bits; flags in the lower ones
	renamed         atomic.Uint32
	validUntil      atomic.Int64
	knownUntil      atomic.Int64
	outBy           atomic.Int64  // when the server is expected to be Out, while it is Leaving; else 0
	process         processCell   // the process that the keeper last recognized
	asks, hits      atomic.Uint64 // reads of the server while it was Warming, and those of them that were hits
	incompleteUntil atomic.Int64  // with replicas: a loop has reported that the server lacks some; the report is valid until this time
	neededUntil     atomic.Int64  // with replicas: until this time, it may have the last copy of a key of another pool with the same server
	unfitAt         atomic.Uint32 // with replicas: the server's number, plus one, when it was reported as not repairable; 0: never
}

const suspectMark = 1 // flag in published.state

// NewView returns a view of n servers. All are In, and Learned is false.
func NewView(n int) *View { return &View{servers: make([]published, n)} }

// Len returns the number of servers.
func (v *View) Len() int { return len(v.servers) }

// Learned reports whether it is known which servers are out. Until then a server that
// replies may have stale data.
func (v *View) Learned() bool { return v.learned.Load() }

// AllIn reports whether every server is known to be In, not suspect and not renamed.
// Then the pool needs no special treatment.
func (v *View) AllIn() bool { return v.allIn.Load() }

// Gen changes whenever a phase or suspicion changes.
func (v *View) Gen() uint64 { return v.gen.Load() }

// Foreign reports whether proxies with another server list were seen recently. They
// may keep keys on servers that this proxy does not know.
func (v *View) Foreign() bool { return v.foreign.Load() }

// Differ publishes Foreign.
func (v *View) Differ(is bool) { v.foreign.Store(is) }

// N returns the number of server i; PhaseOf(N) is its phase.
func (v *View) N(i int) uint32 { return uint32(v.servers[i].state.Load() >> 32) }

// Phase returns the phase of server i.
func (v *View) Phase(i int) Phase { return PhaseOf(v.N(i)) }

// Suspected reports whether this process gets no replies from server i.
func (v *View) Suspected(i int) bool { return v.servers[i].state.Load()&suspectMark != 0 }

// Serves reports whether server i is In, replies, and has its keys under their own
// names.
func (v *View) Serves(i int) bool {
	return v.Learned() && v.Phase(i) == In && !v.Suspected(i) && v.Renamed(i) == 0
}

// Renamed returns the number that the keys of server i carry because it rejected
// flush_all; 0: none.
func (v *View) Renamed(i int) uint32 { return v.servers[i].renamed.Load() }

// ValidUntil returns until when replies of server i can be trusted under strict
// consistency, in nanoseconds on the keeper's clock.
func (v *View) ValidUntil(i int) int64 { return v.servers[i].validUntil.Load() }

// KnownUntil returns until when no other proxy is more than one phase ahead of this view, as far as
// the keys of server i depend on it, in nanoseconds on the keeper's clock. Read it before the
// phases. Without strict consistency this is only an estimate if some proxy does not reach server
// i.
func (v *View) KnownUntil(i int) int64 { return v.servers[i].knownUntil.Load() }

// SetKnownUntil sets what KnownUntil returns for server i.
func (v *View) SetKnownUntil(i int, at int64) { v.servers[i].knownUntil.Store(at) }

// OutBy returns when server i, which is Leaving, will probably be Out, and 0 for other
// servers. This is only an estimate: callers that wait for it need their own deadline.
func (v *View) OutBy(i int) int64 { return v.servers[i].outBy.Load() }

// SetOutBy publishes OutBy.
func (v *View) SetOutBy(i int, at int64) { v.servers[i].outBy.Store(at) }

// Recognized reports whether the keeper has identified p as the process of server i. Such a process
// has the data that the pool stored there, or will be flushed before any proxy reads from it.
func (v *View) Recognized(i int, p Process) bool { return v.servers[i].process.Is(p) }

// CountWarmRead counts a read of server i while it is Warming.
func (v *View) CountWarmRead(i int, hit bool) {
	v.servers[i].asks.Add(1)
	if hit {
		v.servers[i].hits.Add(1)
	}
}

// WarmReads returns the reads and hits counted by CountWarmRead.
func (v *View) WarmReads(i int) (asks, hits uint64) {
	return v.servers[i].asks.Load(), v.servers[i].hits.Load()
}

// Gone reports whether none of the pool's own servers has replied to this process for
// the time after which one is ejected. No server is ejected then, because proxies need
// a reachable server to exchange their votes.
func (v *View) Gone() bool { return v.gone.Load() }

// SetGone sets what Gone returns. The caller must call View.Done afterwards.
func (v *View) SetGone(gone bool) { v.gone.Store(gone) }

// KeepReplicas sets whether routes keep replicas on the servers. A server that rejoins
// empty then lacks replicas.
func (v *View) KeepReplicas(keep bool) { v.copies.Store(keep) }

// SayIncomplete reports that server i lacks replicas, until a time. The caller must
// repeat it as long as that is true.
func (v *View) SayIncomplete(i int, until int64) {
	v.servers[i].incompleteUntil.Store(max(until, v.servers[i].incompleteUntil.Load()))
}

// Incomplete reports whether server i lacks replicas.
func (v *View) Incomplete(i int, now int64) bool { return now < v.servers[i].incompleteUntil.Load() }

// SayNeeded reports that server i may have the last copy of a key of another pool on
// the same server. Like SayIncomplete, it must be repeated.
func (v *View) SayNeeded(i int, until int64) {
	v.servers[i].neededUntil.Store(max(until, v.servers[i].neededUntil.Load()))
}

// SayUnfit reports that server i, at number n, missed more writes than the ledger can
// record. It must be flushed, so it is ejected and then rejoins.
func (v *View) SayUnfit(i int, n uint32) { v.servers[i].unfitAt.Store(n + 1) }

// Unfit reports whether SayUnfit was called for the server's current number.
func (v *View) Unfit(i int) bool { return v.servers[i].unfitAt.Load() == v.N(i)+1 }

// Introduce sets what this process publishes about itself in the roll call.
func (v *View) Introduce(self roll.Instance) { v.self.Store(&self) }

// Tell passes everything that other goroutines have set in v to the keeper k.
func (v *View) Tell(k *Keeper, now int64) {
	if self := v.self.Load(); self != nil {
		k.introduce(*self, now)
	}
	if v.Handover.Tell(&k.barrier, k.hash, now) {
		k.next = now
	}
	k.copies = v.copies.Load()
	for i := range k.servers {
		k.servers[i].incomplete = v.Incomplete(i, now)
		k.servers[i].needed = now < v.servers[i].neededUntil.Load()
		k.servers[i].unfit = v.Unfit(i)
	}
}

// Set publishes the state of server i.
func (v *View) Set(i int, n uint32, suspect bool, renamed uint32, validUntil int64) {
	state := uint64(n) << 32
	if suspect {
		state |= suspectMark
	}
	m := &v.servers[i]
	m.state.Store(state)
	m.renamed.Store(renamed)
	m.validUntil.Store(validUntil)
}

// Done completes a series of calls of Set. gen is the Gen of the published state. If
// learned is false, gen is not published and AllIn stays false.
func (v *View) Done(gen uint64, learned bool) {
	allIn := learned
	for i := range v.servers {
		allIn = allIn && v.Phase(i) == In && !v.Suspected(i) && v.Renamed(i) == 0
	}
	v.learned.Store(learned)
	v.allIn.Store(allIn)
	if learned {
		v.gen.Store(gen)
	}
}

// Publish publishes the whole state of k. A lease promises that everything published
// before it is known, and so does KnownUntil. So a longer lease is stored last: a goroutine
// that sees it also sees the phases that k learned with it. A shorter lease is stored
// first. Other goroutines read in between, for as long as this thread waits for a CPU.
func (v *View) Publish(k *Keeper, learned bool) {
	for i := range v.servers {
		until := &v.servers[i].validUntil
		until.Store(min(until.Load(), k.Verdict(i).ValidUntil))
		known := &v.servers[i].knownUntil
		known.Store(min(known.Load(), k.knownUntil(i)))
	}
	for i := range v.servers {
		d := k.Verdict(i)
		v.SetOutBy(i, k.outBy(i))
		v.Set(i, d.N, d.Suspect, k.Renamed(i), v.ValidUntil(i))
		if s := &k.servers[i]; s.known && !s.stranger {
			v.servers[i].process.Store(s.process)
		}
	}
	v.Handover.Publish(&k.barrier)
	v.SetGone(k.gone)
	v.Differ(k.pool == poolForeign)
	v.Done(k.Gen(), learned)
	for i := range v.servers {
		v.servers[i].validUntil.Store(k.Verdict(i).ValidUntil)
		v.servers[i].knownUntil.Store(k.knownUntil(i))
	}
}
