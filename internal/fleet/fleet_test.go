package fleet

// The fleet, its clock and its life.

import (
	"cmp"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"ringside/proxy/health"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/replicate"
)

const (
	milli  = int64(time.Millisecond)
	second = int64(time.Second)
)

// hash is that of keys everywhere here: a seed plays the same each time.
func hash(key []byte) (h uint64) {
	for _, c := range key {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return h >> 7
}

// scenario is what a run is made of. A seed decides the rest.
type scenario struct {
	name     string
	sidecars int // proxies
	engines  int // of each; 0: one
	apps     int // clients of each; 0: three, -1: none
	callers  int // clients of each that count replies: see replies_test.go
	servers  int
	gutter   int  // servers of a pool that stands in; its keys have no other use
	beside   bool // another pool, whose keys nobody asks for, has the same servers

	mode    table.Mode
	strict  bool
	rejoin  health.OnRejoin
	rebuilt bool             // the rule builds its ring anew without the servers that are out
	copies  replicate.Policy // of each key

	faults []string // kinds to draw from, of the faults
	count  int      // of them
	apart  int64    // between the starts of two, about; 0: the next begins when the pool is whole again
	aimed  bool     // all at one server, which also owns all values and locks
	brief  bool     // none lasts a second

	denies bool  // servers refuse flush_all
	far    int64 // how much longer packets of the first proxy take to all servers but the first
	late   int64 // how much longer one packet in 50 from and to the last server takes

	request time.Duration // after which a request counts as unanswered, and a quarter of the deadline; 0: 200 ms
	eject   time.Duration // how long a suspicion lasts that ejects; 0: 600 ms
	errs    bool          // reads that no server could answer get an error

	exact  bool  // no stale hit at all is promised
	loose  bool  // nothing is promised of them: they are only counted
	locks  bool  // nobody else gets a lock that is held, and counters never go back
	logs   int   // keys that are appended to: whatever was acknowledged stands in them once
	keeps  bool  // what was acknowledged is not missed by anybody
	newer  bool  // so it is though a write before it has failed
	undone bool  // so it is though a set on top of it was not
	shown  bool  // nobody reads a value whose writer is then told that it was not stored
	calm   bool  // no fault lasts so long that a server is ejected
	asks   []ask // what clients ask, each as often as it stands here; nil: all sorts of things
	pace   int64 // between two requests of a client, about; 0: 12 ms
	costly bool  // it gets a quarter of the seeds
	cold   int   // keys that are rarely used; 0: 90
	prunes bool  // more of what clients do is to delete
	ablate ablations
	herd   *herd // the route is guarded, and clients rebuild

	again []uint64 // seeds that found a fault once, beside the first ones
}

// fleet is the state of a run.
type fleet struct {
	scenario
	seed   uint64
	rand   *rand.Rand
	now    int64
	events eventHeap
	order  uint64

	nodes    []*node
	paths    [][]*path // by sidecar, node
	sidecars []*sidecar
	apps     []*app
	clients  []*caller
	features *features // of what a reload switches on and off; nil: the scenario says what there is
	trouble  int64     // when the last fault ends
	quiet    bool      // apps begin nothing new
	history
	layout
	won map[string]win // by key, where herds want it

	// grace is how long after its writer was told that it failed a value may be
	// read though it is older than another. The delete behind it is on its way, as
	// long as it was itself: nothing can stop what is under way.
	grace int64

	traced bool
	trace  []traceLine
	broken string // what is wrong, once something is
	tally
}

// tally is what a run has seen.
type tally struct {
	asked, hits, errors, ejected, returned, flushes int

	// raced are reads of what a repair of another proxy has copied while a
	// flush_all was at work on the two copies: from the one that it had not reached
	// yet to the one that it had emptied. No mark covers all keys.
	raced int

	stale []string
}

type traceLine struct {
	about string // a key, or empty: of interest for all
	text  string
}

// note writes a line of the trace. A run has one only when it is run again.
func (f *fleet) note(about, format string, args ...any) {
	if f.traced {
		f.trace = append(f.trace, traceLine{about, fmt.Sprintf("%10.4f ", float64(f.now)/1e9) + fmt.Sprintf(format, args...)})
	}
}

// wrong ends the run: something must never happen. key is what it is about.
func (f *fleet) wrong(key, format string, args ...any) {
	if f.broken == "" {
		f.broken = fmt.Sprintf(format, args...)
		f.note("", "WRONG %s", f.broken)
		f.culprit = key
	}
}

// harmed ends the run: a promise is broken.
func (f *fleet) harmed(h harm, key, format string, args ...any) {
	f.wrong(key, string(h)+": "+format, args...)
}

// event is something that happens at a time. Those of one time happen in the
// order in which they were planned.
type event struct {
	at    int64
	order uint64
	do    func()
}

func (a *event) before(b *event) bool { return a.at < b.at || a.at == b.at && a.order < b.order }

// eventHeap is a binary heap.
type eventHeap []event

func (h *eventHeap) push(e event) {
	*h = append(*h, e)
	q := *h
	for i := len(q) - 1; i > 0; {
		up := (i - 1) / 2
		if !q[i].before(&q[up]) {
			return
		}
		q[i], q[up] = q[up], q[i]
		i = up
	}
}

func (h *eventHeap) pop() event {
	q := *h
	first, n := q[0], len(q)-1
	q[0], q[n] = q[n], event{}
	q = q[:n]
	*h = q
	for i := 0; ; {
		down := 2*i + 1
		if down >= n {
			return first
		}
		if down+1 < n && q[down+1].before(&q[down]) {
			down++
		}
		if !q[down].before(&q[i]) {
			return first
		}
		q[i], q[down] = q[down], q[i]
		i = down
	}
}

func (f *fleet) at(at int64, do func()) {
	f.order++
	f.events.push(event{max(at, f.now), f.order, do})
}

func (f *fleet) after(d int64, do func()) { f.at(f.now+d, do) }

// upTo is a random time below limit.
func (f *fleet) upTo(limit int64) int64 { return f.rand.Int64N(max(limit, 1)) }

func (f *fleet) one(in int) bool { return f.rand.IntN(in) == 0 }

// run plays until a time, or until something is wrong.
func (f *fleet) run(until int64) {
	for len(f.events) > 0 && f.events[0].at <= until && f.broken == "" {
		e := f.events.pop()
		f.now = e.at
		e.do()
	}
	f.now = max(f.now, until)
}

// newFleet makes a fleet that has not begun.
func newFleet(c scenario, seed uint64, traced bool) (f *fleet) {
	c.engines = cmp.Or(c.engines, 1)
	c.apps = cmp.Or(c.apps, 3)
	c.cold = cmp.Or(c.cold, 90)
	c.pace = cmp.Or(c.pace, 12*milli)
	c.request = cmp.Or(c.request, 200*time.Millisecond)
	c.eject = cmp.Or(c.eject, 600*time.Millisecond)
	f = &fleet{scenario: c, seed: seed, traced: traced, now: second, rand: rand.New(rand.NewPCG(seed, 1)), won: map[string]win{}}
	f.layout = layout{gone: -1}
	f.grace = 10*milli + c.far
	if slices.Contains(c.faults, "slow") {
		f.grace += 2 * slowed
	}
	if c.callers > 0 {
		f.features = f.drawFeatures()
	}
	for i := range c.servers + c.gutter {
		f.nodes = append(f.nodes, f.newNode(i))
	}
	f.layKeys()
	for i := range c.sidecars {
		var row []*path
		for j := range f.nodes {
			p := &path{f: f}
			if i == 0 && j > 0 {
				p.slow = c.far
			}
			if j == c.servers-1 {
				p.late = c.late
			}
			row = append(row, p)
		}
		f.paths = append(f.paths, row)
		s := &sidecar{f: f, id: i, skew: f.rand.Int64N(91) - 45}
		f.sidecars = append(f.sidecars, s)
		s.start()
		for j := range c.apps {
			f.apps = append(f.apps, f.newApp(s, j))
		}
		for j := range c.callers {
			f.clients = append(f.clients, f.newCaller(s, j))
		}
	}
	return f
}

// simulate plays one run to its end.
func simulate(c scenario, seed uint64, traced bool) (f *fleet) {
	f = newFleet(c, seed, traced)
	defer func() {
		if r := recover(); r != nil {
			f.wrong("", "panic: %v\n%s", r, debug.Stack())
		}
	}()
	f.settle("at the start", 30*second)
	f.run(f.now + second)
	for range f.count {
		f.fault()
		if f.apart == 0 {
			for f.now < f.trouble+second && f.broken == "" { // by then everybody has noticed
				f.run(f.trouble + second)
			}
			f.settle("after a fault", settleLimit)
			f.run(f.now + f.upTo(second))
		} else {
			f.run(f.now + f.upTo(2*f.apart))
		}
	}
	f.run(max(f.now, f.trouble))
	f.settle("after the last fault", settleLimit)
	f.run(f.now + second)
	f.finish()
	return f
}

// settleLimit is how long after the last fault everything must work again. A
// server can go through all phases twice in that time: WAITs, votes and a minute of WARM.
const settleLimit = 130 * second

// settle plays until the pool is whole.
func (f *fleet) settle(when string, limit int64) {
	for end := f.now + limit; f.now < end && f.broken == "" && f.whole() != ""; {
		f.run(f.now + 100*milli)
	}
	if why := f.whole(); why != "" && f.broken == "" {
		f.wrong("", "not whole %s, %d s later: %s", when, limit/second, why)
	}
}

// whole says why not everything is as it should be when nothing is broken.
func (f *fleet) whole() string {
	top := make([]uint32, 2*len(f.nodes)) // there may be two pools
	sums := make([]*stats.Snapshot, len(f.sidecars))
	for i, s := range f.sidecars {
		sums[i] = s.snapshot()
		for j, m := range sums[i].Members {
			top[j] = max(top[j], m.Number)
		}
	}
	for i, s := range f.sidecars {
		for at, l := range sums[i].Lacks {
			if (f.keeps || f.logs > 0 || f.edition > 0) && l.Filling { // what one copy has alone may be lost by the next fault
				return fmt.Sprintf("p%d: %v is not filled", s.id, at)
			}
		}
		for j, m := range sums[i].Members {
			switch {
			case m.Phase != health.In || m.Suspect:
				return fmt.Sprintf("p%d: server %d is %v, suspect %v: %s", s.id, j, m.Phase, m.Suspect, m.Step)
			case m.Number != top[j]:
				return fmt.Sprintf("p%d: server %d has %d, others have %d", s.id, j, m.Number, top[j])
			case m.ValidFor <= 0:
				return fmt.Sprintf("p%d: server %d is not to be used", s.id, j)
			}
		}
		for _, n := range f.nodes {
			if srv := sums[i].Servers["tcp "+n.name]; srv != nil && srv.Down > 0 {
				return fmt.Sprintf("p%d: %s", s.id, srv.Why)
			}
		}
	}
	return ""
}

// pings is how many bytes the pings take at most that are under way.
const pings = 16 << 10

// finish lets everybody have what was asked, uses every key once more, and
// looks at what is left.
func (f *fleet) finish() {
	f.quiet = true
	f.run(f.now + 5*second)
	f.endure()
	for _, a := range f.apps {
		a.prove()
	}
	f.run(f.now + 5*second)
	for _, a := range f.apps {
		if f.broken == "" && (a.op != nil || a.proofs != 0) {
			f.wrong("", "a%d does not get through: %d proofs are missing", a.id, a.proofs)
		}
		a.leave()
	}
	f.run(f.now + 70*second) // lingering connections, marks and late answers end
	for _, s := range f.sidecars {
		sum := s.snapshot()
		if used := sum.Memory - sum.Kept; f.broken == "" && used > s.memory+pings {
			f.wrong("", "p%d holds %d bytes, %d when nothing goes on but pings, of at most %d", s.id, used, s.memory, pings)
		}
		if f.broken == "" && (sum.Clients > 0 || sum.Parked > 0 || sum.Lines > 0) {
			f.wrong("", "p%d: %d clients, %d parked writes and %d lines of writes are left", s.id, sum.Clients, sum.Parked, sum.Lines)
		}
		s.count()
	}
}

// noteLog writes what engines log into the trace.
type noteLog struct{ s *sidecar }

func (s *sidecar) logger() *slog.Logger {
	if !s.f.traced {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(noteLog{s}, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
			return slog.Attr{}
		}
		return a
	}}))
}

func (l noteLog) Write(b []byte) (int, error) {
	l.s.f.note("", "p%d %s", l.s.id, strings.TrimPrefix(strings.TrimSpace(string(b)), "msg="))
	return len(b), nil
}

// play runs a case with many seeds. One that fails is run again with a
// trace.
func play(t *testing.T, c scenario, from, to uint64) {
	t.Helper()
	var sum tally
	for seed := from; seed < to; seed++ {
		f := simulate(c, seed, false)
		if f.broken == "" && c.exact && len(f.stale) > 0 {
			f.broken = f.stale[0]
		}
		if f.broken != "" {
			t.Fatalf("%s", retrace(c, seed, f.broken))
		}
		sum.add(&f.tally)
	}
	t.Logf("%d requests, %d hits, %d errors, %d ejections, %d returns, %d flushes, %d stale, %d undone by repairs",
		sum.asked, sum.hits, sum.errors, sum.ejected, sum.returned, sum.flushes, len(sum.stale), sum.raced)
	if (c.mode != table.FailFast || c.copies.Copies > 0) && !c.calm && sum.ejected == 0 && to-from > 4 {
		t.Error("nothing was ever ejected: the runs show nothing")
	}
}

func (s *tally) add(o *tally) {
	s.asked += o.asked
	s.hits += o.hits
	s.errors += o.errors
	s.ejected += o.ejected
	s.returned += o.returned
	s.flushes += o.flushes
	s.raced += o.raced
	s.stale = append(s.stale, o.stale...)
}

// retrace runs a seed again and tells what led to what is wrong.
func retrace(c scenario, seed uint64, broken string) string {
	f := simulate(c, seed, true)
	var lines []string
	for _, l := range f.trace {
		if l.about == "" || l.about == f.culprit {
			lines = append(lines, l.text)
		}
	}
	if len(lines) > *traceLines {
		lines = lines[len(lines)-*traceLines:]
	}
	again := cmp.Or(f.broken, strings.Join(f.stale[:min(1, len(f.stale))], ""))
	if again != broken {
		lines = append(lines, "THE SECOND RUN WAS NOT THE SAME: "+again)
	}
	return fmt.Sprintf("%s\n%s, seed %d: %s", strings.Join(lines, "\n"), c.name, seed, broken)
}
