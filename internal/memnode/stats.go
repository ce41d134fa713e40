package memnode

// This file has the counters of a node, and the replies to stats.

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
)

// counters are the numbers that `stats reset` sets to zero. They are named as in the reply to
// stats. The lock of the store guards them.
type counters struct {
	cmdGet, cmdSet, cmdFlush, cmdTouch, cmdMeta uint64
	getHits, getMisses, getExpired, getFlushed  uint64
	deleteMisses, deleteHits                    uint64
	incrMisses, incrHits, decrMisses, decrHits  uint64
	casMisses, casHits, casBadval               uint64
	touchHits, touchMisses                      uint64
	storeTooLarge, totalItems, evictions        uint64
}

// countGet counts a read of one key. If touch is true, it counts a touch instead, as memcached does
// for gat.
func (k *counters) countGet(touch bool) {
	if touch {
		k.cmdTouch++
	} else {
		k.cmdGet++
	}
}

func (k *counters) countHit(touch bool) {
	if touch {
		k.touchHits++
	} else {
		k.getHits++
	}
}

func (k *counters) countMiss(touch bool) {
	if touch {
		k.touchMisses++
	} else {
		k.getMisses++
	}
}

func (k *counters) countNumberHit(decr bool) {
	if decr {
		k.decrHits++
	} else {
		k.incrHits++
	}
}

func (k *counters) countNumberMiss(decr bool) {
	if decr {
		k.decrMisses++
	} else {
		k.incrMisses++
	}
}

func (c *conn) stats() {
	topic := ""
	if len(c.tokens) > 1 {
		topic = string(c.tokens[1])
	}
	switch topic {
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
	open, total, rejected := len(n.conns), n.total, n.rejected
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
	c.stat("max_connections", n.options.MaxConns)
	c.stat("curr_connections", open)
	c.stat("total_connections", total)
	c.stat("rejected_connections", rejected)
	c.stat("cmd_get", k.cmdGet)
	c.stat("cmd_set", k.cmdSet)
	c.stat("cmd_flush", k.cmdFlush)
	c.stat("cmd_touch", k.cmdTouch)
	c.stat("cmd_meta", k.cmdMeta)
	c.stat("get_hits", k.getHits)
	c.stat("get_misses", k.getMisses)
	c.stat("get_expired", k.getExpired)
	c.stat("get_flushed", k.getFlushed)
	c.stat("delete_misses", k.deleteMisses)
	c.stat("delete_hits", k.deleteHits)
	c.stat("incr_misses", k.incrMisses)
	c.stat("incr_hits", k.incrHits)
	c.stat("decr_misses", k.decrMisses)
	c.stat("decr_hits", k.decrHits)
	c.stat("cas_misses", k.casMisses)
	c.stat("cas_hits", k.casHits)
	c.stat("cas_badval", k.casBadval)
	c.stat("touch_hits", k.touchHits)
	c.stat("touch_misses", k.touchMisses)
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
	port, host, socket := "0", "NULL", "NULL"
	if address := c.node.address(); o.Network == "unix" {
		socket = address
	} else if h, p, err := net.SplitHostPort(address); err == nil {
		host, port = h, p
	}
	c.stat("maxbytes", o.MemoryLimit)
	c.stat("maxconns", o.MaxConns)
	c.stat("tcpport", port)
	c.stat("udpport", 0)
	c.stat("inter", host)
	c.stat("evictions", "on")
	c.stat("domain_socket", socket)
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
	c.stat("1:get_hits", k.getHits)
	c.stat("1:cmd_set", k.cmdSet)
	c.stat("1:delete_hits", k.deleteHits)
	c.stat("1:incr_hits", k.incrHits)
	c.stat("1:decr_hits", k.decrHits)
	c.stat("1:cas_hits", k.casHits)
	c.stat("1:cas_badval", k.casBadval)
	c.stat("1:touch_hits", k.touchHits)
	c.stat("active_slabs", 1)
	c.stat("total_malloced", bytes)
}

// address returns the address of the listener, or "" for a node without one.
func (n *Node) address() string {
	if n.listener == nil {
		return ""
	}
	return n.listener.Addr().String()
}
