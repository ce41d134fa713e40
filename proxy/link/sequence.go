package link

// Bytes that come before their turn.

// A Sequence keeps the parts of what goes to one queue in their order, whatever the order
// in which they come. Those of the part whose turn it is go out at once.
type Sequence struct {
	parts []part
	turn  int    // how many of the first are settled
	small []byte // small ones that came before their turn, one behind the other
}

type part struct {
	settled  bool  // nothing more comes for it
	from, to int   // where in small its bytes are,
	held     Queue // and those of a large one
}

// partSize is what a part counts against limits.memory, with what its owner knows of it.
const partSize = 80

// maxSmall is how many bytes Sequence.small keeps room for when it is used again.
const maxSmall = 64 << 10

// Add makes room for one more part at the end.
func (s *Sequence) Add(p *Buffers) {
	n := cap(s.parts)
	s.parts = append(s.parts, part{})
	p.Hold((cap(s.parts) - n) * partSize)
}

// IsTurn says whether all parts before the part i are settled.
func (s *Sequence) IsTurn(i int) bool { return i == s.turn }

// Settled reports whether all parts are settled.
func (s *Sequence) Settled() bool { return s.turn == len(s.parts) }

// IsSettled reports whether the part i is settled.
func (s *Sequence) IsSettled(i int) bool { return s.parts[i].settled }

// Dest is where bytes of the part i go now, if those whose turn it is go to out; nil if
// that is nil.
func (s *Sequence) Dest(i int, out *Queue) *Queue {
	if i == s.turn || out == nil {
		return out
	}
	return &s.parts[i].held
}

// Keep keeps a and b as all of the part i, whose turn it is not, beside other small ones:
// a chunk of its own for each costs more.
func (s *Sequence) Keep(p *Buffers, i int, a, b []byte) {
	from, room := len(s.small), cap(s.small)
	s.small = append(append(s.small, a...), b...)
	s.parts[i].from, s.parts[i].to = from, len(s.small)
	p.Hold(cap(s.small) - room)
}

// Settle notes that nothing more comes for the part i. If it was its turn, what the next
// ones have kept goes to out.
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

// Discard drops what has come of the part i.
func (s *Sequence) Discard(p *Buffers, i int) { s.parts[i].held.Drop(p) }

// Drop lets go of what waits for its turn.
func (s *Sequence) Drop(p *Buffers) {
	for i := range s.parts {
		s.parts[i].held.Drop(p)
	}
}

// Reset makes s empty, to be used again.
func (s *Sequence) Reset(p *Buffers) {
	s.Drop(p)
	if n := cap(s.small); n > maxSmall {
		p.Hold(-n)
		s.small = nil
	}
	s.parts, s.small, s.turn = s.parts[:0], s.small[:0], 0
}

// Room is how many bytes wait for their turn.
func (s *Sequence) Room() int {
	n := cap(s.small)
	for i := range s.parts {
		n += s.parts[i].held.Room()
	}
	return n
}
