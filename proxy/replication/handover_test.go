package replication

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"ringside/proxy/health/barrier"
)

const (
	perPing  = 4  // ticks
	deadline = 25 // ticks
	plays    = 3000
)

// memcached simulates a server that stores a view record. Its fields are the content
// of the record.
type memcached struct {
	table    int
	n        uint32
	hungTill int64
	formers  [4]item // by table
}

// item simulates an item with former lists.
type item struct {
	reached uint32 // barrier.Reached; 0: there is no item
	serving int    // the table by which keys are served
}

// ringside simulates one of several instances, which get one routing table after
// another and ping all servers.
type ringside struct {
	barrier.Barrier
	h                                                  *handover
	table                                              int
	next                                               []int // tables that it will get later
	foreignUntil                                       int64
	pingAt, seen                                       []int64 // by server: time of the next ping, and of the last answered one
	takeAt                                             []int64
	wrote                                              [4]int64 // by table: when it last wrote by that table
	waits, followsNobody, knowsAtOnce, sure, undecided bool
	forgets, jumps                                     bool // when it is started again: forgets: it does not read the former lists; jumps: it does not begin with Waiting
	bare, hurries, hasty                               bool // bare: its keys are not replicated; hurries: a bare instance takes part all the same; hasty: it does not wait for commands to end
}

// take applies the next table, unless it must wait.
func (r *ringside) take(now int64) {
	if len(r.next) == 0 || r.waits && !r.Open() && !r.bare {
		return
	}
	r.h, _ = newHandover(&arrangement{Print: fmt.Sprint(r.table), hash: uint64(r.table)}, r.h)
	r.table, r.next = r.next[0], r.next[1:]
	b := barrier.New(len(r.Held))
	b.Status = r.Status
	r.Barrier = b
	if r.hurries && r.bare {
		r.Arrangement = barrier.None + 1
	}
	clear(r.takeAt)
	r.arrange(now)
}

// requires returns the hash of the arrangement by r's table.
func (r *ringside) requires() uint64 { return barrier.None + uint64(r.table) }

// arrange passes the table to the keeper of the instance, if the instance keeps
// replicas.
func (r *ringside) arrange(now int64) {
	if r.bare {
		return
	}
	var o barrier.Published
	if o.Arrange(r.requires(), deadline, false); r.hasty {
		o.Arrange(r.requires(), 0, false)
	}
	o.Tell(&r.Barrier, uint64(r.table), now)
}

// ping reads the record of a server, and overwrites it.
func (r *ringside) ping(i int, s *memcached, now int64) {
	if now < s.hungTill {
		return
	}
	r.seen[i] = now
	same := s.table == r.table
	if !same {
		r.foreignUntil = now + 20*perPing
	}
	if !r.followsNobody {
		r.Read(s.n, uint64(s.table), same, now)
	}
	if same && s.n < r.N || !same && now >= r.takeAt[i] {
		s.table, s.n, r.takeAt[i] = r.table, r.N, now+5*perPing
	}
	if !r.bare && r.h != nil {
		last := r.h.Serving
		if last == nil {
			last = r.h.Formers[len(r.h.Formers)-1]
		}
		s.formers[r.table] = item{r.Reached(), int(last.hash)}
	}
	r.Hold(i, s.table == r.table && (s.n == r.N || r.followsNobody), now)
}

// restart ends the process, and starts it again with its table. It reads the records and the former lists of the servers that reply.
func (r *ringside) restart(servers []memcached, now int64) {
	r.Barrier, r.h, r.foreignUntil = barrier.New(len(servers)), nil, 0
	clear(r.takeAt)
	r.arrange(now)
	former := item{}
	for i := range servers {
		if s := &servers[i]; now >= s.hungTill {
			r.Read(s.n, uint64(s.table), s.table == r.table, now)
			if f := s.formers[r.table]; f.reached > former.reached {
				former = f
			}
		}
	}
	if former.reached == 0 || r.forgets {
		return
	}
	if !r.jumps {
		r.Learn(former.reached, uint64(r.table), now)
	}
	before := &arrangement{Print: fmt.Sprint(former.serving), hash: uint64(former.serving)}
	r.h = &handover{Formers: []*arrangement{before}, Serving: before}
}

// stores reports whether the former lists of the instance are on a server that replies. It stores them at once after a reload.
func (r *ringside) stores(servers []memcached, now int64) bool {
	return slices.ContainsFunc(servers, func(s memcached) bool { return now >= s.hungTill && s.formers[r.table].reached != 0 })
}

func (r *ringside) step(servers []memcached, random *rand.Rand, now int64) {
	for i := range servers {
		if now >= r.pingAt[i] {
			r.pingAt[i] = now + perPing - 1 + random.Int64N(3)
			if barrier.Of(r.N) >= barrier.Pausing {
				r.pingAt[i] = now + 1
			}
			r.ping(i, &servers[i], now)
		}
	}
	stood := func() bool {
		for i, held := range r.Held {
			if now >= servers[i].hungTill && (held == 0 || r.seen[i] < held+2*perPing) && !r.knowsAtOnce {
				return false
			}
		}
		return now >= r.Since+2*perPing || r.knowsAtOnce
	}
	r.Step(uint64(r.table), now, now >= r.foreignUntil || r.sure && barrier.Of(r.N) == barrier.Pausing, stood, perPing)
	if r.undecided && barrier.Of(r.N) == barrier.Decided {
		r.Step(uint64(r.table), now+deadline, true, func() bool { return true }, perPing)
	}
	if r.h != nil {
		r.h.Proceed([]barrier.Stage{r.Stage(r.requires())}, false)
	}
	if by := r.writesBy(); by != 0 {
		r.wrote[by] = now
	}
}

// writesBy returns the table by which it writes keys that move; 0: it does not write
// them.
func (r *ringside) writesBy() (n int) {
	switch {
	case r.bare:
		return 0
	case r.h == nil || r.h.Moving():
		return r.table
	case r.h.Pauses():
		return 0
	}
	return int(r.h.Serving.hash)
}

// differ simulates instances that get table 2 and then table 3, while servers hang, and instances are started again. It
// returns when two instances write by different tables, or one does within the
// deadline of the other's last write; 0: never. through reports whether all instances
// reached the last table.
func differ(seed uint64, leave func(r *ringside)) (at int64, through bool) {
	random := rand.New(rand.NewPCG(seed, 2))
	servers := slices.Repeat([]memcached{{table: 1}}, 3)
	sides := make([]*ringside, 3)
	gets := make([][2]int64, 3)
	begin, again := 3+random.Int64N(40), random.Int64N(500)
	for i := range sides {
		sides[i] = &ringside{Barrier: barrier.New(len(servers)), table: 1, waits: true, pingAt: make([]int64, 3), seen: make([]int64, 3), takeAt: make([]int64, 3), bare: i == 2 && seed%2 == 1}
		sides[i].arrange(0)
		leave(sides[i])
		gets[i][0] = begin + random.Int64N(10)
		gets[i][1] = max(gets[i][0]+1, begin+again+random.Int64N(20))
	}
	for now := int64(1); now < 1500; now++ {
		if random.IntN(60) == 0 && !slices.ContainsFunc(servers, func(s memcached) bool { return now < s.hungTill+perPing }) {
			servers[random.IntN(len(servers))].hungTill = now + random.Int64N(120)
		}
		for i, r := range sides {
			for n, at := range gets[i] {
				if now == at {
					r.next = append(r.next, n+2)
				}
			}
			if r.take(now); !r.bare && r.stores(servers, now) && now < 800 && random.IntN(150) == 0 {
				r.restart(servers, now)
			}
			r.step(servers, random, now)
		}
		arrived := 0
		for _, a := range sides {
			if a.bare || a.table == 3 && a.h.Moving() {
				arrived++
			}
			for _, b := range sides {
				for table, at := range b.wrote {
					if by := a.writesBy(); by != 0 && by != table && at != 0 && now < at+deadline {
						return now, true
					}
				}
			}
		}
		if arrived == len(sides) {
			return 0, true
		}
	}
	return 0, false
}

// TestTableAfterTable checks that no two instances ever write by different routing
// tables at the same time. This must hold for any times at which the instances get a
// new table, and for any record that a server has when it replies again after an
// outage. Each case leaves out one rule of the protocol; then the test must find a
// violation.
func TestTableAfterTable(t *testing.T) {
	for _, c := range []struct {
		rule  string
		leave func(r *ringside)
	}{
		{"", func(*ringside) {}},
		{"a table that comes in the midst waits", func(r *ringside) { r.waits = false }},
		{"who has read of the next stage goes there", func(r *ringside) { r.followsNobody = true }},
		{"a stage stands for a WAIT", func(r *ringside) { r.knowsAtOnce = true }},
		{"who sees another list in the pause lets all wait", func(r *ringside) { r.sure = true }},
		{"a pause is decided to end", func(r *ringside) { r.undecided = true }},
		{"a pause lasts as long as a command", func(r *ringside) { r.hasty = true }},
		{"who is started again reads the former lists", func(r *ringside) { r.forgets = true }},
		{"who is started again begins with the stage of the others, or waits", func(r *ringside) { r.jumps = true }},
		{"who keeps no replicas takes no step", func(r *ringside) { r.hurries = true }},
	} {
		broken := false
		for seed := uint64(0); seed < plays && !broken; seed++ {
			at, through := differ(seed, c.leave)
			switch broken = at != 0; {
			case broken && c.rule == "":
				t.Fatalf("seed %d: they write by different tables at %d", seed, at)
			case !through:
				t.Fatalf("seed %d: they don't come to the last table", seed)
			case broken:
				t.Logf("without %q seed %d breaks", c.rule, seed)
			}
		}
		if c.rule != "" && !broken {
			t.Errorf("it is not found out that %s", c.rule)
		}
	}
}

// TestPools checks that a pool that is done early, for example because its servers are
// unchanged, does not start the pause while another pool waits.
func TestPools(t *testing.T) {
	h, _ := newHandover(&arrangement{Print: "a"}, nil)
	for _, c := range []struct {
		pools          []barrier.Stage
		pauses, moving bool
	}{
		{[]barrier.Stage{barrier.Waiting, barrier.Waiting}, false, false},
		{[]barrier.Stage{barrier.Waiting, barrier.Done}, false, false},
		{[]barrier.Stage{barrier.Pausing, barrier.Done}, true, false},
		{[]barrier.Stage{barrier.Waiting, barrier.Done}, false, false},
		{[]barrier.Stage{barrier.Decided, barrier.Done}, true, false},
		{[]barrier.Stage{barrier.Done, barrier.Done}, false, true},
		{[]barrier.Stage{barrier.Waiting, barrier.Done}, false, true},
	} {
		h.Proceed(c.pools, false)
		if h.Pauses() != c.pauses || h.Moving() != c.moving {
			t.Errorf("%v: pauses %v, moving %v", c.pools, h.Pauses(), h.Moving())
		}
	}
}
