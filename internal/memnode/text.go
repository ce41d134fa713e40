package memnode

// This file has the text commands.

import (
	"math"
	"strconv"
)

// get executes get, gets, gat and gats. If one key is too long, the reply is only an error. The
// keys before that key are read (and touched) in spite of it.
func (c *conn) get(withCAS, touch bool) error {
	if !c.takes(2, math.MaxInt) {
		return nil
	}
	keys := c.tokens[1:]
	var expires uint32
	if touch {
		exptime, ok := parseInt32(keys[0])
		if !ok {
			c.reply(badTTL)
			return nil
		}
		expires = c.node.store.deadline(exptime)
		keys = keys[1:]
	}
	spoiled := !fit(keys, c.rest)
	next := func() (key []byte) {
		if len(keys) > 0 {
			key, keys = keys[0], keys[1:]
			return key
		}
		key, c.rest = nextToken(c.rest)
		return key
	}
	for key := next(); len(key) > 0; key = next() {
		if len(key) > maxKey {
			c.reply(badFormat)
			return nil
		}
		it, ok := c.fetch(key, touch, expires)
		if !ok || spoiled {
			continue
		}
		c.value(key, &it, withCAS)
		if len(c.out) >= writeBuffer {
			if err := c.send(); err != nil {
				return err
			}
		}
	}
	c.reply("END")
	return nil
}

// fit reports whether no key is too long. The keys are those in keys and the words in rest.
func fit(keys [][]byte, rest []byte) bool {
	for _, key := range keys {
		if len(key) > maxKey {
			return false
		}
	}
	for len(rest) > 0 {
		var key []byte
		if key, rest = nextToken(rest); len(key) > maxKey {
			return false
		}
	}
	return true
}

// fetch reads the item of key for get and gat. If touch is set, it also sets the expiry of the
// item.
func (c *conn) fetch(key []byte, touch bool, expires uint32) (it item, ok bool) {
	s := c.node.store
	s.lock()
	defer s.unlock()
	s.reads(touch).cmd++
	found := s.find(key)
	if found == nil {
		s.reads(touch).misses++
		return item{}, false
	}
	s.reads(touch).hits++
	found.read(s.now)
	if touch {
		found.expires = expires
	}
	return *found, true
}

func (c *conn) value(key []byte, it *item, withCAS bool) {
	c.out = append(c.out, "VALUE "...)
	c.out = append(c.out, key...)
	c.out = append(c.out, ' ')
	c.out = strconv.AppendUint(c.out, uint64(it.flags), 10)
	c.out = append(c.out, ' ')
	c.out = strconv.AppendInt(c.out, int64(len(it.value)), 10)
	if withCAS {
		c.out = append(c.out, ' ')
		c.out = strconv.AppendUint(c.out, it.cas, 10)
	}
	c.endLine()
	c.out = append(c.out, it.value...)
	c.endLine()
}

// set executes the text commands that store a value. If it rejects a command and the length of the
// value is valid, it skips the value. If the length is not valid, the value is parsed as the next
// command.
func (c *conn) set(m mode) error {
	cut := len(c.tokens) < 5 && c.pastNUL()
	if len(c.tokens) < 5 {
		c.reply("ERROR")
		return nil
	}
	c.readNoreply()
	key := c.tokens[1]
	flags, flagsOK := parseUint32(c.tokens[2])
	exptime, exptimeOK := parseInt32(c.tokens[3])
	length, ok := parseLength(c.tokens[4])
	if !ok {
		c.reply(badFormat)
		return nil
	}
	var cas uint64
	casOK := true
	if m == casMode {
		if casOK = len(c.tokens) > 5; casOK {
			cas, casOK = parseUint64(c.tokens[5])
		}
	}
	if cut || len(key) > maxKey || !flagsOK || !exptimeOK || !casOK {
		c.reply(badFormat)
		return c.skipValue(length)
	}
	s := c.node.store
	it := &item{flags: flags, expires: s.deadline(exptime)}
	if size(len(key), flags, length) > s.maxItem {
		c.reply(tooLarge)
		s.lock()
		s.storeTooLarge++
		if m == setMode { // a set that fails removes the old value, so that no reader gets it
			s.discard(key)
		}
		s.unlock()
		return c.skipValue(length)
	}
	value, err := c.readValue(length)
	if err != nil {
		return err
	}
	s.lock()
	defer s.unlock()
	s.cmdSet++
	if value == nil {
		c.reply(badChunk)
		return nil
	}
	it.value = value
	result, _ := s.write(m, string(key), it, cas, false)
	c.reply(textOutcomes[result])
	return nil
}

var textOutcomes = [...]string{
	stored: "STORED", notStored: "NOT_STORED", exists: "EXISTS", notFound: "NOT_FOUND", notNumber: badNumber,
}

// key returns the key of the command. If the key is too long, it writes an error and ok is false.
func (c *conn) key() (key []byte, ok bool) {
	if key = c.tokens[1]; len(key) > maxKey {
		c.reply(badFormat)
		return nil, false
	}
	return key, true
}

func (c *conn) delete() {
	if !c.takes(2, 4) {
		return
	}
	if n := len(c.tokens); n > 2 {
		c.readNoreply()
		now := string(c.tokens[2]) == "0" // delete once had an argument for a delay; memcached still accepts it if it is 0
		if n == 3 && !now && !c.noreply || n == 4 && !(now && c.noreply) {
			c.reply(badFormat + ".  Usage: delete <key> [noreply]")
			return
		}
	}
	key, ok := c.key()
	if !ok {
		return
	}
	s := c.node.store
	s.lock()
	defer s.unlock()
	it := s.find(key)
	if it == nil {
		s.deleteMisses++
		c.reply("NOT_FOUND")
		return
	}
	s.deleteHits++
	s.remove(key, it)
	c.reply("DELETED")
}

func (c *conn) arithmetic(decr bool) {
	if !c.takes(3, 4) {
		return
	}
	c.readNoreply()
	key, ok := c.key()
	if !ok {
		return
	}
	delta, ok := parseUint64(c.tokens[2])
	if !ok {
		c.reply("CLIENT_ERROR invalid numeric delta argument")
		return
	}
	s := c.node.store
	s.lock()
	result, _, n := s.add(key, decr, delta, 0)
	if result == notFound {
		s.numbers(decr).misses++
	}
	s.unlock()
	if result != stored {
		c.reply(textOutcomes[result])
		return
	}
	if !c.noreply {
		c.out = strconv.AppendUint(c.out, n, 10)
		c.endLine()
	}
}

func (c *conn) touch() {
	if !c.takes(3, 4) {
		return
	}
	c.readNoreply()
	key, ok := c.key()
	if !ok {
		return
	}
	exptime, ok := parseInt32(c.tokens[2])
	if !ok {
		c.reply(badTTL)
		return
	}
	if _, ok := c.fetch(key, true, c.node.store.deadline(exptime)); !ok {
		c.reply("NOT_FOUND")
		return
	}
	c.reply("TOUCHED")
}

func (c *conn) flushAll() {
	if !c.takes(1, 3) {
		return
	}
	c.readNoreply()
	words := len(c.tokens)
	if c.noreply {
		words--
	}
	s := c.node.store
	s.lock()
	defer s.unlock()
	s.cmdFlush++
	var delay int32
	if words > 1 {
		var ok bool
		if delay, ok = parseInt32(c.tokens[1]); !ok {
			c.reply(badTTL)
			return
		}
	}
	s.flushAll(delay)
	c.reply("OK")
}

// verbosity executes the command verbosity. It has no effect, because a Node does not log.
func (c *conn) verbosity() {
	if !c.takes(2, 3) {
		return
	}
	c.readNoreply()
	if _, ok := parseUint32(c.tokens[1]); !ok {
		c.reply(badFormat)
		return
	}
	c.reply("OK")
}
