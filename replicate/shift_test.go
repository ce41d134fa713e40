package replicate

// Commands of two proxies on one key while one of its two replicas changes its state. Each reply must
// have an order of the commands that explains it.

import (
	"fmt"
	"hash/maphash"
	"math/bits"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"ringside/internal/testenv"
)

// course is the order of a replica's states. A proxy is at most one state ahead of the other one. The
// first proxy that makes the replica warm has flushed it.
var course = []State{In, Leaving, Out, Returning, Warming, Settling, In}

const (
	toFlush = 3 // index of Returning in course
	lastOf  = 6 // index of the last state in course
)

// remedy is what a proxy does with an add that was stored, if the replica has changed its state
// meanwhile, so that its success does not count.
type remedy uint8

const (
	leave     remedy = iota // an error for the client; the value stays
	withdraw                // the value is removed by its cas, and the add begins again
	believe                 // STORED for the client
	resume                  // Rule.Continue
	unchecked               // as resume, without the check of the primary
	afresh                  // the add begins again, also if its value is gone
	numRemedies
)

var remedyNames = [numRemedies]string{"left", "withdrawn", "believed", "continued", "continued without a check of the primary", "continued where its value is gone"}

// act is one command of a scene.
type act struct {
	op    Op
	proxy uint8
	after int8 // number of the command that must have its reply before; -1: none
}

type actor struct {
	client
	began, replied, waits bool
	goesOn                bool  // waits, or runs, in Rule.Continue
	at                    uint8 // the proxy's place in course when the present run began
	drops                 Mask  // replicas from which a withdrawn add has not removed its value yet
	heard                 uint8 // value of emptied when the first replica had the value of a set
	kept                  bool  // a withdrawn add has not found its own value at a replica
}

// shift is a scene with proxies, their commands, and a replica that changes its state.
type shift struct {
	w       world
	actors  [3]actor
	acts    [3]act
	n       int
	mover   int // replica that changes its state
	place   [2]uint8
	last    uint8 // place after which the replica changes its state no more
	filled  [2]bool
	through bool
	strict  bool // a read that sees a write before its reply counts, too
	then    remedy
	faults  int
	lates   int
	late    [1]lateAsk
	moot    bool  // nothing is promised from now on
	emptied uint8 // how often the replica was flushed or filled
	orders
}

// orders is the set of all explanations of the replies so far: bit i is set if i is possible. The lowest
// three bits of i are the value, or 0; three bits for each command follow.
type orders [64]uint64

const (
	notYet   = 0 // the command has not happened yet
	happened = 1 // for a delete: DELETED; for a get: 1 plus the value that it returns
	nothing2 = 2 // for a delete: NOT_FOUND
	past7    = 7 // the command has its reply, or will never happen
)

func status(o, i int) int        { return o >> (3 + 3*i) & 7 }
func with(o, i, st int) int      { return o&^(7<<(3+3*i)) | st<<(3+3*i) }
func (b *orders) has(o int) bool { return b[o>>6]>>(o&63)&1 != 0 }
func (b *orders) add(o int)      { b[o>>6] |= 1 << (o & 63) }

func (b *orders) all(f func(o int)) {
	for i, word := range b {
		for ; word != 0; word &= word - 1 {
			f(i<<6 | bits.TrailingZeros64(word))
		}
	}
}

// close adds all explanations in which commands in progress have happened by now.
func (s *shift) close() {
	list := make([]int, 0, 256)
	s.orders.all(func(o int) { list = append(list, o) })
	for len(list) > 0 {
		o := list[len(list)-1]
		list = list[:len(list)-1]
		for i := range s.n {
			if !s.actors[i].began || status(o, i) != notYet {
				continue
			}
			value, next := o&7, -1
			switch s.acts[i].op {
			case Get:
				next = with(o, i, 1+value)
			case Set:
				next = with(o&^7|(i+1), i, happened)
			case Add:
				if value == 0 {
					next = with(o|(i+1), i, happened)
				}
			case Delete:
				next = with(o&^7, i, nothing2)
				if value != 0 {
					next = with(o&^7, i, happened)
				}
			}
			if next >= 0 && !s.orders.has(next) {
				s.orders.add(next)
				list = append(list, next)
			}
		}
	}
}

// keep keeps the explanations that fit the reply to command i.
func (s *shift) keep(i int, fits func(st int) bool, ghost bool) {
	s.close()
	var kept orders
	s.orders.all(func(o int) {
		switch st := status(o, i); {
		case fits != nil && !fits(st):
		case ghost && st == notYet:
			kept.add(o)
		default:
			kept.add(with(o, i, past7))
		}
	})
	s.orders = kept
}

// reply records the reply to command i.
func (s *shift) reply(i int, said Settlement, err bool) {
	a := &s.actors[i]
	a.replied, a.waits = true, false
	kind := pending
	if !err && said.Answer >= 0 {
		kind = a.rule.asks[said.Answer].kind
	}
	is := func(want int) func(int) bool { return func(st int) bool { return st == want } }
	ghost := s.late[0].pending && int(s.late[0].client) == i
	switch op := s.acts[i].op; {
	case op == Get && (err || said.Verdict != Absent && kind != Hit && kind != Miss):
		s.keep(i, nil, false)
	case op == Get:
		value := 0
		if kind == Hit {
			value = int(min(a.read, 5))
			if !s.strict && value >= 1 && value <= s.n && !s.actors[value-1].replied {
				s.keep(i, nil, false)
				return
			}
		}
		if value == 0 && !s.strict {
			for j := range s.n {
				if s.acts[j].op == Delete && s.actors[j].began && !s.actors[j].replied {
					s.keep(i, nil, false)
					return
				}
			}
		}
		s.keep(i, is(1+value), false)
	case !err && (kind == Stored || said.Verdict == Done):
		s.keep(i, is(happened), false)
	case !err && said.Verdict == Absent && op == Delete:
		unlooked := slices.ContainsFunc(a.rule.asks[:a.rule.n], func(e asked) bool { return e.step == PlaceTombstone }) // see Limits: it may reply NOT_FOUND
		s.keep(i, func(st int) bool { return st == nothing2 || unlooked && st == happened }, false)
	case !err && op == Add && (kind == NotStored || said.Verdict == Absent):
		s.keep(i, is(notYet), false)
	case op != Add: // two reads may differ about a set or a delete that got an error
		s.moot = true
	default:
		s.keep(i, nil, ghost)
	}
}

func (s *shift) view(p uint8) []Replica {
	r := states(In, In)
	st := course[s.place[p]]
	if s.place[p] == lastOf && !s.filled[p] {
		st = Filling
	}
	r[s.mover].State = st
	return r
}

func (s *shift) policy() Policy { return Policy{ReadThrough: s.through} }

func (s *shift) begin(i int) {
	a := &s.actors[i]
	a.began, a.waits, a.at = true, false, s.place[s.acts[i].proxy]
	a.rule = begin(s.policy(), Command{Op: s.acts[i].op, Conditional: true}, s.view(s.acts[i].proxy), 0)
	s.advance(i)
}

// goOn continues an add that was stored.
func (s *shift) goOn(i int) {
	a := &s.actors[i]
	a.goesOn, a.at, a.waits = true, s.place[s.acts[i].proxy], false
	switch a.rule.Continue(s.policy(), s.view(s.acts[i].proxy)) {
	case Held:
		a.waits = true
	case Unmet:
		s.reply(i, Settlement{Answer: -1}, true)
	default:
		s.advance(i)
	}
}

func (s *shift) advance(i int) {
	a := &s.actors[i]
	var room [maxAsks]Ask
	a.rule.Next(room[:0])
	said, ok := a.rule.Settled()
	if !ok || a.replied {
		return
	}
	if said.Verdict == Held {
		a.waits = true
		return
	}
	add := s.acts[i].op == Add
	told := said.Verdict == Answered || said.Verdict == Done || said.Verdict == Absent && a.rule.Asked()
	if !told || a.at == s.place[s.acts[i].proxy] {
		s.reply(i, said, false)
		return
	}
	stored := said.Answer >= 0 && a.rule.asks[said.Answer].kind == Stored
	refused := said.Answer >= 0 && a.rule.asks[said.Answer].kind == NotStored
	switch {
	case (s.acts[i].op == Get || add && refused && s.then != leave) && !a.rule.IsDone(): // it begins again when it is over
	case s.acts[i].op == Get, add && refused && s.then != leave:
		s.begin(i)
	case !add || !stored || s.then == leave:
		s.reply(i, said, true)
	case s.then == believe:
		s.reply(i, said, false)
	case s.then == withdraw:
		a.drops = a.rule.stored
	default:
		s.goOn(i)
	}
}

// run executes an ask of actor i.
func (s *shift) run(i, ask int) Outcome {
	a := &s.actors[i]
	e := a.rule.asks[ask]
	if e.step == Fetch && !s.source(int(s.acts[i].proxy), int(e.replica)) {
		return Outcome{Kind: Unsent}
	}
	o := s.w.run(&a.client, ask)
	if s.acts[i].op == Set && e.step.Mutates() {
		if a.rule.stored == 0 {
			a.heard = s.emptied
		}
		o.Late = a.heard != s.emptied // a flush and a fill take longer than a reply that is not late
	}
	switch {
	case s.then == unchecked && e.step == Check && a.rule.resumed:
		o.Kind = Hit
	case s.then == afresh && e.step == Check && a.rule.resumed && o.Kind == Miss:
		s.w.put(int(e.replica), a.value)
		a.cas[a.rule.guard[a.rule.lead]] = s.w.items[e.replica].cas
		o.Kind = Hit
	}
	return o
}

// source reports whether proxy p may copy from replica m.
func (s *shift) source(p, m int) bool {
	switch course[s.place[p]] {
	case In, Warming, Settling:
		return true
	}
	return m != s.mover
}

func (s *shift) tell(i, ask int, o Outcome) {
	s.actors[i].rule.HandleOutcome(ask, o)
	s.advance(i)
}

// drop removes the value of a withdrawn add at replica m.
func (s *shift) drop(i, m int) {
	a := &s.actors[i]
	guard, it := a.rule.guard[m], &s.w.items[m]
	switch {
	case it.has && it.cas == a.cas[guard] && s.w.life[m] == a.life[guard]:
		*it = item{}
	case it.has:
		a.kept = true
	}
	if a.drops &^= 1 << m; a.drops == 0 {
		if a.kept {
			s.reply(i, Settlement{Answer: -1}, true)
		} else {
			s.begin(i)
		}
	}
}

func (s *shift) fill(p int) {
	s.filled[p] = true
	s.emptied++
	s.mendAtOnce(s.mover, 1-s.mover, false)
}

func (s *shift) mendAtOnce(to, from int, overwrite bool) {
	c := scene{w: s.w}
	c.mend(to, from, overwrite)
	s.w = c.w
}

// readAll reads the key through both proxies.
func (s *shift) readAll() string {
	for p := range uint8(2) {
		var c actor
		c.rule = begin(s.policy(), Command{Op: Get}, s.view(p), 0)
		for !c.rule.IsDone() {
			var room [maxAsks]Ask
			c.rule.Next(room[:0])
			for i := range int(c.rule.n) {
				if c.rule.asks[i].kind == pending {
					c.rule.HandleOutcome(i, s.w.run(&c.client, i))
				}
			}
		}
		said, _ := c.rule.Settled()
		value := 0
		switch {
		case said.Verdict == Answered && c.rule.asks[said.Answer].kind == Hit:
			value = int(min(c.read, 5))
		case said.Verdict == Answered && c.rule.asks[said.Answer].kind == Miss, said.Verdict == Absent:
		default:
			continue
		}
		s.close()
		var kept orders
		s.orders.all(func(o int) {
			if o&7 == value {
				kept.add(o)
			}
		})
		if s.orders = kept; kept == (orders{}) {
			return fmt.Sprintf("at the end, proxy %d reads %d", p, value)
		}
	}
	return ""
}

// end checks what the proxies read when all commands have their replies, then and after the replica
// is back.
func (s *shift) end() string {
	if what := s.readAll(); what != "" {
		return what
	}
	for i := range s.n {
		said, _ := s.actors[i].rule.Settled()
		if said.Undo != 0 {
			return ""
		}
		for m := range 2 {
			if said.Repair.Has(m) && s.source(int(s.acts[i].proxy), said.Source) {
				s.mendAtOnce(m, said.Source, said.Dirty.Has(m) || said.Overwrite.Has(m))
			}
		}
	}
	for m := range 2 {
		if s.w.items[m].mark {
			s.w.items[m] = item{}
		}
	}
	for s.place[0] < lastOf || s.place[1] < lastOf {
		s.step(s.behind())
	}
	s.fill(0)
	s.fill(1)
	return s.readAll()
}

func (s *shift) behind() int {
	if s.place[0] > s.place[1] {
		return 1
	}
	return 0
}

// step moves proxy p to the next state of the replica.
func (s *shift) step(p int) {
	if s.place[p] == toFlush && s.place[1-p] == toFlush {
		s.w.items[s.mover] = item{}
		s.emptied++
	}
	s.place[p]++
}

type shifter struct {
	rooms[shift]

	seen    map[uint64]struct{}
	seed    maphash.Seed
	trail   []event
	visited int
	limit   int
	what    string
}

func (s *shift) digest(seed maphash.Seed) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	h.Write(raw(&s.w))
	h.Write(raw(&s.place))
	h.Write(raw(&s.filled))
	h.Write(raw(&s.late))
	h.Write(raw(&s.orders))
	h.Write([]byte{byte(s.faults), byte(s.lates)})
	for i := range s.n {
		a := &s.actors[i]
		n := a.rule.n
		h.Write(a.rule.bytes())
		h.Write(raw(&a.fetched)[:uintptr(n)*unsafe.Sizeof(a.fetched[0])])
		h.Write(a.cas[:n])
		h.Write(a.life[:n])
		h.Write([]byte{b2i(a.began), b2i(a.replied), b2i(a.waits), b2i(a.goesOn), a.at, byte(a.drops), b2i(a.kept), byte(a.read), b2i(a.heard != s.emptied)})
	}
	return h.Sum64()
}

func b2i(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// event is one step of a scene.
type event struct {
	what    string
	who, at int
	ask     Step
}

func (e event) String() string {
	return strings.NewReplacer("ASK", stepNames[e.ask], "AT", fmt.Sprint(e.at), "WHO", fmt.Sprint(e.who)).Replace(e.what)
}

func (x *shifter) visit(s *shift, depth int) {
	if s.moot || x.what != "" || x.limit > 0 && x.visited >= x.limit {
		return
	}
	h := s.digest(x.seed)
	if _, ok := x.seen[h]; ok {
		return
	}
	x.seen[h] = struct{}{}
	x.visited++
	fail := func(what string) {
		x.what = what + "\n"
		for _, e := range x.trail[:depth] {
			x.what += e.String() + "\n"
		}
		x.what += fmt.Sprintf("replicas %+v, places %v", s.w.items[:2], s.place)
		for i := range s.n {
			said, ok := s.actors[i].rule.Settled()
			x.what += fmt.Sprintf("\n command %d: %s %v %+v", i, history(&s.actors[i].rule), ok, said)
		}
	}
	if s.orders == (orders{}) {
		fail("no order explains all replies")
		return
	}
	over := !s.late[0].pending
	for i := range s.n {
		a := &s.actors[i]
		over = over && a.replied && a.rule.IsDone()
	}
	if over {
		last := x.copyOf(s, depth)
		if what := last.end(); what != "" {
			fail(what)
			return
		}
	}
	go1 := func(e event, f func(next *shift)) {
		if x.what != "" {
			return
		}
		next := x.copyOf(s, depth)
		f(next)
		x.trail = append(x.trail[:depth], e)
		x.visit(next, depth+1)
	}
	if s.late[0].pending {
		go1(event{what: "the late request runs"}, func(next *shift) {
			l := next.late[0]
			next.late[0] = lateAsk{}
			next.w.run(&next.actors[l.client].client, int(l.ask))
		})
	}
	for p := range 2 {
		if s.place[p] < s.last && s.place[p] <= s.place[1-p] && !over {
			go1(event{what: "proxy WHO sees the next state", who: p}, func(next *shift) { next.step(p) })
		}
		if !s.filled[p] && s.place[p] > toFlush {
			go1(event{what: "proxy WHO has filled the replica", who: p}, func(next *shift) { next.fill(p) })
		}
	}
	for i := range s.n {
		x.visitActor(s, i, go1)
	}
}

func (x *shifter) visitActor(s *shift, i int, go1 func(event, func(*shift))) {
	a := &s.actors[i]
	switch after := s.acts[i].after; {
	case !a.began && (after < 0 || s.actors[after].replied):
		go1(event{what: "command WHO begins", who: i}, func(next *shift) { next.begin(i) })
		return
	case !a.began:
		return
	case a.waits:
		if a.at != s.place[s.acts[i].proxy] {
			go1(event{what: "command WHO goes on", who: i}, func(next *shift) {
				if next.actors[i].goesOn {
					next.goOn(i)
				} else {
					next.begin(i)
				}
			})
		}
		if a.goesOn {
			go1(event{what: "the time of command WHO is over", who: i}, func(next *shift) { next.reply(i, Settlement{Answer: -1}, true) })
		}
		return
	case a.drops != 0:
		for m := range 2 {
			if a.drops.Has(m) {
				go1(event{what: "command WHO: drop at AT", who: i, at: m}, func(next *shift) { next.drop(i, m) })
			}
		}
		return
	}
	var busy Mask
	r := &a.rule
	for ask, e := range r.asks[:r.n] {
		if e.kind != pending || busy.Has(int(e.replica)) {
			continue
		}
		busy |= 1 << e.replica
		is := event{"command WHO: ASK at AT", i, int(e.replica), e.step}
		go1(is, func(next *shift) { next.tell(i, ask, next.run(i, ask)) })
		if e.step == Wait {
			continue
		}
		if s.faults > 0 && r.resumed {
			for _, ran := range []bool{false, true} {
				is.what = "command WHO: ASK at AT, no reply, not run"
				if ran {
					is.what = "command WHO: ASK at AT, no reply, but run"
				}
				go1(is, func(next *shift) {
					next.faults--
					if ran {
						next.run(i, ask)
					}
					next.tell(i, ask, Outcome{Kind: InDoubt})
				})
			}
			is.what = "command WHO: ASK at AT, not sent"
			go1(is, func(next *shift) {
				next.faults--
				next.tell(i, ask, Outcome{Kind: Unsent})
			})
		}
		if s.lates > 0 && r.resumed && e.step.leaves() {
			is.what = "command WHO: ASK at AT, late"
			go1(is, func(next *shift) {
				next.lates--
				next.late[0] = lateAsk{true, false, uint8(i), uint8(ask)}
				next.tell(i, ask, Outcome{Kind: InDoubt})
			})
		}
	}
}

// plots are the scenes. The first command is an add through proxy 0.
var plots = []struct {
	name string
	acts []act
}{
	{"a get", []act{{Add, 0, -1}, {Get, 1, -1}}},
	{"a delete", []act{{Add, 0, -1}, {Delete, 1, -1}}},
	{"an add", []act{{Add, 0, -1}, {Add, 1, -1}}},
	{"a set", []act{{Add, 0, -1}, {Set, 1, -1}}},
	{"two gets", []act{{Add, 0, -1}, {Get, 1, -1}, {Get, 1, 1}}},
	{"a get through each", []act{{Add, 0, -1}, {Get, 1, -1}, {Get, 0, 1}}},
	{"a delete and a get", []act{{Add, 0, -1}, {Delete, 1, -1}, {Get, 1, -1}}},
	{"a delete, then a get", []act{{Add, 0, -1}, {Delete, 1, -1}, {Get, 1, 1}}},
	{"an add and a get", []act{{Add, 0, -1}, {Add, 1, -1}, {Get, 1, -1}}},
	{"an add, then a get", []act{{Add, 0, -1}, {Add, 1, -1}, {Get, 0, 1}}},
	{"an add, then a delete", []act{{Add, 0, -1}, {Add, 1, -1}, {Delete, 1, 1}}},
	{"a delete, then an add", []act{{Add, 0, -1}, {Delete, 1, -1}, {Add, 1, 1}}},
	{"a set and a get", []act{{Add, 0, -1}, {Set, 1, -1}, {Get, 1, -1}}},
	{"a set, then a get", []act{{Add, 0, -1}, {Set, 1, -1}, {Get, 0, 1}}},
	{"a set, then a delete", []act{{Add, 0, -1}, {Set, 1, -1}, {Delete, 1, 1}}},
}

// ahead runs the first n requests of the add before anything else.
func (s *shift) ahead(n int) {
	s.begin(0)
	for ask := range n {
		s.tell(0, ask, s.run(0, ask))
	}
}

// survey says which scenes are explored.
type survey struct {
	then   remedy
	plots  int   // number of plots, from the first one
	steps  uint8 // how many states the replica moves on in each scene
	ahead  int   // number of requests of the add that run before anything else
	strict bool
	faults int // requests of an add that goes on, which have no reply
	lates  int // the same, but they run later
	limit  int // most states of a scene; 0: no limit
}

// find explores the scenes, and returns the first error and the number of states.
func (v survey) find() (what string, visited int) {
	for i, plot := range plots[:v.plots] {
		for mover := range 2 {
			for _, from := range []uint8{0, 2, 3, 4, 5} {
				for _, through := range []bool{true, false} {
					x := &shifter{seen: map[uint64]struct{}{}, seed: maphash.MakeSeed(), limit: v.limit}
					s := shift{n: len(plot.acts), mover: mover, place: [2]uint8{from, from}, last: min(from+v.steps, lastOf), through: through, strict: v.strict, then: v.then, faults: v.faults, lates: v.lates}
					copy(s.acts[:], plot.acts)
					for a := range s.n {
						s.actors[a].value = uint32(a + 1)
					}
					if from == 2 || from == toFlush {
						s.w.put(mover, 9)
					}
					s.orders.add(0)
					if v.ahead > 0 {
						s.ahead(v.ahead)
					}
					x.visit(&s, 0)
					if visited += x.visited; x.what != "" {
						return fmt.Sprintf("%s, replica %d begins as %s, read through %v: %s", plots[i].name, mover, stateNames[course[from]], through, x.what), visited
					}
				}
			}
		}
	}
	return "", visited
}

// TestShift shows that an add that goes on is correct, and so is an add that fails and leaves its value.
func TestShift(t *testing.T) {
	for _, then := range []remedy{resume, leave} {
		surveys := []survey{{plots: 4, steps: 2, ahead: 3, limit: 600}, {plots: 4, steps: 1, limit: 200}}
		if then == resume {
			surveys = append(surveys, survey{plots: 4, steps: 1, ahead: 3, faults: 1, limit: 300}, survey{plots: 4, steps: 1, ahead: 3, lates: 1, limit: 300})
		}
		for _, v := range surveys {
			v.then = then
			if testenv.Full() {
				v.plots, v.limit = len(plots), 10000
			}
			what, n := v.find()
			t.Logf("%s: %d states", remedyNames[then], n)
			if what != "" {
				t.Errorf("%s: %s", remedyNames[then], what)
			}
		}
	}
}

// TestShiftAblations shows what is wrong with other remedies.
func TestShiftAblations(t *testing.T) {
	for _, v := range []survey{{then: withdraw}, {then: believe}, {then: unchecked}, {then: afresh}} {
		v.plots, v.steps, v.ahead, v.limit = 4, 2, 3, 5000
		what, n := v.find()
		if what == "" {
			t.Errorf("%s: nothing is found in %d states", remedyNames[v.then], n)
		}
		t.Logf("%s, after %d states: %s", remedyNames[v.then], n, what)
	}
}
