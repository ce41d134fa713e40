package guard

// This file runs the rule in every interleaving of small configurations, breadth
// first. A configuration has one key, one server with cas, placeholders, expiry and
// restarts, one or two instances, and up to three client threads. Sending, executing
// and answering a command are separate steps. Each state is checked against the
// guarantees of doc.go. Each mutant of the rule must break the guarantee that it is
// named with.

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"testing"

	"ringside/internal/testenv"
)

// config is one configuration to explore.
type config struct {
	name      string
	threads   []int // the connection of each thread
	instances []int // the instance of each connection
	declared  bool  // connections are declared shared
	afterMiss bool
	pooled    bool
	pool      bool // a thread uses any connection of its instance
	anywhere  bool // if pool: of any instance
	onlyFirst bool // only the first thread sends gets
	short     bool // a connection ends after each command

	cycles                                                       uint8 // number of gets of each thread
	writers                                                      uint8 // bit i: thread i also writes
	deletes, restarts, expiries, ticks, errors, losses, closings uint8
	adds, replaces                                               bool
	ownDeletes                                                   bool
	changes                                                      uint8 // commands other than sets that change the item or create it, like ma with N

	noG2 bool // the configuration does not guarantee G2
	noG3 bool
	full bool // runs in the full tier only

	mutant mutant
}

type mutant struct {
	decide                                                        func(s Scope, e KeyMisses, ev Event) (KeyMisses, Act, uint64)
	answersStored, removes, lateFree, errorFree, keepCas, ownFree bool
}

// The states of a thread.
const (
	idle     = iota
	sent     // sent to the server
	getWaits // a get that waits
	executed // executed, without a reply to the client yet
	waiting  // a set that waits for another one
)

// The commands.
const (
	get = iota
	set
	add
	replace
	del
	change
)

type thread struct {
	state, op, conn uint8
	want            bool  // it has a miss, and has not set the key yet
	ver             uint8 // version of the data source that it has read
	cycles          uint8

	bound, life uint8 // of a set: the cas sent with it; life of the server when it was sent
	boundLife   uint8 // life of the server that the cas belongs to

	ok        bool // the reply: a value, or STORED
	cas       uint8
	gone, won bool
	seq       uint8
	caused    bool // a delete or write has happened since the get was executed

	floor uint8    // oldest value, by its number, that the get may return
	bars  [3]uint8 // oldest data that a rebuild returned by the get may have
}

type conn struct {
	shared        bool
	entry         KeyMisses
	life          uint8
	caused, older uint8 // outstanding misses that may cause a refusal; those from before the last lease
	misses        uint8
}

type world struct {
	item, cas, next, life uint8 // item: 0 none, 1 a placeholder, 2 a value
	ver, seq, seqs        uint8 // of the value: the version of its data; its number
	rebuilt, added        bool
	by, winner            uint8 // the connection that has stored the value; 1 + the lease holder

	db, floor, deleted uint8
	bars               [3]uint8
	now                uint8

	deletes, restarts, expiries, ticks, errors, losses, closings, changes uint8

	late    bool // a bound set that has timed out for its client may still run
	lateSet thread

	threads [3]thread
	conns   [3]conn
	procs   [2]conn
}

type explorer struct {
	config
	seed   maphash.Seed
	seen   map[uint64]step
	queue  []world
	broken string
	at     uint64
}

type step struct {
	from uint64
	what string
}

const lease, leaseMax = 1, 100

func (x *explorer) scope(w *world, c uint8) (Scope, *conn) {
	s := Scope{Shared: w.conns[c].shared, AfterMiss: x.afterMiss, Pooled: x.pooled}
	if x.afterMiss {
		return s, &w.procs[x.instances[c]]
	}
	return s, &w.conns[c]
}

func (x *explorer) apply(w *world, c uint8, ev Event) (Act, uint64) {
	s, k := x.scope(w, c)
	ev.Now, ev.Lease, ev.LeaseMax = int64(w.now), lease, leaseMax
	var act Act
	var cas uint64
	k.entry, act, cas = x.decide(s, k.entry, ev)
	return act, cas
}

func (x *explorer) decide(s Scope, e KeyMisses, ev Event) (KeyMisses, Act, uint64) {
	if x.mutant.decide != nil {
		return x.mutant.decide(s, e, ev)
	}
	return Decide(s, e, ev)
}

// place makes an entry lose the cas of another life of the server.
func (x *explorer) place(w *world, c uint8) {
	if _, k := x.scope(w, c); k.entry.N > 0 && k.life != w.life && !x.mutant.keepCas {
		x.apply(w, c, Event{Kind: Unplaced})
		k.life = w.life
	}
}

func (x *explorer) fail(format string, args ...any) {
	if x.broken == "" {
		x.broken = fmt.Sprintf(format, args...)
	}
}

// cause marks the misses that are older than the event that has just happened to the
// key. own is the connection that caused it; -1: none. A rebuild is no cause in its
// own scope.
func (x *explorer) cause(w *world, own int, rebuild bool) {
	mark := func(k *conn) { k.caused = k.misses }
	for c := range w.conns {
		if c != own || w.conns[c].shared && !rebuild {
			mark(&w.conns[c])
		}
	}
	for i := range w.procs {
		if !rebuild || i != x.instances[own] {
			mark(&w.procs[i])
		}
	}
	for i := range w.threads {
		if t := &w.threads[i]; t.op == get && (t.state == executed || t.state == getWaits) {
			t.caused = true
		}
	}
}

// vanish removes the item.
func (x *explorer) vanish(w *world, own int) {
	w.item, w.winner = 0, 0
	w.floor, w.deleted, w.added = 0, w.seqs, false
	for i := range w.threads {
		w.threads[i].floor = 0
	}
	x.cause(w, own, false)
}

// store executes the set, add or replace of t (op) on the server. It returns false if the server
// does not store the value.
func (x *explorer) store(w *world, t *thread, op uint8) bool {
	isAdd := op == add
	if op == replace && t.bound == 0 && w.item != 2 { // the guard looks at the item first, and binds the replace to it
		return false
	}
	if t.bound != 0 {
		if w.item == 0 || w.cas != t.bound {
			return false
		}
	} else if isAdd && w.item == 2 {
		return false
	}
	if op == replace && w.item != 2 {
		x.fail("G7: a replace is stored although the key has no value")
	}
	if isAdd {
		if w.added {
			x.fail("G6: two adds are stored")
		}
		w.added = true
	}
	w.item, w.cas, w.winner = 2, w.next, 0
	w.next++
	w.seqs++
	w.ver, w.seq, w.rebuilt, w.by = t.ver, w.seqs, t.want, t.conn
	t.seq, t.cas = w.seqs, w.cas
	x.cause(w, int(t.conn), t.bound != 0)
	return true
}

// busy reports whether a command on connection c is in progress, and whether one of
// these changes the key.
func busy(w *world, c uint8) (any, changes bool) {
	for i := range w.threads {
		if t := &w.threads[i]; t.state != idle && t.conn == c {
			any = true
			changes = changes || t.op != get
		}
	}
	return any, changes
}

func (x *explorer) visit(w world, what string) {
	h := maphash.Comparable(x.seed, w)
	if _, ok := x.seen[h]; !ok {
		x.seen[h] = step{x.at, what}
		x.queue = append(x.queue, w)
	}
	if _, ok := x.seen[0]; !ok && x.broken != "" {
		x.seen[0] = step{x.at, what}
	}
}

// refused answers the set of thread i with NOT_STORED.
func (x *explorer) refused(w *world, i int) {
	t := &w.threads[i]
	_, k := x.scope(w, t.conn)
	if x.afterMiss && k.misses == 0 { // no client sets without a miss
		k.caused++
	}
	if !x.noG3 && k.caused == 0 && (k.older == 0 || t.want) && t.op == set {
		x.fail("G3: a set is refused without a cause")
	}
	k.misses -= min(k.misses, 1) // the client can't know which one it was
	k.caused = min(k.caused, k.misses)
	k.older = min(k.older, k.misses)
	if x.mutant.removes && w.item != 0 {
		w.item = 0
	}
	if x.mutant.answersStored {
		w.floor = w.seqs + 1
	}
	t.want = false
}

// start sends the set, add or replace of thread i, as the rule says.
func (x *explorer) start(w *world, i int) {
	t := &w.threads[i]
	kind := Set
	switch t.op {
	case add:
		kind = Add
	case replace:
		kind = Replace
	}
	x.place(w, t.conn)
	_, k := x.scope(w, t.conn)
	life := k.life
	switch act, cas := x.apply(w, t.conn, Event{Kind: kind}); act {
	case Write:
		t.state, t.bound, t.life = sent, 0, w.life
	case Bind:
		t.state, t.bound, t.boundLife, t.life = sent, uint8(cas), life, w.life
	case Wait:
		t.state = waiting
	case Refuse:
		t.state = idle
		x.refused(w, i)
		x.ended(w, i)
	}
}

// ended resets thread i after it has its reply.
func (x *explorer) ended(w *world, i int) {
	t := &w.threads[i]
	*t = thread{conn: t.conn, want: t.want, ver: t.ver, cycles: t.cycles}
	if x.short {
		x.close(w, t.conn)
	}
}

func (x *explorer) close(w *world, c uint8) {
	if x.afterMiss { // the process is not closed
		return
	}
	if act, cas := x.apply(w, c, Event{Kind: Closed}); act == RemovePlaceholder && w.item != 0 && w.cas == uint8(cas) && w.conns[c].life == w.life {
		w.item, w.winner = 0, 0
		x.cause(w, -1, false)
	}
	w.conns[c] = conn{shared: x.declared, life: w.life}
}

// expand visits all states that can follow.
func (x *explorer) expand(from world) {
	for i := range x.threads {
		switch t := &from.threads[i]; t.state {
		case idle:
			x.begin(from, i)
		case sent:
			x.execute(from, i)
		case getWaits:
			x.poll(from, i)
		case executed:
			x.answer(from, i)
		case waiting:
			if _, k := x.scope(&from, t.conn); !k.entry.Busy {
				w := from
				x.start(&w, i)
				x.visit(w, name(i)+" goes on")
			}
		}
	}
	x.environment(from)
}

func name(i int) string { return string(rune('a' + i)) }

// begin visits each command that thread i may send next.
func (x *explorer) begin(from world, i int) {
	conns := []uint8{from.threads[i].conn}
	if x.pool {
		conns = nil
		for c := range x.instances {
			if x.anywhere || x.instances[c] == x.instances[from.threads[i].conn] {
				conns = append(conns, uint8(c))
			}
		}
	}
	for _, c := range conns {
		any, changes := busy(&from, c)
		if any && x.pool { // a pool assigns a connection to one thread at a time
			continue
		}
		from := from
		from.threads[i].conn = c
		t := &from.threads[i]
		if any && !from.conns[c].shared {
			w := from
			w.conns[c].shared = true
			x.visit(w, name(i)+" sends a second request")
			continue
		}
		if t.cycles > 0 && !changes {
			w := from
			u := &w.threads[i]
			u.state, u.op, u.life, u.floor, u.bars = sent, get, w.life, w.floor, w.bars
			u.cycles--
			u.want = false // it no longer wants to fill its last miss
			x.visit(w, name(i)+" get")
		}
		if any {
			continue
		}
		store := func(op uint8, what string, change func(w *world, u *thread)) {
			w := from
			u := &w.threads[i]
			u.op = op
			change(&w, u)
			x.start(&w, i)
			x.visit(w, name(i)+what)
		}
		if t.want {
			store(set, " set, a rebuild", func(*world, *thread) {})
			if x.adds {
				store(add, " add", func(*world, *thread) {})
			}
			if x.replaces {
				store(replace, " replace", func(*world, *thread) {})
			}
		} else if x.writers&(1<<i) != 0 && from.db < 3 {
			store(set, " set, a write", func(w *world, u *thread) {
				w.db++
				u.ver = w.db
			})
		}
		if from.deletes > 0 && (!t.want || x.ownDeletes) {
			w := from
			u := &w.threads[i]
			w.deletes--
			w.db++
			u.state, u.op, u.life, u.ver = sent, del, w.life, w.db
			x.visit(w, name(i)+" delete")
		}
		if from.changes > 0 {
			w := from
			u := &w.threads[i]
			w.changes--
			w.db++
			u.state, u.op, u.life, u.ver = sent, change, w.life, w.db
			x.visit(w, name(i)+" changes the item")
		}
	}
}

// execute runs the command of thread i on the server, or loses its reply.
func (x *explorer) execute(from world, i int) {
	if t := &from.threads[i]; t.life != from.life { // the connection has ended
		w := from
		u := &w.threads[i]
		u.state, u.ok, u.cas = executed, false, 0
		x.visit(w, name(i)+" has lost its server")
		return
	}
	w := from
	t := &w.threads[i]
	switch t.op {
	case get:
		x.read(&w, i)
		x.visit(w, name(i)+" get is executed")
		if from.errors > 0 {
			w := from
			w.errors--
			w.threads[i].state, w.threads[i].cas = executed, 0
			x.visit(w, name(i)+" get fails, and is shown a miss")
		}
	case del:
		x.vanish(&w, int(t.conn))
		t.state, t.ok = executed, true
		x.visit(w, name(i)+" delete is executed")
	case change:
		want := t.want
		t.want = false // it is no rebuild
		x.store(&w, t, set)
		t.want, t.state = want, executed
		x.visit(w, name(i)+" change is executed")
	default:
		t.ok = x.store(&w, t, t.op)
		t.state = executed
		x.visit(w, name(i)+" set is executed")
		if from.losses > 0 && t.bound != 0 {
			w := from
			w.losses--
			w.late, w.lateSet = true, w.threads[i]
			w.threads[i].life = 99 // the reply is lost
			w.threads[i].state = executed
			x.visit(w, name(i)+" set times out")
		}
	}
}

// read executes the get of thread i.
func (x *explorer) read(w *world, i int) {
	t := &w.threads[i]
	s, k := x.scope(w, t.conn)
	t.state, t.caused = executed, false
	switch w.item {
	case 2:
		t.ok = true
		if w.seq < t.floor {
			x.fail("G1: a value is read that is older than an acknowledged one")
		}
		if !x.noG2 && w.rebuilt && w.ver < t.bars[w.by] {
			x.fail("G2: a rebuild of data version %d is read, and version %d was acknowledged", w.ver, t.bars[w.by])
		}
		return
	case 0:
		w.item, w.cas, w.winner = 1, w.next, t.conn+1
		w.next++
		t.won = true
	default:
		own := !s.Shared && !s.AfterMiss && !s.Pooled && k.entry.N > 0 && k.entry.CAS == uint64(w.cas) && k.life == w.life
		if own && !x.mutant.ownFree {
			t.won = k.entry.Won
		} else if !s.Shared {
			t.state = getWaits
			if own && w.winner == t.conn+1 {
				x.fail("G5: a client waits for itself")
			}
		}
	}
	if t.floor > 0 {
		x.fail("G1: an acknowledged value is missed")
	}
	t.ok, t.cas, t.gone = false, w.cas, true
}

// poll visits what may happen to the waiting get of thread i.
func (x *explorer) poll(from world, i int) {
	if from.item != 1 || from.cas != from.threads[i].cas {
		w := from
		w.threads[i].life = w.life
		x.read(&w, i)
		x.visit(w, name(i)+" get is executed again")
	}
	w := from
	t := &w.threads[i]
	if t.life != w.life {
		t.cas = 0
	}
	t.state = executed
	if x.mutant.lateFree {
		t.seq = 1
	}
	x.visit(w, name(i)+"'s wait is over")
}

// answer delivers the reply of thread i.
func (x *explorer) answer(from world, i int) {
	w := from
	t := &w.threads[i]
	s, k := x.scope(&w, t.conn)
	lost := t.life != w.life
	switch {
	case t.op == get && t.ok && !lost:
		x.apply(&w, t.conn, Event{Kind: Found})
		if !s.Shared && !x.afterMiss {
			k.misses, k.caused, k.older = 0, 0, 0
		}
		t.want = false
	case t.op == get:
		cas := t.cas
		if lost {
			cas = 0
		}
		t.want, t.ver = true, w.db
		if cas == 0 && x.mutant.errorFree || t.seq == 1 { // not recorded
			break
		}
		x.place(&w, t.conn)
		x.apply(&w, t.conn, Event{Kind: Missed, CAS: uint64(cas), Gone: t.gone && cas != 0, Won: t.won && cas != 0})
		if k.life = w.life; !s.Shared && !x.afterMiss {
			k.misses, k.caused, k.older = 0, 0, 0
		}
		if k.misses++; t.caused || cas == 0 {
			k.caused++
		}
	case t.op == del:
		if lost {
			break
		}
		for c := range w.bars {
			w.bars[c] = max(w.bars[c], t.ver)
		}
		x.apply(&w, t.conn, Event{Kind: Deleted})
		if !s.Shared && !x.afterMiss {
			k.misses, k.caused, k.older = 0, 0, 0
			t.want = false // its next set uses what it knows now
		} else {
			k.caused = k.misses
		}
		t.ver = w.db
	case t.op == change:
		if lost {
			break
		}
		if t.seq > w.deleted {
			w.floor = max(w.floor, t.seq)
		}
		for c := range w.bars {
			if c != int(t.conn) {
				w.bars[c] = max(w.bars[c], t.ver)
			}
		}
		x.apply(&w, t.conn, Event{Kind: Changed})
		if !s.Shared && !x.afterMiss {
			k.misses, k.caused, k.older = 0, 0, 0
			t.want = false // its next set uses what it knows now
		}
	default:
		bound := uint64(t.bound)
		if bound != 0 && k.life != t.boundLife {
			bound = 1 << 40
		}
		ev := Event{Kind: SetDone, Bound: bound, CAS: uint64(t.cas)}
		switch {
		case lost:
			ev.Outcome = Failed
			x.apply(&w, t.conn, ev)
			k.caused = max(k.caused, 1)
			t.state = idle // it may retry
			*t = thread{conn: t.conn, want: t.want, ver: t.ver, cycles: t.cycles}
			x.visit(w, name(i)+" gets an error")
			return
		case t.ok:
			x.apply(&w, t.conn, ev)
			k.misses -= min(k.misses, 1)
			k.caused = min(k.caused, k.misses)
			if t.seq > w.deleted {
				w.floor = max(w.floor, t.seq)
			}
			if !t.want {
				for c := range w.bars {
					if c != int(t.conn) {
						w.bars[c] = max(w.bars[c], t.ver)
					}
				}
			}
			t.want = false
		default:
			ev.Outcome = Refused
			x.apply(&w, t.conn, ev)
			x.refused(&w, i)
		}
	}
	x.ended(&w, i)
	x.visit(w, name(i)+" has its answer")
}

// environment visits the events that clients do not cause.
func (x *explorer) environment(from world) {
	if from.restarts > 0 {
		w := from
		w.restarts--
		x.vanish(&w, -1)
		w.life++
		w.next, w.late = 1, false
		x.visit(w, "restart")
	}
	if from.expiries > 0 && from.item != 0 {
		w := from
		w.expiries--
		x.vanish(&w, -1)
		x.visit(w, "expiry")
	}
	if from.late {
		w := from
		w.late = false
		if x.store(&w, &w.lateSet, set) {
			x.cause(&w, -1, false) // -1: the misses of the connection that sent the set are marked too, because it treats the set as failed
		}
		w.lateSet = thread{}
		x.visit(w, "the set that has timed out is executed")
	}
	working := slices.ContainsFunc(from.threads[:], func(t thread) bool { return t.want || t.state != idle })
	if from.ticks > 0 && !working {
		w := from
		w.ticks--
		w.now += 2 * lease
		for _, k := range []*conn{&w.conns[0], &w.conns[1], &w.conns[2], &w.procs[0], &w.procs[1]} {
			k.older, k.caused = max(k.older, k.caused), 0
		}
		x.visit(w, "a lease passes")
	}
	for c := range x.instances {
		if any, _ := busy(&from, uint8(c)); from.closings > 0 && !any {
			w := from
			w.closings--
			for i := range w.threads {
				if w.threads[i].conn == uint8(c) {
					w.threads[i].want = false
				}
			}
			x.close(&w, uint8(c))
			x.visit(w, fmt.Sprintf("connection %d closes", c))
		}
	}
}

// explore explores c. It returns the number of states, and the trace of the first that
// breaks a guarantee; "" if there is none.
func (c config) explore() (states int, broken string) {
	x := &explorer{config: c, seed: maphash.MakeSeed(), seen: map[uint64]step{}}
	w := world{next: 1, deletes: c.deletes, restarts: c.restarts, expiries: c.expiries, ticks: c.ticks, errors: c.errors, losses: c.losses, closings: c.closings, changes: c.changes}
	for i, conn := range c.threads {
		w.threads[i] = thread{conn: uint8(conn), cycles: c.cycles}
		if c.onlyFirst && i > 0 {
			w.threads[i].cycles = 0
		}
	}
	for i := range w.conns {
		w.conns[i].shared = c.declared
	}
	for x.visit(w, "start"); len(x.queue) > 0; {
		next := x.queue[0]
		x.queue = x.queue[1:]
		x.at = maphash.Comparable(x.seed, next)
		if x.expand(next); x.broken != "" {
			var trace []string
			for at := x.seen[0]; at.what != "start" && len(trace) < 60; at = x.seen[at.from] {
				trace = append(trace, at.what)
			}
			slices.Reverse(trace)
			return len(x.seen), x.broken + ": " + strings.Join(trace, " · ")
		}
	}
	return len(x.seen), ""
}

// configs are the configurations in which the rule must hold.
var configs = []config{
	{name: "two clients", threads: []int{0, 1}, instances: []int{0, 0}, cycles: 1, deletes: 1},
	{name: "two clients, one writes", threads: []int{0, 1}, instances: []int{0, 1}, cycles: 1, writers: 2},
	{name: "two clients, both write", threads: []int{0, 1}, instances: []int{0, 1}, cycles: 1, writers: 3},
	{name: "two clients, both write and read twice", threads: []int{0, 1}, instances: []int{0, 1}, cycles: 2, writers: 3},
	{name: "B1: two readers and a writer", threads: []int{0, 1, 2}, instances: []int{0, 0, 1}, cycles: 1, writers: 4},
	{name: "given up, own deletes", threads: []int{0, 1}, instances: []int{0, 1}, cycles: 2, deletes: 1, writers: 1, ownDeletes: true},
	{name: "own changes", threads: []int{0, 1}, instances: []int{0, 1}, cycles: 1, writers: 1, changes: 1},
	{name: "own changes, a writer", threads: []int{0, 1}, instances: []int{0, 1}, cycles: 1, writers: 3, changes: 2, full: true},
	{name: "shared, changes", threads: []int{0, 0, 1}, instances: []int{0, 1}, declared: true, cycles: 1, deletes: 1, changes: 1},
	{name: "restart", threads: []int{0, 1}, instances: []int{0, 1}, cycles: 2, deletes: 1, restarts: 1},
	{name: "errors", threads: []int{0, 1}, instances: []int{0, 0}, cycles: 1, deletes: 1, errors: 1, losses: 1},
	{name: "expiry, closing", threads: []int{0, 1}, instances: []int{0, 0}, cycles: 2, expiries: 1, closings: 1},
	{name: "locks", threads: []int{0, 1}, instances: []int{0, 0}, cycles: 1, adds: true, deletes: 1},
	{name: "replaces", threads: []int{0, 1}, instances: []int{0, 0}, cycles: 2, replaces: true, deletes: 1},
	{name: "shared", threads: []int{0, 0}, instances: []int{0}, declared: true, cycles: 1, deletes: 1},
	{name: "shared, deletes by others", threads: []int{0, 0, 1}, instances: []int{0, 0}, declared: true, cycles: 1, deletes: 1},
	{name: "shared, locks", threads: []int{0, 0}, instances: []int{0}, declared: true, cycles: 1, adds: true, deletes: 1},
	{name: "shared, a lease passes", threads: []int{0, 0}, instances: []int{0}, declared: true, cycles: 2, deletes: 1, ticks: 1},
	{name: "shared, restart, errors", threads: []int{0, 0}, instances: []int{0}, declared: true, cycles: 1, deletes: 1, restarts: 1, errors: 1, losses: 1},
	{name: "B2: shared, not known as such", threads: []int{0, 0}, instances: []int{0}, cycles: 2, deletes: 1, noG2: true},
	{name: "shared, one thread writes", threads: []int{0, 0, 1}, instances: []int{0, 1}, declared: true, cycles: 1, writers: 1, noG2: true},
	{name: "pooled", threads: []int{0, 1}, instances: []int{0, 0}, pool: true, pooled: true, cycles: 1, writers: 1, deletes: 1, noG2: true},
	{name: "a pool that is not declared", threads: []int{0, 1}, instances: []int{0, 0}, pool: true, cycles: 1, writers: 1, deletes: 1, noG2: true, noG3: true},
	{name: "a pool, sets after misses only", threads: []int{0, 1}, instances: []int{0, 0}, pool: true, afterMiss: true, cycles: 1, deletes: 1},
	{name: "a pool, sets after misses only, restart", threads: []int{0, 1}, instances: []int{0, 0}, pool: true, afterMiss: true, cycles: 1, deletes: 1, restarts: 1, noG3: true},
	{name: "a connection for each command", threads: []int{0, 1}, instances: []int{0, 0}, short: true, cycles: 1, deletes: 1, writers: 1, noG2: true},

	{name: "three clients, two instances", threads: []int{0, 1, 2}, instances: []int{0, 1, 1}, cycles: 2, deletes: 1, full: true},
	{name: "three clients, a writer, restart", threads: []int{0, 1, 2}, instances: []int{0, 1, 1}, cycles: 1, deletes: 1, restarts: 1, writers: 4, full: true},
	{name: "two clients, errors and sets that come late", threads: []int{0, 1}, instances: []int{0, 1}, cycles: 2, deletes: 1, errors: 1, losses: 1, writers: 2, ownDeletes: true, full: true},
	{name: "two clients, a restart and closing", threads: []int{0, 1}, instances: []int{0, 1}, cycles: 2, restarts: 1, closings: 1, writers: 2, full: true},
	{name: "two clients, expiry and adds", threads: []int{0, 1}, instances: []int{0, 1}, cycles: 2, deletes: 1, expiries: 1, adds: true, full: true},
	{name: "three shared threads", threads: []int{0, 0, 0}, instances: []int{0}, declared: true, cycles: 1, deletes: 2, ticks: 1, full: true},
	{name: "shared beside another client", threads: []int{0, 0, 1}, instances: []int{0, 1}, declared: true, cycles: 1, deletes: 1, restarts: 1, expiries: 1, full: true},
	{name: "a pool of three", threads: []int{0, 1, 2}, instances: []int{0, 0, 0}, pool: true, afterMiss: true, cycles: 1, deletes: 1, full: true},
}

func TestRule(t *testing.T) {
	total := 0
	for _, c := range configs {
		if c.full && !testenv.Full() {
			continue
		}
		states, broken := c.explore()
		t.Logf("%s: %d states", c.name, states)
		if total += states; broken != "" {
			t.Errorf("%s: %s", c.name, broken)
		}
	}
	t.Logf("%d states", total)
}

// with returns a mutant that changes what Decide returns.
func with(f func(s Scope, e KeyMisses, ev Event, next KeyMisses, act Act, cas uint64) (KeyMisses, Act, uint64)) mutant {
	return mutant{decide: func(s Scope, e KeyMisses, ev Event) (KeyMisses, Act, uint64) {
		next, act, cas := Decide(s, e, ev)
		return f(s, e, ev, next, act, cas)
	}}
}

// TestMutants removes one clause of the rule at a time, and must find which guarantee
// breaks.
func TestMutants(t *testing.T) {
	find := func(name string) config {
		i := slices.IndexFunc(configs, func(c config) bool { return c.name == name })
		return configs[i]
	}
	for _, m := range []struct {
		name, breaks, config string
		mutant               mutant
	}{
		{"a set is not bound", "G2", "two clients", with(func(s Scope, e KeyMisses, ev Event, next KeyMisses, act Act, cas uint64) (KeyMisses, Act, uint64) {
			if act == Bind && ev.Kind == Set {
				return e.answered(), Write, 0
			}
			return next, act, cas
		})},
		{"an add is not bound", "G2", "locks", with(func(s Scope, e KeyMisses, ev Event, next KeyMisses, act Act, cas uint64) (KeyMisses, Act, uint64) {
			if act == Bind && ev.Kind == Add {
				return e.answered(), Write, 0
			}
			return next, act, cas
		})},
		{"a refused set is answered STORED", "G1", "two clients, one writes", mutant{answersStored: true}},
		{"a refused set removes what is there", "G1", "two clients, one writes", mutant{removes: true}},
		{"a miss after a wait is not recorded", "G2", "given up, own deletes", mutant{lateFree: true}},
		{"a sequential connection keeps its earlier miss", "G3", "given up, own deletes", mutant{decide: func(s Scope, e KeyMisses, ev Event) (KeyMisses, Act, uint64) {
			s.Shared = s.Shared || ev.Kind == Missed
			return Decide(s, e, ev)
		}}},
		{"a value does not end the miss", "G3", "two clients, both write and read twice", with(func(s Scope, e KeyMisses, ev Event, next KeyMisses, act Act, cas uint64) (KeyMisses, Act, uint64) {
			if ev.Kind == Found {
				return e, None, 0
			}
			return next, act, cas
		})},
		{"an own delete does not end the miss", "G3", "given up, own deletes", with(func(s Scope, e KeyMisses, ev Event, next KeyMisses, act Act, cas uint64) (KeyMisses, Act, uint64) {
			if ev.Kind == Deleted {
				return e, None, 0
			}
			return next, act, cas
		})},
		{"an own change does not end the miss", "G3", "own changes", with(func(s Scope, e KeyMisses, ev Event, next KeyMisses, act Act, cas uint64) (KeyMisses, Act, uint64) {
			if ev.Kind == Changed {
				return e, None, 0
			}
			return next, act, cas
		})},
		{"a change ends the misses of a shared connection", "G2", "shared, changes", with(func(s Scope, e KeyMisses, ev Event, next KeyMisses, act Act, cas uint64) (KeyMisses, Act, uint64) {
			if ev.Kind == Changed {
				return KeyMisses{}, None, 0
			}
			return next, act, cas
		})},
		{"a delete ends the misses of a shared connection", "G2", "shared", with(func(s Scope, e KeyMisses, ev Event, next KeyMisses, act Act, cas uint64) (KeyMisses, Act, uint64) {
			if ev.Kind == Deleted {
				return KeyMisses{}, None, 0
			}
			return next, act, cas
		})},
		{"misses of different items are not mixed", "G2", "shared, deletes by others", with(func(s Scope, e KeyMisses, ev Event, next KeyMisses, act Act, cas uint64) (KeyMisses, Act, uint64) {
			next.Mixed = 0
			return next, act, cas
		})},
		{"mixed misses stay mixed", "G3", "shared, a lease passes", with(func(s Scope, e KeyMisses, ev Event, next KeyMisses, act Act, cas uint64) (KeyMisses, Act, uint64) {
			if next.Mixed != 0 {
				next.Mixed = 1 << 40
			}
			return next, act, cas
		})},
		{"a set ends all misses", "G2", "shared, deletes by others", with(func(s Scope, e KeyMisses, ev Event, next KeyMisses, act Act, cas uint64) (KeyMisses, Act, uint64) {
			if next.N < e.N {
				next = KeyMisses{Busy: next.Busy}
			}
			return next, act, cas
		})},
		{"a set ends no miss", "G3", "two clients, both write", with(func(s Scope, e KeyMisses, ev Event, next KeyMisses, act Act, cas uint64) (KeyMisses, Act, uint64) {
			if ev.Kind == SetDone && ev.Bound != 0 {
				e.Busy = false
				return e, act, cas
			}
			return next, act, cas
		})},
		{"other misses keep the old cas", "G3", "shared", with(func(s Scope, e KeyMisses, ev Event, next KeyMisses, act Act, cas uint64) (KeyMisses, Act, uint64) {
			if ev.Kind == SetDone && next.N > 0 {
				next.CAS = e.CAS
			}
			return next, act, cas
		})},
		{"sets of one scope do not wait for each other", "G3", "a pool, sets after misses only", mutant{decide: func(s Scope, e KeyMisses, ev Event) (KeyMisses, Act, uint64) {
			if ev.Kind == Set || ev.Kind == Add {
				e.Busy = false
			}
			return Decide(s, e, ev)
		}}},
		{"a value is given back", "G1", "shared, closing", mutant{decide: func(s Scope, e KeyMisses, ev Event) (KeyMisses, Act, uint64) {
			if ev.Kind == Closed {
				s.Shared = false
			}
			next, act, cas := Decide(s, e, ev)
			if ev.Kind == SetDone && next.N > 0 {
				next.Gone, next.Won = e.Gone, e.Won
			}
			return next, act, cas
		}}},
		{"a replace replaces a placeholder", "G7", "replaces", mutant{decide: func(s Scope, e KeyMisses, ev Event) (KeyMisses, Act, uint64) {
			if ev.Kind == Replace {
				ev.Kind = Set
			}
			return Decide(s, e, ev)
		}}},
		{"an add replaces a value", "G6", "shared, locks", mutant{decide: func(s Scope, e KeyMisses, ev Event) (KeyMisses, Act, uint64) {
			e.Gone = e.Gone || ev.Kind == Add
			return Decide(s, e, ev)
		}}},
		{"a miss without a cas is not recorded", "G2", "errors", mutant{errorFree: true}},
		{"a cas outlives its server", "G2", "restart", mutant{keepCas: true}},
		{"an error ends the miss", "G2", "errors", with(func(s Scope, e KeyMisses, ev Event, next KeyMisses, act Act, cas uint64) (KeyMisses, Act, uint64) {
			if ev.Kind == SetDone && ev.Outcome == Failed {
				return next.answered(), act, cas
			}
			return next, act, cas
		})},
		{"a client waits for its own placeholder", "G5", "given up, own deletes", mutant{ownFree: true}},
		{"a set without a miss is a write, though none should be", "G2", "a pool of two instances", with(func(s Scope, e KeyMisses, ev Event, next KeyMisses, act Act, cas uint64) (KeyMisses, Act, uint64) {
			if act == Refuse && e.N == 0 {
				return e, Write, 0
			}
			return next, act, cas
		})},
	} {
		t.Run(m.name, func(t *testing.T) {
			var c config
			switch m.config {
			case "shared, closing":
				c = config{name: m.config, threads: []int{0, 0, 1}, instances: []int{0, 0}, declared: true, cycles: 2, closings: 1}
			case "a pool of two instances": // a thread uses the connections of both
				c = config{name: m.config, threads: []int{0, 1}, instances: []int{0, 1}, pool: true, anywhere: true, onlyFirst: true, afterMiss: true, cycles: 2, deletes: 1, noG3: true}
			default:
				c = find(m.config)
			}
			if _, broken := c.explore(); broken != "" {
				t.Fatal("without the mutant: ", broken)
			}
			c.mutant = m.mutant
			states, broken := c.explore()
			t.Logf("%d states: %s", states, broken)
			if !strings.HasPrefix(broken, m.breaks) {
				t.Errorf("breaks %q, want %s", broken, m.breaks)
			}
		})
	}
}
