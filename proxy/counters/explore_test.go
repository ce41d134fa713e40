package counters

// This file runs the rules of rule.go in every order of events, breadth first, and checks each state.
// Each ablation leaves out one clause of a rule, and must break the guarantee that its name begins with.
//
// The i-th increment adds 16^i, so the digits of a number show which increments it has, and how often.

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"testing"

	"ringside/proxy/wire"
)

// set is a set of increments: in hexadecimal digit i, how often it has increment i.
type set uint64

// has reports whether s has all increments of o.
func (s set) has(o set) bool {
	for ; o > 0; s, o = s>>4, o>>4 {
		if s&15 < o&15 {
			return false
		}
	}
	return true
}

// without returns the increments of s that o does not have.
func (s set) without(o set) (left set) {
	for i := 0; i < 64; i += 4 {
		if o>>i&15 == 0 {
			left |= s & (15 << i)
		}
	}
	return left
}

// twice reports whether s has an increment more than once.
func (s set) twice() bool { return s&0xeeeeeeeeeeeeeeee != 0 }

// The states of a command or request.
const (
	idle    = iota
	waits   // in the queue of the counter
	starts  // in the list of commands that start at the end of the wakeup
	behind  // waits for the request that sends the increments
	sentOff // sent to the server
	done    // executed by the server
)

// bufferedClient is a client with its command. The last one is the counter itself, with the request
// that sends the increments.
type bufferedClient struct {
	state  uint8
	class  class
	delta  set
	number set // the number in the server's reply
	found  bool
	floor  set // increments that the command must see

	buffered bool // the command runs by the rule, and not as on a route without a buffer
}

const (
	bufferedClients = 3
	classes         = replaces + 1
)

type bufferedWorld struct {
	b       buffered
	exists  bool // the loop has a sum for the counter
	armed   bool // the timer of the sum is set
	clients [bufferedClients + 1]bufferedClient
	order   [bufferedClients]uint8 // the clients that wait or start, in order: 1 + the index

	missing bool // the server has no item
	value   set

	made    uint8 // number of increments so far
	acked   set   // increments that a client got a number for
	lost    set   // increments that were reported as lost
	void    set   // increments that a set or delete has replaced
	overdue uint8 // number of reads that have begun since the increments were overdue

	left     [classes]uint8 // how many more commands of each class there may be
	failures uint8          // how many more requests may fail
}

type bufferedAblation struct {
	repeats     bool // increments in doubt are sent again
	forgets     bool // the sum is removed although increments wait
	readsAlong  bool // reads do not wait for the request that sends the increments
	sendsAlong  bool // the increments are sent while a read is in progress
	keepsVoid   bool // a set does not replace what waits
	dropsUnsent bool // a set that was not sent replaces what waits
	dropsBad    bool // a set that was rejected replaces what waits
	staysWarm   bool // increments are buffered while a set or a decr is in progress
	goesOn      bool // a decr is sent although the increments could not be sent
	skips       bool // a decr does not wait until the increments are sent
	hides       bool // increments in flight are not part of the number in a reply
	overtakes   bool // reads start although the increments are overdue
	unplanned   bool // the sum is not planned after a failure
}

type bufferedExplorer struct {
	bufferedAblation
	seed   maphash.Seed
	seen   map[uint64]bool
	queue  []bufferedWorld
	events []bufferedEvent // the events that have led to the worlds in queue
	at     int             // index in queue of the world that is expanded
	broken string          // the guarantee that does not hold, with the events
}

// bufferedEvent is an event that has led from a world to another one.
type bufferedEvent struct {
	from   int // index of the former world in queue; -1: none
	client int
	what   string
	number set
}

func (e bufferedEvent) String() string {
	return fmt.Sprintf("\n\tclient %d: %s %x", e.client, e.what, e.number)
}

func (x *bufferedExplorer) fail(format string, args ...any) {
	if x.broken != "" {
		return
	}
	x.broken = fmt.Sprintf(format, args...)
	var path []string
	for i := x.at; i >= 0; i = x.events[i].from {
		path = append(path, x.events[i].String())
	}
	slices.Reverse(path)
	x.broken += strings.Join(path, "")
}

func (x *bufferedExplorer) visit(w bufferedWorld, client int, what string, number set) {
	e := bufferedEvent{x.at, client, what, number}
	if x.broken != "" {
		if x.queue != nil {
			x.broken += e.String()
		}
		x.queue = nil
		return
	}
	h := maphash.Comparable(x.seed, w)
	if x.seen[h] {
		return
	}
	x.seen[h] = true
	x.queue = append(x.queue, w)
	x.events = append(x.events, e)
}

// owed returns the increments that were answered, and that the counter must have or get.
func (w *bufferedWorld) owed() set { return w.acked.without(w.lost).without(w.void) }

// arrive models Counters.leadBuffered.
func (x *bufferedExplorer) arrive(w *bufferedWorld, i int) {
	c := &w.clients[i]
	c.state, c.buffered = sentOff, w.exists || c.class == adds
	if !w.exists {
		if c.class != adds {
			return
		}
		w.b, w.exists, w.armed = buffered{}, true, false
	}
	b := &w.b
	before := *b
	a := b.arrive(c.class, uint64(c.delta), 0)
	switch {
	case x.readsAlong && c.class == reads && a == wait && !before.overdue,
		x.overtakes && c.class == reads && a == wait && !before.alone:
		b.readers++
		a = send
	case x.skips && a == sendSum:
		*b = before
		b.start()
		a = send
	}
	if x.staysWarm && a == send && c.class != reads {
		b.warm = before.warm
	}
	switch a {
	case reply:
		shown := set(b.shown(false))
		if x.hides {
			shown -= set(b.inFlight.sum)
		}
		x.answer(w, i, shown, true)
	case wait:
		c.state = waits
		w.push(i)
	case send:
		if c.class == reads && before.overdue {
			w.overdue++
		}
	case sendSum:
		c.state = behind
		w.clients[bufferedClients] = bufferedClient{state: sentOff, delta: set(b.inFlight.sum)}
	}
}

func (w *bufferedWorld) push(i int) {
	for at := range w.order {
		if w.order[at] == 0 {
			w.order[at] = uint8(i) + 1
			return
		}
	}
}

// answer ends the command of client i. If ok is set, the client gets the number.
func (x *bufferedExplorer) answer(w *bufferedWorld, i int, number set, ok bool) {
	c := &w.clients[i]
	if c.class == adds && ok {
		w.acked += c.delta
	}
	switch floor := c.floor.without(w.lost).without(w.void); {
	case !ok:
	case number.twice():
		x.fail("B5: a client gets the number %x", number)
	case c.class == adds && !number.has(w.owed()):
		x.fail("B5: an increment gets %x, which lacks some of %x", number, w.owed())
	case c.class == reads && !number.has(floor):
		x.fail("B3: a read gets %x, which lacks some of %x", number, floor)
	}
	*c = bufferedClient{}
}

// release models Counters.release.
func (x *bufferedExplorer) release(w *bufferedWorld) {
	switch holds := w.b.holds() && !(x.forgets && !w.b.warm); {
	case w.b.busy():
		return
	case w.b.overdue:
		x.due(w)
		return
	case !w.armed && holds && !(x.unplanned && !w.b.warm):
		w.armed = true
	}
	waiting := false
	for i := range w.clients {
		if w.clients[i].state == waits {
			w.clients[i].state, waiting = starts, true
		}
	}
	if !waiting && !w.armed && !(x.unplanned && w.b.holds()) {
		w.b, w.exists = buffered{}, false
	}
}

// due models Counters.due.
func (x *bufferedExplorer) due(w *bufferedWorld) {
	a := w.b.due()
	if x.sendsAlong && a == wait && !w.b.alone && w.b.pending.sum > 0 {
		w.b.overdue = false
		a = w.b.take()
	}
	switch a {
	case sendSum:
		w.overdue = 0
		w.clients[bufferedClients] = bufferedClient{state: sentOff, delta: set(w.b.inFlight.sum)}
	case drop:
		w.overdue = 0
		x.release(w)
	}
}

// execute executes the request of client i at the server.
func (x *bufferedExplorer) execute(w *bufferedWorld, i int) {
	c := &w.clients[i]
	c.state, c.found = done, !w.missing
	switch {
	case i == bufferedClients || c.class == adds:
		if c.delta&w.void != 0 {
			x.fail("B4: increments from before a set or delete are added to its value")
		}
		if c.found {
			w.value += c.delta
		}
	case c.class == replaces: // a set; the second one is a delete
		w.void |= c.floor | w.value
		if c.buffered {
			w.void |= set(w.b.pending.sum)
		}
		w.value, w.missing = 0, w.left[replaces] == 0
	case c.class == exact:
		if floor := c.floor.without(w.lost).without(w.void); c.found && !w.value.has(floor) {
			x.fail("B7: a decr finds %x, which lacks some of %x", w.value, floor)
		}
	}
	if c.number = w.value; w.value.twice() {
		x.fail("B1: the counter is %x", w.value)
	}
}

// end ends the request of client i with the outcome o.
func (x *bufferedExplorer) end(w *bufferedWorld, i int, o outcome, keep bool) {
	c, b := &w.clients[i], &w.b
	switch number := c.number; {
	case i == bufferedClients:
		*c = bufferedClient{}
		if o == inDoubt && x.repeats {
			o, keep = unsent, true
		}
		lost, _ := b.sent(o, uint64(number), keep)
		w.lost |= set(lost.sum)
		for j := range w.clients {
			if w.clients[j].state != behind {
				continue
			}
			if o == unsent && !x.goesOn {
				x.answer(w, j, 0, false)
				continue
			}
			b.start()
			w.clients[j].state = sentOff
		}
		x.release(w)
	case !c.buffered:
		x.answer(w, i, number, o == counted)
	case c.class == reads:
		if more := set(b.read()); o == counted {
			number += more
		}
		x.answer(w, i, number, o == counted)
		x.release(w)
	default:
		before, class := b.pending, c.class
		switch {
		case x.dropsUnsent && o == unsent:
			o = inDoubt
		case x.dropsBad && o == rejected:
			o = refused
		}
		lost := b.ended(class, o, uint64(number))
		if x.keepsVoid {
			b.pending, lost = before, batch{}
		}
		if w.lost |= set(lost.sum); lost.sum > 0 && set(lost.sum)&^w.void != 0 && o != inDoubt || x.dropsUnsent && lost.sum > 0 && c.state == sentOff {
			x.fail("B2: increments are lost to a set that was not executed")
		}
		x.answer(w, i, number, o == counted && class == adds)
		x.release(w)
	}
}

func (x *bufferedExplorer) expand(w bufferedWorld) {
	b := &w.b
	have := w.value | set(b.pending.sum) | set(b.inFlight.sum)
	quiet := true
	for i := range w.clients {
		quiet = quiet && (w.clients[i].state == idle || w.clients[i].state == waits)
	}
	switch {
	case !have.has(w.owed()):
		x.fail("B2: %x were answered, and %x are neither counted nor lost", w.acked, w.owed().without(have))
	case quiet && w.exists && !w.armed && (w.order[0] != 0 || b.holds() || b.busy()):
		x.fail("B6: nothing happens any more")
	case w.overdue > 0:
		x.fail("B6: reads can delay the increments for ever")
	}
	for i := range bufferedClients {
		if w.clients[i].state != idle {
			continue
		}
		for c := range classes {
			if w.left[c] == 0 {
				continue
			}
			next := w
			next.left[c]--
			is := &next.clients[i]
			if *is = (bufferedClient{class: c, floor: w.owed()}); c == adds {
				is.delta = 1 << (4 * next.made)
				next.made++
			}
			x.arrive(&next, i)
			x.visit(next, i, [...]string{"decr", "incr", "get", "set"}[c], is.delta)
		}
		break // clients without a command are alike
	}
	if i := int(w.order[0]) - 1; i >= 0 && w.clients[i].state == starts {
		next := w
		copy(next.order[:], w.order[1:])
		next.order[len(next.order)-1] = 0
		x.arrive(&next, i)
		x.visit(next, i, "starts", 0)
	}
	if w.armed {
		next := w
		next.armed = false
		x.due(&next)
		x.visit(next, bufferedClients, "is due", 0)
	}
	for i := range w.clients {
		c := &w.clients[i]
		switch next := w; c.state {
		case sentOff:
			x.execute(&next, i)
			x.visit(next, i, "executed", w.value)
			if w.failures > 0 {
				w := w
				w.failures--
				for _, o := range []outcome{inDoubt, unsent, rejected} {
					for _, keep := range []bool{true, false} {
						next := w
						x.end(&next, i, o, keep)
						x.visit(next, i, [...]string{inDoubt: "no reply", unsent: "not sent", rejected: "rejected"}[o], 0)
					}
				}
			}
		case done:
			o := refused
			if c.found {
				o = counted
			}
			x.end(&next, i, o, true)
			x.visit(next, i, "reply", c.number)
			if w.failures > 0 {
				next := w
				next.failures--
				x.end(&next, i, inDoubt, true)
				x.visit(next, i, "no reply", 0)
			}
		}
	}
}

func exploreBuffered(a bufferedAblation, worlds ...bufferedWorld) *bufferedExplorer {
	x := &bufferedExplorer{bufferedAblation: a, seed: maphash.MakeSeed(), seen: map[uint64]bool{}, at: -1}
	for _, w := range worlds {
		x.visit(w, 0, "", 0)
	}
	for x.at = 0; x.at < len(x.queue); x.at++ {
		x.expand(x.queue[x.at])
	}
	return x
}

// bufferedWorlds are the configurations that are explored.
var bufferedWorlds = []bufferedWorld{
	{left: [classes]uint8{adds: 3, reads: 2}},
	{left: [classes]uint8{adds: 3, reads: 1, exact: 1}},
	{left: [classes]uint8{adds: 3, replaces: 2}},
	{left: [classes]uint8{adds: 2, replaces: 1, reads: 1}, failures: 1},
	{left: [classes]uint8{adds: 3, exact: 1}, failures: 1},
}

func TestBufferedIncrementsAreCountedOnce(t *testing.T) {
	x := exploreBuffered(bufferedAblation{}, bufferedWorlds...)
	if x.broken != "" {
		t.Error(x.broken)
	}
	t.Log(len(x.seen), "states")
}

func TestWithoutAClauseOfTheBuffer(t *testing.T) {
	for name, a := range map[string]bufferedAblation{
		"B1: increments in doubt are sent again":                      {repeats: true},
		"B2: the sum is removed although increments wait":             {forgets: true},
		"B2: a set that was not sent replaces what waits":             {dropsUnsent: true},
		"B2: a set that was rejected replaces what waits":             {dropsBad: true},
		"B3: reads run while the increments are sent":                 {readsAlong: true},
		"B3: the increments are sent while a read runs":               {sendsAlong: true},
		"B4: a set does not replace what waits":                       {keepsVoid: true},
		"B2: increments are buffered while a set runs":                {staysWarm: true},
		"B5: increments in flight are not shown":                      {hides: true},
		"B6: reads start although the increments are overdue":         {overtakes: true},
		"B6: increments that were not sent are not planned":           {unplanned: true},
		"B7: a decr is sent although the increments were not":         {goesOn: true},
		"B7: a decr does not wait until the increments were executed": {skips: true},
	} {
		t.Run(name, func(t *testing.T) {
			x := exploreBuffered(a, bufferedWorlds...)
			if !strings.HasPrefix(x.broken, name[:3]) {
				t.Errorf("after %d states: %q", len(x.seen), x.broken)
			}
			t.Log(len(x.seen), "states", x.broken)
		})
	}
}

// makingClient is a client with one incr.
type makingClient struct {
	m       making
	state   uint8     // idle: the request is not executed yet; done: it is; waits: begins again after a moment
	reply   wire.Kind // of the last request
	counted uint8     // how often the incr was executed
	ended   bool
}

type makingWorld struct {
	item                      uint8 // 0: none; 1: a number; 2: the placeholder of a repair
	clients                   [3]makingClient
	deletes, repairs, losses  uint8
	old, believes, twice, bad bool // old: the server has no meta commands; the others are ablations
}

// explore runs the clients in every order. It returns the guarantee that does not hold.
func (w makingWorld) explore(seen map[makingWorld]bool) (broken string) {
	if seen[w] {
		return ""
	}
	seen[w] = true
	try := func(change func(w *makingWorld) string) {
		if next := w; broken == "" {
			if broken = change(&next); broken == "" {
				broken = next.explore(seen)
			}
		}
	}
	if w.deletes > 0 {
		try(func(w *makingWorld) string { w.item, w.deletes = 0, w.deletes-1; return "" })
	}
	if w.repairs > 0 && w.item == 1 || w.item == 2 {
		try(func(w *makingWorld) string {
			if w.item = 3 - w.item; w.item == 2 {
				w.repairs--
			}
			return ""
		})
	}
	for i := range w.clients {
		switch c := w.clients[i]; {
		case c.ended:
		case c.state == waits:
			try(func(w *makingWorld) string { w.clients[i].state, w.clients[i].m = idle, counting; return "" })
		case c.state == idle:
			try(func(w *makingWorld) string { w.execute(&w.clients[i]); return "" })
			if w.losses > 0 {
				try(func(w *makingWorld) string {
					w.execute(&w.clients[i])
					w.losses, w.clients[i].reply = w.losses-1, wire.NoReply
					return ""
				})
			}
		default:
			try(func(w *makingWorld) string { return w.reply(&w.clients[i]) })
		}
	}
	return broken
}

// execute executes the request of c at the server.
func (w *makingWorld) execute(c *makingClient) {
	c.state = done
	counts := func(k wire.Kind) {
		c.reply = k
		c.counted++
	}
	switch {
	case c.m == creating && w.old, c.m != adding && w.item == 2:
		c.reply = wire.ClientError
	case c.m == adding && w.item != 0:
		c.reply = wire.NotStored
	case c.m == adding:
		w.item = 1
		counts(wire.Stored)
	case w.item == 1:
		counts(wire.Number)
	case c.m == creating:
		w.item = 1
		counts(wire.Value)
	default:
		c.reply = wire.NotFound
	}
}

// reply gives c the reply to its request.
func (w *makingWorld) reply(c *makingClient) (broken string) {
	next, what := c.m.next(c.reply, c.reply == wire.ClientError, c.m == creating && w.old, true, true)
	switch {
	case w.believes && c.m == adding && c.reply == wire.NotStored:
		what = giveNumber
	case w.twice && c.reply == wire.NoReply:
		next, what = counting, again
	case w.bad && what == again:
		what = giveReply
	}
	was := c.m
	c.m, c.state = next, idle
	switch {
	case what == goOn:
		return ""
	case what == again:
		c.state = waits
		return ""
	}
	c.ended = true
	switch number := what == giveNumber || c.reply == wire.Number; {
	case number && c.counted != 1, c.counted > 1:
		return fmt.Sprintf("M1: an incr has counted %d times", c.counted)
	case what == giveAbsent, !number && c.reply != wire.NoReply && !(was == counting && c.reply == wire.ClientError):
		return "M2: an incr that could have counted has failed"
	}
	return ""
}

func TestMissingCountersAreCreatedOnce(t *testing.T) {
	for name, w := range map[string]makingWorld{
		"":                             {},
		" ":                            {old: true},
		"M1: a NOT_STORED is believed": {old: true, believes: true},
		"M1: an incr without a reply begins again":  {twice: true},
		"M2: the client gets the error of a repair": {bad: true},
	} {
		w.deletes, w.repairs, w.losses = 2, 1, 1
		seen := map[makingWorld]bool{}
		broken := w.explore(seen)
		if name = strings.TrimSpace(name); broken == "" != (name == "") || !strings.HasPrefix(name, broken[:min(3, len(broken))]) {
			t.Errorf("%s: after %d states: %q", name, len(seen), broken)
		}
		t.Log(name, len(seen), "states", broken)
	}
}

// TestRejectedCreation checks that a rejected request is not repeated. Only a value that is not a number
// may disappear soon: the placeholder of a repair.
func TestRejectedCreation(t *testing.T) {
	if _, what := creating.next(wire.ClientError, false, false, true, true); what != giveReply {
		t.Errorf("after a rejected flag: %d", what)
	}
	if _, what := creating.next(wire.ClientError, true, false, true, true); what != again {
		t.Errorf("after a value that is not a number: %d", what)
	}
}
