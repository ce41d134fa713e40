package wire

// This file parses the meta commands, such as mg k v t and ms k 5 T60.

import (
	"bytes"
	"math/bits"
)

const (
	// maxMetaTokens is the largest number of words in a meta command, including the name
	// of the command.
	maxMetaTokens = 19
	// maxOpaque is the largest length in bytes of an opaque, including its letter O.
	maxOpaque = 32
)

// knownFlags are the meta flags of memcached 1.6.18. Every meta command accepts all of
// them and ignores those that have no meaning for it.
var knownFlags = letters("bNTRlOPLkstcfvhuqFCMJDI")

// UnknownFlags reports whether r has a meta flag that memcached 1.6.18 does not know. In
// that case the server decides whether it accepts the request.
func (r *Request) UnknownFlags() bool { return r.Letters&^knownFlags != 0 }

// LongOpaque reports whether r has an opaque that memcached rejects. It executes some commands first.
func (r *Request) LongOpaque() bool { return r.Opaque.Len()+1 > maxOpaque }

// effectFlags are the meta flags with which an mg changes the item. The flags l, h and u
// are not among them: they only concern the item's last access and its LRU position.
var effectFlags = letters("NTR")

func letters(s string) (l Letters) {
	for i := range len(s) {
		l.Add(s[i])
	}
	return l
}

// meta parses a meta command. letter is the second letter of its name, such as g for mg.
func (p *parser) meta(letter byte, at uint32) (int, error) {
	r := p.r
	r.Dialect = Meta
	switch letter {
	case 'g':
		r.Op = Get
	case 's':
		return p.metaStore(at)
	case 'd':
		r.Op = Delete
	case 'a':
		r.Op = Incr
	case 'e':
		return p.debug(at)
	case 'n':
		return p.plain(Noop)
	default:
		return p.bad(answerError)
	}
	r.Key, r.NumKeys = nextToken(p.buf, at, p.end), 1
	switch {
	case r.Key.Len() == 0:
		return p.bad(answerError)
	case r.Key.Len() > p.limits.MaxKey():
		return p.bad(answerFormat)
	}
	r.MetaFlags = Span{skipSpaces(p.buf, r.Key.End, p.end), p.end}
	if p.tooManyTokens() {
		if r.Op == Get {
			return p.bad(answerManyGet)
		}
		return p.bad(answerMany)
	}
	wrong := p.flags(r.Key.End)
	if wrong != nil && r.Op != Get {
		wrong = answerFlag
	}
	known := r.Letters&^knownFlags == 0
	// memcached checks the length of an opaque only when it writes the reply. By that
	// time, an ma has already counted, and an mg may have created or changed its item.
	// Such requests are forwarded, because only the server can do the same.
	switch {
	case wrong != nil:
	case r.Op == Incr:
		switch {
		case p.incrMode():
		case known:
			wrong = answerIncrMode
		default:
			wrong = answerFlag
		}
	case r.LongOpaque() && known && (r.Op == Delete || r.Letters&effectFlags == 0):
		wrong = answerOpaque
	}
	if wrong != nil {
		return p.bad(wrong)
	}
	if r.Op == Get {
		r.Keys = r.Key
		if !known || r.Letters&effectFlags != 0 {
			r.Flags |= Effects
		}
	}
	return p.size, nil
}

// metaStore parses the arguments of ms: <key> <datalen> <flags>*. If the command is
// refused after its length was read, its data block is discarded and never executed as
// commands.
func (p *parser) metaStore(at uint32) (int, error) {
	r := p.r
	key := nextToken(p.buf, at, p.end)
	datalen := nextToken(p.buf, key.End, p.end)
	cut := datalen.Len() == 0 && p.pastNUL()
	if cut {
		key = nextToken(p.buf, at, p.end)
		datalen = nextToken(p.buf, key.End, p.end)
	}
	size, ok := length(datalen.Of(p.buf))
	switch {
	case key.Len() == 0:
		return p.bad(answerError)
	case !ok && p.tooManyTokens():
		return p.bad(answerMany)
	case !ok:
		return p.bad(answerFormat)
	case cut || key.Len() > p.limits.MaxKey():
		return p.discard(size, answerFormat)
	case p.tooManyTokens():
		return p.discard(size, answerManyGet)
	}
	r.Op, r.Key, r.NumKeys = Set, key, 1
	if !plainNumber(datalen.Of(p.buf)) {
		r.Flags |= Rewrite
	}
	r.MetaFlags = Span{skipSpaces(p.buf, datalen.End, p.end), p.end}
	wrong := p.flags(datalen.End)
	badChunk := answerChunk
	modeOK := p.storeMode()
	switch {
	case wrong != nil:
	case r.Letters&^knownFlags != 0:
		// The ms has a flag that memcached 1.6.18 does not know, but a newer server may
		// know it. Another server discards the data block and does not check its end.
		badChunk = answerFlagUnknown
		if size > p.limits.MaxValue() || !modeOK || r.LongOpaque() {
			wrong = answerFlagUnknown
		}
	case !modeOK:
		wrong = answerStoreMode
	case r.LongOpaque():
		wrong = answerOpaque
	}
	if wrong != nil {
		return p.discard(size, wrong)
	}
	return p.body(size, badChunk, answerTooLarge)
}

// debug parses the arguments of me: <key> [b].
func (p *parser) debug(at uint32) (int, error) {
	r := p.r
	r.Op, r.Key, r.NumKeys = Debug, nextToken(p.buf, at, p.end), 1
	if r.Key.Len() == 0 || r.Key.Len() > p.limits.MaxKey() {
		return p.bad(answerFormat)
	}
	first := nextToken(p.buf, r.Key.End, p.end)
	r.MetaFlags = Span{first.Start, p.end}
	if first.Len() == 1 && p.buf[first.Start] == 'b' {
		if !p.decodable() {
			return p.bad(answerFormat)
		}
		r.Flags |= Base64
		r.Letters.Add('b')
	}
	return p.size, nil
}

func (p *parser) decodable() bool {
	var key [defaultKey]byte
	_, ok := DecodeKey(key[:0], p.r.Key.Of(p.buf))
	return ok
}

// IsFull reports whether the meta request r can't have a further flag: memcached would reject it then. For an
// ms, memcached would even execute the data block as commands.
func (r *Request) IsFull() bool {
	words := 2 + bits.OnesCount64(uint64(r.Letters)) // the command, the key, and the flags
	if r.Op.Stores() {
		words++ // the length
	}
	return words >= maxMetaTokens
}

// tooManyTokens reports whether the line has more than maxMetaTokens words.
func (p *parser) tooManyTokens() bool {
	if p.r.Line.Len() <= 2*maxMetaTokens || bytes.Count(p.r.Line.Of(p.buf), []byte{' '}) < maxMetaTokens { // the usual cases
		return false
	}
	rest := p.r.Line
	for range maxMetaTokens + 1 {
		var t Span
		if t, rest = NextKey(p.buf, rest); t.Len() == 0 {
			return false
		}
	}
	return true
}

// flags parses the meta flags of the request. They begin after the word that ends at the
// offset `at`. flags returns the error reply, or nil. Like memcached, it stops at a
// repeated flag, and at a flag that no version of memcached can have. After several other
// faults, it returns the error for the last of them. A letter that memcached 1.6.18 does
// not know is no fault, because a newer server may know it. With another fault, the error
// is the one of memcached 1.6.18 for that letter.
func (p *parser) flags(at uint32) (wrong []byte) {
	r := p.r
	wrong = answerFormat // the reply of memcached 1.6.18 to a flag F with an argument that is not a number
	faulty := false
	for t := nextToken(p.buf, r.MetaFlags.Start, p.end); t.Len() > 0; {
		next := nextToken(p.buf, t.End, p.end)
		letter, value := p.buf[t.Start], Span{t.Start + 1, t.End}
		known := r.Letters&^knownFlags == 0
		switch repeated := r.Letters.Has(letter); {
		case known && (repeated || letter >= 127):
			return answerFlagTwice
		case repeated || letter|0x20 < 'a' || letter|0x20 > 'z': // after an unknown flag, memcached 1.6.18 names that flag
			return answerFlagUnknown
		}
		r.Letters.Add(letter)
		var fault []byte
		switch letter {
		case 'q':
			r.Flags |= Quiet
			r.Drop = Span{at, t.End}
			if next.Len() == 0 {
				r.Drop.End = p.tail
			}
		case 'k':
			r.Flags |= ReturnKey
		case 'v':
			r.Flags |= ReturnValue
		case 'b':
			r.Flags |= Base64
			if !p.decodable() {
				fault = answerKey
			}
		case 'O':
			r.Opaque = value
		case 'T':
			fault = p.number(value, signed, &r.Exptime, answerToken)
		case 'N':
			r.Flags |= Create
			fault = p.number(value, signed, new(Span), answerToken)
		case 'R':
			fault = p.number(value, signed, new(Span), answerToken)
		case 'C':
			r.Flags |= Compare
			fault = p.number(value, unsigned, &r.Unique, answerToken)
		case 'D':
			fault = p.number(value, unsigned, &r.Delta, answerMetaDelta)
		case 'J':
			fault = p.number(value, unsigned, new(Span), answerMetaInitial)
		case 'F':
			if p.number(value, unsigned, &r.ClientFlags, answerFormat) != nil {
				faulty = true
			}
		case 'M':
			if value.Len() != 1 {
				fault = answerMode
			}
		}
		if fault != nil {
			faulty, wrong = true, fault
		}
		at, t = t.End, next
	}
	switch {
	case r.Letters&^knownFlags == 0 && faulty:
		return wrong
	case faulty:
		return answerFlagUnknown
	}
	return nil
}

// number stores the span of a number in `to` if the function fits accepts the number.
// Otherwise it returns fault, an error reply.
func (p *parser) number(value Span, fits func([]byte) bool, to *Span, fault []byte) []byte {
	if !fits(value.Of(p.buf)) {
		return fault
	}
	*to = value
	return nil
}

// storeMode sets the op of an ms by its mode, such as Add for mode E. It returns false if
// the mode is invalid.
func (p *parser) storeMode() bool {
	r := p.r
	letter := byte('S')
	if r.Letters.Has('M') {
		if mode, _ := FlagArg(p.buf, r.MetaFlags, 'M'); mode.Len() == 1 {
			letter = p.buf[mode.Start]
		}
	}
	switch letter {
	case 'S':
	case 'E':
		r.Op = Add
	case 'A':
		r.Op = Append
	case 'P':
		r.Op = Prepend
	case 'R':
		r.Op = Replace
	default:
		return false
	}
	if r.Letters.Has('C') && (r.Op == Set || r.Op == Replace) {
		r.Op = Cas
	}
	return true
}

// incrMode sets the op of an ma to Decr if its mode is decrement. It returns false if the
// mode is neither increment nor decrement.
func (p *parser) incrMode() bool {
	if !p.r.Letters.Has('M') {
		return true
	}
	mode, _ := FlagArg(p.buf, p.r.MetaFlags, 'M')
	if mode.Len() != 1 {
		return true // a mode with several letters is an error that the server reports
	}
	switch p.buf[mode.Start] {
	case 'I', '+':
	case 'D', '-':
		p.r.Op = Decr
	default:
		return false
	}
	return true
}
