package health

// This file publishes the decisions of a keeper to other goroutines.

import (
	"slices"
	"strings"
	"sync/atomic"

	"ringside/proxy/health/barrier"
	"ringside/proxy/health/resize"
	"ringside/proxy/health/roll"
)

// View is the published state of a pool's keeper, as atomic words. The goroutine that
// runs the keeper writes it; all goroutines read it. Servers have the same indexes as
// in the list passed to New.
type View struct {
	learned  atomic.Bool   // the keeper knows which servers are out
	gen      atomic.Uint64 // generation of the published state: see Keeper.Gen
	allIn    atomic.Bool   // every server is In, not suspect, and has its keys under their own names
	differ   atomic.Bool   // other proxies have had another server list recently
	hash     atomic.Uint64 // Keeper.hash
	foreign  atomic.Bool   // the same, and that list may have servers which this process does not know
	copies   atomic.Bool   // routes keep replicas on the pool's servers
	gone     atomic.Bool   // none of the pool's own servers replies
	self     atomic.Pointer[roll.Instance]
	moves    atomic.Bool // not all keys are served by the list of this process
	resize   atomic.Pointer[resize.Status]
	lists    atomic.Pointer[resize.Lists] // the lists that SetLists has set
	texts    atomic.Pointer[Texts]        // their texts
	formers  atomic.Pointer[[][]byte]     // the lists that SetFormers has set
	learnt   atomic.Pointer[[][]byte]     // see Formers
	declared atomic.Bool                  // see DeclareDead
	Handover barrier.Published            // handover state exchanged by the loops and the keeper
	servers  []published
}

// published is the published state of one server.
type published struct {
	state           atomic.Uint64 // the server's phase number in the upper 32 bits; the flag suspectMark in the lower 32 bits
	renamed         atomic.Uint32
	validUntil      atomic.Int64
	knownUntil      atomic.Int64
	outSince        atomic.Int64           // see View.OutSince
	writesBy        atomic.Int64           // see View.WritesBy
	process         processCell            // the process that the keeper last recognized
	why             atomic.Pointer[string] // why the server is suspect although it answers; nil: it does not answer
	goes            atomic.Bool            // the list that the configuration requires lacks the server
	asks, hits      atomic.Uint64          // reads of the server while it was Warming, and those of them that were hits
	incompleteUntil atomic.Int64           // with replicas: until this time, a report of a loop that the server lacks replicas is valid
	neededUntil     atomic.Int64           // with replicas: until this time, the server may have the last copy of a key of another pool
	unfitAt         atomic.Uint32          // with replicas: the server's phase number, plus one, at which a loop reported that it missed too many writes to be repaired; 0: never
}

const suspectMark = 1 // flag in published.state: the server is suspect

// NewView returns a view of n servers. All are In, and Learned is false.
func NewView(n int) *View { return &View{servers: make([]published, n)} }

// Len returns the number of servers.
func (v *View) Len() int { return len(v.servers) }

// Learned reports whether it is known which servers are out. While it is not known, a server
// that replies may be out and have stale data.
func (v *View) Learned() bool { return v.learned.Load() }

// AllIn reports whether every server is known to be In, not suspect and not renamed, and no key moves. If
// so, all keys of the pool are served by their own servers.
func (v *View) AllIn() bool { return v.allIn.Load() }

// Gen returns the generation of the published state. It changes whenever a phase or a suspicion of
// a server changes.
func (v *View) Gen() uint64 { return v.gen.Load() }

// Differs reports whether proxies with another server list were seen recently. They may use a server that
// is out for this proxy.
func (v *View) Differs() bool { return v.differ.Load() }

// Foreign reports whether proxies were seen recently that may keep keys on servers which this proxy does not
// know. Differs is true then. While a change of the list waits, proxies that still have the list in force are not foreign:
// this proxy has all of their servers. At its end, nor are those that still have both lists: they do not use the former one any more.
func (v *View) Foreign() bool { return v.foreign.Load() }

// Differ sets what Differs and Foreign return.
func (v *View) Differ(is, foreign bool) {
	v.differ.Store(is)
	v.foreign.Store(foreign)
}

// N returns the phase number of server i; PhaseOf(N) is its phase.
func (v *View) N(i int) uint32 { return uint32(v.servers[i].state.Load() >> 32) }

// Phase returns the phase of server i.
func (v *View) Phase(i int) Phase { return PhaseOf(v.N(i)) }

// Suspected reports whether this process gets no replies from server i.
func (v *View) Suspected(i int) bool { return v.servers[i].state.Load()&suspectMark != 0 }

// SuspectWhy returns why server i gets no requests while it is Suspected.
func (v *View) SuspectWhy(i int) string {
	if why := v.servers[i].why.Load(); why != nil {
		return *why
	}
	return "it does not answer"
}

// Reasons why a server is suspect although it answers.
var (
	notVerified  = unverified
	otherReplies = "its replies are not memcached's protocol"
)

// BreaksProtocol reports whether why, the reason why a server is down or suspect, says that the server replies, but not
// with what memcached replies.
func BreaksProtocol(why string) bool {
	return slices.ContainsFunc(violations, func(text string) bool { return strings.Contains(why, text) })
}

// violations are parts of the reasons with which package upstream describes a server that breaks the protocol.
var violations = []string{"sent a reply without a request", "sent an invalid reply to ", "sent more than 1 MiB in reply to ", "replied with another key or opaque", "did not end its reply to a request of Ringside's own"}

// OutSince returns since when server i, which is Out, has been out, in nanoseconds on the keeper's clock. It returns 0 for
// other servers.
func (v *View) OutSince(i int) int64 { return v.servers[i].outSince.Load() }

// Serves reports whether server i serves its keys: it is known to be In, replies, and has the keys
// under their own names.
func (v *View) Serves(i int) bool {
	return v.Learned() && v.Phase(i) == In && !v.Suspected(i) && v.Renamed(i) == 0
}

// Renamed returns the number that the keys of server i carry because it rejected
// flush_all; 0: none.
func (v *View) Renamed(i int) uint32 { return v.servers[i].renamed.Load() }

// ValidUntil returns until when replies of server i can be trusted under strict
// consistency, in nanoseconds on the keeper's clock.
func (v *View) ValidUntil(i int) int64 { return v.servers[i].validUntil.Load() }

// HadLease reports whether there has been a lease for any server.
func (v *View) HadLease() bool {
	for i := range v.servers {
		if v.ValidUntil(i) > 0 {
			return true
		}
	}
	return false
}

// KnownUntil returns until when no other proxy is more than one phase ahead of this view, as far as
// the keys of server i depend on it, in nanoseconds on the keeper's clock. The caller must call
// KnownUntil before it reads the phases. Without strict consistency, the result is only an estimate
// if some proxy does not reach server i.
func (v *View) KnownUntil(i int) int64 { return v.servers[i].knownUntil.Load() }

// SetKnownUntil sets what KnownUntil returns for server i.
func (v *View) SetKnownUntil(i int, at int64) { v.servers[i].knownUntil.Store(at) }

// WritesBy returns when commands that change keys of server i can probably be carried out, if they must wait: when it is Out, if it
// is Leaving, or when all proxies know that it is Warming. Otherwise it returns 0. The time is only an estimate: a caller that
// waits for it needs a deadline of its own. The caller must read the phase before it calls WritesBy.
func (v *View) WritesBy(i int) int64 { return v.servers[i].writesBy.Load() }

// SetWritesBy sets what WritesBy returns for server i.
func (v *View) SetWritesBy(i int, at int64) { v.servers[i].writesBy.Store(at) }

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

// WarmReads returns how many reads of server i CountWarmRead has counted (asks), and how many of
// these reads were hits.
func (v *View) WarmReads(i int) (asks, hits uint64) {
	return v.servers[i].asks.Load(), v.servers[i].hits.Load()
}

// Gone reports whether none of the pool's own servers has replied to this process for
// the time after which a server is ejected. No server is ejected then, because proxies need
// a reachable server to exchange their votes.
func (v *View) Gone() bool { return v.gone.Load() }

// SetGone sets what Gone returns. The caller must call View.Done afterwards.
func (v *View) SetGone(gone bool) { v.gone.Store(gone) }

// KeepReplicas sets whether routes keep replicas on the servers of the pool. If they do, a server
// that rejoins empty lacks replicas.
func (v *View) KeepReplicas(keep bool) { v.copies.Store(keep) }

// KeepsReplicas reports whether routes keep replicas on the servers of the pool, or its keys take part in a handover.
func (v *View) KeepsReplicas() bool { return v.copies.Load() }

// SayIncomplete reports to the keeper that server i lacks replicas. The report is valid until a
// given time, so the caller must repeat it while the server lacks replicas.
func (v *View) SayIncomplete(i int, until int64) {
	v.servers[i].incompleteUntil.Store(max(until, v.servers[i].incompleteUntil.Load()))
}

// Incomplete reports whether SayIncomplete has reported that server i lacks replicas.
func (v *View) Incomplete(i int, now int64) bool { return now < v.servers[i].incompleteUntil.Load() }

// SayNeeded reports to the keeper that server i, which another pool also has, may have the last copy
// of a key of the other pool. The report is valid until a given time, so the caller must repeat it.
func (v *View) SayNeeded(i int, until int64) {
	v.servers[i].neededUntil.Store(max(until, v.servers[i].neededUntil.Load()))
}

// SayUnfit reports to the keeper that server i, at phase number n, missed more writes than the
// ledger can record. The server must be flushed, so it is ejected and then rejoins.
func (v *View) SayUnfit(i int, n uint32) { v.servers[i].unfitAt.Store(n + 1) }

// Unfit reports whether SayUnfit was called for server i with its current phase number.
func (v *View) Unfit(i int) bool { return v.servers[i].unfitAt.Load() == v.N(i)+1 }

// Resize returns the state of a change of the server list, as the keeper has published it.
func (v *View) Resize() resize.Status {
	if s := v.resize.Load(); s != nil {
		return *s
	}
	return resize.Status{}
}

// Moves reports whether some keys of the pool are not served as usual now, because the server list
// changes.
func (v *View) Moves() bool { return v.moves.Load() }

// SetResize publishes the progress of a change of the server list. force means that this process serves by its list
// although its peers use another one.
func (v *View) SetResize(is resize.Status, force bool) {
	v.moves.Store(is.Mine != 0 && (is.Serves() != resize.All || is.Announced) && !(force && is.Serves() == resize.Nothing))
	v.resize.Store(&is)
}

// SetLists passes the lists of this process, and their texts, to the keeper. The zero Lists are those of a pool that does not
// coordinate changes. The function goes reports whether the list that the configuration requires lacks
// server i.
func (v *View) SetLists(l resize.Lists, texts *Texts, goes func(i int) bool) {
	for i := range v.servers {
		v.servers[i].goes.Store(goes(i))
	}
	v.lists.Store(&l)
	v.texts.Store(texts)
}

// SetFormers sets the present server list of this process and then the former ones, as texts, while replicated keys move away from the servers of
// these. The last one is the list by which keys are served until all instances have the present one. There are no texts when all keys have moved.
func (v *View) SetFormers(texts [][]byte) { v.formers.Store(&texts) }

// Formers returns the former server lists that the keeper has read from the servers at the start of this process, in the
// same form, without the present one. They are complete, and Handover has the stage of the peers. Formers returns nil until then.
func (v *View) Formers() [][]byte {
	if texts := v.learnt.Load(); texts != nil {
		return *texts
	}
	return nil
}

// DeclareDead tells the keeper that the servers in use that do not answer are dead, and not out of reach of this process only. So the
// change to the list of the configuration does not wait for them any more: see resize.Status.Cut.
func (v *View) DeclareDead() { v.declared.Store(true) }

// Name returns the name of this process in the list of instances; empty: it has none.
func (v *View) Name() string {
	if self := v.self.Load(); self != nil {
		return self.Name
	}
	return ""
}

// Introduce sets what this process publishes about itself in the list of instances (package roll).
func (v *View) Introduce(self roll.Instance) { v.self.Store(&self) }

// Tell passes everything that other goroutines have set in v to the keeper k.
func (v *View) Tell(k *Keeper, now int64) {
	if self := v.self.Load(); self != nil {
		k.introduce(*self, now)
	}
	if v.Handover.Tell(&k.barrier, k.hash, now) {
		k.next = now
	}
	if l := v.lists.Load(); l != nil && *l != k.resize.Lists {
		k.resize.Set(*l, now)
		k.gen++
		k.next = now
	}
	if t := v.texts.Swap(nil); t != nil {
		k.SetTexts(t)
	}
	if f := v.formers.Swap(nil); f != nil {
		k.setFormers(*f, now)
	}
	if v.declared.Swap(false) {
		k.resize.Opposed, k.opposedUntil, k.opposedAt = false, 0, 0
		k.next = now
	}
	k.copies = v.copies.Load()
	for i := range k.servers {
		k.servers[i].goes = v.servers[i].goes.Load()
		k.servers[i].incomplete = v.Incomplete(i, now)
		k.servers[i].needed = now < v.servers[i].neededUntil.Load()
		k.servers[i].unfit = v.Unfit(i)
	}
}

// Set publishes the state of server i: its phase number n, whether it is suspect, the number that
// its keys carry (renamed), and until when its replies are valid. The caller must then call Done.
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

// Done completes a series of calls of Set. gen is the generation that View.Gen returns from now on.
// learned is whether it is known which servers are out. If it is false, gen is not published, and
// AllIn returns false.
func (v *View) Done(gen uint64, learned bool) {
	allIn := learned && !v.moves.Load()
	for i := range v.servers {
		allIn = allIn && v.Phase(i) == In && !v.Suspected(i) && v.Renamed(i) == 0
	}
	v.learned.Store(learned)
	v.allIn.Store(allIn)
	if learned {
		v.gen.Store(gen)
	}
}

// Publish publishes the whole state of k. Other goroutines may read between the steps of Publish. As
// long as a lease is valid (ValidUntil, KnownUntil), a goroutine relies on the phases in v. So a
// longer lease is stored last: a goroutine that sees it also sees the phases that k has learned with
// this lease. A shorter lease is stored first.
func (v *View) Publish(k *Keeper, learned bool) {
	for i := range v.servers {
		until := &v.servers[i].validUntil
		until.Store(min(until.Load(), k.Verdict(i).ValidUntil))
		known := &v.servers[i].knownUntil
		known.Store(min(known.Load(), k.knownUntil(i)))
	}
	for i := range v.servers {
		d := k.Verdict(i)
		by := k.writesBy(i)
		if by != 0 { // before the phase: a goroutine that sees the phase must not miss that commands wait
			v.SetWritesBy(i, by)
		}
		switch {
		case d.Why == unverified:
			v.servers[i].why.Store(&notVerified)
		case BreaksProtocol(d.Why):
			v.servers[i].why.Store(&otherReplies)
		default:
			v.servers[i].why.Store(nil)
		}
		v.servers[i].outSince.Store(0)
		if PhaseOf(d.N) == Out {
			v.servers[i].outSince.Store(d.Since)
		}
		v.Set(i, d.N, d.Suspect, k.Renamed(i), v.ValidUntil(i))
		v.SetWritesBy(i, by)
		if s := &k.servers[i]; s.known && !s.stranger {
			v.servers[i].process.Store(s.process)
		}
	}
	v.Handover.Publish(&k.barrier)
	if f := k.formers.learned; f != nil && k.formers.joins == nil && !k.formers.seeks && v.learnt.Load() == nil { // the handover has its stage now
		v.learnt.Store(&f)
	}
	if is := k.resize.Status; v.Resize() != is {
		v.SetResize(is, k.off.Force || is.UsesOwn())
	}
	v.SetGone(k.gone)
	v.Differ(k.pool == poolForeign, k.strange)
	v.hash.Store(k.hash)
	v.Done(k.Gen(), learned)
	for i := range v.servers {
		v.servers[i].validUntil.Store(k.Verdict(i).ValidUntil)
		v.servers[i].knownUntil.Store(k.knownUntil(i))
	}
}
