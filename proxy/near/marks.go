package near

// This file records which keys are being written, for all loops.

import "sync/atomic"

const (
	slots = 1 << 16

	oneWrite = 1                  // added to a counter word for each write in flight
	oneTurn  = 1 << 24            // added to a counter word for each start and each end of a write
	underWay = oneTurn - 1        // the bits of a counter word that have the number of writes in flight
	begun    = oneTurn + oneWrite // added to a counter word when a write starts
	ended    = oneTurn - oneWrite // added to a counter word when a write ends
)

// Marks tell each loop of a process about the writes of all loops. They count, for each slot of
// keys, the writes that have started and ended. Keys are identified by the hash of the key as
// servers know it, regardless of the pool, because pools may share servers.
type Marks struct {
	all  atomic.Uint64 // counts the writes of all keys, such as flush_all, like a word of slot
	slot [slots]atomic.Uint64
}

// mark is a copy of the words that count the writes of a key. If a later copy is equal, no write of
// the key started or ended in between.
type mark struct{ slot, all uint64 }

func (m *Marks) of(hash uint64) mark {
	return mark{m.slot[hash%slots].Load(), m.all.Load()}
}

// quiet reports whether no write of the key was in flight when m was copied.
func (m mark) quiet() bool { return (m.slot|m.all)&underWay == 0 }
