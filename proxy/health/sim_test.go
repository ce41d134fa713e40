package health

// A simulation of several keepers and clients with model servers, on one clock, with
// faults drawn from a seed. It checks the rules of the protocol at every step. It also
// checks that no get returns data older than a write that was acknowledged before the
// get.

import (
	"cmp"
	"container/heap"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"ringside/proxy/ablation"
	"ringside/proxy/health/divert"
)

const (
	ms  = int64(time.Millisecond)
	sec = int64(time.Second)
)

// scenario is the configuration of one run.
type scenario struct {
	seed    uint64
	proxies int
	pool    int
	gutter  int
	set     Settings
	last    *Settings // those of the last proxy, if they are others
	faults  []string  // the kinds of faults to draw from
	count   int       // number of faults
	apart   int64     // average time between the starts of two faults; 0: the next fault starts when the pool is whole again
	off     ablation.Set
	single  bool // ablation of the clients: no second write while a server rejoins
	sameKey bool // ablation of the clients: diverted keys are the same in each outage
	refuse  bool // servers reject flush_all
	clients bool
	targets int   // faults hit only the first so many servers; 0: any
	long    bool  // faults last long enough to cause an ejection
	pace    int64 // between two requests of a client; 0: the default
}

// world is the state of a run.
type world struct {
	scenario
	t      testing.TB
	now    int64
	rand   *rand.Rand
	events eventHeap
	limits []event // timeouts of requests, in order because all have the same duration
	order  uint64

	nodes   []*node
	cut     [][]bool // by proxy, server
	proxies []*proxy
	keys    []*keyState
	writes  []write
	top     []uint32 // highest number of each server at any keeper
	trouble int64    // end of the last fault

	stale   []string
	gets    int
	hits    int
	ejected int
	flushes int
	log     []string
	asked   func(p *proxy, r Request) // called for every request of a keeper, if set
}

// proxy is one keeper and its driver.
type proxy struct {
	id     int
	k      *Keeper
	life   int // number of starts; replies to an earlier keeper are dropped
	dead   bool
	seen   []uint32
	pinged []int64 // when the last ping was sent that returned a record
	tickAt int64
	conns  map[[2]int]*conn
}

// conn keeps the order of requests and replies on one connection.
type conn struct{ sent, arrive, reply int64 }

type event struct {
	at    int64
	order uint64
	do    func()
}

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].order < h[j].order
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(event)) }
func (h *eventHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

func (w *world) at(at int64, do func()) {
	w.order++
	heap.Push(&w.events, event{max(at, w.now), w.order, do})
}

func (w *world) after(d int64, do func()) { w.at(w.now+d, do) }

func (w *world) run(until int64) {
	for {
		limit := len(w.limits) > 0 && (len(w.events) == 0 || w.limits[0].at <= w.events[0].at)
		var e event
		switch {
		case limit && w.limits[0].at <= until:
			e, w.limits = w.limits[0], w.limits[1:]
		case !limit && len(w.events) > 0 && w.events[0].at <= until:
			e = heap.Pop(&w.events).(event)
		default:
			w.now = until
			return
		}
		w.now = e.at
		e.do()
	}
}

func (w *world) note(format string, a ...any) {
	w.log = append(w.log, fmt.Sprintf("%9.3f ", float64(w.now)/1e9)+fmt.Sprintf(format, a...))
}

func (w *world) fail(format string, a ...any) {
	w.t.Helper()
	tail := w.log[max(0, len(w.log)-80):]
	w.t.Fatalf("seed %d, at %.3f: %s\n%s", w.seed, float64(w.now)/1e9, fmt.Sprintf(format, a...), strings.Join(tail, "\n"))
}

func (s scenario) members() []Server {
	var m []Server
	for i := range s.pool + s.gutter {
		m = append(m, Server{Name: fmt.Sprintf("c%d", i), Address: fmt.Sprintf("10.0.0.%d:11211", i), Gutter: i >= s.pool})
	}
	return m
}

func newWorld(t testing.TB, s scenario) *world {
	s.set = s.set.withDefaults()
	w := &world{scenario: s, t: t, now: sec, rand: rand.New(rand.NewPCG(s.seed, 1))}
	for i := range s.pool + s.gutter {
		n := newNode()
		n.refuse = s.refuse
		n.flushed = func() { w.checkFlush(i) }
		w.nodes = append(w.nodes, n)
	}
	w.top = make([]uint32, len(w.nodes))
	for i := range s.proxies {
		w.cut = append(w.cut, make([]bool, len(w.nodes)))
		w.proxies = append(w.proxies, &proxy{id: i})
		w.start(w.proxies[i])
	}
	if s.clients {
		w.startClients()
	}
	return w
}

// start creates a new keeper for a proxy.
func (w *world) start(p *proxy) {
	p.life++
	p.dead = false
	set := w.set
	if w.last != nil && p.id == w.scenario.proxies-1 {
		set = *w.last
	}
	p.k = New("p", w.members(), set, w.seed*100+uint64(p.id)*10+uint64(p.life))
	p.k.off = w.off
	p.seen = make([]uint32, len(w.nodes))
	p.pinged = make([]int64, len(w.nodes))
	p.conns = make(map[[2]int]*conn)
	p.tickAt = 0
	w.input(p, func() { p.k.Tick(w.now) })
}

// input calls do and then sends the requests of the keeper.
func (w *world) input(p *proxy, do func()) {
	do()
	for _, e := range p.k.Events() {
		w.note("p%d server %d: %s -> %s (%s)", p.id, e.Server, e.From, e.To, e.Why)
	}
	for i := range w.nodes {
		w.checkNumber(p, i)
	}
	for _, r := range p.k.Requests() {
		w.ask(p, r)
	}
	w.tick(p)
}

func (w *world) tick(p *proxy) {
	next := p.k.Next()
	if next <= w.now {
		next = w.now + 1 // would be an endless loop otherwise; the number of requests shows it
	}
	if p.tickAt > w.now && p.tickAt <= next {
		return
	}
	p.tickAt = next
	life := p.life
	w.at(next, func() {
		if p.life == life && !p.dead && p.tickAt == w.now {
			w.input(p, func() { p.k.Tick(w.now) })
		}
	})
}

// checkNumber checks that no number decreases, and that phases follow each other in the
// allowed order.
func (w *world) checkNumber(p *proxy, i int) {
	n := p.k.Verdict(i).N
	if n < p.seen[i] {
		w.fail("p%d lowered server %d from %d to %d", p.id, i, p.seen[i], n)
	}
	p.seen[i] = n
	top := w.top[i]
	if n <= top {
		return
	}
	legal := n == top+1 || n == leaving(top) && PhaseOf(top) != Leaving && PhaseOf(top) != Out
	if !legal && w.off == (ablation.Set{}) {
		w.fail("p%d took server %d from %d (%v) to %d (%v)", p.id, i, top, PhaseOf(top), n, PhaseOf(n))
	}
	w.top[i] = n
	if PhaseOf(n) == Out {
		w.ejected++
	}
}

// checkFlush checks that no proxy reads from a server that is being flushed.
func (w *world) checkFlush(i int) {
	w.flushes++
	if !w.set.Strict || w.off != (ablation.Set{}) || len(w.nodes[i].late) > 0 {
		return // a late flush only costs misses, and can't be prevented
	}
	for _, p := range w.proxies {
		v := p.k.Verdict(i)
		reads := PhaseOf(v.N) == In || PhaseOf(v.N) == Warming || PhaseOf(v.N) == Settling
		if !p.dead && reads && !v.Suspect && w.now < v.ValidUntil {
			w.fail("server %d is flushed while p%d reads from it (%v)", i, p.id, PhaseOf(v.N))
		}
	}
}

// ask sends a request of a keeper.
func (w *world) ask(p *proxy, r Request) {
	if w.asked != nil {
		w.asked(p, r)
	}
	sent := w.now
	ping := strings.HasPrefix(string(r.Line), "mg "+divert.Reserved+"_view__")
	w.send(p, r.Server, int(r.Conn), func(n *node) string { return n.do(r.Line, w.now) },
		func(answer string) {
			if ping && strings.HasPrefix(answer, "VA ") {
				p.pinged[r.Server] = sent
			}
			w.input(p, func() { p.k.Answered(r.ID, []byte(answer), w.now) })
		},
		func(hard bool) {
			why := "timeout"
			if hard {
				why = "refused"
				w.input(p, func() { p.k.ServerFailed(r.Server, true, why, w.now) })
			}
			w.input(p, func() { p.k.Unanswered(r.ID, hard, why, w.now) })
		})
}

// send delivers a request to a server and its reply back. It calls exactly one of ok
// and failed. A hung server executes its requests later.
func (w *world) send(p *proxy, server, id int, do func(*node) string, ok func(string), failed func(hard bool)) {
	life := p.life
	alive := func() bool { return p.life == life && !p.dead }
	c := p.conns[[2]int{server, id}]
	if c == nil {
		c = new(conn)
		p.conns[[2]int{server, id}] = c
	}
	n := w.nodes[server]
	over := false
	end := func(do func()) {
		if !over && alive() {
			over = true
			do()
		}
	}
	w.limits = append(w.limits, event{at: w.now + int64(w.set.Request), do: func() { end(func() { failed(false) }) }})
	run := func() {
		answer := do(n)
		if w.cut[p.id][server] {
			return
		}
		c.reply = max(c.reply+1, w.now+w.latency())
		w.at(c.reply, func() {
			if !w.cut[p.id][server] {
				end(func() { ok(answer) })
			}
		})
	}
	c.arrive++ // requests that are sent together arrive together
	if c.sent != w.now {
		c.sent, c.arrive = w.now, max(c.arrive, w.now+w.latency())
	}
	w.at(c.arrive, func() {
		switch {
		case w.cut[p.id][server]: // the request is lost: the connection is aborted
		case n.down:
			w.after(w.latency(), func() { end(func() { failed(true) }) })
		case n.hung:
			n.late = append(n.late, run)
		default:
			run()
		}
	})
}

func (w *world) latency() int64 { return ms/10 + w.rand.Int64N(ms) }

// wake makes a hung server execute its pending requests, in random order.
func (w *world) wake(i int) {
	n := w.nodes[i]
	n.hung = false
	late := n.late
	w.rand.Shuffle(len(late), func(a, b int) { late[a], late[b] = late[b], late[a] })
	for _, do := range late {
		do()
	}
	n.late = nil
}

// whole returns an error unless all servers are IN for all keepers.
func (w *world) whole() error {
	for _, p := range w.proxies {
		for i := range w.nodes {
			v := p.k.Verdict(i)
			switch {
			case PhaseOf(v.N) != In, v.Suspect:
				return fmt.Errorf("p%d: server %d is %v, suspect %t: %s", p.id, i, PhaseOf(v.N), v.Suspect, v.Step)
			case v.N != w.top[i]:
				return fmt.Errorf("p%d: server %d has %d, others have %d", p.id, i, v.N, w.top[i])
			case v.ValidUntil <= w.now:
				return fmt.Errorf("p%d: server %d is not to be used", p.id, i)
			}
		}
	}
	return nil
}

// settle runs until the pool is whole again.
func (w *world) settle(limit int64) {
	w.t.Helper()
	end := w.now + limit
	for w.whole() != nil && w.now < end {
		w.run(w.now + 100*ms)
	}
	if err := w.whole(); err != nil {
		w.fail("not whole %d s after the last fault: %v", limit/sec, err)
	}
}

// simulate runs a scenario to its end.
func simulate(t testing.TB, s scenario) *world {
	w := newWorld(t, s)
	w.settle(20 * sec)
	w.run(w.now + 3*sec)
	for range s.count {
		w.fault()
		if s.apart == 0 {
			w.run(w.trouble)
			w.settle(120 * sec)
			w.run(w.now + w.rand.Int64N(3*sec))
		} else {
			w.run(w.now + w.rand.Int64N(2*s.apart))
		}
	}
	w.run(max(w.now, w.trouble))
	w.settle(120 * sec)
	w.run(w.now + 3*sec)
	return w
}

// fault draws a fault and schedules its end.
func (w *world) fault() {
	kind := w.faults[w.rand.IntN(len(w.faults))]
	i := w.rand.IntN(cmp.Or(w.targets, len(w.nodes)))
	p := w.proxies[w.rand.IntN(len(w.proxies))]
	lasts := w.rand.Int64N(12 * sec)
	if w.rand.IntN(4) == 0 {
		lasts = w.rand.Int64N(sec)
	}
	if w.long {
		lasts = 8*sec + w.rand.Int64N(4*sec)
	}
	until := w.now + lasts
	w.trouble = max(w.trouble, until)
	w.note("FAULT %s: server %d, p%d, until %.3f", kind, i, p.id, float64(until)/1e9)
	switch kind {
	case "cut": // no proxy reaches the server
		for j := range w.proxies {
			w.cut[j][i] = true
			w.at(until, func() { w.cut[j][i] = false })
		}
	case "links": // some proxies do not reach the server
		for j := range w.proxies {
			if w.rand.IntN(2) == 0 {
				w.cut[j][i] = true
				w.at(until, func() { w.cut[j][i] = false })
			}
		}
	case "alone": // a proxy reaches only one server
		for j := range w.nodes {
			if j != i {
				w.cut[p.id][j] = true
				w.at(until, func() { w.cut[p.id][j] = false })
			}
		}
	case "hang":
		w.nodes[i].hung = true
		w.at(until, func() { w.wake(i) })
	case "kill":
		w.nodes[i].down = true
		w.nodes[i].late = nil
		w.at(until, w.nodes[i].restart)
	case "lose": // a server's record
		delete(w.nodes[i].items, p.k.keys.View)
	case "garble": // a server's record
		w.nodes[i].set(p.k.keys.View, "rs2 something else", 0, w.now)
	case "restart": // a proxy
		p.dead = true
		w.at(until, func() { w.start(p) })
	default:
		panic(kind)
	}
}
