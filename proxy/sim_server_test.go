package proxy_test

// The simulation's servers: small memcached models that reply when the scheduler runs
// them.

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"ringside/proxy/link"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// simServer is one address. Its items survive its connections.
type simServer struct {
	name    string
	items   map[string]simItem
	refuses bool // refuses connections
	hangs   bool // accepts and reads, but does not reply
	cut     bool // network partition: nothing arrives in either direction
}

type simItem struct {
	flags string
	body  []byte
	cas   int
}

// simConn is one connection from the engine to a server. Bytes wait in three places: in
// the engine, in `in`, and in `out`.
type simConn struct {
	w      *world
	srv    *simServer
	link   *link.Link
	state  string // "dialling", "up", "closed"; "ghost": closed, but the server has not read everything
	in     []byte // received, not processed
	out    []byte // replies that are not delivered
	full   bool   // the engine considers the socket full
	unsent int    // bytes at the end of `in` that are still on the engine's side
	bitten bool   // the server has sent bytes that are not a reply
	stuck  bool   // the server ignores it, but serves others
	old    bool   // the server has no meta commands

	forgotten int64 // when a firewall dropped its state while it was idle, so that bytes sent on it vanish; 0: never
	acks      bool  // the firewall acknowledges the bytes that vanish
	vanished  int   // number of bytes that vanished
}

func (c *simConn) Peer() string { return c.srv.name }

func (c *simConn) Ready() bool { return false }

func (c *simConn) Unsent() int {
	if c.acks {
		return c.unsent
	}
	return c.unsent + c.vanished
}

// process lets the server execute one complete command. It returns false if there is
// none.
func (c *simConn) process() bool {
	in := c.in[:len(c.in)-c.unsent]
	end := bytes.Index(in, []byte("\r\n"))
	if end < 0 {
		return false
	}
	line := string(in[:end])
	f := strings.Split(line, " ")
	used := end + 2
	var body []byte
	if n := dataLength(f); n >= 0 {
		if len(in) < used+n+2 {
			return false
		}
		body = c.in[used : used+n]
		if string(c.in[used+n:used+n+2]) != "\r\n" {
			c.w.fatalf("%s: %q: the data block has no end", c.srv.name, line)
		}
		used += n + 2
	}
	c.w.log("%s does %.60q", c.srv.name, line)
	answer, ok := c.srv.command(c.w, f, body)
	switch {
	case !c.old:
	case f[0] == "version":
		answer = []byte("VERSION 1.5.22\r\n")
	case len(f[0]) == 2 && f[0][0] == 'm': // the data block would run as commands
		ok = false
	}
	guarded := c.link.Dialer.(*upstream.Conn).LateDeletes > 0
	if guarded || c.state == "ghost" {
		c.w.mayBeGone(f)
	}
	if c.w.storm && !guarded && c.w.d.one(60) {
		answer, ok = c.srv.excuse(f[0]), true
	}
	if !ok {
		c.w.fatalf("%s does not understand %q", c.srv.name, line)
	}
	c.in = c.in[used:]
	c.out = append(c.out, answer...)
	return true
}

// work lets the server execute up to n commands. On a lingering connection a mutation
// and the late delete after it run together, as in a server that has received both.
func (c *simConn) work(n int) {
	if c.srv.hangs || c.srv.cut || c.stuck {
		return
	}
	if c.link.Dialer.(*upstream.Conn).Lingering {
		if c.unsent > 0 || c.link.Dialer.(*upstream.Conn).Out.Size > 0 {
			return
		}
		n = len(c.in)
	}
	for ; n > 0 && c.process(); n-- {
	}
}

// mayBeGone records that a running command may delete newer values: it is a late
// delete, or a delete that was aborted after it had arrived.
func (w *world) mayBeGone(f []string) {
	if f[0] != "delete" && f[0] != "md" {
		return
	}
	key := f[1]
	if f[0] == "md" && slices.Contains(f[2:], "b") {
		b, _ := wire.DecodeKey(nil, []byte(key))
		key = string(b)
	}
	if w.keys[key] == nil {
		key = stripped + key
	}
	if k := w.keys[key]; k != nil {
		k.removed = k.seq
	}
}

// excuse returns the error of a server that has not executed a command, or does not say
// that it has.
func (s *simServer) excuse(command string) []byte {
	if command == "version" {
		return []byte("ERROR Too many open connections\r\n")
	}
	return []byte("SERVER_ERROR out of memory\r\n")
}

func dataLength(f []string) int {
	at := -1
	switch f[0] {
	case "set", "add", "replace":
		at = 4
	case "ms":
		at = 2
	}
	if at < 0 || len(f) <= at {
		return -1
	}
	n, err := strconv.Atoi(f[at])
	if err != nil {
		return -1
	}
	return n
}

func (s *simServer) command(w *world, f []string, body []byte) (answer []byte, ok bool) {
	say := func(format string, args ...any) ([]byte, bool) { return fmt.Appendf(nil, format, args...), true }
	switch {
	case f[0] == "version":
		return say("VERSION 1.6.18\r\n")
	case f[0] == "mn":
		return say("MN\r\n")
	case f[0] == "flush_all":
		clear(s.items)
		return say("OK\r\n")
	case f[0] == "stats":
		return say("STAT pid 1\r\nSTAT curr_items %d\r\nEND\r\n", len(s.items))
	case len(f) < 2:
		return nil, false
	case f[0] == "get" || f[0] == "gets":
		return s.read(f[1:], f[0] == "gets"), true
	case f[0] == "gat" && len(f) > 2:
		return s.read(f[2:], false), true
	}
	key := f[1]
	base64 := f[0][0] == 'm' && slices.Contains(f[2:], "b")
	if base64 {
		b, ok := wire.DecodeKey(nil, []byte(key))
		if !ok {
			return nil, false
		}
		key = string(b)
	}
	item, have := s.items[key]
	switch {
	case f[0] == "delete" && len(f) == 2:
		delete(s.items, key)
		if !have {
			return say("NOT_FOUND\r\n")
		}
		return say("DELETED\r\n")
	case f[0] == "touch" && len(f) == 3 && have:
		return say("TOUCHED\r\n")
	case f[0] == "touch" && len(f) == 3:
		return say("NOT_FOUND\r\n")
	case f[0] == "incr" && len(f) == 3:
		if !have {
			return say("NOT_FOUND\r\n")
		}
		n, _ := strconv.Atoi(string(item.body))
		s.items[key] = simItem{flags: item.flags, body: fmt.Append(nil, n+1), cas: item.cas + 1}
		return say("%d\r\n", n+1)
	case (f[0] == "set" || f[0] == "add" || f[0] == "replace") && len(f) == 5:
		w.checkStored(key, f[2], body)
		if f[0] != "set" && have != (f[0] == "replace") {
			return say("NOT_STORED\r\n")
		}
		s.items[key] = simItem{f[2], append([]byte(nil), body...), item.cas + 1}
		return say("STORED\r\n")
	}
	return s.meta(w, key, f, body)
}

func (s *simServer) read(keys []string, cas bool) (answer []byte) {
	for _, key := range keys {
		item, have := s.items[key]
		if !have {
			continue
		}
		answer = fmt.Appendf(answer, "VALUE %s %s %d", key, item.flags, len(item.body))
		if cas {
			answer = fmt.Appendf(answer, " %d", item.cas)
		}
		answer = append(append(append(answer, "\r\n"...), item.body...), "\r\n"...)
	}
	return append(answer, "END\r\n"...)
}

// meta supports the flags that the simulation's clients use, O k v f F, and those of
// the engine's own requests: c s t.
func (s *simServer) meta(w *world, key string, f []string, body []byte) (answer []byte, ok bool) {
	item, have := s.items[key]
	flags, value, client := "", false, "0"
	for _, flag := range f[2:] {
		switch {
		case flag == "":
			return nil, false
		case flag[0] == 'O':
			flags += " " + flag
		case flag == "k":
			flags += " k" + f[1]
			if slices.Contains(f[2:], "b") {
				flags += " b"
			}
		case flag == "b":
		case flag == "f" && have:
			flags += " f" + item.flags
		case flag == "c" && have:
			flags += fmt.Sprintf(" c%d", item.cas)
		case flag == "s" && have:
			flags += fmt.Sprintf(" s%d", len(item.body))
		case flag == "t" && have:
			flags += " t-1"
		case flag == "v":
			value = true
		case flag[0] == 'F':
			client = flag[1:]
		case flag == "q": // must not reach a server, because its replies could not be counted
			return nil, false
		}
	}
	switch {
	case f[0] == "mg" && !have:
		return []byte("EN" + flags + "\r\n"), true // the opaque tells which request it belongs to
	case f[0] == "mg" && value:
		answer = fmt.Appendf(nil, "VA %d%s\r\n", len(item.body), flags)
		return append(append(answer, item.body...), "\r\n"...), true
	case f[0] == "mg":
		return []byte("HD" + flags + "\r\n"), true
	case f[0] == "ms":
		w.checkStored(key, client, body)
		s.items[key] = simItem{client, append([]byte(nil), body...), item.cas + 1}
		return []byte("HD" + flags + "\r\n"), true
	case f[0] == "md":
		delete(s.items, key)
		if !have {
			return []byte("NF" + flags + "\r\n"), true
		}
		return []byte("HD" + flags + "\r\n"), true
	}
	return nil, false
}
