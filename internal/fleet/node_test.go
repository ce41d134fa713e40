package fleet

// The fleet's servers: memcached processes that can hang, die and restart.

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"ringside/internal/memnode"
	"ringside/proxy/health/divert"
	"ringside/proxy/link"
	"ringside/proxy/wire"
)

// node is one server: a host, and the process on it.
type node struct {
	f      *fleet
	id     int
	name   string
	up     bool
	life   int  // number of processes so far
	hung   bool // stopped: its kernel accepts bytes, but the process does not run
	store  *memnode.Node
	left   *memnode.Node // the items of the process that has ended, if the server has restartable memory
	denies bool          // it rejects flush_all
	began  int64
	pipes  []*pipe // connections with work to do after a hang
	limits wire.Limits
	req    wire.Request
}

// epoch is the Unix time at which models start.
const epoch = 1_800_000_000

func (f *fleet) newNode(id int) *node {
	n := &node{f: f, id: id, name: fmt.Sprintf("s%d", id)}
	n.limits = wire.Limits{Key: limits.Key, Line: limits.Line, Value: limits.Value}
	n.start()
	return n
}

// start starts a new process. It is empty, unless the server has restartable memory.
func (n *node) start() {
	if n.left != nil {
		n.store, n.left = n.left, nil
		n.up, n.hung = true, false // memcached also keeps its start time
		n.life++
		return
	}
	store, err := memnode.New(memnode.Options{Now: func() time.Time { return time.Unix(epoch, n.f.now) }})
	if err != nil {
		panic(err)
	}
	n.store, n.began, n.up, n.hung = store, n.f.now, true, false
	n.life++
}

// fillSource stores a value of each key on the servers from which the pool fills. It is older than all others.
func (f *fleet) fillSource() {
	if !f.fill {
		return
	}
	for _, k := range f.values {
		w := f.newWrite(k)
		w.invoked, w.answered, w.acked = f.now, f.now, true
		n := f.nodes[f.servers+int(hash([]byte(k.name))%uint64(f.servers))]
		n.store.Line().Do(fmt.Appendf(nil, "set %s 0 0 %d\r\n%s\r\n", k.name, len(w.value), w.value))
	}
}

// die ends the process. Requests that it has not executed are lost. The next process
// counts cas numbers from 1 again, as memcached does. The clients' tokens are then
// invalid, but clients can't know that, so they are cleared here.
func (n *node) die() {
	for _, a := range n.f.apps {
		clear(a.tokens)
	}
	n.up, n.hung = false, false
	if n.f.remember {
		n.left = n.store
	}
	n.store, n.pipes = nil, nil
	for i := range n.f.paths {
		for _, c := range n.f.paths[i][n.id].pipes {
			if c.up && c.life == n.life {
				c.rcv = nil
				c.reset()
			}
		}
	}
}

// meets accepts a new connection.
func (n *node) meets(c *pipe) {
	if n.up && c.life == n.life {
		c.line = n.store.Line()
	}
}

// hang stops the process for a while.
func (n *node) hang(until int64) {
	n.hung = n.up
	life := n.life
	n.f.at(until, func() {
		if n.hung && n.life == life {
			n.wake()
		}
	})
}

// wakeTime is the maximum time until a resumed process has read the bytes that have
// arrived on a connection.
const wakeTime = 40 * milli

// wake resumes a hung process. It serves its connections in random order.
func (n *node) wake() {
	n.hung = false
	waiting := n.pipes
	n.pipes = nil
	for _, c := range waiting {
		n.f.after(n.f.upTo(wakeTime), func() { n.work(c) })
	}
}

// work executes what has arrived on a connection.
func (n *node) work(c *pipe) {
	switch {
	case !n.up || c.life != n.life || c.line == nil || c.stuck || c.isUndoing():
		return
	case n.hung:
		n.pipes = append(n.pipes, c)
		return
	}
	size := 0
	var ends []int // ends of the complete requests
	for size < len(c.rcv) {
		m, err := n.limits.Next(c.rcv[size:], &n.req)
		if err != nil {
			break
		}
		size += m
		ends = append(ends, size)
	}
	if len(ends) == 0 {
		return
	}
	if c.gone != link.Write { // writing the first replies fails, and then it stops
		size = ends[n.f.rand.IntN(len(ends))]
		n.do(c, c.rcv[:size])
		c.rcv = nil
		return
	}
	b := c.rcv[:size]
	c.rcv = append([]byte(nil), c.rcv[size:]...)
	n.do(c, b)
}

// do executes complete requests.
func (n *node) do(c *pipe, requests []byte) {
	var answers []byte
	for from := 0; from < len(requests); {
		m, _ := n.limits.Next(requests[from:], &n.req)
		one := requests[from : from+m]
		answer := n.one(c, one)
		if n.f.traced {
			n.f.note(keyIn(one), "%s does for p%d %.80q: %.60q", n.name, c.d.s.id, one, answer)
		}
		answers = append(answers, answer...)
		from += m
	}
	c.reply(answers)
}

// one executes one request. Replies about the process are artificial, because they must
// not depend on the machine.
func (n *node) one(c *pipe, request []byte) []byte {
	switch string(request) {
	case "stats\r\n":
		return fmt.Appendf(nil, "STAT pid %d\r\nSTAT uptime %d\r\nSTAT time %d\r\nEND\r\n", 100*n.id+n.life, (n.f.now-n.began)/second, epoch+n.f.now/second)
	case "stats settings\r\n":
		if n.f.remember {
			return []byte("STAT maxbytes 67108864\r\nSTAT num_threads 4\r\nSTAT memory_file /dev/shm/mem\r\nEND\r\n")
		}
		return []byte("STAT maxbytes 67108864\r\nSTAT num_threads 4\r\nEND\r\n")
	case "lru_crawler metadump all\r\n", "lru_crawler metadump hash\r\n":
		return n.list()
	case "flush_all\r\n":
		if n.f.denies || n.denies {
			return []byte("CLIENT_ERROR flush_all not allowed\r\n")
		}
		n.f.flushes++
		n.f.empties(n, c)
	}
	if n.f.bare {
		if answer := n.oldOrFailing(c, request); answer != nil {
			return answer
		}
	}
	if answer := n.f.ablate.answer(request); answer != nil {
		return answer
	}
	n.coincide(request)
	answer := n.f.ablate.restore(request, c.line.Do(n.f.ablate.change(request)))
	answer = n.f.ablate.spoiled.after(c.line, request, answer)
	if bytes.HasPrefix(request, []byte(ping)) && len(c.pings) > 0 {
		if bytes.HasPrefix(answer, []byte("VA ")) {
			c.pinged = c.pings[0]
		}
		c.pings = c.pings[1:]
	}
	n.f.replaces(request, string(answer))
	n.f.wins(n, request, answer)
	if kind := string(answer[:2]); n.f.copies.Copies > 0 && (kind == "HD" || kind == "VA") {
		n.f.copied(request)
	}
	return answer
}

// list returns all keys.
func (n *node) list() (answer []byte) {
	for _, key := range n.store.Keys() {
		answer = fmt.Appendf(answer, "key=%s exp=-1 la=%d cas=1 fetch=no cls=1 size=70\n", key, epoch)
	}
	return append(answer, "END\r\n"...)
}

// keyIn returns the client's key in a request, for the trace. Ringside's own requests
// are relevant for all keys.
func keyIn(request []byte) string {
	f := strings.Fields(string(request[:min(len(request), 300)]))
	if len(f) < 2 {
		return ""
	}
	key := f[1]
	if rest, ok := strings.CutPrefix(key, divert.Reserved+"~"); ok {
		_, key, _ = strings.Cut(rest, "~")
	}
	if strings.HasPrefix(key, divert.Reserved+"_live") || strings.HasPrefix(key, divert.Reserved+"_sus") || f[0] == "mg" && strings.HasPrefix(key, divert.Reserved+"_") {
		return "-"
	}
	if strings.HasPrefix(key, divert.Reserved) {
		return ""
	}
	return key
}
