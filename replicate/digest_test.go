package replicate

// The state that two histories must share, so that exploring one of them is enough.

import (
	"hash/maphash"
	"os"
	"unsafe"
)

// beginning is all that the states and the checks depend on. Many policies and replica
// states begin alike and are explored once.
type beginning struct {
	rule     Rule
	replicas [Max]State // states that check treats alike are equal here
	lead     int        // the primary
	need     int        // replicas that must store the write
}

func (x *explorer) beginning() beginning {
	b := beginning{rule: begin(x.p, x.c, x.replicas, 1), lead: Authority(x.replicas)}
	counted := 0
	for i, m := range x.replicas {
		if m.State != Out && (m.State != Gone || x.c.Op == Flush) {
			counted++
		}
		switch b.replicas[i] = m.State; m.State {
		case Filling, Settling:
			b.replicas[i] = Warming
		case Suspect:
			b.replicas[i] = Leaving
		}
	}
	b.need = need(x.p.Ack, x.c, counted)
	return b
}

// raw returns the memory of v.
func raw[T any](v *T) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v)) }

// bytes returns the part of r that carries information: the asks come last in it.
func (r *Rule) bytes() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(r)), unsafe.Offsetof(r.askList)+unsafe.Offsetof(r.asks)+uintptr(r.n)*unsafe.Sizeof(asked{}))
}

// repaired summarizes the asks by which a primary was repaired before the command. Nearly
// all successful histories end alike, and what the command does after them is explored
// once. The primary's value is not part of it, because the primary is asked again.
type repaired struct {
	faults, races uint8
	nothing       Mask // other replicas that reported no key
	fetched       bool // one replica had the key
}

// digest returns the digest of state r. Only the summary in repaired matters of the asks
// before begun.
func (x *explorer) digest(r Rule, begun uint8) uint64 {
	if begun == 0 {
		return maphash.Bytes(x.seed, r.bytes())
	}
	var was repaired
	before := r
	before.n = begun
	faults, races := x.troubles(&before)
	was.faults, was.races = uint8(min(faults, 2)), uint8(races)
	if said, fetched := before.nothing(); fetched {
		was.fetched = r.through
	} else if r.through {
		was.nothing = said &^ (1 << r.lead)
	}
	since := func(ask *uint8) { *ask -= min(*ask, begun) }
	r.n = uint8(copy(r.asks[:], r.asks[begun:r.n]))
	r.given -= begun
	for i := range r.asks[:r.n] {
		since(&r.asks[i].from)
		since(&r.asks[i].guard)
	}
	for i := range r.guard {
		since(&r.guard[i])
	}
	since(&r.main)
	since(&r.looked)
	if since(&r.copy.fetched); !r.copies() { // the rest of it is not used any more
		r.copy = copying{overwrite: r.copy.overwrite, rounds: min(r.copy.rounds, 2)}
	}
	r.answer -= min(int8(begun), r.answer+1)
	r.reply -= min(int8(begun), r.reply+1)
	var h maphash.Hash
	h.SetSeed(x.seed)
	h.Write(r.bytes())
	maphash.WriteComparable(&h, was)
	return h.Sum64()
}

// past returns the number of asks of next, which follows r, whose order and number no
// longer matter: those of finished rounds of a repair, and all of the repair once the
// command has begun.
func past(r, next *Rule, before uint8) uint8 {
	c, n := &r.copy, &next.copy
	switch {
	case c.rounds == 0 || c.then != starting || !r.copies():
		return before
	case !next.copies() && next.stage != done, n.rounds > c.rounds:
		return r.n
	}
	return before
}

// copies reports whether r is copying.
func (r *Rule) copies() bool {
	switch r.stage {
	case claiming, fetching, filling, checking:
		return true
	}
	return false
}

// everyVector reports whether to explore vectors, too, that others cover nearly as well, as
// in a soak: RINGSIDE_SEEDS is set for that, as for the simulation of failover.
func everyVector() bool { return os.Getenv("RINGSIDE_SEEDS") != "" }

// sorted reports whether replicas are the one representative of all orders of the same
// states: the primary may be anywhere, and the others are ordered from more to less
// complete.
func sorted(replicas []Replica) bool {
	lead, last := Authority(replicas), State(0)
	for i, m := range replicas {
		if i != lead {
			if int(m.State) < int(last) {
				return false
			}
			last = m.State
		}
	}
	return true
}
