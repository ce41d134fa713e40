package health

// A memcached server of a pool of keepers: package memnode, with the replies to stats of a process,
// and with faults.

import (
	"fmt"
	"strings"
	"time"

	"ringside/internal/memnode"
)

// node is one server.
type node struct {
	*memnode.Node
	line   *memnode.Line
	w      *world
	refuse bool  // rejects flush_all, as with -F
	full   bool  // has no memory for new items until it is flushed, as with -M
	old    bool  // has no meta commands
	noCas  bool  // shows the cas 0 for each item, as with -C
	began  int64 // start of the process, by the simulated clock; 0: not reported
	down   bool  // refuses connections
	hung   bool  // reads requests but does not process them
	late   []func()
	// flushed is called by flush_all.
	flushed func()
}

func (w *world) newNode() *node {
	n := &node{w: w, flushed: func() { w.flushes++ }}
	n.restart()
	return n
}

// restart starts a new process, which is empty.
func (n *node) restart() {
	store, err := memnode.New(memnode.Options{Now: func() time.Time { return time.Unix(0, n.w.now) }})
	if err != nil {
		panic(err)
	}
	n.Node, n.line, n.late = store, store.Line(), nil
	n.down, n.hung = false, false
}

// value returns the value of a key, and whether it has one.
func (n *node) value(key string) (string, bool) {
	head, value, ok := strings.Cut(string(n.line.Do([]byte("mg "+key+" v\r\n"))), "\r\n")
	return strings.TrimSuffix(value, "\r\n"), ok && strings.HasPrefix(head, "VA ")
}

func (n *node) put(key, value string) {
	n.line.Do(fmt.Appendf(nil, "set %s 0 0 %d\r\n%s\r\n", key, len(value), value))
}

func (n *node) drop(key string) { n.line.Do([]byte("delete " + key + "\r\n")) }

// do executes one request of a keeper.
func (n *node) do(request []byte) string {
	head, _, _ := strings.Cut(string(request), "\r\n")
	f := strings.Fields(head)
	switch {
	case n.old && len(f[0]) == 2:
		return "ERROR\r\n"
	case head == "flush_all" && n.refuse:
		return "CLIENT_ERROR flush_all not allowed\r\n"
	case head == "flush_all":
		n.full = false
		n.flushed()
	case head == "stats" && n.began != 0:
		return fmt.Sprintf("STAT pid 1\r\nSTAT uptime %d\r\nSTAT time %d\r\nEND\r\n", (n.w.now-n.began)/sec+2, n.w.now/sec)
	case f[0] == "stats":
		return "STAT maxbytes 67108864\r\nSTAT num_threads 3\r\nEND\r\n"
	case f[0] == "ms" && n.full:
		if _, exists := n.value(f[1]); !exists {
			return "SERVER_ERROR out of memory storing object\r\n"
		}
	}
	answer := string(n.line.Do(request))
	if head, value, _ := strings.Cut(answer, "\r\n"); n.noCas && strings.HasPrefix(head, "VA ") && strings.Contains(head, " c") {
		answer = head[:strings.Index(head, " c")] + " c0\r\n" + value
	}
	return answer
}
