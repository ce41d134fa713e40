// Package near keeps values in Ringside for a moment, so that reads of a hot key ask its server a few times a second.
//
// A route with near has a Store on each loop. What a read of one of its keys has found
// is kept there, and given to the next reads, until it is ttl old: counted from when
// the read was taken up that brought it, which is before it left, so nothing given out
// was replaced more than ttl before.
//
//	            read, and all fits                    answer of the read
//	absent ────────────────────────► asked for ────────────────────────► kept
//	  ▲                                  │ a write of the key has passed   │
//	  ├──────────────────────────────────┘ meanwhile, or no value came     │
//	  │                                                                    │ three quarters of ttl
//	  │           ttl, a write of the key, no room                         ▼
//	  └───────────────────────────────────────────────────────────── kept and asked for
//
// While a kept value is asked for, which one read does, all others get what is kept; and
// when it is over before that read has its answer, they wait for it, if it asks for that
// key alone. So a key that is read all the time costs its server a read every three
// quarters of ttl, from each loop, however slow the server is. Nobody waits for an answer
// that brings nothing: with it the value is absent, and all ask.
//
// # Writes
//
// What passes here and may change a key must be seen by reads that come after it, on
// any loop. So all loops share Marks: a number for each slot of keys, which a write of
// one of them changes when it passes, and again when it has its answer. A value is kept
// with the number that its key had when it was asked for, and is given out only while
// the key has that number:
//
//	write passes      reads that come later don't get what was kept before
//	write is under way    nothing is asked for to be kept: a read could be answered
//	                  before the write, on another connection, and arrive behind it
//	write is answered     what was asked for before is not kept, if it arrives now
//
// It costs a write two additions to a shared word, and a read that finds something two
// loads. Keys that share a slot drop each other's values: there are 65,536. A flush_all
// is a write of all keys.
//
// What becomes of a write without an answer, that may run later, nobody knows: its
// effect is seen at most ttl after it. So is what happens past this Ringside.
//
// # Bounds
//
// A store is bounded in bytes, its share of limits.memory counts, and where that is
// short all is given up. The oldest goes first: it has least time left.
package near
