package memnode

// meta.go: the meta commands. Their flags take effect, and appear in the reply, in
// the order of the request.

import (
	"encoding/base64"
	"strconv"
)

const (
	maxMetaTokens = 19 // words of a line, including the command name
	maxOpaque     = 32 // bytes of an O flag, including its letter
)

// Errors of the meta commands. 1.6.18 words the same error differently in
// different commands.
const (
	metaOpaque    = "CLIENT_ERROR opaque token too long"
	metaFlags     = "CLIENT_ERROR invalid or duplicate flag" // md and ma, for every error in the flags
	metaTooMany   = "CLIENT_ERROR options flags too long"
	metaTooManyMG = "CLIENT_ERROR options flags are too long" // mg, and ms with the text of 1.6.45
)

// A metaRequest is a parsed meta command.
type metaRequest struct {
	key     []byte
	encoded bool // b
	flags   [][]byte

	value    bool // v
	quiet    bool // q
	late     bool // I: md marks the item stale, ms accepts a lower cas number
	vivify   bool // N
	newTTL   bool // T
	hasCAS   bool // C
	noUpdate bool // u
	atomic   bool // a flag needs the item's state from before this read
	mode     byte // M

	expires, vivifyTTL, recache uint32 // T, N, R as seconds of the store
	clientFlags                 uint32 // F
	cas, delta, initial         uint64 // C, D, J
}

// readMeta parses the flags. failure is the error reply, or "". If there are
// several errors, the last one counts, but an unknown or repeated flag ends the
// parsing.
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
		case 'k', 's', 't', 'c', 'f', 'O', 'P', 'L': // only echoed in the reply, or meant for a proxy
		default:
			return m, "CLIENT_ERROR invalid flag"
		}
	}
	return m, failure
}

// legalKey reports whether the command has a key of legal length. If not, it
// writes an error.
func (c *conn) legalKey() bool {
	if !c.takes(2, maxTokens) {
		return false
	}
	_, ok := c.key()
	return ok
}

// flag writes the letter of a reply flag.
func (c *conn) flag(letter byte) { c.out = append(c.out, ' ', letter) }

func (c *conn) flagNumber(letter byte, n uint64) {
	c.flag(letter)
	c.out = strconv.AppendUint(c.out, n, 10)
}

// flagTTL writes t: the seconds until expiry, or -1 for never. An expiry in the
// past appears as an unsigned 32-bit number, as in memcached.
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

// flagOpaque writes O. It returns false if the opaque is too long.
func (c *conn) flagOpaque(flag []byte) bool {
	if len(flag) > maxOpaque {
		return false
	}
	c.out = append(append(c.out, ' '), flag...)
	return true
}

// echo writes a status and only those flags that repeat the request: opaque and
// key. It returns false if the opaque is too long. The caller must then remove
// what echo wrote.
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

// lookup writes the reply of mg without the value, which the caller writes without
// the lock.
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
		s.countGet(false) // 1.6.18 ignores T here
		s.countMiss(false)
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
	s.countGet(m.newTTL)
	s.countHit(m.newTTL)
	return it.value, true
}

// hit writes the flags of an mg that found or created its item. They include W for the one client
// that should store a new value. It returns false if the opaque is too long.
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

// metaSet executes ms. If it rejects a command with a valid length, it skips the
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

// storeMeta executes a valid ms. value is nil if its line end was missing.
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

// storeMode parses the M flag of ms. With a cas number, set and replace become
// cas.
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

// metaChange parses the key and the flags of md and ma. If they are invalid, it
// writes an error and returns false.
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
		it.marks = it.marks&^won | stale // the next reader gets W
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
			s.countNumberMiss(decr)
		}
		ok = c.echo(metaOutcomes[result], &m)
	}
	switch {
	case !ok:
		c.out = c.out[:mark]
		c.fail(metaOpaque)
	case m.quiet && result == stored: // 1.6.18 does not suppress the reply if the item was created
		c.out = c.out[:mark]
	}
}

// number writes the reply of an ma that has a result. It returns false if the
// opaque is too long.
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

// metaDebug executes me. In 1.6.18, exp is negative for an item that has not
// expired.
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
