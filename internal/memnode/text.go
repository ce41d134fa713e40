package memnode

// This file has the text commands.

import (
	"strconv"

	"ringside/proxy/wire"
)

// get executes get, gets, gat and gats. It returns false if the connection ends.
func (c *conn) get() bool {
	r := &c.req
	touch := r.Op == wire.Gat || r.Op == wire.Gats
	expires := c.deadline(r.Exptime)
	for key, rest := wire.NextKey(c.text, r.Keys); key.Len() > 0; key, rest = wire.NextKey(c.text, rest) {
		it, ok := c.fetch(key.Of(c.text), touch, expires)
		if !ok {
			continue
		}
		c.value(key.Of(c.text), &it, r.Op == wire.Gets || r.Op == wire.Gats)
		if len(c.out) >= writeBuffer && c.send() != nil {
			return false
		}
	}
	c.reply("END")
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

var textOutcomes = [...]string{
	stored: "STORED", notStored: "NOT_STORED", exists: "EXISTS", notFound: "NOT_FOUND", notNumber: badNumber,
}

func (c *conn) delete() {
	s, key := c.node.store, c.key()
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

func (c *conn) arithmetic() {
	s, decr := c.node.store, c.req.Op == wire.Decr
	s.lock()
	result, _, n := s.add(c.key(), decr, c.number(c.req.Delta), 0)
	if result == notFound {
		s.numbers(decr).misses++
	}
	s.unlock()
	switch {
	case result != stored:
		c.reply(textOutcomes[result])
	case c.req.Flags&wire.Quiet == 0:
		c.out = strconv.AppendUint(c.out, n, 10)
		c.endLine()
	}
}

func (c *conn) touch() {
	if _, ok := c.fetch(c.key(), true, c.deadline(c.req.Exptime)); !ok {
		c.reply("NOT_FOUND")
		return
	}
	c.reply("TOUCHED")
}

func (c *conn) flushAll() {
	s := c.node.store
	s.lock()
	defer s.unlock()
	s.cmdFlush++
	s.flushAll(int32(wire.Signed(c.req.Exptime.Of(c.text))))
	c.reply("OK")
}
