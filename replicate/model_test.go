package replicate

// Rules with modelled replicas: every interleaving of two clients' asks, as when two proxies
// serve one key at once.

import (
	"fmt"
	"hash/maphash"
	"testing"
	"unsafe"
)

// scene is a world and its clients.
type scene struct {
	w       world
	clients [3]client
	n       int
	late    [2]lateAsk // their clients don't wait any more, and they will run
	behind  behind     // the request that follows a late set
	acked   [3]bool    // has been told that its write is done

	left
}

// left is the number of interruptions that may still occur.
type left struct {
	faults   int // asks without a reply
	lates    int // asks without a reply that run later
	restarts int // restarts of a replica
	expires  int // early expiries of a tombstone while its owner is at work, or expiries of an expiring item
	crashes  int // stops of a proxy
	refusals int // refusals of the value of the first client by the authority
}

type lateAsk struct {
	pending     bool
	ran         bool // only the request that follows it is late
	client, ask uint8
}

// behind is the request that a proxy sends after a set without a reply, on the same
// connection.
type behind uint8

const (
	unsaid    behind = iota // the tombstone that the settlement asks for, at the end
	nothing                 // no request: the set is conditional
	aMark                   // a tombstone that replaces whatever is there
	boundMark               // a tombstone that replaces only what that set has stored
)

// follow runs the request that follows a late set.
func (s *scene) follow(l lateAsk) {
	c := &s.clients[l.client]
	e := c.rule.asks[l.ask]
	it := &s.w.items[e.replica]
	if e.step == Forward && c.rule.c.Op == Set && (s.behind == aMark || s.behind == boundMark && it.has && it.cas == c.cas[l.ask]) {
		s.w.mark(int(e.replica))
	}
}

// acknowledged reports whether client i has been told that its write is done.
func (s *scene) acknowledged(i int) bool { return s.acked[i] }

func (c *client) acknowledged() bool {
	r := &c.rule
	settled, ok := r.Settled()
	switch {
	case !ok || c.void:
		return false
	case settled.Verdict == Done, settled.Verdict == Absent && r.c.Op == Delete && !r.c.If && r.n > 0:
		return true
	}
	return settled.Verdict == Answered && settled.Answer >= 0 && positive(r.c, r.asks[settled.Answer].kind)
}

// digest returns the digest of s. It leaves out the unused asks, which are most of a scene.
func (s *scene) digest(seed maphash.Seed) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	h.Write(raw(&s.w))
	h.Write(raw(&s.late))
	h.Write(raw(&s.behind))
	h.Write(raw(&s.acked))
	h.Write(raw(&s.left))
	for i := range s.n {
		c := &s.clients[i]
		n := c.rule.n
		h.Write(c.rule.bytes())
		h.Write(raw(&c.fetched)[:uintptr(n)*unsafe.Sizeof(c.fetched[0])])
		h.Write(c.cas[:n])
		h.Write(c.life[:n])
		h.Write(raw(&c.own))
	}
	return h.Sum64()
}

// tell reports the outcome of an ask to client i.
func (s *scene) tell(i, ask int, o Outcome) {
	c := &s.clients[i]
	_, before := c.rule.Settled()
	c.rule.HandleOutcome(ask, o)
	if settled, after := c.rule.Settled(); after && !before {
		if r := &c.rule; r.class == leads && settled.Answer >= 0 && c.life[r.main] != s.w.life[r.lead] && c.ablate != unsure {
			c.void = true
		}
		s.acked[i] = c.acknowledged()
	}
	c.goOn()
}

// checker visits every interleaving.
type checker struct {
	rooms[scene]

	t       *testing.T
	name    string
	seen    map[uint64]struct{}
	seed    maphash.Seed
	visited int
	bad     int
	always  func(*scene) string // reports an error in any state
	end     func(*scene) string // reports an error when all commands are over and repaired
	quiet   bool                // an error is recorded, and does not fail the test
	limit   int                 // most states to visit; 0: no limit
	what    string
}

func newChecker(t *testing.T) *checker {
	return &checker{t: t, seen: map[uint64]struct{}{}, seed: maphash.MakeSeed()}
}

func (x *checker) run(name string, s scene) {
	x.name = name
	clear(x.seen)
	x.visit(&s, 0)
}

func (x *checker) fail(s *scene, what string) {
	if x.bad++; x.bad > 3 {
		return
	}
	text := fmt.Sprintf("%s: %s\n replicas %+v", x.name, what, s.w.items)
	for i := range s.n {
		r := &s.clients[i].rule
		settled, ok := r.Settled()
		text += fmt.Sprintf("\n client %d: %s\n  %v %+v", i, history(r), ok, settled)
	}
	if x.what = text; !x.quiet {
		x.t.Error(text)
	}
}

// visit explores all states that may follow s, which is depth steps from the start. It may
// change s.
func (x *checker) visit(s *scene, depth int) {
	over := !s.late[0].pending && !s.late[1].pending
	for i := range s.n {
		var room [maxAsks]Ask
		s.clients[i].rule.Next(room[:0])
		over = over && s.clients[i].rule.IsDone()
	}
	h := s.digest(x.seed)
	if _, ok := x.seen[h]; ok || x.bad > 0 || x.limit > 0 && x.visited >= x.limit {
		return
	}
	x.seen[h] = struct{}{}
	x.visited++
	if x.always != nil {
		if what := x.always(s); what != "" {
			x.fail(s, what)
			return
		}
	}
	if over {
		s.repairAll()
		if what := x.end(s); what != "" {
			x.fail(s, what)
		}
		return
	}
	for i, l := range s.late {
		if !l.pending {
			continue
		}
		next := x.copyOf(s, depth)
		next.late[i] = lateAsk{}
		if !l.ran {
			next.w.run(&next.clients[l.client], int(l.ask))
		}
		next.follow(l)
		x.visit(next, depth+1)
	}
	for m := range s.w.items {
		if s.restarts > 0 && s.w.count[m] > 0 {
			next := x.copyOf(s, depth)
			next.restarts--
			next.w.restart(m)
			x.visit(next, depth+1)
		}
		if it := s.w.items[m]; s.expires > 0 && it.has && (it.mark || it.expiring) {
			next := x.copyOf(s, depth)
			next.expires--
			next.w.items[m] = item{}
			x.visit(next, depth+1)
		}
	}
	for c := range s.n {
		if _, told := s.clients[0].rule.Settled(); told || !s.clients[c].waits {
			x.visitClient(s, c, depth)
		}
	}
}

// visitClient runs one of a client's asks. Those at one replica run in order, because they
// are on one connection.
func (x *checker) visitClient(s *scene, c, depth int) {
	r := &s.clients[c].rule
	if s.crashes > 0 && r.open > 0 {
		next := x.copyOf(s, depth)
		next.crashes--
		next.clients[c] = client{}
		next.clients[c].rule.settled = true
		x.visit(next, depth+1)
	}
	var busy Mask
	for i, e := range r.asks[:r.n] {
		if e.kind != pending || busy.Has(int(e.replica)) {
			continue
		}
		busy |= 1 << e.replica
		next := x.copyOf(s, depth)
		next.tell(c, i, next.w.run(&next.clients[c], i))
		x.visit(next, depth+1)
		if e.step == Wait {
			continue
		}
		if s.faults > 0 {
			for _, ran := range []bool{false, true} {
				next := x.copyOf(s, depth)
				next.faults--
				if ran {
					next.w.run(&next.clients[c], i)
				}
				next.tell(c, i, Outcome{Kind: InDoubt})
				x.visit(next, depth+1)
			}
			next := x.copyOf(s, depth)
			next.faults--
			next.tell(c, i, Outcome{Kind: Unsent})
			x.visit(next, depth+1)
		}
		if s.refusals > 0 && c == 0 && e.step == Store && e.replica == 0 {
			next := x.copyOf(s, depth)
			next.refusals--
			next.tell(c, i, Outcome{Kind: ClientError})
			x.visit(next, depth+1)
		}
		if s.lates > 0 && e.step.leaves() {
			for _, ran := range []bool{false, true} {
				if ran && (s.behind != aMark && s.behind != boundMark || e.step != Forward || r.c.Op != Set) {
					continue
				}
				next := x.copyOf(s, depth)
				next.lates--
				at := 0
				if next.late[at].pending {
					at = 1
				}
				next.late[at] = lateAsk{true, ran, uint8(c), uint8(i)}
				if ran {
					next.w.run(&next.clients[c], i)
				}
				next.tell(c, i, Outcome{Kind: InDoubt})
				x.visit(next, depth+1)
			}
		}
	}
}

// leaves reports whether d changes something at a replica when it runs.
func (d Step) leaves() bool {
	return d != Fetch && d != Look && d != Preview && d != Check
}

// repairAll does the repairs of all settlements, after all tombstones of unfinished
// commands have expired.
func (s *scene) repairAll() {
	for m := range s.w.items {
		if s.w.items[m].mark {
			s.w.items[m] = item{}
		}
	}
	for i := range s.n {
		s.repair(i)
	}
}

// repair does what the settlement of client i asks for.
func (s *scene) repair(i int) {
	settled, _ := s.clients[i].rule.Settled()
	for m := range s.w.items {
		if settled.Undo.Has(m) && s.behind == unsaid { // a tombstone follows it, which has expired by now
			s.w.items[m] = item{}
		}
	}
	for m := range s.w.items {
		if settled.Repair.Has(m) {
			s.mend(m, settled.Source, settled.Dirty.Has(m) || settled.Overwrite.Has(m))
		}
	}
}

func (s *scene) mend(m, source int, overwrite bool) {
	c := client{rule: Mend(m, source, overwrite, false)}
	for !c.rule.IsDone() {
		var room [4]Ask
		c.rule.Next(room[:0])
		for a := range int(c.rule.n) {
			if c.rule.asks[a].kind == pending {
				c.rule.HandleOutcome(a, s.w.run(&c, a))
			}
		}
	}
}

func states(s ...State) []Replica {
	replicas := make([]Replica, len(s))
	for i := range s {
		replicas[i].State = s[i]
	}
	return replicas
}

// phases are the pairs of states in which two proxies may see one replica at the same time.
var phases = [][2]State{
	{In, In}, {In, Filling}, {In, Suspect}, {In, Leaving}, {Leaving, Out}, {Out, Out}, {Out, Returning}, {Returning, Returning},
	{Returning, Warming}, {Warming, Warming}, {Warming, Settling}, {Settling, In}, {Out, Leaving}, {In, Dirty},
}

// forViews calls f with the states in which two proxies may see n replicas. Each replica is
// in any pair of neighboring phases, and two change at once only if another stays In.
func forViews(n int, f func(a, b []Replica)) {
	a, b := make([]Replica, n), make([]Replica, n)
	var walk func(int)
	walk = func(i int) {
		if i == n {
			changing, stays := 0, false
			for j := range a {
				if a[j].State != b[j].State {
					changing++
				}
				stays = stays || a[j].State == In && b[j].State == In
			}
			if stays || changing < 2 {
				f(a, b)
			}
			return
		}
		for _, p := range phases {
			a[i].State, b[i].State = p[0], p[1]
			walk(i + 1)
			if p[0] != p[1] {
				a[i].State, b[i].State = p[1], p[0]
				walk(i + 1)
			}
		}
	}
	walk(0)
}

func pair(p Policy, a, b []Replica, x, y Command) scene {
	return scene{n: 2, clients: [3]client{
		{rule: begin(p, x, a, 0), own: own{value: 1}},
		{rule: begin(p, y, b, 0), own: own{value: 2}},
	}}
}

func TestAnAddIsGrantedOnce(t *testing.T) {
	x := newChecker(t)
	granted := 0
	x.end = func(s *scene) string {
		if s.acknowledged(0) && s.acknowledged(1) {
			return "both clients were granted the add"
		}
		if s.acknowledged(0) || s.acknowledged(1) {
			granted++
		}
		return ""
	}
	check := func(n, faults int, acks ...Ack) {
		forViews(n, func(a, b []Replica) {
			for _, ack := range acks {
				s := pair(Policy{Ack: ack}, a, b, Command{Op: Add}, Command{Op: Add})
				s.faults = faults
				x.run(fmt.Sprint("nothing there, ", ack, a, b), s)
			}
		})
	}
	check(2, 1, AckAll, AckQuorum, AckOne)
	check(3, 0, AckAll)
	t.Log(x.visited, "states,", granted, "ends with one grant")
	if granted == 0 {
		t.Error("no add was ever granted")
	}
}

// An add is not granted if one readable replica still has the key, though the others have
// lost it. The key is there afterwards.
func TestAnAddSeesWhatIsLeft(t *testing.T) {
	x := newChecker(t)
	forViews(2, func(a, b []Replica) {
		for left := range 2 {
			readable := func(m Replica) bool {
				return m.State == In || m.State == Filling || m.State == Warming || m.State == Settling
			}
			if !readable(a[left]) || !readable(b[left]) {
				continue
			}
			s := pair(Policy{}, a, b, Command{Op: Add}, Command{Op: Add})
			s.w.put(left, 9)
			x.end = func(s *scene) string {
				if s.acknowledged(0) || s.acknowledged(1) {
					return "granted although a copy was left"
				}
				if !s.w.items[left].has || s.w.items[left].value != 9 {
					return "the copy that was left is gone"
				}
				return ""
			}
			x.run(fmt.Sprint("left at ", left, a, b), s)
		}
	})
	t.Log(x.visited, "states")
}

// agreeing calls f with all replica states on which the proxies agree. It also passes the
// items of the replicas (world): complete replicas have the value, and the others any value
// that is possible.
func agreeing(n int, value uint32, f func(string, []Replica, world)) {
	kinds := []State{In, Warming, Returning, Dirty, Out}
	replicas := make([]Replica, n)
	var walk func(int, world)
	walk = func(i int, w world) {
		if i == n {
			if a := Authority(replicas); a >= 0 {
				f(fmt.Sprint(replicas, w.items), replicas, w)
			}
			return
		}
		for _, k := range kinds {
			replicas[i].State = k
			other := w
			switch k {
			case In:
				other.put(i, value)
				walk(i+1, other)
			case Warming:
				walk(i+1, w)
				other.put(i, value)
				walk(i+1, other)
			case Returning, Dirty:
				walk(i+1, w)
				other.put(i, 99)
				walk(i+1, other)
			case Out:
				walk(i+1, w)
			}
		}
	}
	var w world
	w.count = [3]uint8{3, 6, 9}
	walk(0, w)
}

func TestCountersNeverGoBack(t *testing.T) {
	x := newChecker(t)
	for _, n := range []int{2, 3} {
		agreeing(n, 5, func(name string, replicas []Replica, w world) {
			known := false // whether a readable replica has the 5
			for i, m := range replicas {
				known = known || w.items[i].has && (m.State == In || m.State == Warming)
			}
			if replicas[Authority(replicas)].State == Dirty {
				return // two proxies that repair the primary at once lose counts
			}
			if n == 3 && replicas[0].State != In && replicas[1].State != In && replicas[2].State != In {
				return // two replicas cover it
			}
			if n == 3 && !everyVector() && !sorted(replicas) || n == 3 && testing.Short() {
				return
			}
			lead := Authority(replicas)
			x.always = func(s *scene) string {
				for i, m := range replicas {
					if it := s.w.items[i]; m.State == In && replicas[lead].State == In && it.has && !it.mark && it.value > s.w.items[lead].value {
						return fmt.Sprintf("replica %d has %d, and the authority %d", i, it.value, s.w.items[lead].value)
					}
				}
				for c := range 2 {
					if !s.acknowledged(c) {
						continue
					}
					settled, _ := s.clients[c].rule.Settled()
					for i, m := range replicas {
						if it := s.w.items[i]; (m.State == In || m.State == Warming) && !settled.Dirty.Has(i) && it.has && !it.mark && it.value < s.clients[c].number {
							return fmt.Sprintf("replica %d has %d after %d was acknowledged", i, it.value, s.clients[c].number)
						}
					}
				}
				return ""
			}
			x.end = func(s *scene) string {
				if !known {
					if s.acknowledged(0) || s.acknowledged(1) {
						return "counted what isn't there"
					}
					return ""
				}
				if settled, _ := s.clients[0].rule.Settled(); settled.Verdict == Held {
					return "" // see TestNoCountIsLostWhileTheAuthorityChanges
				}
				if !s.acknowledged(0) || !s.acknowledged(1) || s.clients[0].number == s.clients[1].number {
					return "both should have counted"
				}
				for i, m := range replicas {
					if it := s.w.items[i]; m.State != Out && (!it.has || it.value != 8) {
						return fmt.Sprintf("replica %d has %+v and not 8", i, it)
					}
				}
				return ""
			}
			x.run(name, func() scene {
				s := pair(Policy{}, replicas, replicas, Command{Op: Incr}, Command{Op: Incr})
				s.w = w
				return s
			}())
		})
	}
	t.Log(x.visited, "states")
}

func TestOneCasOfTwoWins(t *testing.T) {
	x := newChecker(t)
	for _, n := range []int{2, 3} {
		agreeing(n, 5, func(name string, replicas []Replica, w world) {
			lead := Authority(replicas)
			s := pair(Policy{}, replicas, replicas, Command{Op: Cas}, Command{Op: Cas})
			s.w = w
			s.clients[0].token, s.clients[1].token = w.items[lead].cas, w.items[lead].cas
			x.end = func(s *scene) string {
				a, b := s.acknowledged(0), s.acknowledged(1)
				if a && b {
					return "both were stored"
				}
				if replicas[lead].State == In && !a && !b {
					return "none was stored"
				}
				if !a && !b {
					return ""
				}
				want := uint32(1)
				if b {
					want = 2
				}
				for i, m := range replicas {
					if it := s.w.items[i]; m.State != Out && it.value != want {
						return fmt.Sprintf("replica %d has %+v", i, it)
					}
				}
				return ""
			}
			x.run(name, s)
		})
	}
	t.Log(x.visited, "states")
}

// One command alone, with up to two faults: an acknowledged write is at all replicas that
// are read, and after undo and repair all replicas are alike.
func TestFaultsLeaveCopiesAlike(t *testing.T) {
	x := newChecker(t)
	for _, op := range []Op{Set, Add, Replace, Append, Cas, Incr, Touch, Gat, Gets, Delete} {
		for _, ack := range []Ack{AckAll, AckOne} {
			agreeing(2, 5, func(name string, replicas []Replica, w world) {
				s := scene{n: 1, left: left{faults: 2}, w: w}
				s.clients[0] = client{rule: begin(Policy{Ack: ack, ReadThrough: true}, Command{Op: op}, replicas, 0), own: own{value: 1}}
				s.clients[0].token = w.items[Authority(replicas)].cas
				want, stays := map[Op]uint32{Set: 1, Add: 1, Replace: 1, Append: 51, Cas: 1, Incr: 6, Touch: 5, Gat: 5, Gets: 5}[op], op != Delete
				x.always = func(s *scene) string {
					if !s.acknowledged(0) || op == Gat || op == Touch {
						return ""
					}
					settled, _ := s.clients[0].rule.Settled()
					if ack == AckOne && !s.clients[0].rule.IsDone() {
						return "" // some asks are still in flight
					}
					for i, m := range replicas {
						it := s.w.items[i]
						if m.State == Out || m.State == Returning || settled.Dirty.Has(i) || settled.Repair.Has(i) {
							continue
						}
						if there := it.has && !it.mark; there != stays || there && it.value != want {
							return fmt.Sprintf("acknowledged, but replica %d has %+v", i, it)
						}
					}
					return ""
				}
				x.end = func(s *scene) string {
					settled, _ := s.clients[0].rule.Settled()
					first := -1
					for i, m := range replicas {
						dirty := m.State == Dirty && !settled.Clean.Has(i) || settled.Dirty.Has(i) && !settled.Repair.Has(i)
						if m.State != In && m.State != Dirty || dirty || !s.w.items[i].has || s.w.items[i].mark {
							continue
						}
						if first >= 0 && s.w.items[first].value != s.w.items[i].value {
							return fmt.Sprintf("replicas %d and %d differ", first, i)
						}
						first = i
					}
					return ""
				}
				x.run(fmt.Sprint(op, ack, name), s)
			})
		}
	}
	t.Log(x.visited, "states")
}
