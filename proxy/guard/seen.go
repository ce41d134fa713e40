package guard

// What a server says of an item.

import (
	"math"
	"strconv"

	"ringside/proxy/wire"
)

// seen is what a reply to mg says. Its bytes are those of the reply.
type seen struct {
	kind            wire.Kind
	letters         wire.Letters
	flags, cas, ttl []byte // as far as they were asked for
	size            int
	fallen          bool // one of its tags is another by now
}

// see reads the reply r, whose bytes are b.
func see(r *wire.Reply, b []byte) (s seen) {
	s.kind, s.letters, s.size = r.Kind, r.Letters, r.Body.Len()
	for rest := r.MetaFlags; ; {
		var word wire.Span
		if word, rest = wire.NextKey(b, rest); word.Len() == 0 {
			return s
		}
		switch arg := b[word.Start+1 : word.End]; b[word.Start] {
		case 'f':
			s.flags = arg
		case 'c':
			s.cas = arg
		case 't':
			s.ttl = arg
		case 's':
			if r.Kind != wire.Value {
				s.size, _ = strconv.Atoi(string(arg))
			}
		}
	}
}

// wins says that who has asked is to rebuild; taken that somebody else is.
func (s *seen) wins() bool  { return s.letters.Has('W') }
func (s *seen) taken() bool { return s.letters.Has('Z') }

// soft says that it is deleted, and kept to be served meanwhile.
func (s *seen) soft() bool { return s.letters.Has('X') }

// special says that it is more than a value.
func (s *seen) special() bool {
	return s.wins() || s.taken() || s.soft() || string(s.flags) == markFlags
}

func (s *seen) absent() bool { return s.kind == wire.Miss }

// mark says that Ringside has made it to guard a copy.
func (s *seen) mark() bool { return string(s.flags) == markFlags }

// stub says that it stands for what somebody rebuilds.
func (s *seen) stub() bool {
	return s.size == 0 && string(s.flags) == "0" && (s.wins() || s.taken() || s.soft())
}

// nothing says that there is nothing to all commands but those that know the guard.
func (s *seen) nothing() bool { return s.absent() || s.mark() || s.stub() || s.soft() || s.fallen }

// shown are the client flags that the client has given it. An empty value that was
// appended to is empty no more and has the flags still.
func (s *seen) shown() []byte {
	if string(s.flags) == emptyFlags {
		return noFlags
	}
	return s.flags
}

var noFlags = []byte{'0'}

// left is how long it lives, in seconds.
func (s *seen) left() int64 {
	n, err := strconv.ParseInt(string(s.ttl), 10, 64)
	if err != nil || n < 0 {
		return math.MaxInt64
	}
	return n
}
