package memnode

// This file has the meta commands. Their flags take effect in the order of the request, and appear
// in the reply in that order.

import (
	"encoding/base64"
	"fmt"
	"iter"
	"slices"
	"strconv"

	"ringside/proxy/wire"
)

const metaOpaque = "CLIENT_ERROR opaque token too long"

// has reports whether the request has the flag.
func (c *conn) has(letter byte) bool { return c.req.Letters.Has(letter) }

// quiet reports whether the client wants no reply in the usual case.
func (c *conn) quiet() bool { return c.req.Flags&wire.Quiet != 0 }

// flags returns the flags of the request.
func (c *conn) flags() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for flag, rest := wire.NextKey(c.text, c.req.MetaFlags); flag.Len() > 0 && yield(flag.Of(c.text)); {
			flag, rest = wire.NextKey(c.text, rest)
		}
	}
}

// expiry returns the argument of a flag that is an exptime, as a second of the store's clock.
func (c *conn) expiry(letter byte) uint32 {
	exptime, _ := wire.FlagArg(c.text, c.req.MetaFlags, letter)
	return c.deadline(exptime)
}

// refuseFlags replies to a request with a flag that memcached 1.6.18 does not know.
func (c *conn) refuseFlags() {
	if c.req.Op == wire.Get || c.req.Op.Stores() {
		c.reply("CLIENT_ERROR invalid flag")
	} else {
		c.reply("CLIENT_ERROR invalid or duplicate flag")
	}
}

// flag writes a space and the letter of a flag of the reply.
func (c *conn) flag(letter byte) { c.out = append(c.out, ' ', letter) }

func (c *conn) flagNumber(letter byte, n uint64) {
	c.flag(letter)
	c.out = strconv.AppendUint(c.out, n, 10)
}

// flagTTL writes the flag t of a reply: the seconds until expiry, or -1 if the item never expires.
// An expiry in the past appears as an unsigned 32-bit number, as in memcached.
func (c *conn) flagTTL(it *item, now uint32) {
	if it.expires == 0 {
		c.out = append(c.out, " t-1"...)
		return
	}
	c.flagNumber('t', uint64(it.expires-now))
}

func (c *conn) flagKey(key []byte, inBase64 bool) {
	c.flag('k')
	if !inBase64 {
		c.out = append(c.out, key...)
		return
	}
	c.out = base64.StdEncoding.AppendEncode(c.out, key)
	c.out = append(c.out, " b"...)
}

// status writes the beginning of a reply: a status, or, with flag v, VA and the length of the value.
func (c *conn) status(value []byte) {
	if !c.has('v') {
		c.out = append(c.out, "HD"...)
		return
	}
	c.out = append(c.out, "VA "...)
	c.out = strconv.AppendInt(c.out, int64(len(value)), 10)
}

// repeat writes a flag of the reply that repeats one of the request: O or k. It returns false if the flag O
// is too long.
func (c *conn) repeat(flag []byte, inBase64 bool) bool {
	switch flag[0] {
	case 'O':
		if c.req.LongOpaque() {
			return false
		}
		c.out = append(append(c.out, ' '), flag...)
	case 'k':
		c.flagKey(c.key(), inBase64)
	}
	return true
}

// encoded reports whether the request has its key in base64.
func (c *conn) encoded() bool { return c.req.Flags&wire.Base64 != 0 }

// echo writes a reply without an item: a status, and the flags O and k of the request. It returns
// false if the flag O is too long. The caller must then remove what echo has written.
func (c *conn) echo(code string) bool {
	c.out = append(c.out, code...)
	for flag := range c.flags() {
		if !c.repeat(flag, c.encoded()) {
			return false
		}
	}
	c.endLine()
	return true
}

// drop removes what was written since mark. If the reason is that the flag O is too long, it writes an error.
func (c *conn) drop(mark int, opaque bool) {
	c.out = c.out[:mark]
	if opaque {
		c.reply(metaOpaque)
	}
}

func (c *conn) metaGet() {
	if value, ok := c.lookup(); ok && c.has('v') {
		c.out = append(c.out, value...)
		c.endLine()
	}
}

// lookup executes mg and writes the reply without the value. The caller writes the value later,
// when the store is not locked.
func (c *conn) lookup() (value []byte, ok bool) {
	mark, key := len(c.out), c.key()
	s := c.node.store
	s.lock()
	defer s.unlock()
	it := s.find(key)
	created := it == nil && c.has('N')
	if created {
		it = &item{}
		s.put(string(key), it)
	}
	if it == nil {
		s.reads(false).cmd++ // a miss is counted as a get even with flag T, as in memcached 1.6.18
		s.reads(false).misses++
		if fits := c.echo("EN"); !fits || c.quiet() {
			c.drop(mark, !fits)
		}
		return nil, false
	}
	atomic := slices.ContainsFunc([]byte("lhNTR"), c.has) // the access is recorded after the reply is written
	if !atomic && !c.has('u') {
		it.read(s.now)
	}
	c.status(it.value)
	if !c.hit(it, created) {
		c.drop(mark, true)
		return nil, false
	}
	c.endLine()
	if atomic && !c.has('u') {
		it.read(s.now)
	}
	s.reads(c.has('T')).cmd++
	s.reads(c.has('T')).hits++
	return it.value, true
}

// hit writes the flags of the reply to an mg that has found or created the item `it`. The flag W in
// the reply means that this client should store a new value; only one client gets it. hit returns
// false if the flag O is too long.
func (c *conn) hit(it *item, created bool) bool {
	now := c.node.store.now
	wins := created
	for flag := range c.flags() {
		switch flag[0] {
		case 'T':
			it.expires = c.expiry('T')
		case 'N':
			if created {
				it.expires = c.expiry('N')
			}
		case 'R':
			if it.marks&won == 0 && !created && it.expires != 0 && it.expires < c.expiry('R') {
				wins = true
			}
		case 's':
			c.flagNumber('s', uint64(len(it.value)))
		case 't':
			c.flagTTL(it, now)
		case 'c':
			c.flagNumber('c', it.cas)
		case 'f':
			c.flagNumber('f', uint64(it.flags))
		case 'l':
			c.flagNumber('l', uint64(now-it.used))
		case 'h':
			c.flagNumber('h', uint64(it.marks&fetched))
		default:
			if !c.repeat(flag, it.marks&encoded != 0) {
				return false
			}
		}
	}
	if it.marks&won != 0 {
		c.flag('Z')
	}
	if it.marks&stale != 0 {
		c.flag('X')
		wins = wins || it.marks&won == 0
	}
	if wins {
		c.flag('W')
		it.marks |= won
	}
	return true
}

// stored writes the reply to an ms. cas is the cas number of the item.
func (c *conn) stored(result outcome, cas uint64) {
	if result == stored && c.quiet() {
		return
	}
	c.out = append(c.out, metaOutcomes[result]...)
	for flag := range c.flags() {
		if c.repeat(flag, c.encoded()); flag[0] == 'c' {
			c.flagNumber('c', cas)
		}
	}
	c.endLine()
}

var metaOutcomes = [...]string{stored: "HD", notStored: "NS", exists: "EX", notFound: "NF"}

func (c *conn) metaDelete() {
	mark, key := len(c.out), c.key()
	c.echo("HD") // package wire has refused an opaque that is too long
	s := c.node.store
	s.lock()
	defer s.unlock()
	it := s.find(key)
	switch {
	case it == nil:
		s.deleteMisses++
		copy(c.out[mark:], "NF")
		return
	case c.has('C') && c.number(c.req.Unique) != it.cas:
		s.deleteMisses++
		copy(c.out[mark:], "EX")
		return
	case c.has('I'):
		if c.has('T') {
			it.expires = c.expiry('T')
		}
		it.marks = it.marks&^won | stale // the next client that reads the item gets the flag W
		it.cas = s.nextCAS()
	default:
		s.deleteHits++
		s.remove(key, it)
	}
	if c.quiet() {
		c.drop(mark, false)
	}
}

func (c *conn) metaArithmetic() {
	delta, decr := c.number(c.req.Delta), c.req.Op == wire.Decr
	if !c.has('D') {
		delta = 1
	}
	mark, key := len(c.out), c.key()
	s := c.node.store
	s.lock()
	defer s.unlock()
	result, it, n := s.add(key, decr, delta, c.number(c.req.Unique))
	fits := true
	switch {
	case result == notNumber:
		c.reply(badNumber)
		return
	case result == notFound && c.has('N'):
		initial, _ := wire.FlagArg(c.text, c.req.MetaFlags, 'J')
		n = c.number(initial)
		it = &item{value: strconv.AppendUint(nil, n, 10)}
		s.put(string(key), it)
		fits = c.counted(it, n, true)
	case result == stored:
		fits = c.counted(it, n, false)
	default:
		if result == notFound {
			s.numbers(decr).misses++
		}
		fits = c.echo(metaOutcomes[result])
	}
	if !fits || c.quiet() && result == stored { // memcached 1.6.18 sends the reply in spite of the flag q if the item was created
		c.drop(mark, !fits)
	}
}

// counted writes the reply to an ma with the new number n. created means that this ma created the
// item. counted returns false if the flag O is too long.
func (c *conn) counted(it *item, n uint64, created bool) bool {
	digits := strconv.AppendUint(nil, n, 10)
	c.status(digits)
	for flag := range c.flags() {
		switch flag[0] {
		case 'c':
			c.flagNumber('c', it.cas)
		case 't':
			c.flagTTL(it, c.node.store.now)
		case 'T':
			it.expires = c.expiry('T')
		case 'N':
			if created {
				it.expires = c.expiry('N')
			}
		default:
			if !c.repeat(flag, c.encoded()) {
				return false
			}
		}
	}
	c.endLine()
	if c.has('v') {
		c.out = append(c.out, digits...)
		c.endLine()
	}
	return true
}

// metaDebug executes me. As in memcached 1.6.18, exp is negative for an item that has not expired
// yet.
func (c *conn) metaDebug() {
	key := c.key()
	s := c.node.store
	s.lock()
	defer s.unlock()
	s.cmdMeta++
	it := s.find(key)
	if it == nil {
		c.reply("EN")
		return
	}
	c.out = append(c.out, "ME "...)
	if it.marks&encoded != 0 {
		c.out = base64.StdEncoding.AppendEncode(c.out, key)
	} else {
		c.out = append(c.out, key...)
	}
	expires, read := int64(-1), "no"
	if it.expires != 0 {
		expires = int64(int32(s.now - it.expires))
	}
	if it.marks&fetched != 0 {
		read = "yes"
	}
	c.out = fmt.Appendf(c.out, " exp=%d la=%d cas=%d fetch=%s cls=1 size=%d\r\n", expires, s.now-it.used, it.cas, read, size(len(key), it.flags, len(it.value)))
}
