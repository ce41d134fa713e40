package failover

// All interleavings of commands on one key while instances learn that its server is WARM. In RETURN the substitute
// server decides, and in WARM the key's own server. So no instance may change the key as in WARM while another one may
// do so as in RETURN. An instance that has just learned WARM is therefore in early WARM: it only reads.
// Each omission leaves out one part of that, and must break the guarantee that its name begins with.

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// The commands of this model, and the phases of an instance.
const (
	hGet   = iota
	hFetch // a get that copies the value back
	hSet
	hAdd
	hDelete
	hIncr
	hCommands
)

var handoffNames = [hCommands]string{"get", "get with a copy", "set", "add", "delete", "incr"}

const (
	hReturn = iota
	hEarly
	hWarm
)

var handoffPhases = [...]string{"RETURN", "early WARM", "WARM"}

// handoffItem is the key on one server.
type handoffItem struct {
	seq    uint8 // number of the write that has stored the value; 0: there is no value
	number uint8 // the value, for incr
	owner  uint8 // of a placeholder: the instance that has stored it, plus one; 0: it is none
}

func (it handoffItem) has() bool { return it.seq != 0 }

// handoffInstance is an instance with one client, which sends commands one after the other.
type handoffInstance struct {
	phase uint8
	done  uint8 // number of commands that have ended

	begun    bool
	as       uint8 // the phase in which the command began
	step     uint8
	side     bool // the delete at the other server has been carried out
	ran      bool // the client's request has been carried out
	fails    bool // the command has changed nothing
	result   handoffItem
	floor    uint8 // the newest write that was acknowledged when the command began
	sure     bool  // the key has existed since the command began, because no delete has begun
	deleted  bool  // a delete was in progress since the command began
	conflict bool  // a set or incr of another client was in progress since the command began: its two requests are not atomic
}

type handoffWorld struct {
	own, other handoffItem // the key at its own server, and at the substitute server
	seq        uint8       // number of writes
	floor      uint8       // the newest acknowledged write
	deletes    uint8       // number of deletes in progress
	sure       bool        // a value was acknowledged, and no delete has begun since
	added      bool        // an add was acknowledged, and no delete has begun since
	numbers    uint16      // the numbers that incr commands have returned
	instances  [3]handoffInstance
}

// handoffOmission leaves out parts of the protocol.
type handoffOmission struct {
	writes bool // an instance changes the key in early WARM
	hurry  bool // WARM is in force while a command that began in RETURN is in progress
	lone   bool // WARM is in force although an instance still knows RETURN
	first  bool // a read in early WARM asks only the key's own server
	second bool // a read in early WARM asks only the substitute server
}

type handoffExplorer struct {
	handoffOmission
	ops    [][]uint8 // by instance
	seen   map[handoffWorld]struct{}
	n      int
	path   []string
	broken string
}

func (x *handoffExplorer) fail(format string, args ...any) {
	if x.broken == "" {
		x.broken = fmt.Sprintf(format, args...) + "\n\t" + strings.Join(x.path, "\n\t")
	}
}

// visit explores the world that a step has made.
func (x *handoffExplorer) visit(w handoffWorld, i int, format string, args ...any) {
	if x.broken != "" {
		return
	}
	x.path = append(x.path, fmt.Sprint(i, " ")+fmt.Sprintf(format, args...)+fmt.Sprintf(" (own %v, other %v)", w.own, w.other))
	if c := &w.instances[i]; c.begun && x.over(i, c) {
		x.tell(&w, i)
	}
	if _, ok := x.seen[w]; !ok && x.broken == "" {
		x.seen[w] = struct{}{}
		x.n++
		x.expand(&w)
	}
	x.path = x.path[:len(x.path)-1]
}

func (x *handoffExplorer) expand(w *handoffWorld) {
	for i := range x.ops {
		c := &w.instances[i]
		switch {
		case c.phase == hReturn:
			next := *w
			next.instances[i].phase = hEarly
			x.visit(next, i, "learns WARM")
		case c.phase == hEarly && x.inForce(w):
			next := *w
			next.instances[i].phase = hWarm
			x.visit(next, i, "knows that all instances know WARM")
		}
		switch {
		case c.begun:
			x.advance(w, i)
		case int(c.done) < len(x.ops[i]) && (c.phase != hEarly || reads(x.op(i, c)) || x.writes):
			next := *w
			x.begin(&next, i)
			x.visit(next, i, "begins %s in %s", handoffNames[x.op(i, c)], handoffPhases[c.phase])
		}
	}
}

func (x *handoffExplorer) op(i int, c *handoffInstance) uint8 { return x.ops[i][c.done] }

// inForce reports whether a WAIT after the last instance has learned WARM may be over: all requests that were sent before
// have ended.
func (x *handoffExplorer) inForce(w *handoffWorld) bool {
	return !slices.ContainsFunc(w.instances[:len(x.ops)], func(c handoffInstance) bool {
		return c.phase == hReturn && !x.lone || c.begun && c.as == hReturn && !x.hurry
	})
}

func (x *handoffExplorer) begin(w *handoffWorld, i int) {
	c := &w.instances[i]
	*c = handoffInstance{phase: c.phase, done: c.done, begun: true, as: c.phase, floor: w.floor, sure: w.sure, deleted: w.deletes > 0}
	if !reads(x.op(i, c)) && c.as == hEarly {
		c.as = hWarm
	}
	for j := range x.ops {
		if o := &w.instances[j]; j != i && o.begun {
			o.conflict = o.conflict || moves(x.op(i, c))
			c.conflict = c.conflict || moves(x.op(j, o))
		}
	}
	if x.op(i, c) != hDelete {
		return
	}
	w.deletes++
	x.removed(w)
}

// removed records that a delete begins.
func (x *handoffExplorer) removed(w *handoffWorld) {
	w.sure, w.added = false, false
	for j := range x.ops {
		w.instances[j].sure, w.instances[j].deleted = false, w.instances[j].begun
	}
}

// moves reports whether a command deletes the value at one server when the other one does not have a value yet, or not for
// another client that has already looked there.
func moves(op uint8) bool { return op == hSet || op == hIncr }

// reads reports whether a command only reads.
func reads(op uint8) bool { return op <= hFetch }

// over reports whether the command of instance i has ended.
func (x *handoffExplorer) over(i int, c *handoffInstance) bool {
	if reads(x.op(i, c)) {
		return c.ran
	}
	return c.ran && (c.side || c.fails && c.as != hReturn)
}

// tell sends the client its reply, and checks it.
func (x *handoffExplorer) tell(w *handoffWorld, i int) {
	c := &w.instances[i]
	op := x.op(i, c)
	switch r := c.result; {
	case reads(op) && r.has() && r.seq < c.floor:
		x.fail("H1: an old value is read")
	case (reads(op) || op == hIncr) && !r.has() && c.sure && !c.conflict:
		x.fail("H2: %s does not find an acknowledged value", handoffNames[op])
	case op == hAdd && !c.fails && !c.conflict && (c.sure || w.added && !c.deleted):
		x.fail("H3: two adds are STORED")
	case op == hIncr && r.has() && w.numbers&(1<<r.number) != 0 && x.only(hGet, hFetch, hIncr):
		x.fail("H4: two increments return %d", r.number)
	}
	if op == hIncr && c.result.has() {
		w.numbers |= 1 << c.result.number
	}
	if op == hDelete {
		w.deletes--
	}
	if !reads(op) && !c.fails {
		w.floor = max(w.floor, c.result.seq)
	}
	if stores := op == hSet || op == hAdd && !c.fails; stores && !c.deleted {
		w.sure, w.added = true, w.added || op == hAdd
	}
	*c = handoffInstance{phase: c.phase, done: c.done + 1}
}

// only reports whether the clients send no other commands than these.
func (x *handoffExplorer) only(ops ...uint8) bool {
	return !slices.ContainsFunc(x.ops, func(list []uint8) bool {
		return slices.ContainsFunc(list, func(op uint8) bool { return !slices.Contains(ops, op) })
	})
}

// carryOut runs the client's request at the server with the item it, which has no placeholder.
func (x *handoffExplorer) carryOut(w *handoffWorld, i int, it *handoffItem) {
	c := &w.instances[i]
	c.ran = true
	switch op := x.op(i, c); {
	case op == hAdd && it.has(), op == hIncr && !it.has():
		c.fails = true
		return
	case op == hDelete:
		w.seq++
		*it, c.result = handoffItem{}, handoffItem{seq: w.seq}
		return
	case op == hIncr:
		it.number++
	}
	w.seq++
	*it = handoffItem{seq: w.seq, number: it.number}
	c.result = *it
}

// advance runs each request of instance i that may be carried out next.
func (x *handoffExplorer) advance(w *handoffWorld, i int) {
	op, c := x.op(i, &w.instances[i]), w.instances[i]
	next := *w
	n := &next.instances[i]
	switch {
	case op == hGet || op == hFetch && (c.step >= 3 || c.as == hReturn):
		x.read(w, i)
	case c.as == hReturn && !c.ran: // single.Begin: in turn
		x.carryOut(&next, i, &next.other)
		x.visit(next, i, "runs at the substitute server")
	case c.as == hReturn:
		next.own, n.side = handoffItem{}, true
		x.visit(next, i, "deletes at the own server")
	case op == hDelete && !c.side:
		next.other, n.side = handoffItem{}, true
		x.visit(next, i, "deletes at the substitute server")
	case op == hDelete:
		x.carryOut(&next, i, &next.own)
		x.visit(next, i, "deletes at the own server")
	case op != hSet && c.step < 3:
		x.copyBack(w, i)
	default:
		if !c.side {
			next.other, n.side = handoffItem{}, true
			x.visit(next, i, "deletes at the substitute server")
		}
		if next = *w; !c.ran && (op == hSet || next.own.owner == 0) {
			x.carryOut(&next, i, &next.own)
			x.visit(next, i, "runs at the own server")
		}
	}
}

// read runs the next request of a get.
func (x *handoffExplorer) read(w *handoffWorld, i int) {
	next := *w
	c := &next.instances[i]
	skips := c.as == hReturn || c.as == hEarly && x.second
	if at := &next.own; c.step != 1 && c.step != 4 && !skips {
		c.step, c.result = c.step+1, *at
		c.ran = at.has() || c.as == hEarly && x.first
		x.visit(next, i, "reads the own server")
		return
	}
	c.result, c.ran = next.other, true
	x.visit(next, i, "reads the substitute server")
}

// copyBack runs the next request of a backfill. A command that meets the placeholder of another instance waits.
func (x *handoffExplorer) copyBack(w *handoffWorld, i int) {
	next := *w
	c := &next.instances[i]
	mine := uint8(i) + 1
	switch {
	case c.step == 0 && next.own.owner != 0:
		return
	case c.step == 0 && next.own.has():
		if c.step = 3; x.op(i, c) == hAdd {
			c.ran, c.fails = true, true
		}
		x.visit(next, i, "finds the key")
	case c.step == 0:
		next.own, c.step = handoffItem{owner: mine}, 1
		x.visit(next, i, "stores a placeholder")
	case c.step == 1:
		c.result, c.step = next.other, 2
		x.visit(next, i, "fetches")
	case next.own.owner != mine: // another command has changed the key
		c.result, c.step = handoffItem{}, 0
		x.visit(next, i, "begins again")
	case c.result.has():
		next.own = c.result
		c.result, c.step = handoffItem{}, 3
		if x.op(i, c) == hAdd {
			c.ran, c.fails = true, true
		}
		x.visit(next, i, "fills")
	default:
		next.own, c.step = handoffItem{}, 3
		c.ran, c.fails = x.op(i, c) == hIncr, x.op(i, c) == hIncr
		x.visit(next, i, "removes its placeholder")
	}
}

// explore visits every state that the commands of the instances can reach.
func (x *handoffExplorer) explore(ops ...[]uint8) {
	for _, exists := range []bool{false, true} {
		if x.broken != "" {
			return
		}
		w := handoffWorld{}
		if exists {
			w.other, w.seq, w.floor, w.sure = handoffItem{seq: 1}, 1, 1, true
		}
		x.ops, x.seen = ops, map[handoffWorld]struct{}{}
		x.path = append(x.path[:0], fmt.Sprint(ops, " other ", w.other))
		x.expand(&w)
	}
}

// handoffs explores the commands of two and three instances. It stops when a guarantee is broken.
func (x *handoffExplorer) handoffs() {
	lists := [][]uint8{}
	for a := range uint8(hCommands) {
		for b := range uint8(hCommands) {
			if b != hFetch {
				lists = append(lists, []uint8{a, b})
			}
		}
	}
	for i, a := range lists {
		for j, b := range lists[:i+1] {
			if !testing.Short() || (i+j)%7 == 0 {
				x.explore(a, b)
			}
		}
	}
	for a := range uint8(hCommands) {
		for b := range a + 1 {
			for c := range b + 1 {
				if !testing.Short() {
					x.explore([]uint8{a, hGet}, []uint8{b}, []uint8{c})
				}
			}
		}
	}
}

func TestOneServerDecidesAtATime(t *testing.T) {
	x := &handoffExplorer{}
	if x.handoffs(); x.broken != "" {
		t.Error(x.broken)
	}
	t.Log(x.n, "states")
}

func TestWithoutEarlyWarmTwoServersDecide(t *testing.T) {
	for name, a := range map[string]handoffOmission{
		"H: an instance changes the key in early WARM":                  {writes: true},
		"H: WARM is in force while an instance knows RETURN":            {lone: true},
		"H: WARM is in force while a command of RETURN is in progress":  {hurry: true},
		"H2: a read in early WARM does not ask the substitute server":   {first: true},
		"H2: a read in early WARM does not ask the server that returns": {second: true},
	} {
		t.Run(name, func(t *testing.T) {
			x := &handoffExplorer{handoffOmission: a}
			x.handoffs()
			guarantee, _, _ := strings.Cut(name, ":")
			if !strings.HasPrefix(x.broken, guarantee) {
				t.Errorf("after %d states: %q", x.n, x.broken)
			}
			t.Log(x.n, "states", x.broken)
		})
	}
}
