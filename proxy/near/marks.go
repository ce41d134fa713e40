package near

// This file records which keys are being written, for all loops.

import "sync/atomic"

const (
	slots = 1 << 16

	oneWrite = 1                  // part of a word: one write in flight
	oneTurn  = 1 << 24            // part of a word: the start or the end of a write
	underWay = oneTurn - 1        // the bits of a word that count the writes in flight
	begun    = oneTurn + oneWrite // added to a word when a write starts
	ended    = oneTurn - oneWrite // added when the write ends
)

// Marks tell all loops of a process about the writes of each. They count, for each slot of keys,
// the writes that have started and ended. Keys are identified by their hash (as servers know them),
// regardless of the pool, because pools may share servers.
type Marks struct {
	all  atomic.Uint64 // writes of all keys, in the format of slot
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
