package health

// A model of a memcached server. It has items with cas and expiry, and supports the
// commands that keepers and the simulated clients send.

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

type item struct {
	value   string
	cas     uint64
	expires int64 // 0: never
}

// node is one server.
type node struct {
	items  map[string]item
	cas    uint64
	refuse bool  // rejects flush_all, as with -F
	full   bool  // has no memory for new items until it is flushed, as with -M
	old    bool  // has no meta commands
	began  int64 // start of the process, by the simulated clock; 0: not reported
	down   bool  // refuses connections
	hung   bool  // reads requests but does not process them
	late   []func()
	// flushed is called by flush_all.
	flushed func()
}

func newNode() *node { return &node{items: make(map[string]item)} }

// restart drops all data.
func (n *node) restart() {
	n.items, n.late, n.cas = make(map[string]item), nil, 0
	n.down, n.hung = false, false
}

func (n *node) get(key string, now int64) (item, bool) {
	it, ok := n.items[key]
	if ok && it.expires != 0 && now >= it.expires {
		delete(n.items, key)
		return item{}, false
	}
	return it, ok
}

func (n *node) set(key, value string, ttl int64, now int64) {
	n.cas++
	it := item{value: value, cas: n.cas}
	if ttl > 0 {
		it.expires = now + ttl*1e9
	}
	n.items[key] = it
}

// do executes one request of a keeper.
func (n *node) do(line []byte, now int64) string {
	head, body, _ := bytes.Cut(line, []byte("\r\n"))
	f := strings.Fields(string(head))
	if n.old && (len(f[0]) == 2) {
		return "ERROR\r\n"
	}
	switch f[0] {
	case "mn":
		return "MN\r\n"
	case "flush_all":
		if n.refuse {
			return "CLIENT_ERROR flush_all not allowed\r\n"
		}
		n.items, n.full = make(map[string]item), false
		n.flushed()
		return "OK\r\n"
	case "stats":
		if len(f) == 1 && n.began != 0 {
			return fmt.Sprintf("STAT pid 1\r\nSTAT uptime %d\r\nSTAT time %d\r\nEND\r\n", (now-n.began)/sec+2, now/sec)
		}
		return "STAT maxbytes 67108864\r\nSTAT num_threads 3\r\nEND\r\n"
	case "mg":
		it, ok := n.get(f[1], now)
		if !ok {
			return "EN\r\n"
		}
		cas := ""
		if strings.Contains(string(head), " c") {
			cas = fmt.Sprintf(" c%d", it.cas)
		}
		return fmt.Sprintf("VA %d%s\r\n%s\r\n", len(it.value), cas, it.value)
	case "ms":
		return n.store(f, string(body[:len(body)-2]), now)
	case "ma":
		return n.add(f, now)
	case "md":
		delete(n.items, f[1])
		return "HD\r\n"
	}
	panic("the model knows no " + f[0])
}

func (n *node) store(f []string, value string, now int64) string {
	if size, err := strconv.Atoi(f[2]); err != nil || size != len(value) {
		panic("bad size in " + strings.Join(f, " "))
	}
	it, exists := n.get(f[1], now)
	var ttl int64
	for _, flag := range f[3:] {
		switch v, _ := strconv.ParseInt(flag[1:], 10, 64); flag[0] {
		case 'C':
			if !exists {
				return "NF\r\n"
			}
			if it.cas != uint64(v) {
				return "EX\r\n"
			}
		case 'M':
			if exists {
				return "NS\r\n"
			}
		case 'T':
			ttl = v
		}
	}
	if n.full && !exists {
		return "SERVER_ERROR out of memory storing object\r\n"
	}
	n.set(f[1], value, ttl, now)
	return "HD\r\n"
}

// add executes `ma <key> N<seconds> J1 v`.
func (n *node) add(f []string, now int64) string {
	it, ok := n.get(f[1], now)
	if !ok {
		ttl, _ := strconv.ParseInt(f[2][1:], 10, 64)
		n.set(f[1], "1", ttl, now)
		return "VA 1\r\n1\r\n"
	}
	v, err := strconv.Atoi(it.value)
	if err != nil {
		return "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"
	}
	it.value = strconv.Itoa(v + 1)
	n.cas++
	it.cas = n.cas
	n.items[f[1]] = it
	return fmt.Sprintf("VA %d\r\n%s\r\n", len(it.value), it.value)
}
