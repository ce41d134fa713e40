package memnode

// This file has the meta commands. Their flags take effect in the order of the request, and appear
// in the reply in that order.

import (
	"encoding/base64"
	"strconv"
)

const (
	maxMetaTokens = 19 // greatest number of words of a line, including the command name
	maxOpaque     = 32 // greatest length of an O flag in bytes, including its letter
)

// Errors of the meta commands. memcached 1.6.18 has different texts for the same error in different
// commands.
const (
	metaOpaque    = "CLIENT_ERROR opaque token too long"
	metaFlags     = "CLIENT_ERROR invalid or duplicate flag" // reply of md and ma to every error in the flags
	metaTooMany   = "CLIENT_ERROR options flags too long"
	metaTooManyMG = "CLIENT_ERROR options flags are too long" // reply of mg to too many flags
)

// A metaRequest is a parsed meta command, with its key and flags.
type metaRequest struct {
	key     []byte
	encoded bool // flag b: the key is sent in base64
	flags   [][]byte

	value    bool // flag v: the reply has the value
	quiet    bool // flag q: no reply in the usual case
	late     bool // flag I: md marks the item as stale, and ms accepts a cas number that is too low
	vivify   bool // flag N: a missing item is created
	newTTL   bool // flag T: the item gets a new expiry
	hasCAS   bool // flag C: the request has a cas number
	noUpdate bool // flag u: the access is not recorded in the item
	atomic   bool // there is a flag (l, h, N, T or R) for which the access must be recorded after the reply is written
	mode     byte // argument of flag M; 0: the flag is absent

	expires, vivifyTTL, recache uint32 // arguments of the flags T, N and R, as times in seconds of the store's clock
	clientFlags                 uint32 // argument of flag F: the client flags of the item
	cas, delta, initial         uint64 // arguments of the flags C, D and J: cas number, delta, and initial value
}

// readMeta parses the flags of a meta command. failure is the error reply; empty: no error. If
// there are several errors, the last one is returned. An unknown or repeated flag ends the parsing.
func (c *conn) readMeta(key []byte, flags [][]byte) (m metaRequest, failure string) {
	const badToken = "CLIENT_ERROR bad token in command line format"
	s := c.node.store
	m = metaRequest{key: key, flags: flags, delta: 1}
	var seen [127]bool
	ttl := func(arg []byte) uint32 {
		exptime, ok := parseInt32(arg)
		if !ok {
			failure = badToken
		}
		return s.deadline(exptime)
	}
	number := func(arg []byte, complaint string) uint64 {
		n, ok := parseUint64(arg)
		if !ok {
			failure = complaint
		}
		return n
	}
	for _, flag := range flags {
		letter, arg := flag[0], flag[1:]
		if int(letter) >= len(seen) || seen[letter] {
			return m, "CLIENT_ERROR duplicate flag"
		}
		seen[letter] = true
		switch letter {
		case 'b':
			m.encoded = true
			if m.key = decodeKey(c.scratch[:0], key); len(m.key) == 0 {
				failure = "CLIENT_ERROR error decoding key"
			}
		case 'v':
			m.value = true
		case 'q':
			m.quiet = true
		case 'u':
			m.noUpdate = true
		case 'I':
			m.late = true
		case 'l', 'h':
			m.atomic = true
		case 'N':
			m.atomic, m.vivify, m.vivifyTTL = true, true, ttl(arg)
		case 'T':
			m.atomic, m.newTTL, m.expires = true, true, ttl(arg)
		case 'R':
			m.atomic, m.recache = true, ttl(arg)
		case 'F':
			var ok bool
			if m.clientFlags, ok = parseUint32(arg); !ok && failure == "" {
				failure = badFormat
			}
		case 'C':
			m.hasCAS, m.cas = true, number(arg, badToken)
		case 'J':
			m.initial = number(arg, "CLIENT_ERROR invalid numeric initial value")
		case 'D':
			m.delta = number(arg, "CLIENT_ERROR invalid numeric delta value")
		case 'M':
			if len(arg) == 1 {
				m.mode = arg[0]
			} else {
				failure = "CLIENT_ERROR incorrect length for M token"
			}
		case 'k', 's', 't', 'c', 'f', 'O', 'P', 'L': // these flags only change the reply, or are meant for a proxy
		default:
			return m, "CLIENT_ERROR invalid flag"
		}
	}
	return m, failure
}

// legalKey reports whether the command has a key that is not too long. If not, it writes an error.
func (c *conn) legalKey() bool {
	if !c.takes(2, maxTokens) {
		return false
	}
	_, ok := c.key()
	return ok
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

// flagOpaque writes the flag O of a reply, which repeats the flag of the request. It returns false
// if the flag is too long.
func (c *conn) flagOpaque(flag []byte) bool {
	if len(flag) > maxOpaque {
		return false
	}
	c.out = append(append(c.out, ' '), flag...)
	return true
}

// echo writes a reply without an item: a status, and the flags O and k of the request. It returns
// false if the flag O is too long. The caller must then remove what echo has written.
func (c *conn) echo(code string, m *metaRequest) bool {
	c.out = append(c.out, code...)
	for _, flag := range m.flags {
		switch flag[0] {
		case 'O':
			if !c.flagOpaque(flag) {
				return false
			}
		case 'k':
			c.flagKey(m.key, m.encoded)
		}
	}
	c.endLine()
	return true
}

func (c *conn) metaGet() {
	if !c.legalKey() {
		return
	}
	if len(c.tokens) > maxMetaTokens {
		c.fail(metaTooManyMG)
		return
	}
	m, failure := c.readMeta(c.tokens[1], c.tokens[2:])
	if failure != "" {
		c.fail(failure)
		return
	}
	if value, ok := c.lookup(&m); ok && m.value {
		c.out = append(c.out, value...)
		c.endLine()
	}
}

// lookup executes mg and writes the reply without the value. The caller writes the value later,
// when the store is not locked.
func (c *conn) lookup(m *metaRequest) (value []byte, ok bool) {
	mark := len(c.out)
	s := c.node.store
	s.lock()
	defer s.unlock()
	it := s.find(m.key)
	created := false
	if it == nil && m.vivify {
		it = &item{}
		s.put(string(m.key), it)
		created = true
	}
	if it == nil {
		s.reads(false).cmd++ // a miss is counted as a get even with flag T, as in memcached 1.6.18
		s.reads(false).misses++
		if !c.echo("EN", m) {
			c.out = c.out[:mark]
			c.fail(metaOpaque)
		} else if m.quiet {
			c.out = c.out[:mark]
		}
		return nil, false
	}
	if !m.atomic && !m.noUpdate {
		it.read(s.now)
	}
	if m.value {
		c.out = append(c.out, "VA "...)
		c.out = strconv.AppendInt(c.out, int64(len(it.value)), 10)
	} else {
		c.out = append(c.out, "HD"...)
	}
	if !c.hit(it, m, created) {
		c.out = c.out[:mark]
		c.fail(metaOpaque)
		return nil, false
	}
	c.endLine()
	if m.atomic && !m.noUpdate {
		it.read(s.now)
	}
	s.reads(m.newTTL).cmd++
	s.reads(m.newTTL).hits++
	return it.value, true
}

// hit writes the flags of the reply to an mg that has found or created the item `it`. The flag W in
// the reply means that this client should store a new value; only one client gets it. hit returns
// false if the flag O is too long.
func (c *conn) hit(it *item, m *metaRequest, created bool) bool {
	now := c.node.store.now
	wins := false
	for _, flag := range m.flags {
		switch flag[0] {
		case 'T':
			it.expires = m.expires
		case 'N':
			if created {
				it.expires = m.vivifyTTL
				wins = true
			}
		case 'R':
			if it.marks&won == 0 && !created && it.expires != 0 && it.expires < m.recache {
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
		case 'O':
			if !c.flagOpaque(flag) {
				return false
			}
		case 'k':
			c.flagKey(m.key, it.marks&encoded != 0)
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

// metaSet executes ms. If it rejects the command and the length of the value is valid, it skips the
// value.
func (c *conn) metaSet() error {
	cut := len(c.tokens) < 3 && c.pastNUL()
	switch {
	case len(c.tokens) < 2:
		c.fail("ERROR")
		return nil
	case len(c.tokens) == 2:
		c.fail(badFormat)
		return nil
	}
	length, ok := parseLength(c.tokens[2])
	many := len(c.tokens) > maxMetaTokens
	switch {
	case !ok && many:
		c.fail(metaTooMany)
		return nil
	case !ok:
		c.fail(badFormat)
		return nil
	case cut || len(c.tokens[1]) > maxKey:
		c.fail(badFormat)
		return c.skipValue(length)
	case many:
		c.fail(metaTooManyMG)
		return c.skipValue(length)
	}
	m, failure := c.readMeta(c.tokens[1], c.tokens[3:])
	how := setMode
	if failure == "" {
		how, failure = m.storeMode()
	}
	s := c.node.store
	if failure == "" && size(len(m.key), m.clientFlags, length) > s.maxItem {
		failure = tooLarge
		s.lock()
		s.storeTooLarge++
		s.discard(m.key)
		s.unlock()
	}
	if failure != "" {
		c.fail(failure)
		return c.skipValue(length)
	}
	value, err := c.readValue(length)
	if err != nil {
		return err
	}
	c.storeMeta(&m, how, value)
	return nil
}

// storeMeta stores the value of a valid ms and writes the reply. value is nil if the line end after
// the value was missing.
func (c *conn) storeMeta(m *metaRequest, how mode, value []byte) {
	it := &item{value: value, flags: m.clientFlags, expires: m.expires}
	if m.encoded {
		it.marks = encoded
	}
	s := c.node.store
	s.lock()
	defer s.unlock()
	s.cmdSet++
	if value == nil {
		c.fail(badChunk)
		return
	}
	result, cas := s.write(how, string(m.key), it, m.cas, m.late)
	if result == stored && m.quiet {
		return
	}
	c.out = append(c.out, metaOutcomes[result]...)
	for _, flag := range m.flags {
		switch flag[0] {
		case 'O':
			c.flagOpaque(flag)
		case 'k':
			c.flagKey(m.key, m.encoded)
		case 'c':
			c.flagNumber('c', cas)
		}
	}
	c.endLine()
}

var metaOutcomes = [...]string{stored: "HD", notStored: "NS", exists: "EX", notFound: "NF"}

// storeMode parses the flag M of ms. If the request has a cas number, the modes set and replace
// store only if it is equal to that of the item.
func (m *metaRequest) storeMode() (how mode, failure string) {
	switch m.mode {
	case 0, 'S':
		how = setMode
	case 'E':
		how = addMode
	case 'R':
		how = replaceMode
	case 'A':
		how = appendMode
	case 'P':
		how = prependMode
	default:
		return setMode, "CLIENT_ERROR invalid mode for ms M token"
	}
	if m.hasCAS && (how == setMode || how == replaceMode) {
		how = casMode
	}
	for _, flag := range m.flags {
		if flag[0] == 'O' && len(flag) > maxOpaque {
			return how, metaOpaque
		}
	}
	return how, ""
}

// metaChange parses the key and the flags of md and ma. If they are invalid, it writes an error and
// ok is false.
func (c *conn) metaChange() (m metaRequest, ok bool) {
	if !c.legalKey() {
		return m, false
	}
	if len(c.tokens) > maxMetaTokens {
		c.fail(metaTooMany)
		return m, false
	}
	m, failure := c.readMeta(c.tokens[1], c.tokens[2:])
	if failure != "" {
		c.fail(metaFlags)
	}
	return m, failure == ""
}

func (c *conn) metaDelete() {
	m, ok := c.metaChange()
	if !ok {
		return
	}
	mark := len(c.out)
	if !c.echo("HD", &m) {
		c.out = c.out[:mark]
		c.fail(metaOpaque)
		return
	}
	s := c.node.store
	s.lock()
	defer s.unlock()
	it := s.find(m.key)
	switch {
	case it == nil:
		s.deleteMisses++
		copy(c.out[mark:], "NF")
		return
	case m.hasCAS && m.cas != it.cas:
		s.deleteMisses++
		copy(c.out[mark:], "EX")
		return
	case m.late:
		if m.newTTL {
			it.expires = m.expires
		}
		it.marks = it.marks&^won | stale // the next client that reads the item gets the flag W
		it.cas = s.nextCAS()
	default:
		s.deleteHits++
		s.remove(m.key, it)
	}
	if m.quiet {
		c.out = c.out[:mark]
	}
}

func (c *conn) metaArithmetic() {
	m, ok := c.metaChange()
	if !ok {
		return
	}
	var decr bool
	switch m.mode {
	case 0, 'I', '+':
	case 'D', '-':
		decr = true
	default:
		c.fail("CLIENT_ERROR invalid mode for ma M token")
		return
	}
	mark := len(c.out)
	s := c.node.store
	s.lock()
	defer s.unlock()
	result, it, n := s.add(m.key, decr, m.delta, m.cas)
	created := result == notFound && m.vivify
	ok = true
	switch {
	case result == notNumber:
		c.fail(badNumber)
		return
	case created:
		n = m.initial
		it = &item{value: strconv.AppendUint(nil, n, 10)}
		s.put(string(m.key), it)
		ok = c.number(it, n, &m, true)
	case result == stored:
		ok = c.number(it, n, &m, false)
	default:
		if result == notFound {
			s.numbers(decr).misses++
		}
		ok = c.echo(metaOutcomes[result], &m)
	}
	switch {
	case !ok:
		c.out = c.out[:mark]
		c.fail(metaOpaque)
	case m.quiet && result == stored: // memcached 1.6.18 sends the reply in spite of the flag q if the item was created
		c.out = c.out[:mark]
	}
}

// number writes the reply to an ma with the new number n. created means that this ma created the
// item. number returns false if the flag O is too long.
func (c *conn) number(it *item, n uint64, m *metaRequest, created bool) bool {
	digits := strconv.AppendUint(nil, n, 10)
	if m.value {
		c.out = append(c.out, "VA "...)
		c.out = strconv.AppendInt(c.out, int64(len(digits)), 10)
	} else {
		c.out = append(c.out, "HD"...)
	}
	for _, flag := range m.flags {
		switch flag[0] {
		case 'c':
			c.flagNumber('c', it.cas)
		case 't':
			c.flagTTL(it, c.node.store.now)
		case 'T':
			it.expires = m.expires
		case 'N':
			if created {
				it.expires = m.vivifyTTL
			}
		case 'O':
			if !c.flagOpaque(flag) {
				return false
			}
		case 'k':
			c.flagKey(m.key, m.encoded)
		}
	}
	c.endLine()
	if m.value {
		c.out = append(c.out, digits...)
		c.endLine()
	}
	return true
}

// metaDebug executes me. As in memcached 1.6.18, exp is negative for an item that has not expired
// yet.
func (c *conn) metaDebug() {
	if len(c.tokens) < 2 || len(c.tokens[1]) > maxKey {
		c.reply(badFormat)
		return
	}
	key := c.tokens[1]
	if len(c.tokens) > 2 && string(c.tokens[2]) == "b" {
		if key = decodeKey(c.scratch[:0], key); len(key) == 0 {
			c.reply(badFormat)
			return
		}
	}
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
	expires := int64(-1)
	if it.expires != 0 {
		expires = int64(int32(s.now - it.expires))
	}
	c.out = append(c.out, " exp="...)
	c.out = strconv.AppendInt(c.out, expires, 10)
	c.out = append(c.out, " la="...)
	c.out = strconv.AppendUint(c.out, uint64(s.now-it.used), 10)
	c.out = append(c.out, " cas="...)
	c.out = strconv.AppendUint(c.out, it.cas, 10)
	if it.marks&fetched != 0 {
		c.out = append(c.out, " fetch=yes cls=1 size="...)
	} else {
		c.out = append(c.out, " fetch=no cls=1 size="...)
	}
	c.out = strconv.AppendInt(c.out, int64(size(len(key), it.flags, len(it.value))), 10)
	c.endLine()
}
