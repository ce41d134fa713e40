package proxy_test

// The simulation's servers: those of package memnode, which reply when the scheduler runs
// them.

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"ringside/internal/memnode"
	"ringside/proxy/link"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// simServer is one address. Its items survive its connections.
type simServer struct {
	name    string
	store   *memnode.Node
	line    *memnode.Line
	refuses bool // refuses connections
	hangs   bool // accepts and reads, but does not reply
	cut     bool // network partition: nothing arrives in either direction
}

func (w *world) newServer(name string) *simServer {
	store, err := memnode.New(memnode.Options{Now: func() time.Time { return time.Unix(0, w.now) }})
	if err != nil {
		w.t.Fatal(err)
	}
	return &simServer{name: name, store: store, line: store.Line()}
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
	answer, ok := c.srv.command(c.w, f, in[:used], body)
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

// command executes one command. ok is false if the engine must not have sent it.
func (s *simServer) command(w *world, f []string, request []byte, body []byte) (answer []byte, ok bool) {
	switch {
	case f[0] == "stats": // those of memnode depend on the machine
		return fmt.Appendf(nil, "STAT pid 1\r\nSTAT curr_items %d\r\nEND\r\n", len(s.store.Keys())), true
	case slices.Contains(f, "noreply"), len(f[0]) == 2 && slices.Contains(f[1:], "q"): // replies could not be counted
		return nil, false
	}
	if body != nil {
		key, flags := f[1], "0"
		if f[0] != "ms" {
			flags = f[2]
		} else {
			for _, flag := range f[3:] {
				switch flag[0] {
				case 'F':
					flags = flag[1:]
				case 'b':
					b, _ := wire.DecodeKey(nil, []byte(f[1]))
					key = string(b)
				}
			}
		}
		w.checkStored(key, flags, body)
	}
	answer = s.line.Do(request)
	return answer, !bytes.HasPrefix(answer, []byte("ERROR")) && !bytes.HasPrefix(answer, []byte("CLIENT_ERROR"))
}
