package health

// Several keepers of one pool with their servers, on one clock. Tests cause the faults. Package
// internal/fleet simulates keepers in whole proxies, with clients, and with faults by seed.

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
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
	late    int64     // maximum additional delay of one request in four, because a packet is lost; 0: none
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

	flushes int
	log     []string
	asked   func(p *proxy, r Request) // called for every request of a keeper, if set
	started func(k *Keeper)           // called for every new keeper, if set
}

// proxy is one keeper and its driver.
type proxy struct {
	id     int
	k      *Keeper
	life   int // number of starts; replies to an earlier keeper are dropped
	dead   bool
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
	for range s.pool + s.gutter {
		w.nodes = append(w.nodes, w.newNode())
	}
	for i := range s.proxies {
		w.cut = append(w.cut, make([]bool, len(w.nodes)))
		w.proxies = append(w.proxies, &proxy{id: i})
		w.start(w.proxies[i])
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
	p.conns = make(map[[2]int]*conn)
	p.tickAt = 0
	if w.started != nil {
		w.started(p.k)
	}
	w.input(p, func() { p.k.Tick(w.now) })
}

// input calls do and then sends the requests of the keeper.
func (w *world) input(p *proxy, do func()) {
	do()
	for _, e := range p.k.Events() {
		w.note("p%d server %d: %s -> %s (%s)", p.id, e.Server, e.From, e.To, e.Why)
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

// ask sends a request of a keeper.
func (w *world) ask(p *proxy, r Request) {
	if w.asked != nil {
		w.asked(p, r)
	}
	w.send(p, r.Server, int(r.Conn), func(n *node) string { return n.do(r.Line) },
		func(answer string) { w.input(p, func() { p.k.Answered(r.ID, []byte(answer), w.now) }) },
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
	if w.late > 0 && w.rand.IntN(4) == 0 {
		c.arrive += w.rand.Int64N(w.late)
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
			case v.N != w.proxies[0].k.Verdict(i).N:
				return fmt.Errorf("p%d: server %d has %d, p0 has another number", p.id, i, v.N)
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
