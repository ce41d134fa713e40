package health

// What a keeper has decided, for those who serve by it on other goroutines.

import (
	"sync/atomic"

	"ringside/proxy/health/barrier"
	"ringside/proxy/health/process"
	"ringside/proxy/health/roll"
)

// View is what the keeper of a pool has decided, published as atomic words: the
// goroutine that lets the keeper work writes it, everybody reads it. A member's
// index is that in the list New was given.
type View struct {
	learned  atomic.Bool   // it is known who is out
	gen      atomic.Uint64 // the keeper's Gen, of what is published
	allIn    atomic.Bool   // every member is in, nobody suspects it, and its keys have their own names
	foreign  atomic.Bool   // other Ringsides have another list of members
	copies   atomic.Bool   // routes keep copies on its members
	gone     atomic.Bool   // none of the pool's own servers answers
	self     atomic.Pointer[roll.Entry]
	Handover barrier.Board // what loops and the keeper tell each other of a handover
	members  []published
}

// published is what is published of one member.
type published struct {
	state           atomic.Uint64 // n in the high half; the low bits are marks
	renamed         atomic.Uint32
	validUntil      atomic.Int64
	outBy           atomic.Int64  // while it is Leaving
	process         process.Cell  // that the keeper has recognized last
	asks, hits      atomic.Uint64 // reads while it was Warming, and those it could answer
	incompleteUntil atomic.Int64  // copies: until when somebody has said that it lacks some
	neededUntil     atomic.Int64  // copies: until when another pool has said that it may have the only copy of a key
	unfitAt         atomic.Uint32 // copies: the number, plus one, at which somebody has said that it can't be mended; 0: nobody has
}

const suspectMark = 1 // of published.state

// NewView makes a view of n members, all In, that has learned nothing.
func NewView(n int) *View { return &View{members: make([]published, n)} }

// Len is how many members there are.
func (v *View) Len() int { return len(v.members) }

// Learned reports whether it is known who is out. Before it is, a member that
// answers may hold what is old.
func (v *View) Learned() bool { return v.learned.Load() }

// AllIn reports whether every member is In, not suspected and not renamed, and
// that is known: then nothing about the pool is special.
func (v *View) AllIn() bool { return v.allIn.Load() }

// Gen changes whenever a phase or a suspicion does.
func (v *View) Gen() uint64 { return v.gen.Load() }

// Foreign reports whether Ringsides with another list of members were seen of late:
// they may keep keys on servers that this one does not know.
func (v *View) Foreign() bool { return v.foreign.Load() }

// Differ says whether other Ringsides have another list.
func (v *View) Differ(is bool) { v.foreign.Store(is) }

// N is the number of member i; PhaseOf(N) is its phase.
func (v *View) N(i int) uint32 { return uint32(v.members[i].state.Load() >> 32) }

// Phase is the phase of member i.
func (v *View) Phase(i int) Phase { return PhaseOf(v.N(i)) }

// Suspected reports whether this process gets no answers of member i.
func (v *View) Suspected(i int) bool { return v.members[i].state.Load()&suspectMark != 0 }

// Serves reports whether member i is In, answers, and has its keys under their
// own names.
func (v *View) Serves(i int) bool {
	return v.Learned() && v.Phase(i) == In && !v.Suspected(i) && v.Renamed(i) == 0
}

// Renamed is the number that the keys of member i carry because it refused to
// be flushed; 0: none.
func (v *View) Renamed(i int) uint32 { return v.members[i].renamed.Load() }

// ValidUntil is until when, in nanoseconds on the keeper's clock, the answers of
// member i are sure in consistency strict.
func (v *View) ValidUntil(i int) int64 { return v.members[i].validUntil.Load() }

// OutBy is by when member i, which is Leaving, is likely to be Out, and 0 for others. It
// is no promise: who waits for it needs an end of his own.
func (v *View) OutBy(i int) int64 { return v.members[i].outBy.Load() }

// SetOutBy publishes OutBy.
func (v *View) SetOutBy(i int, at int64) { v.members[i].outBy.Store(at) }

// Recognized reports whether the keeper knows that p answers for member i, and that it has
// no values of its own, or is emptied before anybody reads from it.
func (v *View) Recognized(i int, p process.Process) bool { return v.members[i].process.Is(p) }

// CountWarmRead counts a read of member i while it is Warming.
func (v *View) CountWarmRead(i int, hit bool) {
	v.members[i].asks.Add(1)
	if hit {
		v.members[i].hits.Add(1)
	}
}

// WarmReads are the reads that CountWarmRead has counted, and the hits of them.
func (v *View) WarmReads(i int) (asks, hits uint64) {
	return v.members[i].asks.Load(), v.members[i].hits.Load()
}

// Gone reports whether none of the pool's own servers has answered this process for as
// long as it takes to eject one. Nobody is ejected then: nobody is left to whom other
// processes could say what they see.
func (v *View) Gone() bool { return v.gone.Load() }

// SetGone publishes Gone. The caller goes on to Done.
func (v *View) SetGone(gone bool) { v.gone.Store(gone) }

// KeepCopies says whether routes keep copies on the members, who then lack what
// they had when they come back empty.
func (v *View) KeepCopies(keep bool) { v.copies.Store(keep) }

// SayIncomplete says that member i lacks copies, until a time: who says so goes on
// saying it.
func (v *View) SayIncomplete(i int, until int64) {
	v.members[i].incompleteUntil.Store(max(until, v.members[i].incompleteUntil.Load()))
}

// Incomplete reports whether member i lacks copies.
func (v *View) Incomplete(i int, now int64) bool { return now < v.members[i].incompleteUntil.Load() }

// SayNeeded says, as SayIncomplete does, that member i may have the only copy of a key of another
// pool, which has it too.
func (v *View) SayNeeded(i int, until int64) {
	v.members[i].neededUntil.Store(max(until, v.members[i].neededUntil.Load()))
}

// SayUnfit says that member i, at number n, has missed more writes than anybody remembers,
// and can only be emptied: it leaves, and is flushed on its way back.
func (v *View) SayUnfit(i int, n uint32) { v.members[i].unfitAt.Store(n + 1) }

// Unfit reports whether that was said, and member i has not left since.
func (v *View) Unfit(i int) bool { return v.members[i].unfitAt.Load() == v.N(i)+1 }

// Introduce says what this process is, for the roll call.
func (v *View) Introduce(self roll.Entry) { v.self.Store(&self) }

// Tell tells k what others have said here.
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
		k.servers[i].needed = now < v.members[i].neededUntil.Load()
		k.servers[i].unfit = v.Unfit(i)
	}
}

// Set publishes the state of member i.
func (v *View) Set(i int, n uint32, suspect bool, renamed uint32, validUntil int64) {
	state := uint64(n) << 32
	if suspect {
		state |= suspectMark
	}
	m := &v.members[i]
	m.state.Store(state)
	m.renamed.Store(renamed)
	m.validUntil.Store(validUntil)
}

// Done ends what Set has begun: gen is the Gen of all that was set. It is not
// told, and nobody is taken to be in, before it is learned who is out.
func (v *View) Done(gen uint64, learned bool) {
	allIn := learned
	for i := range v.members {
		allIn = allIn && v.Phase(i) == In && !v.Suspected(i) && v.Renamed(i) == 0
	}
	v.learned.Store(learned)
	v.allIn.Store(allIn)
	if learned {
		v.gen.Store(gen)
	}
}

// Publish takes over all that k has decided. A lease says that all is known that was
// published before it: so one that is longer comes last, when whoever sees it sees also
// the phases that k has learned with it, and one that is shorter comes first. Others read
// meanwhile, for as long as this goroutine's thread has to wait for a processor.
func (v *View) Publish(k *Keeper, learned bool) {
	for i := range v.members {
		until := &v.members[i].validUntil
		until.Store(min(until.Load(), k.Verdict(i).ValidUntil))
	}
	for i := range v.members {
		d := k.Verdict(i)
		v.SetOutBy(i, k.outBy(i))
		v.Set(i, d.N, d.Suspect, k.Renamed(i), v.ValidUntil(i))
		if s := &k.servers[i]; s.known && !s.stranger {
			v.members[i].process.Store(s.process)
		}
	}
	v.Handover.Publish(&k.barrier)
	v.SetGone(k.gone)
	v.Differ(k.pool == poolForeign)
	v.Done(k.Gen(), learned)
	for i := range v.members {
		v.members[i].validUntil.Store(k.Verdict(i).ValidUntil)
	}
}
