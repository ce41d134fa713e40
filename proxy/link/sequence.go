package link

// This file defines Sequence, which keeps bytes that arrive before their turn.

// A Sequence orders the parts of the bytes for one queue, which may arrive in any order. The bytes
// of the part whose turn it is are sent at once; those of later parts are kept.
type Sequence struct {
	parts []part
	turn  int    // index of the current part: all parts before it are settled
	small []byte // bytes of small parts that arrived before their turn, one after the other
}

type part struct {
	settled  bool  // no more bytes of the part will arrive
	from, to int   // the part's range in Sequence.small
	held     Queue // the part's bytes if it is large
}

// partSize is how many bytes a part counts against limits.memory, including what the owner of
// the Sequence stores for it.
const partSize = 80

// maxSmall limits the capacity of Sequence.small that Reset keeps.
const maxSmall = 64 << 10

// Add appends a part.
func (s *Sequence) Add(p *Buffers) {
	n := cap(s.parts)
	s.parts = append(s.parts, part{})
	p.Hold((cap(s.parts) - n) * partSize)
}

// IsTurn reports whether all parts before part i are settled.
func (s *Sequence) IsTurn(i int) bool { return i == s.turn }

// Settled reports whether all parts are settled.
func (s *Sequence) Settled() bool { return s.turn == len(s.parts) }

// IsSettled reports whether part i is settled: no more bytes of it will arrive.
func (s *Sequence) IsSettled(i int) bool { return s.parts[i].settled }

// Dest returns the queue for bytes of part i: the queue `out` if it is the part's turn, else a
// queue that keeps them. It returns nil if `out` is nil.
func (s *Sequence) Dest(i int, out *Queue) *Queue {
	if i == s.turn || out == nil {
		return out
	}
	return &s.parts[i].held
}

// Keep stores a and b as all bytes of part i, which is not the current one. They share a buffer
// with other small parts because a chunk for each costs more.
func (s *Sequence) Keep(p *Buffers, i int, a, b []byte) {
	from, room := len(s.small), cap(s.small)
	s.small = append(append(s.small, a...), b...)
	s.parts[i].from, s.parts[i].to = from, len(s.small)
	p.Hold(cap(s.small) - room)
}

// Settle records that no more bytes arrive for part i. If i is the current part, the bytes kept for
// the next parts are appended to out.
func (s *Sequence) Settle(p *Buffers, i int, out *Queue) {
	s.parts[i].settled = true
	for out != nil && s.turn < len(s.parts) && s.parts[s.turn].settled {
		if s.turn++; s.turn == len(s.parts) {
			return
		}
		next := &s.parts[s.turn]
		if next.to > next.from {
			out.Append(p, s.small[next.from:next.to])
		}
		if next.held.Size > 0 {
			next.held.MoveTo(p, out)
		}
	}
}

// Discard drops the bytes kept for part i.
func (s *Sequence) Discard(p *Buffers, i int) { s.parts[i].held.Drop(p) }

// Drop drops all bytes that wait for their turn.
func (s *Sequence) Drop(p *Buffers) {
	for i := range s.parts {
		s.parts[i].held.Drop(p)
	}
}

// Reset empties s for reuse.
func (s *Sequence) Reset(p *Buffers) {
	s.Drop(p)
	if n := cap(s.small); n > maxSmall {
		p.Hold(-n)
		s.small = nil
	}
	s.parts, s.small, s.turn = s.parts[:0], s.small[:0], 0
}

// Room returns the capacity in bytes of the buffers with bytes that wait for their turn.
func (s *Sequence) Room() int {
	n := cap(s.small)
	for i := range s.parts {
		n += s.parts[i].held.Room()
	}
	return n
}
