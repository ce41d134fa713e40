package near

// Which keys are being written, over all loops.

import "sync/atomic"

const (
	slots = 1 << 16

	oneWrite = 1                  // in a word: a write that is under way
	oneTurn  = 1 << 24            // in a word: a write that has begun or ended
	underWay = oneTurn - 1        // the bits of a word that count writes under way
	begun    = oneTurn + oneWrite // what a write adds when it begins
	ended    = oneTurn - oneWrite // what it adds when it ends
)

// Marks are what the loops of a process tell each other of writes. Keys are told apart
// by their hash, as servers know them, whatever the pool: pools may share servers.
type Marks struct {
	all  atomic.Uint64 // writes of all keys, as in slot
	slot [slots]atomic.Uint64
}

// mark is what the words were that a key belongs to. If they are the same later no
// write of the key has passed meanwhile.
type mark struct{ slot, all uint64 }

func (m *Marks) of(hash uint64) mark {
	return mark{m.slot[hash%slots].Load(), m.all.Load()}
}

// quiet says that no write of the key was under way.
func (m mark) quiet() bool { return (m.slot|m.all)&underWay == 0 }
