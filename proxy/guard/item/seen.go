package item

// What a server says of an item.

import (
	"math"
	"slices"
	"strconv"

	"ringside/proxy/wire"
)

// EmptyFlags are the client flags of an empty value whose client gave it none.
// Without flags it would look like a stub while it is refreshed or deleted.
const EmptyFlags = "1381171200"

// MarkFlags are the client flags of a mark, which a Ringside makes whose table keeps
// copies of the key.
const MarkFlags = wire.MarkFlags

// Seen is what a reply to mg says. Its bytes are those of the reply.
type Seen struct {
	Kind            wire.Kind
	Letters         wire.Letters
	Flags, Cas, TTL []byte // as far as they were asked for
	Size            int
	Fallen          bool // one of its tags is another by now
}

// See reads the reply r, whose bytes are b.
func See(r *wire.Reply, b []byte) (s Seen) {
	s.Kind, s.Letters, s.Size = r.Kind, r.Letters, r.Body.Len()
	for rest := r.MetaFlags; ; {
		var word wire.Span
		if word, rest = wire.NextKey(b, rest); word.Len() == 0 {
			return s
		}
		switch arg := b[word.Start+1 : word.End]; b[word.Start] {
		case 'f':
			s.Flags = arg
		case 'c':
			s.Cas = arg
		case 't':
			s.TTL = arg
		case 's':
			if r.Kind != wire.Value {
				s.Size, _ = strconv.Atoi(string(arg))
			}
		}
	}
}

// Clone is s with bytes of its own.
func (s *Seen) Clone() Seen {
	c := *s
	c.Flags, c.Cas, c.TTL = slices.Clone(s.Flags), slices.Clone(s.Cas), slices.Clone(s.TTL)
	return c
}

// Wins says that who has asked is to rebuild; Taken that somebody else is.
func (s *Seen) Wins() bool  { return s.Letters.Has('W') }
func (s *Seen) Taken() bool { return s.Letters.Has('Z') }

// Soft says that it is deleted, and kept to be served meanwhile.
func (s *Seen) Soft() bool { return s.Letters.Has('X') }

// Special says that it is more than a value.
func (s *Seen) Special() bool {
	return s.Wins() || s.Taken() || s.Soft() || string(s.Flags) == MarkFlags
}

// Absent says that the server has nothing.
func (s *Seen) Absent() bool { return s.Kind == wire.Miss }

// Mark says that Ringside has made it to guard a copy.
func (s *Seen) Mark() bool { return string(s.Flags) == MarkFlags }

// Stub says that it stands for what somebody rebuilds.
func (s *Seen) Stub() bool {
	return s.Size == 0 && string(s.Flags) == "0" && (s.Wins() || s.Taken() || s.Soft())
}

// Nothing says that there is nothing to all commands but those that know the guard.
func (s *Seen) Nothing() bool { return s.Absent() || s.Mark() || s.Stub() || s.Soft() || s.Fallen }

// Plain says that it is an empty value whose client gave it no flags.
func (s *Seen) Plain() bool { return s.Size == 0 && string(s.Flags) == EmptyFlags }

// Shown are the client flags that the client has given it. They are EmptyFlags of a value
// that has bytes only if the client has said so: who appends to a plain one stores it
// anew.
func (s *Seen) Shown() []byte {
	if s.Plain() {
		return noFlags
	}
	return s.Flags
}

var noFlags = []byte{'0'}

// Left is how long it lives, in seconds.
func (s *Seen) Left() int64 {
	n, err := strconv.ParseInt(string(s.TTL), 10, 64)
	if err != nil || n < 0 {
		return math.MaxInt64
	}
	return n
}

// Marked says that memcached says something of an item besides what it is.
func Marked(r *wire.Reply) bool {
	return r.Letters.Has('W') || r.Letters.Has('Z') || r.Letters.Has('X')
}
