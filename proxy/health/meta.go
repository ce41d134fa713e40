package health

// This file formats a keeper's memcached requests and parses the replies.

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"ringside/proxy/health/divert"
	"ringside/proxy/health/roll"
	"ringside/proxy/wire"
)

// keyLimit is the maximum length of a key in memcached.
const keyLimit = 250

// appendName escapes a name for a record or a key.
func appendName(dst []byte, name string) []byte { return roll.AppendText(dst, name, "=") }

// Pools is the key of the item on each server that lists the pools which eject the server. The key
// is the same for all pools.
const Pools = divert.Reserved + "_pools"

// recordKeys are the keys of a keeper's items on the servers of a pool.
type recordKeys struct {
	pool     string
	View     string
	Live     string
	Roll     string
	List     string   // prefix of the keys of server lists; the hash of the list is appended
	Former   string   // prefix of the key of the former server lists; the hash of the present list is appended
	Suspects []string // for each server, the key of the counter of proxies that suspect the server
	Refused  []string // for each server, the key of the counter of proxies that the server refuses
	Flush    string   // prefix of the key of the election token for a flush; the server's phase number is appended
}

// makeRecordKeys returns the keys of the items that keepers store, for the pool. It leaves out those of
// the counters about single servers: see name.
func makeRecordKeys(pool string) recordKeys {
	return recordKeys{pool: pool, View: ViewKey(pool), Live: makeKey("live", pool), Roll: makeKey("roll", pool), List: makeKey("list__", pool) + ":", Former: makeKey("former__", pool) + ":", Flush: makeKey("fl", pool)}
}

// name sets the keys of the counters about servers with these names.
func (k *recordKeys) name(servers []string) {
	k.Suspects, k.Refused = nil, nil
	for _, name := range servers {
		k.Suspects = append(k.Suspects, makeKey("sus", k.pool, name))
		k.Refused = append(k.Refused, makeKey("ref", k.pool, name))
	}
}

// ViewKey returns the key of the view record of a pool.
func ViewKey(pool string) string { return makeKey("view__", pool) }

// makeKey returns a key of the given kind for a pool and servers with these names. If the key is too
// long, a hash replaces the names. The key has room for a number that is appended later.
func makeKey(kind string, names ...string) string {
	key := []byte(divert.Reserved + "_" + kind)
	for _, name := range names {
		key = appendName(append(key, ':'), name)
	}
	if len(key) <= keyLimit-10 {
		return string(key)
	}
	h := fnv.New64a()
	h.Write(key)
	return fmt.Sprintf("%s_%s:%016x", divert.Reserved, kind, h.Sum64())
}

// MetaGet returns a request that reads an item and its cas.
func MetaGet(key string) []byte { return fmt.Appendf(nil, "mg %s v c\r\n", key) }

// MetaPut returns a request that stores an item, if the item on the server still has the given cas.
// If cas is 0, the request stores it only if there is no item. The parameter seconds is the TTL of
// the item; 0: it never expires.
func MetaPut(key string, value []byte, cas uint64, seconds int) []byte {
	how := "ME"
	if cas != 0 {
		how = "C" + strconv.FormatUint(cas, 10)
	}
	line := fmt.Appendf(nil, "ms %s %d %s", key, len(value), how)
	if seconds > 0 {
		line = fmt.Appendf(line, " T%d", seconds)
	}
	return fmt.Appendf(line, "\r\n%s\r\n", value)
}

// metaAdd returns a request that increments a counter by one. If the counter does not
// exist, the request creates it with the value 1. The parameter seconds is the TTL of
// the new counter. Later increments do not extend it.
func metaAdd(key string, seconds int) []byte {
	return fmt.Appendf(nil, "ma %s N%d J1 v\r\n", key, seconds)
}

// IsMetaMiss reports whether a reply says that the item does not exist.
func IsMetaMiss(answer []byte) bool { return bytes.HasPrefix(answer, []byte("EN\r\n")) }

// MetaValue parses the reply to a request of MetaGet: `VA <size> c<cas>`, the value and the line end
// after it.
func MetaValue(answer []byte) (value []byte, cas uint64, ok bool) {
	line, rest, _ := bytes.Cut(answer, []byte("\r\n"))
	f := strings.Fields(string(line))
	if len(f) < 2 || f[0] != "VA" {
		return nil, 0, false
	}
	size, err := strconv.Atoi(f[1])
	if err != nil || size < 0 || size+2 != len(rest) {
		return nil, 0, false
	}
	if i := slices.IndexFunc(f, func(s string) bool { return s[0] == 'c' }); i > 0 {
		if cas, err = strconv.ParseUint(f[i][1:], 10, 64); err != nil {
			return nil, 0, false
		}
	}
	return rest[:size], cas, true
}

// metaCount parses the value of a counter. A missing counter is 0.
func metaCount(answer []byte) (n uint64, ok bool) {
	if IsMetaMiss(answer) {
		return 0, true
	}
	value, _, ok := MetaValue(answer)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 64)
	return n, err == nil
}

// firstLine returns the first line of a reply, limited to 200 bytes for log lines.
func firstLine(answer []byte) string {
	line, _, _ := bytes.Cut(answer, []byte("\r\n"))
	return string(line[:min(len(line), 200)])
}

const (
	usualThreads = 4 // assumed number of threads of a server that does not report it; memcached's default
	mostThreads  = 128
)

// askSettings is the request for the settings of a server.
var askSettings = []byte("stats settings\r\n")

// parseMemory returns from the reply to askSettings what happens to the server's items when its
// process ends. Servers that do not report a memory file have none.
func parseMemory(answer []byte) memory {
	if file := wire.StatOf(answer, "memory_file"); file != "" && file != "(null)" {
		return memoryKept
	}
	return memoryLost
}

// parseThreads returns the number of threads in the reply to `stats settings`.
func parseThreads(answer []byte) int {
	n, err := strconv.Atoi(wire.StatOf(answer, "num_threads"))
	if err != nil || n < 1 {
		return usualThreads
	}
	return min(n, mostThreads)
}
