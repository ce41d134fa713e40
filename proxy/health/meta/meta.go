// Package meta spells what a keeper asks of memcached, and reads the answers.
package meta

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"ringside/proxy/health/divert"
	"ringside/proxy/health/roll"
)

// keyLimit is the longest key that memcached takes.
const keyLimit = 250

// AppendName writes a name so that it can stand in a record and in a key.
func AppendName(dst []byte, name string) []byte { return roll.AppendText(dst, name, "=") }

// Pools is the name of the item that says which pools eject a server: the same for all pools.
const Pools = divert.Reserved + "_pools"

// Keys are the names of what a keeper stores on the servers of a pool.
type Keys struct {
	View     string
	Live     string
	Roll     string
	Suspects []string // by server
	Refused  []string // by server
	Flush    string   // and the n behind it
}

// MakeKeys are those of a pool with these servers.
func MakeKeys(pool string, servers []string) Keys {
	k := Keys{View: makeKey("view__", pool), Live: makeKey("live", pool), Roll: makeKey("roll", pool), Flush: makeKey("fl", pool)}
	for _, name := range servers {
		k.Suspects = append(k.Suspects, makeKey("sus", pool, name))
		k.Refused = append(k.Refused, makeKey("ref", pool, name))
	}
	return k
}

// makeKey joins names to a key. If that gets too long they are hashed; a few
// bytes are kept free for a number behind it.
func makeKey(kind string, names ...string) string {
	key := []byte(divert.Reserved + "_" + kind)
	for _, name := range names {
		key = AppendName(append(key, ':'), name)
	}
	if len(key) <= keyLimit-10 {
		return string(key)
	}
	h := fnv.New64a()
	h.Write(key)
	return fmt.Sprintf("%s_%s:%016x", divert.Reserved, kind, h.Sum64())
}

// Get asks for an item with its cas.
func Get(key string) []byte { return fmt.Appendf(nil, "mg %s v c\r\n", key) }

// Put writes an item over what was read with that cas; 0: only if there is none. After
// so many seconds it ends; 0: never.
func Put(key string, value []byte, cas uint64, seconds int) []byte {
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

// Add adds one to a counter. If there is none it makes one with 1, which ends after so
// many seconds, however much is added meanwhile.
func Add(key string, seconds int) []byte {
	return fmt.Appendf(nil, "ma %s N%d J1 v\r\n", key, seconds)
}

// None reports whether an answer says that there is no such item.
func None(answer []byte) bool { return bytes.HasPrefix(answer, []byte("EN\r\n")) }

// Value reads `VA <size> c<cas>`, the value and the line end behind it.
func Value(answer []byte) (value []byte, cas uint64, ok bool) {
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

// Count reads the value of a counter, which is 0 if there is none.
func Count(answer []byte) (n uint64, ok bool) {
	if None(answer) {
		return 0, true
	}
	value, _, ok := Value(answer)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 64)
	return n, err == nil
}

// FirstLine is an answer's first line, as far as it is good to show.
func FirstLine(answer []byte) string {
	line, _, _ := bytes.Cut(answer, []byte("\r\n"))
	return string(line[:min(len(line), 200)])
}

const (
	usualThreads = 4 // of a server that doesn't tell; memcached's default
	mostThreads  = 128
)

// Threads reads num_threads from `stats settings`.
func Threads(answer []byte) int {
	_, rest, ok := bytes.Cut(answer, []byte("STAT num_threads "))
	value, _, _ := bytes.Cut(rest, []byte("\r\n"))
	n, err := strconv.Atoi(string(value))
	if !ok || err != nil || n < 1 {
		return usualThreads
	}
	return min(n, mostThreads)
}
