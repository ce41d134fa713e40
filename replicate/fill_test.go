package replicate

// Every interleaving of commands on one key that another pool may have: two proxies, up to three commands, a
// copy, and one fault. Server 0 is the owner of the key, server 1 has the value of the source, and server 2 is
// the mark of the key, which the owner stores.

import (
	"fmt"
	"hash/maphash"
	"slices"
	"testing"

	"ringside/internal/testenv"
)

// fillFault is a fault that no rule may turn into an old value.
type fillFault uint8

const (
	fillNoFault fillFault = iota
	fillDies              // a proxy dies: its requests in flight may still arrive
	fillTimes             // a request times out, and may arrive late
	fillExpires           // a value that the owner has expires
	fillFaults
)

var fillFaultNames = []string{"no fault", "a proxy dies", "a request times out", "a value expires"}

// fillAblation is a rule of filling to leave out.
type fillAblation uint8

const (
	fillAll       fillAblation = iota
	fillBareAdd                // a copy stores the value with a bare add
	fillNoMark                 // mutations store no mark
	fillBlind                  // the mark is not looked at before a value is fetched to store it
	fillReadBlind              // a get does not look at the mark
	fillSetNoMark              // a set stores no mark
	fillNoClaim                // a set stores no placeholder
	fillIncrFirst              // an incr does not fetch the value of the source
)

type fillState struct {
	cut     [2]bool
	ended   uint8
	expired bool // the value at the owner may have expired
	since   uint8
	fault   fillFault
	paused  [2]bool // by proxy: it does not ask the source
}

type fillRun struct {
	w   world
	all [4]mover // three commands, and the copy
	fillState
}

const fillCopy = 3

type fillExplorer struct {
	without fillAblation
	search
	before uint32 // the value of the source; 0: none
}

func (x *fillExplorer) fail(s *fillRun, what string) {
	x.search.fail(what, slices.Clone(s.w.items[:]), s.all[:3])
}

func (x *fillExplorer) digest(s *fillRun) uint64 {
	var h maphash.Hash
	h.SetSeed(x.seed)
	for _, it := range s.w.items {
		digestItem(&h, it)
	}
	h.Write(raw(&s.fillState))
	for i := range s.all {
		c := &s.all[i]
		c.digest(&h, func(ask int) (item, bool) { return s.w.items[c.rule.asks[ask].replica], true })
	}
	return h.Sum64()
}

func (x *fillExplorer) visit(s fillRun, what string) {
	if !x.isOver() && x.enters(x.digest(&s), what) {
		x.expand(&s)
		x.leave()
	}
}

func (x *fillExplorer) expand(s *fillRun) {
	some := false
	try := func(what string, f func(n *fillRun)) {
		some = true
		n := *s
		f(&n)
		x.visit(n, what)
	}
	for i := range 3 {
		c := &s.all[i]
		if c.op == NumOps || c.runs || c.told {
			continue
		}
		for p := range uint8(2) {
			if s.cut[p] || p == 1 && !s.paused[1] && !s.cut[0] && !slices.ContainsFunc(s.all[:], func(c mover) bool { return c.begun }) {
				continue // proxies that have done nothing yet are alike
			}
			try(fmt.Sprintf("%d begins op %d at proxy %d", i, c.op, p), func(n *fillRun) { x.begin(n, i, p) })
		}
	}
	for i := range s.all {
		c := &s.all[i]
		var busy Mask
		for a, e := range c.rule.asks[:c.rule.n] {
			at := 1 << min(e.replica%2, 1) // the mark is at the same server as the key
			if !c.runs || e.kind != pending || busy&Mask(at) != 0 || a >= int(c.rule.given) {
				continue
			}
			busy |= Mask(at)
			what := fmt.Sprintf("%d: %s at %d", i, stepNames[e.step], e.replica)
			try(what, func(n *fillRun) { x.tell(n, i, a, x.execute(n, i, a)) })
			if e.replica == oldOwner && !c.fails && s.fault == fillTimes {
				try(what+" fails", func(n *fillRun) {
					n.fault = fillNoFault
					x.tell(n, i, a, Outcome{Kind: InDoubt})
				})
			}
			if s.fault == fillTimes && e.step != Wait && i < 3 && !c.told && e.replica != oldOwner {
				try(what+" times out", func(n *fillRun) {
					n.fault = fillNoFault
					n.end(i, Unmet, InDoubt)
					n.all[i].fails = true
				})
			}
		}
	}
	if s.fault == fillDies {
		for p := range 2 {
			try(fmt.Sprintf("proxy %d dies", p), func(n *fillRun) {
				n.fault, n.cut[p] = fillNoFault, true
				for i := range n.all {
					if c := &n.all[i]; int(c.proxy) == p && c.runs {
						if i < 3 && !c.told {
							n.end(i, Unmet, InDoubt)
						}
						c.fails = true
						if c.rule.open == 0 {
							n.rest(i)
						}
					} else if int(c.proxy) == p && c.begun && !c.told {
						n.end(i, Unmet, Unsent)
					}
				}
			})
		}
	}
	if it := s.w.items[0]; s.fault == fillExpires && it.has && !it.mark && it.value != x.before {
		try("the value expires", func(n *fillRun) {
			n.fault = fillNoFault
			n.expired, n.since = true, n.ended
			n.w.items[0] = item{}
		})
	}
	if s.w.items[0].mark && !x.owned(s) {
		try("the placeholder expires", func(n *fillRun) { n.w.items[0] = item{} })
	}
	if !some {
		x.check(s)
	}
}

// owned reports whether a command at work has the placeholder at the owner.
func (x *fillExplorer) owned(s *fillRun) bool {
	return owned(s.all[:], func(i, ask int) bool {
		return s.all[i].rule.asks[ask].replica == newOwner && s.all[i].cas[ask] == s.w.items[0].cas
	})
}

func (x *fillExplorer) begin(n *fillRun, i int, p uint8) {
	c := &n.all[i]
	c.before, c.begun, c.runs, c.proxy = n.ended, true, true, p
	source := Asked
	if n.paused[p] {
		source = Empty
	}
	c.rule = FillFrom(Command{Op: c.op}, source)
	x.advance(n, i)
}

func (x *fillExplorer) advance(n *fillRun, i int) {
	c := &n.all[i]
	r := &c.rule
	if said, ok := r.Settled(); ok && i < 3 && !c.told {
		n.end(i, said.Verdict, c.kindOf(said))
		if b := &n.all[fillCopy]; said.Repair != 0 && !b.runs {
			*b = mover{client: client{rule: FillKey()}, moverState: moverState{proxy: c.proxy, runs: true}}
			x.advance(n, fillCopy)
		}
	}
	switch {
	case r.IsDone() || c.fails && r.open == 0:
		n.rest(i)
	case !c.fails:
		var room [maxAsks]Ask
		r.Next(room[:0])
	}
}

func (n *fillRun) rest(i int) { n.all[i].rest(i < 3) }

func (n *fillRun) end(i int, v Verdict, k Kind) {
	if n.all[i].end(v, k) {
		n.ended |= 1 << i
	}
}

func (x *fillExplorer) execute(n *fillRun, i, a int) Outcome {
	c := &n.all[i]
	e := c.rule.asks[a]
	owner := &n.w.items[0]
	marks := e.replica == keyMark && e.step == PlaceTombstone
	switch {
	case x.without == fillBareAdd && i == fillCopy && e.step == Claim:
		if owner.has {
			return Outcome{Kind: NotStored}
		}
		return Outcome{Kind: Stored}
	case x.without == fillBareAdd && i == fillCopy && e.step == Fill:
		if owner.has {
			return Outcome{Kind: Exists}
		}
		n.w.put(0, c.fetched[e.from])
		return Outcome{Kind: Stored}
	case x.without == fillNoMark && marks, x.without == fillSetNoMark && marks && c.op == Set:
		return Outcome{Kind: Stored}
	case x.without == fillBlind && e.step == Look && e.replica == keyMark && (c.op != Get || i == fillCopy), x.without == fillReadBlind && e.step == Look && e.replica == keyMark && c.op == Get && i < 3:
		return Outcome{Kind: Miss}
	case x.without == fillNoClaim && c.op == Set && i < 3 && e.step == Claim:
		return Outcome{Kind: Stored}
	case x.without == fillIncrFirst && e.step == Fetch && c.op == Incr:
		return Outcome{Kind: Miss}
	}
	return n.w.execute(&c.client, a)
}

func (x *fillExplorer) tell(n *fillRun, i, a int, o Outcome) {
	c := &n.all[i]
	if c.fails {
		c.rule.asks[a].kind = InDoubt
		c.rule.open--
	} else {
		c.rule.HandleOutcome(a, o)
	}
	x.advance(n, i)
}

func (x *fillExplorer) check(s *fillRun) {
	for i := range 3 {
		if c := &s.all[i]; c.op != NumOps && !c.told && !(s.cut[0] && s.cut[1]) {
			x.fail(s, fmt.Sprintf("command %d is stuck", i))
			return
		}
	}
	if s.w.items[1] != (item{has: x.before != 0, value: x.before, cas: s.w.items[1].cas}) {
		x.fail(s, "the source was written")
		return
	}
	is := s.w.items[0]
	if !is.has && !s.w.items[2].has {
		is = s.w.items[1]
	}
	if !x.orders(s, x.before != 0, x.before, 0, is.has, is.value) {
		x.fail(s, "no order explains the replies")
	}
}

// orders is resizing.orders for a key of a pool that fills.
func (x *fillExplorer) orders(s *fillRun, has bool, value uint32, done uint8, finalHas bool, final uint32) bool {
	rest := false
	for i := range 3 {
		c := &s.all[i]
		if c.op == NumOps || done>>i&1 != 0 || !c.begun {
			continue
		}
		rest = rest || !c.failed
		if c.before&^done != 0 {
			continue
		}
		next := done | 1<<i
		h, v, ok := c.apply(has, value)
		if c.op == Delete && x.before == 0 && !has { // DELETED is also the reply if the source may have had a value
			ok = true
		}
		if !ok && !c.failed && s.paused[c.proxy] && value == x.before { // for this proxy, the value of the source does not exist, and a mutation hides it
			if h, v, ok = c.apply(false, 0); ok && c.op == Gets {
				h, v = has, value
			}
		}
		if (ok || c.failed) && x.orders(s, h, v, next, finalHas, final) {
			return true
		}
		if c.failed && has && c.op != Get && c.op != Gets && x.orders(s, false, 0, done, finalHas, final) { // it has stored its mark, and perhaps nothing else
			return true
		}
	}
	if has && value == x.before && slices.ContainsFunc(s.all[:3], func(c mover) bool {
		return c.begun && s.paused[c.proxy] && c.op != Get && c.op != Gets && c.before&^done == 0
	}) && x.orders(s, false, 0, done, finalHas, final) { // it hides the value of the source before it has another effect
		return true
	}
	if s.expired && has && s.since&^done == 0 && x.orders(s, false, 0, done, finalHas, final) {
		return true
	}
	return !rest && has == finalHas && (!has || value == final)
}

// fillCase is a mix of commands on a key of a pool that fills.
type fillCase struct {
	fault  fillFault
	ops    mix
	before uint32 // the value of the source; 0: none
	paused int    // this number of proxies does not ask the source
}

func (k fillCase) String() string {
	return fmt.Sprintf("%v, %s, %d paused, source %d", k.ops, fillFaultNames[k.fault], k.paused, k.before)
}

func (k fillCase) explore(without fillAblation, limit int) (what string, states int) {
	x := &fillExplorer{without: without, search: newSearch(limit), before: k.before}
	var s fillRun
	s.fault = k.fault
	if k.before != 0 {
		s.w.put(1, k.before)
	}
	s.paused = [2]bool{k.paused > 1, k.paused > 0}
	k.ops.load(s.all[:])
	x.visit(s, "")
	return x.what, len(x.seen)
}

// TestFills explores all mixes without a flush_all, which a pool that fills rejects.
func TestFills(t *testing.T) {
	usual := 3000
	if testenv.Full() {
		usual = 30000
	}
	for f := range fillFaults {
		sum := 0
		for _, ops := range mixes {
			if slices.Contains(ops[:], Flush) {
				continue
			}
			for _, before := range []uint32{old, 0} {
				for paused := range 2 {
					k := fillCase{f, ops, before, paused}
					what, n := k.explore(fillAll, manyStates(usual))
					if sum += n; what != "" {
						t.Fatalf("%v: %s", k, what)
					}
				}
			}
		}
		t.Logf("%s: %d states", fillFaultNames[f], sum)
	}
}

// For each rule that is left out, a case finds an error.
func TestFillAblations(t *testing.T) {
	is := func(before uint32, f fillFault, ops ...Op) fillCase {
		return fillCase{fault: f, ops: mixOf(ops...), before: before}
	}
	for _, a := range []struct {
		name    string
		without fillAblation
		finds   fillCase
	}{
		{"a copy with a bare add", fillBareAdd, is(old, fillNoFault, Get, Delete)},
		{"no mark", fillNoMark, is(old, fillNoFault, Delete, Get)},
		{"no mark of a set, whose value expires", fillSetNoMark, is(old, fillExpires, Set, Get)},
		{"no look at the mark before a fetch", fillBlind, is(old, fillNoFault, Delete, Incr)},
		{"a copy without a look at the mark", fillBlind, is(old, fillNoFault, Get, Delete)},
		{"a get without a look at the mark", fillReadBlind, is(old, fillNoFault, Delete, Get)},
		{"a set without a placeholder", fillNoClaim, is(old, fillNoFault, Set, Add)},
		{"an incr that ignores the source", fillIncrFirst, is(old, fillNoFault, Incr)},
	} {
		what, n := a.finds.explore(a.without, 100000)
		finds(t, a.name, what, n)
	}
}

// TestFillTakesEveryOutcome gives each command each outcome of each ask, and lets it begin again once.
func TestFillTakesEveryOutcome(t *testing.T) {
	visited := 0
	visit := func(c Command, owner OldOwner, begin Rule) {
		visited += everyOutcome(t, c, begin, func(r *Rule, asks []Ask) {
			for _, a := range asks {
				switch {
				case a.Replica == oldOwner && a.Step != Fetch && (a.Step != Forward || c.Op != Get), a.Replica == oldOwner && owner != Asked:
					t.Errorf("%+v %d: %s", c, owner, history(r))
				case !c.Reads() && changesOwner(a.Step) && (!r.OldIsEmpty() && owner != Empty || !r.Acted()):
					t.Errorf("%+v changes the owner before the source is hidden: %s", c, history(r))
				}
			}
		})
	}
	for _, c := range commands() {
		if c.Op == Flush { // a pool that fills rejects it
			continue
		}
		for _, owner := range []OldOwner{Asked, Emptied, Empty} {
			visit(c, owner, FillFrom(c, owner))
		}
	}
	visit(Command{}, Asked, FillKey())
	t.Log(visited, "states")
}
