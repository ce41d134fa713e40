package memnode

// This file has the counters of a node, and the replies to stats.

import (
	"fmt"
	"os"
	"runtime"
	"slices"
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

// stat writes lines of a reply. figures are names, each followed by its value.
func (c *conn) stat(figures ...any) {
	for figure := range slices.Chunk(figures, 2) {
		c.out = fmt.Appendf(c.out, "STAT %v %v\r\n", figure...)
	}
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

	c.stat(
		"pid", os.Getpid(),
		"uptime", now-clockStart+2, // the uptime of memcached starts at 2
		"time", n.options.Now().Unix(),
		"version", n.options.Version,
		"pointer_size", strconv.IntSize,
		"curr_connections", open,
		"total_connections", total,
		"cmd_get", k.get.cmd,
		"cmd_set", k.cmdSet,
		"cmd_flush", k.cmdFlush,
		"cmd_touch", k.touch.cmd,
		"cmd_meta", k.cmdMeta,
		"get_hits", k.get.hits,
		"get_misses", k.get.misses,
		"get_expired", k.getExpired,
		"get_flushed", k.getFlushed,
		"delete_misses", k.deleteMisses,
		"delete_hits", k.deleteHits,
		"incr_misses", k.incr.misses,
		"incr_hits", k.incr.hits,
		"decr_misses", k.decr.misses,
		"decr_hits", k.decr.hits,
		"cas_misses", k.casMisses,
		"cas_hits", k.casHits,
		"cas_badval", k.casBadval,
		"touch_hits", k.touch.hits,
		"touch_misses", k.touch.misses,
		"store_too_large", k.storeTooLarge,
		"store_no_memory", 0,
		"limit_maxbytes", s.limit,
		"accepting_conns", 1,
		"threads", runtime.GOMAXPROCS(0),
		"bytes", bytes,
		"curr_items", items,
		"total_items", k.totalItems,
		"evictions", k.evictions,
	)
}

func (c *conn) statsSettings() {
	o := c.node.options
	c.stat(
		"maxbytes", o.MemoryLimit,
		"udpport", 0,
		"evictions", "on",
		"domain_socket", "NULL",
		"shutdown_command", "no",
		"num_threads", runtime.GOMAXPROCS(0),
		"detail_enabled", "no",
		"cas_enabled", "yes",
		"binding_protocol", "ascii",
		"auth_enabled_sasl", "no",
		"auth_enabled_ascii", "no",
		"item_size_max", o.MaxItem,
		"maxconns_fast", "yes",
		"flush_enabled", "yes",
		"dump_enabled", "no",
	)
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
	c.stat(
		"items:1:number", items,
		"items:1:age", age,
		"items:1:evicted", evictions,
		"items:1:outofmemory", 0,
	)
}

// statsSlabs writes the reply to `stats slabs`. All memory appears as class 1, with one chunk per
// item.
func (c *conn) statsSlabs() {
	s := c.node.store
	s.lock()
	items, bytes, k := s.items.Len(), s.bytes, s.counters
	s.unlock()
	if items == 0 {
		c.stat(
			"active_slabs", 0,
			"total_malloced", 0,
		)
		return
	}
	c.stat(
		"1:chunk_size", bytes/items,
		"1:chunks_per_page", 1,
		"1:total_pages", items,
		"1:total_chunks", items,
		"1:used_chunks", items,
		"1:free_chunks", 0,
		"1:get_hits", k.get.hits,
		"1:cmd_set", k.cmdSet,
		"1:delete_hits", k.deleteHits,
		"1:incr_hits", k.incr.hits,
		"1:decr_hits", k.decr.hits,
		"1:cas_hits", k.casHits,
		"1:cas_badval", k.casBadval,
		"1:touch_hits", k.touch.hits,
		"active_slabs", 1,
		"total_malloced", bytes,
	)
}
