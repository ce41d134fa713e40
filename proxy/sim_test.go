package proxy_test

// The simulation: random clients, servers and reloads around one engine.

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"ringside/proxy"
	"ringside/proxy/client"
	"ringside/proxy/conversation"
	"ringside/proxy/link"
	"ringside/proxy/table"
	"ringside/proxy/upstream"
	"ringside/ring"
)

// seeds returns how many worlds are simulated. A short run uses only the first of them.
func seeds() uint64 {
	if testing.Short() {
		return 5
	}
	return 200
}

// TestSimulation simulates the same worlds each time. FuzzEngine searches for others.
func TestSimulation(t *testing.T) {
	for seed := range seeds() {
		simulate(t, &dice{rng: rand.New(rand.NewPCG(seed, 1)), left: 3000}, fmt.Sprintf("seed %d", seed), false)
	}
}

// TestSimulationOfLateness simulates narrow worlds, in which sets often run late.
// Without the late delete an old value would be read after a newer one.
func TestSimulationOfLateness(t *testing.T) {
	for seed := range seeds() {
		simulate(t, &dice{rng: rand.New(rand.NewPCG(seed, 3)), left: 4000}, fmt.Sprintf("seed %d", seed), true)
	}
}

// FuzzEngine lets the fuzzer decide what happens next.
func FuzzEngine(f *testing.F) {
	for seed := range uint64(8) {
		b := make([]byte, 600)
		rng := rand.New(rand.NewPCG(seed, 2))
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) { simulate(t, &dice{bytes: b}, "fuzz", false) })
}

// dice decide what happens next, from a seed or from the bytes of a fuzzer. When they
// are used up they always return 0.
type dice struct {
	rng   *rand.Rand
	left  int
	bytes []byte
}

func (d *dice) over() bool { return d.left <= 0 && len(d.bytes) == 0 }

func (d *dice) n(k int) int {
	if k <= 1 || d.over() {
		return 0
	}
	if d.rng != nil {
		d.left--
		return d.rng.IntN(k)
	}
	v := 0
	for m := 1; m < k && len(d.bytes) > 0; m *= 256 {
		v = v*256 + int(d.bytes[0])
		d.bytes = d.bytes[1:]
	}
	return v % k
}

// one returns true once in k times.
func (d *dice) one(k int) bool { return d.n(k) == k-1 }

// world is one engine and its environment. In fair weather no server fails and nothing
// is late, so every answer is known. In a storm a command may fail, but no answer may
// be wrong.
type world struct {
	t    testing.TB
	name string
	d    *dice
	p    *proxy.Proxy
	e    *proxy.Engine
	now  int64

	storm, tight, getErrors bool
	heavy                   bool // most values are large
	trickle                 bool // servers reply in small pieces
	ordered                 bool // values are returned in the order of the keys
	handsOver               bool // the driver copies what it sends, as the portable one does
	instant                 bool // connections are established at once
	steady                  bool // no reloads, because after a reload little can be proved while servers hang
	narrow                  bool // one server, few keys, and connections that get stuck, so that late commands are noticed
	table                   table.Table
	pools                   [2]table.Pool

	servers []*simServer
	conns   []*simConn
	ghosts  []*simConn // aborted, but the server continues to read
	clients []*simClient
	nextID  int
	keys    map[string]*simKey
	keyList []*simKey

	epoch    int // number of reloads
	flushes  int
	flushing int // number of flushes that may still be pending
	aborted  int // number of aborted clients
	cut      int // number of clients cut off inside a value
	old      []*simConn
	trace    []string
	ops      int
}

func (w *world) log(format string, args ...any) {
	if len(w.trace) > 4000 {
		w.trace = slices.Delete(w.trace, 0, 2000)
	}
	w.trace = append(w.trace, fmt.Sprintf("%6d %8.3f ", w.ops, float64(w.now)/1e6)+fmt.Sprintf(format, args...))
}

func (w *world) fatalf(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("%s\n%s: %s", strings.Join(w.trace[max(0, len(w.trace)-60):], "\n"), w.name, fmt.Sprintf(format, args...))
}

func simulate(t testing.TB, d *dice, name string, narrow bool) {
	w := &world{t: t, name: name, d: d, now: int64(time.Hour), keys: map[string]*simKey{}}
	defer func() {
		if r := recover(); r != nil {
			w.fatalf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	w.storm, w.getErrors, w.handsOver, w.instant = d.one(2), d.one(2), d.one(4), d.one(2)
	w.ordered, w.trickle, w.steady = d.one(4), d.one(3), d.one(2)
	w.tight, w.heavy = w.storm && d.one(6), d.one(2)
	if narrow {
		w.narrow, w.storm, w.steady, w.getErrors, w.tight, w.heavy = true, true, true, true, false, false
	}
	for i := range w.some(4, 1) {
		w.servers = append(w.servers, w.newServer(fmt.Sprintf("s%d", i+1)))
	}
	w.limits()
	w.lay()
	t1 := w.table
	w.p = proxy.NewProxy(&t1, "test", slog.New(slog.NewTextHandler(io.Discard, nil)))
	tune := link.DefaultTune
	if d.one(3) {
		tune = link.Tune{}
	}
	w.e = w.p.NewEngine(tune)
	w.e.Post = func(func(*proxy.Engine)) {}
	w.wakeup(func() {})
	for !d.over() {
		if d.one(w.some(12, 6)) {
			w.wait()
		}
		if (d.one(150) || w.hasRest() && d.one(10)) && !w.steady {
			w.reload()
		}
		if w.storm && d.one(80) {
			w.silence()
		}
		w.wakeup(func() {
			for range 1 + d.n(4) {
				w.act()
			}
		})
	}
	w.settle()
}

// limits sets the limits and pool settings of a world. They never change; only the
// placement of keys does.
func (w *world) limits() {
	d := w.d
	w.table.Limits = conversation.Limits()
	l := &w.table.Limits
	l.Value = 200_000
	l.InFlight = []int{4096, 2, 30}[d.n(3)]
	l.Output = []int{1 << 20, 3000}[d.n(2)]
	keepalive := []time.Duration{0, time.Second}[d.n(2)]
	for i := range w.pools {
		p := &w.pools[i]
		*p = table.Pool{Name: fmt.Sprint(i), Connections: 1 + d.n(2), QueueLimit: 1 << 20, GetErrors: w.getErrors, InOrder: w.ordered, JoinGets: i%2 == 0,
			Timeouts:     table.Timeouts{Connect: time.Hour, Request: time.Hour, Deadline: time.Hour},
			RetryBackoff: table.Backoff{First: 50 * time.Millisecond, Max: time.Second}}
		if w.storm {
			p.QueueLimit = []int{10_000, 10_000, w.some(3, 10_000)}[d.n(3)]
			p.Preconnect = d.one(4)
			p.Keepalive = keepalive
			p.Timeouts = table.Timeouts{Connect: 300 * time.Millisecond, Request: 500 * time.Millisecond, Deadline: []time.Duration{time.Second, 400 * time.Millisecond}[d.n(2)]}
		}
	}
	if w.storm && !w.narrow {
		l.OutputHard = []int{64 << 20, 300_000}[d.n(2)]
		l.Idle = []time.Duration{0, 3 * time.Second, 300 * time.Millisecond}[d.n(3)]
	}
	if w.tight {
		l.Memory = []int64{1 << 20, 250_000}[d.n(2)]
	}
}

// lay creates a table with one or more servers in random order.
func (w *world) lay() {
	w.table.Pools, w.table.Listeners = nil, nil
	var routes []table.Route
	for i := range w.pools {
		p := w.pools[i]
		p.Servers = nil
		order := append([]*simServer(nil), w.servers...)
		for i := range order {
			j := i + w.d.n(len(order)-i)
			order[i], order[j] = order[j], order[i]
		}
		for _, s := range order[:1+w.d.n(len(order))] {
			p.Servers = append(p.Servers, table.Target{Name: s.name, Network: "tcp", Address: s.name, Weight: 1})
		}
		p.Place = ring.Placement{Hash: conversation.Hash, Ring: byHash(len(p.Servers))}
		w.table.Pools = append(w.table.Pools, &p)
		routes = append(routes, table.Route{Prefix: []string{"", stripped}[i], Pool: &p, Strip: i == 1})
	}
	if w.epoch%2 == 0 { // every other table has a route of its own for some keys; it changes only what is counted
		routes = append(routes, table.Route{Prefix: "c1", Pool: w.table.Pools[0]})
	}
	w.table.Listeners = []table.Listener{{Network: "tcp", Address: "here", Routes: routes}}
}

type byHash int

func (n byHash) Len() int { return int(n) }

func (n byHash) At(_ []byte, h uint64, try int) int {
	if try > 0 {
		return -1
	}
	return int(h % uint64(n))
}

func (w *world) reload() {
	w.log("reload")
	w.epoch++
	w.lay()
	t := w.table
	w.p.SetTable(&t)
	w.old = append(w.old, w.conns...) // requests in flight may still reach a server that the next table names
	for _, k := range w.keyList {
		k.acked, k.set = 0, 0
	}
}

// hasRest reports whether a read has keys that were not requested yet. A reload may
// remove the routes of either part.
func (w *world) hasRest() bool {
	return slices.ContainsFunc(w.clients, func(c *simClient) bool {
		x := c.link.End.(*client.Session).Head
		return x != nil && len(x.Rest) > 0
	})
}

// newWant records what the order of commands proves for a command that is sent now.
func (w *world) newWant() *want {
	x := &want{epoch: w.epoch, flush: w.flushes}
	w.old = slices.DeleteFunc(w.old, func(c *simConn) bool {
		return c.state == "closed" || len(c.in) == 0 && c.link.Dialer.(*upstream.Conn).Length == 0
	})
	if len(w.old) > 0 {
		x.epoch = -1
	}
	if w.flushing > 0 {
		x.flush = -1
	}
	return x
}

// some returns n, or few in a narrow world.
func (w *world) some(n, few int) int {
	if w.narrow {
		return few
	}
	return n
}

// wait moves the clock a little, or to the next timer.
func (w *world) wait() {
	d := w.d
	switch {
	case d.one(3) && w.e.Next() < w.now+int64(time.Minute):
		w.now = max(w.now, w.e.Next())
	case w.storm && d.one(w.some(4, 2)):
		w.now += int64(d.n(700)) * int64(time.Millisecond)
	default:
		w.now += int64(d.n(2000)) * int64(time.Microsecond)
	}
}

// silence simulates some seconds in which clients send nothing and servers reply if
// they can. A firewall drops the state of some of the idle connections.
func (w *world) silence() {
	w.log("silence")
	for _, c := range w.conns {
		if w.d.one(3) {
			c.forget()
		}
	}
	for end := w.now + int64(w.d.n(5000))*int64(time.Millisecond); w.now < end; {
		w.now = min(end, max(w.e.Next(), w.now+int64(time.Millisecond)))
		w.wakeup(func() {
			for _, c := range slices.Clone(w.conns) {
				if c.state == "dialling" && !c.srv.hangs && !c.srv.cut {
					c.dialled()
				}
				if c.state == "up" {
					c.drain(true)
					c.work(len(c.in))
					c.deliver(true)
				}
			}
		})
	}
	w.log("the silence ends")
}

// wakeup is one round of a driver.
func (w *world) wakeup(f func()) {
	w.ops++
	for f != nil || w.e.HasBacklog() {
		w.e.Begin(w.now, conversation.Wall(w.now))
		if f != nil {
			f()
			f = nil
		}
		rounds := 0
		for effects := w.e.End(); len(effects) > 0; effects = w.e.End() {
			for _, x := range effects {
				w.effect(x)
			}
			if rounds++; rounds > 1000 {
				w.fatalf("the effects of one wakeup have no end: %v", effects)
			}
		}
	}
	if bad := faults(w.e); len(bad) > 0 {
		w.fatalf("%s", strings.Join(bad, "\n"))
	}
	if next := w.e.Next(); next <= w.now {
		w.fatalf("at %d the engine wants to be called at %d again", w.now, next)
	}
	w.checkForgotten()
	if got := w.p.HeldMemory(); got != w.e.Buffers.Held {
		w.fatalf("%d bytes are booked, %d held", got, w.e.Buffers.Held)
	}
}

// act simulates one event.
func (w *world) act() {
	d := w.d
	if len(w.clients) == 0 || len(w.clients) < 6 && d.one(30) {
		w.accept()
		return
	}
	if n := len(w.ghosts); n > 0 && d.one(6) {
		if g := w.ghosts[d.n(n)]; !g.srv.hangs && !g.process() {
			w.ghosts = slices.DeleteFunc(w.ghosts, func(o *simConn) bool { return o == g })
		}
		return
	}
	if len(w.conns) > 0 && d.n(2) == 0 {
		w.serverActs(w.conns[d.n(len(w.conns))])
		return
	}
	c := w.clients[d.n(len(w.clients))]
	if x := c.link.End.(*client.Session).Head; x != nil && x.Streaming != nil && x.Streaming.Turn != nil && d.one(10) { // other requests wait until this client has got its values
		c.reset()
		return
	}
	switch d.n(20) {
	case 0:
		c.drain()
	case 1:
		c.slow = d.one(2) && !w.narrow
	case 2:
		switch {
		case w.narrow:
		case d.one(5):
			c.reset()
		case d.one(15):
			c.halfClose()
		}
	case 3:
		if w.storm && !(w.narrow && d.n(4) > 0) {
			w.trouble()
		}
	default:
		if len(c.pending) == 0 && !c.ended {
			for range 1 + d.n(4) {
				if !c.ended {
					c.compose()
				}
			}
		}
		c.send(w.narrow)
	}
}

func (w *world) trouble() {
	s := w.servers[w.d.n(len(w.servers))]
	switch w.d.n(7) {
	case 6:
		s.cut = !s.cut
		w.log("%s is cut off: %v", s.name, s.cut)
		w.heal()
	case 0:
		s.refuses = !s.refuses
		w.log("%s refuses: %v", s.name, s.refuses)
	case 1:
		s.hangs = !s.hangs
		w.log("%s hangs: %v", s.name, s.hangs)
	case 2, 3:
		s.refuses, s.hangs, s.cut = false, false, false
		w.heal()
	}
}

// heal delivers the bytes that were delayed while a server was cut off.
func (w *world) heal() {
	for _, c := range w.conns {
		if !c.srv.cut {
			c.unsent = 0
		}
	}
}

func (w *world) serverActs(c *simConn) {
	d := w.d
	switch {
	case c.state == "dialling":
		if !c.srv.hangs && !c.srv.cut {
			c.dialled()
		}
	case w.storm && d.one(w.some(50, 500)):
		switch d.n(4) {
		case 0:
			c.dies(nil)
		case 1:
			c.dies(errors.New("connection reset by peer"))
		case 2:
			c.stray()
		case 3:
			c.garbage()
		}
	case w.storm && d.one(w.some(12, 5)):
		c.stuck = d.n(3) > 0
		w.log("%s is stuck on one connection: %v", c.srv.name, c.stuck)
	case d.one(6):
		c.drain(false)
	case d.one(2):
		c.work(1 + d.n(6))
	default:
		c.deliver(w.narrow)
	}
}

func (w *world) accept() {
	w.nextID++
	c := &simClient{w: w, id: w.nextID}
	w.log("c%d connects", c.id)
	c.link = w.e.Accepted("tcp", "here", c)
	w.clients = append(w.clients, c)
}

// settle ends all failures and continues until all clients have their answers and then
// until all have disconnected. Then it checks what is left.
func (w *world) settle() {
	w.log("settle")
	for _, s := range w.servers {
		s.refuses, s.hangs, s.cut = false, false, false
	}
	w.heal()
	for _, c := range slices.Clone(w.conns) {
		c.stuck = false
		if c.forgotten > 0 && c.state == "up" {
			w.wakeup(func() { c.dies(errors.New("connection timed out")) }) // the kernel gives up, too
		}
	}
	for _, c := range w.clients {
		c.slow = false
		if !c.ended {
			c.wants = append(c.wants, &want{kind: "mn", end: c.sent + len(c.pending) + 4})
			c.pending = append(c.pending, "mn\r\n"...)
		}
	}
	if w.nextID%4 == 0 {
		w.wakeup(w.drain)
	}
	w.play("everybody has an answer", func() bool {
		return !slices.ContainsFunc(w.clients, func(c *simClient) bool { return len(c.pending) > 0 || c.waits() })
	})
	w.wakeup(func() {
		if w.nextID%3 == 0 {
			w.drain()
		}
		for _, c := range slices.Clone(w.clients) {
			if c.id%2 == 0 {
				c.halfClose()
			} else {
				c.reset()
			}
		}
	})
	w.play("all is quiet", func() bool {
		return len(w.clients) == 0 && !slices.ContainsFunc(w.conns, func(c *simConn) bool { return c.link.Dialer.(*upstream.Conn).Length > 0 })
	})
	if n := len(w.e.Sessions); n != 0 || w.p.ClientCount() != 0 {
		w.fatalf("%d sessions are left, %d counted", n, w.p.ClientCount())
	}
	if w.e.Trim(); w.e.Buffers.Held != link.ScratchSize {
		w.fatalf("%d bytes are held, %d when nothing goes on", w.e.Buffers.Held, link.ScratchSize)
	}
	n := &w.e.Count
	if got := int(n.OutputClosed + n.MemoryClosed); w.aborted != got || w.cut > int(n.CutOff) { // a client that is cut off may disconnect first
		w.fatalf("%d clients were aborted, %d counted; %d were cut, %d counted", w.aborted, got, w.cut, n.CutOff)
	}
	if !w.storm && (w.aborted+w.cut > 0 || n.Desyncs > 0) {
		w.fatalf("in fair weather %d clients were aborted, %d cut and %d server connections aborted", w.aborted, w.cut, n.Desyncs)
	}
}

// drain does what a driver does when the process stops.
func (w *world) drain() {
	w.log("drain")
	w.e.Drain()
	for _, c := range w.clients {
		c.ended, c.pending = true, nil
	}
}

func (w *world) play(until string, done func() bool) {
	for i := range 3000 {
		if done() {
			return
		}
		w.now += int64(time.Millisecond)
		if i%100 == 99 {
			w.now += int64(400 * time.Millisecond)
		}
		w.wakeup(func() {
			for _, c := range slices.Clone(w.conns) {
				if c.state == "dialling" {
					c.dialled()
				}
				c.drain(true)
				c.work(len(c.in))
				c.deliver(true)
			}
			for _, c := range slices.Clone(w.clients) {
				c.send(true)
				c.drain()
			}
		})
	}
	for _, c := range w.clients {
		w.log("c%d: %d to send, %d wants, paused %v, full %v, got %.60q, session %+v", c.id, len(c.pending), len(c.wants), c.paused, c.full, c.got, *c.link.End.(*client.Session))
	}
	for _, c := range w.conns {
		w.log("%s: %s, in %.60q, out %.60q, %d in flight, full %v", c.srv.name, c.state, c.in, c.out, c.link.Dialer.(*upstream.Conn).Length, c.full)
	}
	w.fatalf("it never comes to that %s", until)
}
