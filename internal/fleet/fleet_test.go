package fleet

// The fleet, its clock and its life cycle.

import (
	"cmp"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"ringside/proxy/health"
	"ringside/proxy/health/resize"
	"ringside/proxy/link"
	"ringside/proxy/stats"
	"ringside/proxy/table"
	"ringside/replicate"
)

const (
	milli  = int64(time.Millisecond)
	second = int64(time.Second)
)

// hash replaces the hash of keys everywhere, so that a seed is reproducible.
func hash(key []byte) (h uint64) {
	for _, c := range key {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return h >> 7
}

// scenario describes a run. A seed decides the rest.
type scenario struct {
	name        string
	sidecars    int // proxies
	engines     int // engines of each proxy; 0: one
	apps        int // clients of each proxy; 0: three, -1: none
	callers     int // clients of each proxy that count replies: see replies_test.go
	servers     int
	others      bool   // there are as many servers in addition, which replace the others at once: layout.replaced
	wrongFormer bool   // the list in warm_from lacks a former server
	formerName  string // name of the pool in warm_from; empty: one that no instance has used
	spare       int    // number of nodes to which the first server can move: layout.at
	fill        bool   // there are as many servers in addition, which have a value of each key: the pool fills from them
	gutter      int    // number of servers in the gutter pool, which store no other keys; 0: no gutter
	beside      bool   // a second pool without requests has the same servers

	mode    table.Mode
	strict  bool
	rejoin  health.OnRejoin
	resize  table.ResizeMode
	usual   bool             // the mode of resize is a default: table.Pool.ResizeUsual
	rate    int              // how many keys a resize moves from a server in a second; 0: the default
	rebuilt bool             // the placement rule builds its ring without the servers that are out
	copies  replicate.Policy // replication policy of each key

	bare      bool   // routes have no features, and engines are checked: see pipelines_test.go
	resizes   bool   // reloads that switch features also change the servers, one change after the other
	steady    bool   // there are no reloads while replies are counted
	narrow    bool   // one server, few keys and small values, so that clients notice late requests
	decisions []byte // what a fuzzer decides

	faults []string // kinds of faults to choose from
	count  int      // number of faults
	apart  int64    // average time between the starts of two faults; 0: the next one starts when the pool is whole again
	aimed  bool     // all faults hit one server, which also owns all values and locks
	brief  bool     // no fault lasts a second

	denies   bool  // servers reject flush_all
	remember bool  // servers have restartable memory: a new process has the items of the last one. Proxies list themselves
	unlike   bool  // the last proxy is not strict, and pings more often
	older    bool  // the last proxy is of a release without announcements of a pause
	rash     bool  // the last proxy does not coordinate changes of the servers
	far      int64 // additional delay of the first proxy's packets to all servers but the first
	late     int64 // additional delay of one packet in 50 from and to the last server

	request time.Duration // request timeout, and a quarter of the deadline; 0: 200 ms
	eject   time.Duration // duration of a suspicion after which a server is ejected; 0: 600 ms
	restart time.Duration // the same for a server with restartable memory; 0: as eject
	errs    bool          // a read that no server could answer gets an error

	exact   bool  // promise: no stale hit at all
	loose   bool  // stale hits are allowed and only counted
	locks   bool  // promise: a lock has one holder, and counters never go back
	logs    int   // number of keys that are appended to; promise: they contain every acknowledged part exactly once
	keeps   bool  // promise: no acknowledged value is missed
	newer   bool  // keeps is also promised if an earlier write has failed
	stays   bool  // promise: no acknowledged value is missed twice
	few     bool  // promise: of the reads of acknowledged values, at most one in twenty misses
	serves  bool  // promise: no instance lacks the list of servers in force
	undone  bool  // keeps is also promised if a later set has failed
	shown   bool  // promise: no client reads a value if its writer gets the reply that nothing was stored
	calm    bool  // no fault lasts long enough for an ejection
	asks    []ask // requests to choose from, weighted by repetition; nil: all kinds
	pace    int64 // average time between two requests of a client; 0: 12 ms
	costly  bool  // it gets a quarter of the seeds
	full    bool  // it runs only in the full tier, and with a given number of seeds
	cold    int   // number of rarely used keys; 0: 90
	prunes  bool  // more of the requests are deletes
	ablate  ablations
	herd    *herd                // the route is guarded, and clients rebuild
	slack   int64                // promise: a value that a read returns was replaced at most so long before the read
	feature func(r *table.Route) // adds features to the route; nil: none

	again []uint64 // further seeds that once found a fault
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
	paths    [][]*path // by sidecar and node
	sidecars []*sidecar
	apps     []*app
	clients  []*caller
	features *features      // what reloads switch on and off; nil: the scenario decides
	moments  map[string]int // how often a reload has begun while something was in progress
	owned    []*ownKey      // keys that one caller writes
	text     bool           // no caller of a bare fleet uses the binary protocol
	old      bool           // some connections to servers have no meta commands
	aborted  int            // callers whose connections were aborted
	cut      int            // callers whose connections were closed inside a value
	silent   int64          // until when callers send nothing
	trouble  int64          // when the last fault ends
	quiet    bool           // apps send no new requests
	history
	layout
	won   map[string]win         // by key, used by herds
	lists map[string]*table.List // lists of servers by their texts

	top      []uint32 // highest phase number of each server at any keeper
	flushing int64    // until when a client's flush_all may run

	// grace is how long a value may still be read after its writer was told that it
	// failed, although the value is older than another one. The late delete that
	// removes it is in flight, and may take as long as the write itself. Requests in
	// flight can't be stopped.
	grace int64

	sum  *xxhash.Digest // see digest
	head []byte         // scratch of digest

	traced bool
	trace  []traceLine
	broken string // the first violation; empty: none
	tally
}

// tally counts what happened in a run.
type tally struct {
	asked, hits, gaps, errors, ejected, returned, flushes int

	turned int // number of runs in which a change of servers was reversed while keys moved

	// raced counts reads of a value that another proxy's repair has copied during a
	// flush_all. The repair read it from a replica that was not flushed yet, and stored
	// it on one that was already empty. No tombstone covers all keys.
	raced int

	stale []string
}

type traceLine struct {
	about string // a key; empty: relevant for all keys
	text  string
}

// note adds a line to the trace. There is a trace only when a run is repeated.
func (f *fleet) note(about, format string, args ...any) {
	if f.traced {
		f.trace = append(f.trace, traceLine{about, fmt.Sprintf("%10.4f ", float64(f.now)/1e9) + fmt.Sprintf(format, args...)})
	}
}

// digest adds an effect of a proxy to the digest of the run: its time, its peer, and the
// bytes that the proxy writes. Log texts are not part of it. So two versions of the code
// with the same digest behave in the same way. The tests print it for each case with -v.
func (d *driver) digest(x link.Effect) {
	f := d.f
	head := strconv.AppendInt(f.head[:0], f.now, 10)
	head = strconv.AppendInt(append(head, " p"...), int64(d.s.id), 10)
	head = strconv.AppendInt(append(head, ' '), int64(x.Kind), 10)
	head = append(strconv.AppendBool(append(head, ' '), x.Link.Sock != nil), ' ')
	f.head = head
	f.sum.Write(head)
	if x.Link.Sock == nil || x.Kind != link.Write {
		return
	}
	f.sum.WriteString(x.Link.Sock.Peer())
	d.spans = x.Link.Pending(d.spans[:0])
	for _, b := range d.spans {
		f.sum.Write(b)
	}
}

// wrong ends the run because of a violation. key is the affected key.
func (f *fleet) wrong(key, format string, args ...any) {
	if f.broken == "" {
		f.broken = fmt.Sprintf(format, args...)
		f.note("", "WRONG %s", f.broken)
		f.culprit = key
	}
}

// harmed ends the run because a promise is broken.
func (f *fleet) harmed(h harm, key, format string, args ...any) {
	f.wrong(key, string(h)+": "+format, args...)
}

// event happens at a time. Events of the same time happen in the order in which they
// were scheduled.
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

// upTo returns a random time below limit.
func (f *fleet) upTo(limit int64) int64 { return f.rand.Int64N(max(limit, 1)) }

func (f *fleet) one(in int) bool { return f.rand.IntN(in) == 0 }

// run processes events until a time, or until there is a violation.
func (f *fleet) run(until int64) {
	for len(f.events) > 0 && f.events[0].at <= until && f.broken == "" {
		e := f.events.pop()
		f.now = e.at
		e.do()
	}
	f.now = max(f.now, until)
}

// newFleet returns a fleet that has not started.
func newFleet(c scenario, seed uint64, traced bool) (f *fleet) {
	c.engines = cmp.Or(c.engines, 1)
	c.apps = cmp.Or(c.apps, 3)
	c.cold = cmp.Or(c.cold, 90)
	c.pace = cmp.Or(c.pace, 12*milli)
	c.request = cmp.Or(c.request, 200*time.Millisecond)
	c.eject = cmp.Or(c.eject, 600*time.Millisecond)
	f = &fleet{scenario: c, seed: seed, traced: traced, now: second, rand: rand.New(&decisions{c.decisions, *rand.NewPCG(seed, 1)}), sum: xxhash.New(), won: map[string]win{}, moments: map[string]int{}, lists: map[string]*table.List{}}
	f.layout = layout{gone: -1}
	f.grace = 10*milli + c.far
	if slices.Contains(c.faults, "slow") {
		f.grace += 2 * slowed
	}
	if c.bare {
		f.text = f.one(2)
		f.old = f.text && f.one(3)
	}
	if c.callers > 0 {
		f.features = f.drawFeatures()
	}
	nodes := c.servers + c.gutter + c.spare
	if c.others || c.fill {
		nodes += c.servers
	}
	for i := range nodes {
		f.nodes = append(f.nodes, f.newNode(i))
	}
	f.layKeys()
	f.fillSource()
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

// simulate runs one simulation to its end.
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
			for f.now < f.trouble+second && f.broken == "" { // by then all proxies have noticed
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

// settleLimit is the time after the last fault within which everything must work again.
// It allows a server to go through all phases twice: WAITs, votes and a minute of WARM.
const settleLimit = 130 * second

// settle runs until the pool is whole.
func (f *fleet) settle(when string, limit int64) {
	for end := f.now + limit; f.now < end && f.broken == "" && f.whole() != ""; {
		f.run(f.now + 100*milli)
	}
	if why := f.whole(); why != "" && f.broken == "" {
		f.wrong("", "not whole %s, %d s later: %s", when, limit/second, why)
	}
}

// whole returns why the fleet is not in its fault-free state, or "" if it is.
func (f *fleet) whole() string {
	top := make([]uint32, 2*len(f.nodes)) // there may be two pools
	phases := make([][]stats.PhaseSnapshot, len(f.sidecars))
	for i, s := range f.sidecars {
		phases[i] = s.phases()
		for j, m := range phases[i] {
			top[j] = max(top[j], m.Number)
		}
	}
	for i, s := range f.sidecars {
		for j, m := range phases[i] {
			switch {
			case m.Phase != health.In || m.Suspect:
				return fmt.Sprintf("p%d: server %d is %v, suspect %v: %s", s.id, j, m.Phase, m.Suspect, m.Step)
			case m.Number != top[j]:
				return fmt.Sprintf("p%d: server %d has %d, others have %d", s.id, j, m.Number, top[j])
			case m.ValidFor <= 0:
				return fmt.Sprintf("p%d: server %d is not to be used", s.id, j)
			}
		}
	}
	for _, s := range f.sidecars {
		sum := s.snapshot()
		for at, l := range sum.Lacks {
			if (f.keeps || f.logs > 0 || f.edition > 0) && l.Filling { // the next fault could destroy the only replica
				return fmt.Sprintf("p%d: %v is not filled", s.id, at)
			}
		}
		for _, n := range f.nodes {
			if srv := sum.Servers["tcp "+n.name]; srv != nil && srv.Down > 0 {
				return fmt.Sprintf("p%d: %s", s.id, srv.Why)
			}
		}
	}
	return ""
}

// pings is the maximum size in bytes of pings in flight.
const pings = 16 << 10

// finish lets all requests complete, uses every key once more, and checks what is left.
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
	f.run(f.now + 70*second) // lingering connections, tombstones and late replies end
	for _, s := range f.sidecars {
		for _, w := range s.p.Agents() {
			if is := w.View.Resize(); f.broken == "" && is.Mine != 0 && (is.Serves() != resize.All || is.Mine != is.Wish) {
				f.wrong("", "p%d has not ended the change of its servers: %+v", s.id, is)
			}
		}
		sum := s.snapshot()
		if used := sum.Memory - sum.Kept; f.broken == "" && used > s.memory+pings {
			f.wrong("", "p%d holds %d bytes, %d when nothing goes on but pings, of at most %d", s.id, used, s.memory, pings)
		}
		if f.broken == "" && (sum.Clients > 0 || sum.Parked > 0 || sum.Lines > 0) {
			f.wrong("", "p%d: %d clients, %d parked writes and %d lines of writes are left", s.id, sum.Clients, sum.Parked, sum.Lines)
		}
		s.count()
	}
	if hits := max(f.hits, 1); f.few && f.gaps*20 > hits && f.broken == "" {
		f.wrong("", "%d reads have missed an acknowledged value, and %d have found one", f.gaps, hits)
	}
	if f.stays && f.flushes > 0 && f.broken == "" {
		f.wrong("", "a server was flushed")
	}
}

// noteLog writes the engines' logs to the trace.
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

// play runs a case with many seeds. A failed seed is repeated with a trace.
func play(t *testing.T, c scenario, from, to uint64) {
	t.Helper()
	var sum tally
	digest := xxhash.New()
	for seed := from; seed < to; seed++ {
		f := simulate(c, seed, false)
		if f.broken == "" && c.exact && len(f.stale) > 0 {
			f.broken = f.stale[0]
		}
		if f.broken != "" {
			t.Fatalf("%s", retrace(c, seed, f.broken))
		}
		sum.add(&f.tally)
		digest.Write(f.sum.Sum(nil))
	}
	t.Logf("%d requests, %d hits, %d errors, %d ejections, %d returns, %d flushes, %d stale, %d undone by repairs, digest %016x",
		sum.asked, sum.hits, sum.errors, sum.ejected, sum.returned, sum.flushes, len(sum.stale), sum.raced, digest.Sum64())
	if len(c.faults) > 0 && strings.HasPrefix(c.faults[0], "resize, turn") && sum.turned == 0 {
		t.Error("no change was reversed: the runs show nothing")
	}
	if (c.mode != table.FailFast || c.copies.Copies > 0) && !c.calm && c.restart == 0 && sum.ejected == 0 && to-from > 4 {
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
	s.turned += o.turned
	s.raced += o.raced
	s.stale = append(s.stale, o.stale...)
}

// retrace repeats a seed and returns the trace of the violation.
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
