package replicate

// Every interleaving of commands on one key while it moves from one server to another, with the
// stages of a resize: two or three proxies, each in the present stage or in the one before, up to
// three commands, the walker, a backfill, and one fault. Server 0 is the owner at first.

import (
	"fmt"
	"hash/maphash"
	"slices"
	"testing"

	"ringside/internal/testenv"
)

// resizeStage is a stage of a resize.
type resizeStage uint8

const (
	stStable   resizeStage = iota // keys are served by the old owner; after a resize by the new one, which is the old owner of the next resize
	stAnnounce                    // as stable; the new owner is swept
	stPause                       // as stable, but mutations wait
	stMove                        // the key moves
	stSettle                      // the old owner is not asked any more, only emptied
	stTurn                        // as the move in the other direction, which follows, but mutations wait and reads copy nothing
	stDark                        // in mode flush: reads miss, and mutations wait
	stCool                        // the new owner alone serves the key, but may have a placeholder of a proxy in settle
)

var resizeStageNames = []string{"stable", "announce", "pause", "move", "settle", "turn", "dark", "cool"}

// planned is a stage of a plan, with the owners of the key.
type planned struct {
	stage    resizeStage
	old, new uint8
}

// resizePlan is a sequence of stages.
type resizePlan struct {
	name   string
	stages []planned
}

var (
	forth    = []planned{{stStable, 0, 0}, {stAnnounce, 0, 1}, {stPause, 0, 1}, {stMove, 0, 1}, {stSettle, 0, 1}, {stCool, 0, 1}, {stStable, 1, 1}}
	reversed = []planned{{stTurn, 1, 0}, {stMove, 1, 0}, {stSettle, 1, 0}, {stCool, 1, 0}, {stStable, 0, 0}}
	forward  = []planned{{stTurn, 0, 1}, {stMove, 0, 1}, {stSettle, 0, 1}, {stCool, 0, 1}, {stStable, 1, 1}}

	there  = resizePlan{"there", forth}
	again  = resizePlan{"there and back again", slices.Concat(forth, []planned{{stAnnounce, 1, 0}, {stPause, 1, 0}, {stMove, 1, 0}, {stSettle, 1, 0}, {stCool, 1, 0}, {stStable, 0, 0}})}
	back   = resizePlan{"reversed in move", slices.Concat(forth[:4], reversed)}
	undone = resizePlan{"reversed in settle", slices.Concat(forth[:5], reversed)}
	twice  = resizePlan{"reversed twice", slices.Concat(forth[:4], reversed[:2], forward)}
	plans  = []resizePlan{there, again, back, undone, twice, flushed}

	// Mode flush moves nothing: while some proxies serve the key by the old owner or not at all, the others
	// do so by the new owner or not at all.
	flushed = resizePlan{"there and back again in mode flush", []planned{{stStable, 0, 0}, {stAnnounce, 0, 1}, {stDark, 0, 1}, {stStable, 1, 1}, {stAnnounce, 1, 0}, {stDark, 1, 0}, {stStable, 0, 0}}}
)

const (
	walker   = 3
	backfill = 4
	movers   = 5
)

type resizing struct {
	w   world
	all [movers]mover
	resizeState
}

type resizeState struct {
	stage    uint8    // the highest stage that a proxy knows, an index in the plan
	knows    [3]uint8 // by proxy: the stage that it is in
	cut      [3]bool  // by proxy: it has no leases
	left     [3]bool  // by proxy: it knows that the old owner is empty
	rejoins  bool     // it gets them again
	walked   bool     // the walk or sweep of this stage has found nothing left
	ended    uint8    // commands that have ended with a reply, a mask
	vanish   bool     // a fault may have removed the value
	vanished uint8    // commands that had ended before the fault
	fault    resizeFault
}

type resizeFault uint8

const (
	noFault  resizeFault = iota
	restarts             // a server restarts empty
	dies                 // a proxy dies
	loses                // a proxy loses its leases, and gets them again
	times                // a request times out, and may arrive late
	gap                  // a listing leaves out the key
)

var faultNames = []string{"no fault", "a restart", "a proxy dies", "a proxy loses its leases", "a request times out", "a gap in a listing"}

// resizeAblation is one rule of the protocol to leave out.
type resizeAblation uint8

const (
	allRules     resizeAblation = iota
	bareAdd                     // the backfill and the walker store with a bare add
	noWait                      // a stage does not wait until all proxies are in it
	noPause                     // move follows announce
	noTurn                      // move follows move
	noSweep                     // the new owner is not swept
	noWalk                      // nothing is moved
	deletingWalk                // the walk deletes what it should move
	noLastSweep                 // the old owner is not swept in settle
	noSettle                    // stable follows move
	settleKeeps                 // in settle the old owner is not emptied
	walkerNoCas                 // the walker's delete has no cas
	setKeepsOld                 // a set does not delete at the old owner
	setFirst                    // a set stores before it deletes at the old owner
	setNoMark                   // a set stores no placeholder
	setOverMark                 // a set ignores the placeholder of another command
	deleteFirst                 // a delete removes at the new owner first
	deleteNoMark                // a delete stores no placeholder
	deleteOnce                  // a delete does not begin again if its placeholder is gone
	addDrops                    // an add drops its placeholder and then adds
	incrKeepsOld                // an incr does not delete at the old owner
	incrNoMark                  // an incr says NOT_FOUND without its placeholder
	ownFile                     // a proxy goes to the last stage by its own file
	noCool                      // stable follows settle
	bareDelete                  // a delete does not depend on the value that it has seen
	blindOld                    // a delete takes a placeholder at the old owner for a value
	flushOnce                   // a flush_all is sent once
	trusts                      // a refused incr is believed
	resizeAblations
)

type resizeExplorer struct {
	plan    []planned
	without resizeAblation
	search
	proxies int
	rooms[resizing]
	flushes bool   // mode flush: the plan has no stage move
	before  uint32 // the value before; 0: none
}

func (x *resizeExplorer) fail(s *resizing, what string) {
	x.search.fail(what, slices.Clone(s.w.items[:2]), s.all[:3])
}

func (x *resizeExplorer) digest(s *resizing) uint64 {
	var h maphash.Hash
	h.SetSeed(x.seed)
	for _, it := range s.w.items[:2] {
		digestItem(&h, it)
	}
	h.Write(raw(&s.resizeState))
	for i := range s.all {
		c := &s.all[i]
		c.digest(&h, func(ask int) (item, bool) {
			m := x.serverOf(s, i, c.rule.asks[ask].replica)
			return s.w.items[m], c.life[ask] == s.w.life[m]
		})
	}
	return h.Sum64()
}

// server returns the server of a replica: replica 0 is the new owner, and replica 1 the old one. In
// the stages without a move there is only replica 0, the server in use.
func (p planned) server(replica uint8) int {
	switch {
	case p.stage == stAnnounce || p.stage == stPause || replica == oldOwner:
		return int(p.old)
	}
	return int(p.new)
}

// serverOf returns the server of a replica of mover i. The rule of a sweep has only one replica.
func (x *resizeExplorer) serverOf(s *resizing, i int, replica uint8) int {
	p := x.plan[s.all[i].began]
	switch {
	case i < 3 && s.all[i].op == Flush && p.old != p.new && p.stage >= stMove:
		return int(replica)
	case i < 3 && s.all[i].op == Flush:
		return int(p.old)
	case i == walker && p.stage == stAnnounce:
		return int(p.new)
	case i == walker && p.stage == stSettle:
		return int(p.old)
	}
	return p.server(replica)
}

func (x *resizeExplorer) visit(s *resizing, depth int, what string) {
	if !x.isOver() && x.enters(x.digest(s), what) {
		x.expand(s, depth)
		x.leave()
	}
}

func (x *resizeExplorer) expand(s *resizing, depth int) {
	some := false
	try := func(what string, f func(n *resizing)) {
		if x.what != "" {
			return
		}
		some = true
		n := x.copyOf(s, depth)
		f(n)
		x.visit(n, depth+1, what)
	}
	for i := range 3 {
		c := &s.all[i]
		if c.op == NumOps || c.runs || c.told {
			continue
		}
		for p := range uint8(x.proxies) {
			if c.begun && p != c.proxy || s.cut[p] || x.alike(s, int(p)) {
				continue
			}
			st := x.plan[s.knows[p]].stage
			if (st == stPause || st == stTurn || st == stDark) && c.op != Get {
				continue // it waits
			}
			try(fmt.Sprintf("%d begins op %d at proxy %d in %s", i, c.op, p, resizeStageNames[st]), func(n *resizing) { x.begin(n, i, p) })
		}
	}
	for i := range s.all {
		c := &s.all[i]
		if !c.runs {
			continue
		}
		var busy Mask
		for a, e := range c.rule.asks[:c.rule.n] {
			if e.kind != pending || busy.Has(int(e.replica)) || a >= int(c.rule.given) {
				continue
			}
			busy |= 1 << e.replica
			what := fmt.Sprintf("%d: %s at server %d", i, stepNames[e.step], x.serverOf(s, i, e.replica))
			try(what, func(n *resizing) { x.tell(n, i, a, x.execute(n, i, a)) })
			if s.fault == times && e.step != Wait && i < 3 && !c.told {
				try(what+" times out", func(n *resizing) {
					n.fault = noFault
					n.end(i, Unmet, InDoubt)
					n.all[i].fails = true
				})
			}
		}
	}
	for p := range x.proxies {
		if s.knows[p] < s.stage && !s.cut[p] {
			for keep := range 1 << movers {
				if !x.aborts(s, p, keep) {
					continue
				}
				try(fmt.Sprintf("proxy %d is in %s, requests %05b were sent before", p, resizeStageNames[x.plan[s.stage].stage], keep), func(n *resizing) { x.adopt(n, p, keep) })
			}
		}
	}
	if x.mayStep(s) {
		try("next stage", func(n *resizing) { x.step(n) })
	}
	if x.mayWalk(s) {
		try("a walk", func(n *resizing) { x.walk(n) })
		if s.fault == gap && x.plan[s.stage].stage == stMove {
			try("a walk that finds nothing", func(n *resizing) {
				n.fault = noFault
				n.lose()
				n.walked = true
			})
		}
	}
	x.faults(s, try)
	for m := range 2 {
		if s.w.items[m].mark && !x.owned(s, m) {
			try(fmt.Sprint("the placeholder at ", m, " expires"), func(n *resizing) { n.w.items[m] = item{} })
		}
	}
	if !some {
		x.check(s)
	}
}

// alike reports whether proxy p has done nothing yet, like the one before it.
func (x *resizeExplorer) alike(s *resizing, p int) bool {
	return p > 0 && s.knows[p] == s.knows[p-1] && s.cut[p] == s.cut[p-1] && !slices.ContainsFunc(s.all[:], func(c mover) bool { return (c.begun || c.runs) && int(c.proxy) >= p-1 })
}

// lose records that the value may be gone from now on.
func (s *resizing) lose() {
	if !s.vanish {
		s.vanish, s.vanished = true, s.ended
	}
}

// owned reports whether a command at work has the placeholder at server m.
func (x *resizeExplorer) owned(s *resizing, m int) bool {
	return owned(s.all[:], func(i, ask int) bool {
		c := &s.all[i]
		return x.serverOf(s, i, c.rule.asks[ask].replica) == m && c.cas[ask] == s.w.items[m].cas && c.life[ask] == s.w.life[m]
	})
}

func (x *resizeExplorer) faults(s *resizing, try func(string, func(*resizing))) {
	switch s.fault {
	case restarts:
		for m := range 2 {
			try(fmt.Sprint("server ", m, " restarts"), func(n *resizing) {
				n.fault = noFault
				n.lose()
				n.w.restart(m)
			})
		}
	case dies, loses:
		for p := range x.proxies {
			try(fmt.Sprintf("proxy %d: %s", p, faultNames[s.fault]), func(n *resizing) {
				n.cut[p] = true
				for i := range n.all {
					if c := &n.all[i]; int(c.proxy) == p && c.begun && !c.told {
						if c.runs && i < 3 {
							n.end(i, Unmet, InDoubt)
							c.fails = true
						} else if i < 3 {
							n.end(i, Unmet, Unsent)
						}
					} else if int(c.proxy) == p && c.runs && i >= 3 {
						c.fails = true
					}
				}
				n.rejoins = n.fault == loses
				n.fault = noFault
			})
		}
	}
	for p := range x.proxies {
		if s.cut[p] && s.rejoins {
			try(fmt.Sprint("proxy ", p, " is back"), func(n *resizing) { n.cut[p], n.knows[p], n.left[p] = false, n.stage, false })
		}
	}
}

func (x *resizeExplorer) begin(n *resizing, i int, p uint8) {
	c := &n.all[i]
	if !c.begun {
		c.before = n.ended
	}
	c.begun, c.runs, c.proxy, c.began, c.issued = true, true, p, n.knows[p], n.knows[p]
	if x.plan[c.began].stage == stDark {
		c.rule.settle(Absent, -1)
	} else {
		c.rule = x.ruleOf(c.op, x.plan[c.began], n.left[p])
	}
	x.advance(n, i)
}

func (x *resizeExplorer) ruleOf(op Op, p planned, left bool) Rule {
	c := Command{Op: op}
	switch {
	case op == Flush:
	case p.stage == stCool, left:
		return Relocate(c, Empty)
	case p.stage == stMove || p.stage == stTurn:
		return Relocate(c, Asked)
	case p.stage == stSettle:
		return Relocate(c, Emptied)
	}
	r := Rule{c: c, class: relocates, stage: relocated}
	r.answer, r.reply, r.from = -1, -1, -1
	if op != Flush {
		r.ask(0, Forward)
		return r
	}
	r.acted = true
	for range 2 { // both servers twice
		r.ask(newOwner, Remove)
		r.ask(oldOwner, Remove)
	}
	return r
}

// advance sends what the rule of a mover requests, and ends it.
func (x *resizeExplorer) advance(n *resizing, i int) {
	c := &n.all[i]
	r := &c.rule
	if said, ok := r.Settled(); ok && i < 3 && !c.told {
		n.end(i, said.Verdict, c.kindOf(said))
		x.note(n, i)
		if b := &n.all[backfill]; said.Repair != 0 && !b.runs && x.plan[n.knows[c.proxy]].stage == stMove && x.plan[c.began].stage == stMove && n.knows[c.proxy] == c.began {
			*b = mover{client: client{rule: Mend(0, 1, false, false)}, moverState: moverState{proxy: c.proxy, began: c.began, issued: c.began, runs: true}}
			x.advance(n, backfill)
		}
	}
	if r.IsDone() || c.fails && (r.open == 0 || c.op == Flush && r.open == 2 && r.given == 2) {
		if i == walker {
			said, ok := r.Settled()
			n.walked = ok && said.Verdict == Answered
		}
		n.rest(i)
		return
	}
	if c.fails {
		return
	}
	if r.given < r.n {
		if !x.compatible(c.began, n.knows[c.proxy]) || n.cut[c.proxy] {
			x.abort(n, i)
			return
		}
		var room [maxAsks]Ask
		switch {
		case c.op != Flush || i >= 3:
			r.Next(room[:0])
		case r.open == 4 || r.open == 2:
			r.given += 2
		default:
			return
		}
		c.issued = n.knows[c.proxy]
	}
}

// compatible reports whether a command that began in the stage a may send a request in the stage b.
func (x *resizeExplorer) compatible(a, b uint8) bool {
	return a == b || x.plan[a].stage == stMove && x.plan[b].stage == stSettle && x.plan[a].new == x.plan[b].new
}

// abort ends a command that may not send its next request.
func (x *resizeExplorer) abort(n *resizing, i int) {
	c := &n.all[i]
	switch {
	case i >= 3 || c.told:
		n.rest(i)
	case c.rule.Acted():
		n.end(i, Unmet, Unsent)
		n.rest(i)
	default: // it begins again
		n.rest(i)
		c.told, c.began, c.issued = false, 0, 0
	}
}

func (n *resizing) rest(i int) { n.all[i].rest(i < 3) }

// end tells a client the result.
func (n *resizing) end(i int, v Verdict, k Kind) {
	if n.all[i].end(v, k) {
		n.ended |= 1 << i
	}
}

func (x *resizeExplorer) execute(n *resizing, i, a int) Outcome {
	c := &n.all[i]
	e := c.rule.asks[a]
	m := x.serverOf(n, i, e.replica)
	if m != int(e.replica) {
		n.w.swap()
		defer n.w.swap()
	}
	r := int(e.replica)
	if st := x.plan[c.began].stage; st < stMove && i < 3 && n.w.items[r].mark {
		x.fail(n, fmt.Sprintf("command %d meets a placeholder in %s", i, resizeStageNames[st]))
	}
	set, del, incr := c.op == Set && i < 3, c.op == Delete && i < 3, c.op == Incr && i < 3
	moves := c.rule.class == relocates
	switch {
	case x.without == bareAdd && i >= walker && e.step == Claim && x.plan[c.began].stage == stMove:
		if n.w.items[r].has {
			return Outcome{Kind: NotStored}
		}
		return Outcome{Kind: Stored}
	case x.without == bareAdd && i >= walker && e.step == Fill:
		if n.w.items[r].has {
			return Outcome{Kind: Exists}
		}
		n.w.put(r, c.fetched[e.from])
		return Outcome{Kind: Stored}
	case x.without == walkerNoCas && i == walker && e.step == Drop && e.replica == 1:
		return n.w.remove(r)
	case x.without == setKeepsOld && set && e.step == Remove, x.without == incrKeepsOld && incr && e.step == Remove,
		x.without == settleKeeps && i < 3 && e.step == Remove && x.plan[c.began].stage == stSettle:
		return Outcome{Kind: NotFound}
	case x.without == setFirst && set && moves && e.step == Remove:
		n.w.put(1-r, c.value)
		return Outcome{Kind: NotFound}
	case x.without == setFirst && set && moves && e.step == Forward && x.plan[c.began].stage >= stMove && c.rule.n > 1:
		n.w.items[1-r] = item{}
		return Outcome{Kind: Stored}
	case x.without == setNoMark && set && e.step == Claim, x.without == deleteNoMark && del && e.step == Claim, x.without == incrNoMark && incr && e.step == Claim:
		if n.w.items[r].has {
			return Outcome{Kind: NotStored}
		}
		return Outcome{Kind: Stored}
	case x.without == setOverMark && set && e.step == Look && n.w.items[r].mark:
		return Outcome{Kind: Hit}
	case (x.without == deleteNoMark || x.without == deleteOnce) && del && e.step == Drop && c.rule.held != 0, x.without == incrNoMark && incr && e.step == Drop:
		if x.without == deleteOnce {
			n.w.execute(&c.client, a)
			return Outcome{Kind: Deleted}
		}
		n.w.items[r] = item{}
		return Outcome{Kind: Deleted}
	case x.without == blindOld && del && e.step == Look && e.replica == oldOwner, x.without == trusts && incr && e.step == Check:
		return Outcome{Kind: Hit}
	case x.without == bareDelete && del && e.step == Drop && c.rule.held == 0:
		return n.w.remove(r)
	case x.without == deleteFirst && del && e.step == Remove && c.rule.held == 0:
		return n.w.remove(1 - r)
	case x.without == deleteFirst && del && e.step == Drop && c.rule.held == 0:
		o := n.w.remove(1 - r)
		return Outcome{Kind: max(o.Kind, Deleted)}
	case x.without == addDrops && c.op == Add && i < 3 && e.step == Store:
		if it := n.w.items[r]; it.mark && it.cas == c.cas[e.guard] {
			n.w.items[r] = item{}
			c.rule.asks[a].step = Forward
			return Outcome{Kind: pending}
		}
		return Outcome{Kind: NotStored}
	}
	return n.w.execute(&c.client, a)
}

// swap exchanges the two servers.
func (w *world) swap() {
	w.items[0], w.items[1] = w.items[1], w.items[0]
	w.count[0], w.count[1] = w.count[1], w.count[0]
	w.life[0], w.life[1] = w.life[1], w.life[0]
}

func (x *resizeExplorer) tell(n *resizing, i, a int, o Outcome) {
	c := &n.all[i]
	switch st := x.plan[c.began].stage; {
	case c.op == Flush && i < 3:
		c.rule.asks[a].kind = o.Kind
		c.rule.open--
		if x.without == flushOnce && c.rule.open == 2 {
			c.rule.open, c.rule.n = 0, 2
		}
		if c.rule.open == 0 && !c.fails {
			c.rule.settle(Done, -1)
		}
	case c.fails: // the reply comes too late
		c.rule.asks[a].kind = InDoubt
		c.rule.open--
	case x.without == addDrops && c.op == Add && c.rule.asks[a].step == Forward && o.Kind != pending, (st < stMove || st == stDark) && i < 3: // the client gets the reply of the only server
		c.rule.asks[a].kind = o.Kind
		c.rule.open--
		c.rule.settle(Answered, a)
	default:
		c.rule.HandleOutcome(a, o)
	}
	x.advance(n, i)
}

// note records whether the proxy of command i, which has ended, knows that the old owner is empty.
func (x *resizeExplorer) note(n *resizing, i int) {
	c := &n.all[i]
	if st := x.plan[c.began].stage; c.op != Flush && !c.failed && (st == stMove || st == stSettle) && x.compatible(c.began, n.knows[c.proxy]) && c.rule.OldIsEmpty() {
		n.left[c.proxy] = true
	}
}

// aborts reports whether keep is a choice: it has one bit for each mover of proxy p with requests in
// flight, which must not continue in the next stage, and says whether they were sent.
func (x *resizeExplorer) aborts(s *resizing, p, keep int) bool {
	for i := range s.all {
		c := &s.all[i]
		choice := c.runs && int(c.proxy) == p && !c.fails && !x.compatible(c.began, s.stage)
		if !choice && keep>>i&1 != 0 {
			return false
		}
	}
	return true
}

func (x *resizeExplorer) adopt(n *resizing, p, keep int) {
	n.knows[p] = n.stage
	n.left[p] = n.left[p] && x.plan[n.stage].stage == stSettle
	for i := range n.all {
		c := &n.all[i]
		if c.runs && int(c.proxy) == p && !c.fails && !x.compatible(c.began, n.stage) && keep>>i&1 == 0 {
			x.abort(n, i)
		}
	}
}

// waited reports whether the stage has stood for a WAIT: all proxies with leases are in it, and all
// requests that were sent in an earlier stage have ended.
func (x *resizeExplorer) waited(s *resizing) bool {
	if x.without == noWait {
		return true
	}
	for p := range x.proxies {
		if s.knows[p] < s.stage && !s.cut[p] {
			return false
		}
	}
	for i := range s.all {
		if c := &s.all[i]; c.runs && c.issued < s.stage && !(c.fails && i == walker && c.rule.stage == leaving) { // a delete of the walker may arrive at any time
			return false
		}
	}
	return true
}

func (x *resizeExplorer) mayStep(s *resizing) bool {
	if int(s.stage) == len(x.plan)-1 || !x.waited(s) {
		return false
	}
	switch st := x.plan[s.stage].stage; st {
	case stAnnounce:
		return s.walked || x.without == noSweep
	case stMove:
		return s.walked || x.without == noWalk || x.next(s).stage == stTurn || x.next(s).stage == stMove
	case stSettle:
		return s.walked || x.without == noLastSweep || x.next(s).stage == stTurn
	case stCool:
		for m := range 2 {
			if s.w.items[m].mark {
				return false // a placeholder may still live
			}
		}
	}
	return true
}

func (x *resizeExplorer) next(s *resizing) planned { return x.plan[s.stage+1] }

func (x *resizeExplorer) step(n *resizing) {
	if x.flushes && x.plan[n.stage].stage == stDark {
		n.lose() // the value stays at the old owner
	}
	n.stage++
	n.walked = false
}

// mayWalk reports whether a walk or a sweep may begin.
func (x *resizeExplorer) mayWalk(s *resizing) bool {
	if s.all[walker].runs || s.walked || int(s.stage) == len(x.plan)-1 || x.walkerProxy(s) < 0 {
		return false
	}
	switch x.plan[s.stage].stage {
	case stAnnounce:
		return x.without != noSweep
	case stMove:
		return x.without != noWalk && x.waited(s)
	case stSettle:
		return x.without != noLastSweep && x.waited(s)
	}
	return false
}

// walkerProxy returns a proxy that walks in this stage; -1: none.
func (x *resizeExplorer) walkerProxy(s *resizing) int {
	for p := range x.proxies {
		if !s.cut[p] && s.knows[p] == s.stage {
			return p
		}
	}
	return -1
}

func (x *resizeExplorer) walk(n *resizing) {
	c := &n.all[walker]
	*c = mover{moverState: moverState{proxy: uint8(x.walkerProxy(n)), began: n.stage, issued: n.stage, runs: true}}
	c.rule = Move(0, 0, 0, false)
	if x.plan[n.stage].stage == stMove && x.without != deletingWalk {
		c.rule = Depart()
	} else if x.plan[n.stage].stage == stMove {
		c.rule = Move(0, 0, 1, false)
	}
	x.advance(n, walker)
}

// check checks a state in which nothing can happen any more.
func (x *resizeExplorer) check(s *resizing) {
	for i := range 3 {
		if c := &s.all[i]; c.op != NumOps && !c.told && slices.Contains(s.cut[:x.proxies], false) && !s.cut[c.proxy] {
			x.fail(s, fmt.Sprintf("command %d is stuck", i))
			return
		}
	}
	if int(s.stage) != len(x.plan)-1 {
		x.fail(s, "the resize is stuck")
		return
	}
	owner := x.plan[s.stage].new
	if s.w.items[1-owner].has && !x.flushes {
		x.fail(s, "the key is left at the other server")
		return
	}
	it := s.w.items[owner]
	if !s.orders(x.before != 0, x.before, 0, it.has, it.value) {
		x.fail(s, "no order explains the replies")
	}
}

// orders reports whether an order of the commands that are not in done explains their replies and
// the final value.
func (s *resizing) orders(has bool, value uint32, done uint8, finalHas bool, final uint32) bool {
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
		if c.failed {
			if c.op == Set && has && s.orders(false, 0, done, finalHas, final) { // it has emptied the old owner, and may store its value later
				return true
			}
			if h, v, _ := c.apply(has, value); s.orders(h, v, next, finalHas, final) {
				return true
			}
			continue
		}
		if h, v, ok := c.apply(has, value); ok && s.orders(h, v, next, finalHas, final) {
			return true
		}
	}
	if s.vanish && has && s.vanished&^done == 0 && s.orders(false, 0, done, finalHas, final) {
		return true
	}
	return !rest && has == finalHas && (!has || value == final)
}

// resizeCase is a mix of commands during a plan.
type resizeCase struct {
	plan    resizePlan
	fault   resizeFault
	ops     mix
	before  [2]uint32 // what the servers have before; 0: nothing
	proxies int
}

func (k resizeCase) explore(without resizeAblation, limit int) (what string, states int) {
	plan := slices.DeleteFunc(slices.Clone(k.plan.stages), func(p planned) bool {
		return without == noPause && (p.stage == stPause || p.stage == stDark) || without == noTurn && p.stage == stTurn || without == noSettle && (p.stage == stSettle || p.stage == stCool) || without == noCool && p.stage == stCool
	})
	x := &resizeExplorer{plan: plan, without: without, search: newSearch(limit), proxies: k.proxies, before: k.before[0], flushes: !slices.ContainsFunc(plan, func(p planned) bool { return p.stage == stMove })}
	var s resizing
	s.fault = k.fault
	for m, v := range k.before {
		if v != 0 {
			s.w.put(m, v)
		}
	}
	k.ops.load(s.all[:])
	if without == ownFile {
		s.knows[1] = uint8(len(plan) - 1)
	}
	x.visit(&s, 0, "")
	return x.what, len(x.seen)
}

func (k resizeCase) String() string {
	return fmt.Sprintf("%v, %s, %s, %v", k.ops, k.plan.name, faultNames[k.fault], k.before)
}

// TestRelocations explores all mixes in the full tier, and all states of them in a soak. Otherwise it
// explores a part of the states of some mixes.
func TestRelocations(t *testing.T) {
	usual, few := 2500, mixes[:22]
	if testenv.Full() {
		usual, few = 12000, mixes
	}
	for _, plan := range plans {
		for f := range faultNames {
			sum := 0
			for i, ops := range few {
				for j, before := range [][2]uint32{{old, 0}, {0, 0}, {old, stray}} {
					if usual < 12000 && (i+j+f)%3 != 0 { // each mix begins with each of them, with another fault
						continue
					}
					k := resizeCase{plan, resizeFault(f), ops, before, 2}
					what, n := k.explore(allRules, manyStates(usual))
					if sum += n; what != "" {
						t.Errorf("%v: %s", k, what)
					}
				}
			}
			t.Logf("%s, %s: %d states", plan.name, faultNames[f], sum)
		}
	}
}

// TestRelocationsOfThreeProxies explores some mixes with a third proxy.
func TestRelocationsOfThreeProxies(t *testing.T) {
	for _, plan := range plans {
		for _, ops := range mixes {
			if ops[2] == NumOps && testenv.Full() || ops[0] == Get && ops[1] == Set {
				k := resizeCase{plan, noFault, ops, [2]uint32{old, 0}, 3}
				what, n := k.explore(allRules, manyStates(60000))
				if what != "" {
					t.Errorf("%v: %s", k, what)
				}
				t.Logf("%v: %d states", k, n)
			}
		}
	}
}

const stray = 7 // a value that the new owner has before the resize

// For each rule that is left out, a case finds an error.
func TestRelocationAblations(t *testing.T) {
	is := func(v uint32, plan resizePlan, f resizeFault, ops ...Op) resizeCase {
		return resizeCase{plan: plan, fault: f, ops: mixOf(ops...), before: [2]uint32{v, 0}, proxies: 2}
	}
	dirty := is(old, there, noFault, Get, Set)
	dirty.before[1] = stray
	dirtied := is(old, flushed, noFault, Get, Set)
	dirtied.before[1] = stray
	for _, a := range []struct {
		name    string
		without resizeAblation
		finds   resizeCase
	}{
		{"a backfill with a bare add", bareAdd, is(old, there, noFault, Get, Delete)},
		{"no WAIT between stages", noWait, is(old, there, noFault, Get, Set)},
		{"no pause", noPause, is(old, there, noFault, Get, Set)},
		{"mode flush without the stage in which reads miss", noPause, is(old, flushed, noFault, Get, Set)},
		{"no turn", noTurn, is(old, back, noFault, Get, Set)},
		{"no sweep in announce", noSweep, dirty},
		{"no sweep in announce, in mode flush", noSweep, dirtied},
		{"no walk", noWalk, is(old, there, noFault, Get, Set)},
		{"a walk that deletes", deletingWalk, is(old, there, noFault, Get, Set)},
		{"no last sweep", noLastSweep, is(old, there, gap, Get, Set)},
		{"no settle", noSettle, is(old, there, noFault, Get, Set)},
		{"no cool", noCool, is(0, there, noFault, Get, Add)},
		{"settle does not empty the old owner", settleKeeps, is(old, undone, gap, Get, Set)},
		{"an add in settle does not empty the old owner", settleKeeps, is(old, undone, gap, Get, Add)},
		{"the walker's deletes without a cas", walkerNoCas, is(old, back, dies, Set)},
		{"a set leaves the old owner alone", setKeepsOld, is(old, there, restarts, Get, Set)},
		{"a set stores before it deletes", setFirst, is(old, there, restarts, Set)},
		{"a set without a placeholder", setNoMark, is(old, there, noFault, Set, Delete)},
		{"a set over a placeholder", setOverMark, is(old, there, noFault, Set, Set, Add)},
		{"a delete at the new owner first", deleteFirst, is(old, there, noFault, Get, Delete)},
		{"a delete without a placeholder", deleteNoMark, is(old, there, noFault, Delete, Add, Add)},
		{"a delete that does not begin again", deleteOnce, is(old, there, restarts, Get, Delete)},
		{"a delete of any item", bareDelete, is(old, there, noFault, Delete, Delete, Add)},
		{"a delete takes the old owner's placeholder for a value", blindOld, is(0, back, noFault, Delete, Delete)},
		{"an add without its placeholder", addDrops, is(0, there, noFault, Add, Add)},
		{"an incr leaves the old owner alone", incrKeepsOld, is(old, there, restarts, Get, Incr)},
		{"an incr without a placeholder", incrNoMark, is(old, there, noFault, Get, Incr)},
		{"a flush_all that is sent once", flushOnce, is(old, there, noFault, Flush, Get)},
		{"a refused incr is believed", trusts, is(old, there, restarts, Get, Incr)},
		{"a started proxy goes by its own file", ownFile, is(old, there, noFault, Get, Set)},
	} {
		what, n := a.finds.explore(a.without, 100000)
		finds(t, a.name, what, n)
	}
}

// TestRelocateTakesEveryOutcome gives each command each outcome of each ask, and lets it begin again once.
func TestRelocateTakesEveryOutcome(t *testing.T) {
	visited := 0
	for _, c := range commands() {
		if c.Op == Flush { // it is sent to all servers, and not about a key
			continue
		}
		for _, owner := range []OldOwner{Asked, Emptied, Empty} {
			visited += everyOutcome(t, c, Relocate(c, owner), func(r *Rule, asks []Ask) {
				for _, a := range asks {
					switch {
					case owner == Empty && a.Replica != newOwner, owner == Emptied && a.Replica == oldOwner && a.Step == Fetch:
						t.Errorf("%+v %d: %s", c, owner, history(r))
					case r.class == relocates && changesOwner(a.Step) && owner != Empty && (!r.OldIsEmpty() || !r.Acted()):
						t.Errorf("%+v changes the new owner before the old owner is empty: %s", c, history(r))
					case r.class == relocates && changesOwner(a.Step) && !r.Concludes():
						t.Errorf("%+v makes its last request unnoticed: %s", c, history(r))
					}
				}
				withdraws(t, *r)
			})
		}
	}
	t.Log(visited, "states")
}

// withdraws checks that r removes the value that it has stored, if it has, by the cas that the server has replied.
func withdraws(t *testing.T, r Rule) {
	s, ok := r.Settled()
	if !ok || !r.IsDone() || r.class != relocates {
		return
	}
	stored := s.Answer >= 0 && r.asks[s.Answer].kind == Stored
	if r.Withdraw() != stored {
		t.Errorf("stored %v: %s", stored, history(&r))
	}
	var room [maxAsks]Ask
	for _, a := range r.Next(room[:0]) {
		if blind := r.asks[s.Answer].step == Forward; a.Replica != newOwner || a.Guard != s.Answer || a.Step != Drop && !blind || a.Step != Remove && blind {
			t.Errorf("%+v after %s", a, history(&r))
		}
		for _, k := range []Kind{Deleted, NotFound, Exists, InDoubt} {
			last := r
			if last.HandleOutcome(a.Number, Outcome{Kind: k}); !last.IsDone() {
				t.Errorf("%+v: %s", k, history(&last))
			}
		}
	}
}

func TestRelocateDoesNotAllocate(t *testing.T) {
	room := make([]Ask, 0, maxAsks)
	for _, c := range []Command{{Op: Get}, {Op: Set}, {Op: Incr}} {
		if n := testing.AllocsPerRun(100, func() {
			r := Relocate(c, Asked)
			r.Next(room)
		}); n != 0 {
			t.Errorf("%+v: %v allocations", c, n)
		}
	}
}
