package memnode

// This file has the counters of a node, and the replies to stats.

import (
	"fmt"
	"os"
	"runtime"
	"strconv"

	"ringside/proxy/wire"
)

// counters are the numbers that `stats reset` sets to zero. They are named as in the reply to
// stats. The lock of the store guards them.
type counters struct {
	cmdSet, cmdFlush, cmdMeta            uint64
	get, touch, incr, decr               tally // the field cmd is not used for incr and decr
	getExpired, getFlushed               uint64
	deleteMisses, deleteHits             uint64
	casMisses, casHits, casBadval        uint64
	storeTooLarge, totalItems, evictions uint64
}

// tally counts the commands of one kind by their results.
type tally struct{ cmd, hits, misses uint64 }

// reads returns the counters of a read. If touch is true, the read counts as a touch, as in memcached for
// gat.
func (k *counters) reads(touch bool) *tally {
	if touch {
		return &k.touch
	}
	return &k.get
}

// numbers returns the counters of incr, or of decr.
func (k *counters) numbers(decr bool) *tally {
	if decr {
		return &k.decr
	}
	return &k.incr
}

func (c *conn) stats() {
	topic, _ := wire.NextKey(c.text, c.req.Args)
	switch string(topic.Of(c.text)) {
	case "":
		c.statsGeneral()
	case "settings":
		c.statsSettings()
	case "items":
		c.statsItems()
	case "slabs":
		c.statsSlabs()
	case "sizes":
		c.stat("sizes_status", "disabled")
	case "reset":
		s := c.node.store
		s.lock()
		s.counters = counters{}
		s.unlock()
		c.reply("RESET")
		return
	default:
		c.reply("ERROR")
		return
	}
	c.reply("END")
}

func (c *conn) stat(name string, value any) {
	c.out = fmt.Appendf(c.out, "STAT %s %v\r\n", name, value)
}

func (c *conn) statsGeneral() {
	n := c.node
	n.mu.Lock()
	open, total := len(n.conns), n.total
	n.mu.Unlock()
	s := n.store
	s.lock()
	k, now, bytes, items := s.counters, s.now, s.bytes, s.items.Len()
	s.unlock()

	c.stat("pid", os.Getpid())
	c.stat("uptime", now-clockStart+2) // the uptime of memcached starts at 2
	c.stat("time", n.options.Now().Unix())
	c.stat("version", n.options.Version)
	c.stat("pointer_size", strconv.IntSize)
	c.stat("curr_connections", open)
	c.stat("total_connections", total)
	c.stat("cmd_get", k.get.cmd)
	c.stat("cmd_set", k.cmdSet)
	c.stat("cmd_flush", k.cmdFlush)
	c.stat("cmd_touch", k.touch.cmd)
	c.stat("cmd_meta", k.cmdMeta)
	c.stat("get_hits", k.get.hits)
	c.stat("get_misses", k.get.misses)
	c.stat("get_expired", k.getExpired)
	c.stat("get_flushed", k.getFlushed)
	c.stat("delete_misses", k.deleteMisses)
	c.stat("delete_hits", k.deleteHits)
	c.stat("incr_misses", k.incr.misses)
	c.stat("incr_hits", k.incr.hits)
	c.stat("decr_misses", k.decr.misses)
	c.stat("decr_hits", k.decr.hits)
	c.stat("cas_misses", k.casMisses)
	c.stat("cas_hits", k.casHits)
	c.stat("cas_badval", k.casBadval)
	c.stat("touch_hits", k.touch.hits)
	c.stat("touch_misses", k.touch.misses)
	c.stat("store_too_large", k.storeTooLarge)
	c.stat("store_no_memory", 0)
	c.stat("limit_maxbytes", s.limit)
	c.stat("accepting_conns", 1)
	c.stat("threads", runtime.GOMAXPROCS(0))
	c.stat("bytes", bytes)
	c.stat("curr_items", items)
	c.stat("total_items", k.totalItems)
	c.stat("evictions", k.evictions)
}

func (c *conn) statsSettings() {
	o := c.node.options
	c.stat("maxbytes", o.MemoryLimit)
	c.stat("udpport", 0)
	c.stat("evictions", "on")
	c.stat("domain_socket", "NULL")
	c.stat("shutdown_command", "no")
	c.stat("num_threads", runtime.GOMAXPROCS(0))
	c.stat("detail_enabled", "no")
	c.stat("cas_enabled", "yes")
	c.stat("binding_protocol", "ascii")
	c.stat("auth_enabled_sasl", "no")
	c.stat("auth_enabled_ascii", "no")
	c.stat("item_size_max", o.MaxItem)
	c.stat("maxconns_fast", "yes")
	c.stat("flush_enabled", "yes")
	c.stat("dump_enabled", "no")
}

// statsItems writes the reply to `stats items`. The only LRU list appears as class 1.
func (c *conn) statsItems() {
	s := c.node.store
	s.lock()
	items, evictions, second := s.items.Len(), s.evictions, s.now
	age := uint32(0)
	if _, oldest, ok := s.items.GetOldest(); ok {
		age = second - oldest.used
	}
	s.unlock()
	if items == 0 {
		return
	}
	c.stat("items:1:number", items)
	c.stat("items:1:age", age)
	c.stat("items:1:evicted", evictions)
	c.stat("items:1:outofmemory", 0)
}

// statsSlabs writes the reply to `stats slabs`. All memory appears as class 1, with one chunk per
// item.
func (c *conn) statsSlabs() {
	s := c.node.store
	s.lock()
	items, bytes, k := s.items.Len(), s.bytes, s.counters
	s.unlock()
	if items == 0 {
		c.stat("active_slabs", 0)
		c.stat("total_malloced", 0)
		return
	}
	c.stat("1:chunk_size", bytes/items)
	c.stat("1:chunks_per_page", 1)
	c.stat("1:total_pages", items)
	c.stat("1:total_chunks", items)
	c.stat("1:used_chunks", items)
	c.stat("1:free_chunks", 0)
	c.stat("1:get_hits", k.get.hits)
	c.stat("1:cmd_set", k.cmdSet)
	c.stat("1:delete_hits", k.deleteHits)
	c.stat("1:incr_hits", k.incr.hits)
	c.stat("1:decr_hits", k.decr.hits)
	c.stat("1:cas_hits", k.casHits)
	c.stat("1:cas_badval", k.casBadval)
	c.stat("1:touch_hits", k.touch.hits)
	c.stat("active_slabs", 1)
	c.stat("total_malloced", bytes)
}
