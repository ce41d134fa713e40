package failover

// All interleavings of commands on one key while its server rejoins: instances in WARM,
// SETTLE and IN, up to three commands, backfills by the rule of package replicate,
// placeholders that expire, and an instance that dies. The guarantees of doc.go are checked
// in every state. Each omission leaves out one part of the rule and must break the
// guarantee that its name begins with.

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"testing"

	"ringside/proxy/health"
	"ringside/proxy/wire"
	"ringside/replicate"
)

// The commands.
const (
	mGet = iota
	mGat
	mSet
	mAdd
	mReplace // and append, prepend, md I
	mMake    // ms MA with N
	mIncr    // and decr
	mCas     // and ms, ma with C
	mTouch
	mDelete
	mDeleteCas
	mCommands
)

var modelNames = [mCommands]string{"get", "gat", "set", "add", "replace", "append with N", "incr", "cas", "touch", "delete", "md C"}

var modelClasses = [mCommands]class{
	mGat: peeks, mAdd: adds, mReplace: guarded, mMake: makes, mIncr: counts, mCas: bound, mTouch: extends, mDeleteCas: unbinds,
}

// The kinds of items.
const (
	nothing = iota
	placeholder
	value
)

type modelItem struct {
	is   uint8
	cas  uint8
	seq  uint8 // of a value: the number of the write that stored it
	long bool  // a placeholder whose TTL a client has extended
}

// The requests.
const (
	askMain = iota
	askSide
	askLook
	askDrop
	askInterim
	askWait
	askFill // of the backfill: number is the index of the ask in modelSteps
)

type modelAsk struct{ kind, number uint8 }

type modelClient struct {
	op               uint8
	phase            health.Phase
	begun, told, end bool

	b       building
	next    step
	open    [3]modelAsk // in the order of execution
	n       uint8
	main    wire.Kind
	on      bool  // the request ran on a placeholder
	lookCas uint8 // of the item at the last look
	marked  bool  // the client has found a placeholder, by its read or by the look before its request
	seq     uint8 // of the value that it wrote or read
	side    bool  // the substitute server was asked to delete the key
	took    bool  // that has removed the last value there

	present, absent bool // at some time since it began, a value was visible or was not
	floor           uint8

	filled, filling bool
	mend            replicate.Rule
	cas             [modelAsks]uint8 // by ask
	fetched         uint8
}

const modelAsks = 40

type modelWorld struct {
	f, i    modelItem // the key at its own server and at the substitute server
	count   uint8     // number of cas values at f
	seq     uint8     // number of writes
	floor   uint8     // the newest acknowledged write
	expires uint8
	crashes uint8
	clients [3]modelClient
}

type omission struct {
	trusts   [mCommands]bool // a refusal is believed
	unbound  [mCommands]bool // a guarded command runs unchanged
	behind   [mCommands]bool // the same, and a look follows it
	leaves   bool            // a placeholder with an extended TTL is left
	sideSoon bool            // the substitute server is asked to delete the key too early
	anyDrop  bool            // a placeholder is removed without its cas
	shows    bool            // reads show placeholders
	foreign  bool            // a miss at the substitute server is believed, although a placeholder is left
	oneLook  bool            // a value is believed to be no number after one look
}

type modelExplorer struct {
	omission
	seed   maphash.Seed
	seen   map[uint64]struct{}
	n      int
	path   []string
	broken string
}

func (x *modelExplorer) fail(format string, args ...any) {
	if x.broken == "" {
		x.broken = fmt.Sprintf(format, args...) + "\n\t" + strings.Join(x.path, "\n\t")
	}
}

// visible reports whether a client of c's instance finds a value.
func (w *modelWorld) visible(c *modelClient) bool {
	return w.f.is == value || c.phase == health.Warming && w.i.is == value
}

func (w *modelWorld) put(is uint8) {
	w.count++
	w.f = modelItem{is: is, cas: w.count}
	if is == value {
		w.seq++
		w.f.seq = w.seq
	}
}

func (x *modelExplorer) visit(w modelWorld, what string) {
	if x.broken != "" {
		return
	}
	for i := range w.clients {
		if c := &w.clients[i]; c.begun && !c.told {
			if w.visible(c) {
				c.present = true
			} else {
				c.absent = true
			}
		}
	}
	h := maphash.Comparable(x.seed, w)
	if _, ok := x.seen[h]; ok {
		return
	}
	x.seen[h] = struct{}{}
	x.n++
	x.path = append(x.path, what)
	x.expand(&w)
	x.path = x.path[:len(x.path)-1]
}

func (x *modelExplorer) expand(w *modelWorld) {
	over := true
	for i := range w.clients {
		c := &w.clients[i]
		switch {
		case c.end:
			continue
		case !c.begun:
			next := *w
			x.begin(&next, i)
			x.visit(next, fmt.Sprint(i, " begins ", modelNames[c.op]))
		}
		over = false
		if c.n > 0 && w.crashes > 0 && i == 0 && c.op != mGat && c.op != mTouch { // doc.go: not covered
			next := *w
			next.crashes--
			next.clients[i] = modelClient{phase: c.phase, begun: true, told: true, end: true}
			x.visit(next, fmt.Sprint(i, " dies"))
		}
		busy := [2]bool{}
		for a, q := range c.open[:c.n] {
			at := w.at(c, q)
			if at < 2 {
				if busy[at] {
					continue
				}
				busy[at] = true
			}
			next := *w
			what := x.run(&next, i, a)
			x.visit(next, fmt.Sprint(i, " ", what))
		}
	}
	if w.f.is == placeholder && !w.f.long && w.expires > 0 {
		next := *w
		next.expires--
		next.f = modelItem{}
		x.visit(next, "the placeholder expires")
	}
	if !over {
		return
	}
	switch {
	case w.f.is == placeholder && w.f.long:
		x.fail("G1: a placeholder outlives its time")
	case w.f.is == value && w.f.seq < w.floor, w.f.is != value && w.i.is == value && w.i.seq < w.floor && w.clients[0].phase == health.Warming:
		x.fail("G3: an old value is back")
	}
}

// at returns the server that gets the request q: 0 the key's own server, 1 the substitute
// server, 2 none.
func (w *modelWorld) at(c *modelClient, q modelAsk) int {
	switch q.kind {
	case askSide, askInterim:
		return 1
	case askWait:
		return 2
	case askFill:
		if d := c.deed(q.number); d == replicate.Fetch {
			return 1
		} else if d == replicate.Wait {
			return 2
		}
	}
	return 0
}

func (c *modelClient) send(kind uint8) {
	c.open[c.n] = modelAsk{kind: kind}
	c.n++
}

// modelSteps are the requests (asks) of backfills. The number of a modelAsk of kind askFill
// is an index in modelSteps.
var modelSteps []replicate.Ask

func (c *modelClient) deed(number uint8) replicate.Step { return modelSteps[number].Step }

// begin models single.Begin.
func (x *modelExplorer) begin(w *modelWorld, i int) {
	c := &w.clients[i]
	if !c.begun {
		c.begun, c.floor = true, w.floor
		c.b = building{class: modelClasses[c.op], warm: c.phase == health.Warming}
		if x.trusts[c.op] || x.unbound[c.op] || x.behind[c.op] || c.phase == health.In {
			c.b.class = blind
		}
	}
	switch c.op {
	case mAdd, mReplace, mMake, mIncr, mCas, mTouch, mDeleteCas:
		if c.phase == health.Warming && !c.filled {
			c.filled, c.filling = true, true
			c.mend = replicate.Mend(0, 1, false, true)
			x.fill(w, i)
			return
		}
	}
	x.round(w, i)
}

func (x *modelExplorer) round(w *modelWorld, i int) {
	c := &w.clients[i]
	switch c.op {
	case mGet, mGat:
		c.send(askMain)
		return
	case mDelete:
		if c.next = sendMain; c.phase != health.In {
			c.send(askSide)
			return
		}
	case mSet:
		if c.phase != health.In {
			c.send(askSide)
		}
		c.send(askMain)
		return
	default:
		if c.next = c.b.first(); c.phase == health.Warming && c.op != mDeleteCas || x.sideSoon && c.phase == health.Settling {
			c.send(askSide)
			c.side = true
		}
	}
	x.perform(w, i, true)
}

// perform models single.perform.
func (x *modelExplorer) perform(w *modelWorld, i int, first bool) {
	c := &w.clients[i]
	if c.n > 0 && !first {
		return
	}
	switch c.next {
	case sendMain:
		if c.b.class == unbinds && !c.side {
			c.side = true
			c.send(askSide)
			return
		}
		if c.op == mDelete && c.phase != health.In {
			c.send(askLook)
		}
		c.send(askMain)
		if x.behind[c.op] {
			c.send(askLook)
		}
	case sendLook:
		c.send(askLook)
	case refill:
		c.filled = false
		x.begin(w, i)
	case again:
		x.begin(w, i)
	case wait:
		c.send(askWait)
	case sendDrop:
		c.send(askDrop)
	case giveMain:
		if c.phase != health.In && !c.side && c.b.class != peeks && isStored(c.main) {
			c.side = true
			c.send(askSide)
			return
		}
		x.tell(w, i, c.main)
	case giveAbsent:
		x.tell(w, i, wire.NotFound)
	case giveFailure:
		x.tell(w, i, wire.NoReply)
	}
}

// tell sends the client its reply, and checks it.
func (x *modelExplorer) tell(w *modelWorld, i int, k wire.Kind) {
	c := &w.clients[i]
	c.told = true
	if c.end = !c.filling; c.n > 0 && !c.filling {
		panic("an answer while something is asked")
	}
	absence := k == wire.NotFound || k == wire.Miss || k == wire.NotStored && c.op != mAdd
	switch {
	case k == wire.NoReply:
	case isStored(k) && c.on:
		x.fail("G2: %s was done to a placeholder, and acknowledged", modelNames[c.op])
	case k == wire.ClientError:
		x.fail("G2: a placeholder is said to be no number")
	case absence && !c.absent && c.op != mGet && c.op != mGat:
		x.fail("G2: %s did not find a value that was there", modelNames[c.op])
	case (k == wire.NotStored && c.op == mAdd || k == wire.Exists) && !c.present:
		x.fail("G2: %s is refused by nothing", modelNames[c.op])
	case !isStored(k) && c.took && c.op != mDelete && c.op != mDeleteCas:
		x.fail("G4: %s is refused, and has removed the value", modelNames[c.op])
	case k == wire.Value && c.seq < c.floor:
		x.fail("G3: an old value is read")
	case isStored(k) && c.op >= mSet && c.op != mTouch:
		w.floor = max(w.floor, c.seq)
	}
}

// run executes ask a of client i.
func (x *modelExplorer) run(w *modelWorld, i, a int) string {
	c := &w.clients[i]
	q := c.open[a]
	copy(c.open[a:], c.open[a+1:c.n])
	c.n--
	c.open[c.n] = modelAsk{}
	switch q.kind {
	case askMain:
		x.main(w, c)
		switch c.op {
		case mGet, mGat:
			x.read(w, i)
		case mSet:
			if c.n == 0 {
				x.tell(w, i, c.main)
			}
		case mDelete:
			if c.marked {
				c.main = wire.NotFound
			}
			if c.main == wire.NotFound {
				c.absent = true // memcached's delete is not atomic with a look
			}
			w.floor = max(w.floor, c.seq)
			x.tell(w, i, c.main)
		default:
			if x.behind[c.op] {
				break
			}
			c.next = c.b.answered(c.main, c.on)
			x.perform(w, i, false)
		}
		return fmt.Sprint("request: ", c.main)
	case askSide:
		if w.i.is == value && w.f.is != value && !c.done() {
			c.took = true
		}
		w.i = modelItem{}
		if c.op == mSet {
			if c.n == 0 {
				x.tell(w, i, c.main)
			}
			return "delete at the substitute server"
		}
		x.perform(w, i, false)
		return "delete at the substitute server"
	case askLook:
		c.lookCas, c.marked = w.f.cas, w.f.is == placeholder
		switch shown := uint64(w.f.cas); {
		case c.op == mDelete:
			return "look"
		case x.behind[c.op]:
			c.next = giveMain
			if c.marked && isStored(c.main) {
				c.next = sendDrop
			}
		default:
			if w.f.is != value {
				shown = 0
			}
			if c.next = c.b.looked(shown, c.marked); x.oneLook && c.b.class == counts && c.b.refused && shown != 0 {
				c.next = giveMain
			}
		}
		x.perform(w, i, false)
		return fmt.Sprint("look: ", w.f)
	case askDrop:
		if w.f.cas == c.lookCas && w.f.is != nothing || x.anyDrop {
			if w.f.is == value {
				x.fail("G3: a value is removed for a placeholder")
			}
			w.f = modelItem{}
		}
		if c.op == mGat {
			c.next, c.on = giveMain, false
			x.missed(w, i)
			return "drop"
		}
		c.on, c.next = false, c.b.dropped()
		x.perform(w, i, false)
		return "drop"
	case askInterim:
		c.main = wire.Miss
		if w.i.is == value {
			c.main, c.seq = wire.Value, w.i.seq
		}
		x.tell(w, i, c.main)
		return "read at the substitute server"
	case askWait:
		c.on = false
		x.begin(w, i)
		return "wait"
	}
	return x.filled(w, i, q.number)
}

// done reports whether the client's request was carried out.
func (c *modelClient) done() bool { return c.main != wire.NoReply && isStored(c.main) }

// main executes the client's request at the key's own server.
func (x *modelExplorer) main(w *modelWorld, c *modelClient) {
	f := &w.f
	store := func(k wire.Kind) {
		c.on = f.is == placeholder
		long := f.long
		is := uint8(value)
		if c.on && x.behind[c.op] { // an append keeps the flags of the placeholder
			is = placeholder
		}
		w.put(is)
		f.long = long && is == placeholder
		c.main, c.seq = k, f.seq
	}
	none := wire.NotFound
	switch c.op {
	case mSet:
		store(wire.Stored)
		c.on = false
	case mAdd:
		if c.main = wire.NotStored; f.is == nothing {
			store(wire.Stored)
		}
	case mReplace, mMake:
		switch {
		case c.b.class == makes && c.b.seen == 0: // like an add
			if c.main = wire.NotStored; f.is == nothing {
				store(wire.Stored)
			}
		case f.is == nothing && c.op == mMake:
			store(wire.Stored)
		case f.is == nothing:
			c.main = none
		case c.b.class != blind && uint64(f.cas) != c.b.seen:
			c.main = wire.Exists
		default:
			store(wire.Stored)
		}
	case mIncr:
		switch f.is {
		case nothing:
			c.main = none
		case placeholder:
			c.main = wire.ClientError
		default:
			store(wire.Number)
		}
	case mCas:
		switch {
		case f.is == nothing:
			c.main = none
		case f.cas != modelToken:
			c.main = wire.Exists
		default:
			store(wire.Stored)
		}
	case mTouch, mGat, mGet:
		c.on = f.is == placeholder
		switch {
		case f.is == nothing:
			c.main = wire.Miss
		case c.op == mTouch:
			c.main = wire.Touched
		default:
			c.main, c.seq = wire.Value, f.seq
		}
		if c.on && c.op != mGet {
			f.long = true
		}
	case mDelete, mDeleteCas:
		switch {
		case f.is == nothing:
			c.main = none
		case c.op == mDeleteCas && f.cas != modelToken:
			c.main = wire.Exists
			return
		default:
			c.main = wire.Deleted
		}
		*f = modelItem{}
		w.seq++
		c.seq = w.seq
	}
}

// modelToken is the cas of the initial value at the key's own server.
const modelToken = 1

// read models single.Told for the reply to a read.
func (x *modelExplorer) read(w *modelWorld, i int) {
	c := &w.clients[i]
	if !c.on {
		x.missed(w, i)
		return
	}
	if x.shows || c.phase == health.In {
		x.fail("G1: a client is shown a placeholder")
	}
	c.main = wire.Miss
	if c.b.class == peeks && !x.leaves && c.b.answered(c.main, true) == sendLook {
		c.send(askLook)
		return
	}
	x.missed(w, i)
}

// missed models single.checkMiss.
func (x *modelExplorer) missed(w *modelWorld, i int) {
	c := &w.clients[i]
	c.on = false
	if c.main == wire.Miss && c.phase == health.Warming {
		c.send(askInterim)
		if c.filling = true; c.filled {
			panic("filled twice")
		}
		c.filled = true
		c.mend = replicate.Mend(0, 1, false, false)
		x.fill(w, i)
		return
	}
	x.tell(w, i, c.main)
}

// fill models backfill.advance.
func (x *modelExplorer) fill(w *modelWorld, i int) {
	c := &w.clients[i]
	for next := c.mend.Next(nil); len(next) > 0; next = c.mend.Next(nil) {
		for _, a := range next {
			if a.Number >= modelAsks {
				panic("too many asks")
			}
			at := slices.Index(modelSteps, a)
			if at < 0 {
				at = len(modelSteps)
				modelSteps = append(modelSteps, a)
			}
			c.open[c.n] = modelAsk{askFill, uint8(at)}
			c.n++
		}
	}
	if !c.mend.IsDone() {
		return
	}
	c.filling = false
	s, _ := c.mend.Settled()
	var last replicate.Step
	if c.fetched != 0 {
		last = replicate.Step(c.fetched - 1)
	}
	c.mend, c.cas, c.fetched = replicate.Rule{}, [modelAsks]uint8{}, 0
	switch there := last == replicate.Look || last == replicate.Fill; {
	case c.told:
		c.end = true
	case c.op == mGet || c.op == mGat: // its reply is still to come
	case s.Verdict != replicate.Answered:
		x.tell(w, i, wire.NoReply)
	case there && c.op == mAdd:
		x.tell(w, i, wire.NotStored)
	case there, last == replicate.Fetch && !x.foreign, c.op == mAdd || c.op == mMake:
		x.begin(w, i)
	default:
		x.tell(w, i, wire.NotFound)
	}
}

// filled executes one request of a backfill.
func (x *modelExplorer) filled(w *modelWorld, i int, number uint8) string {
	c := &w.clients[i]
	a := modelSteps[number]
	f := &w.f
	k := replicate.OK
	shown := func(it *modelItem) replicate.Kind {
		return [...]replicate.Kind{replicate.Miss, replicate.Marked, replicate.Hit}[it.is]
	}
	guard := func(change func()) replicate.Kind {
		switch {
		case f.is == nothing:
			return replicate.NotFound
		case f.cas != c.cas[a.Guard]:
			return replicate.Exists
		}
		if f.is == value {
			x.fail("G3: a backfill replaces or removes a value")
		}
		change()
		return replicate.Stored
	}
	switch a.Step {
	case replicate.Claim:
		if k = replicate.NotStored; f.is == nothing {
			w.put(placeholder)
			k = replicate.Stored
			c.cas[a.Number] = f.cas
		}
	case replicate.Look:
		k = shown(f)
		c.cas[a.Number] = f.cas
	case replicate.Fetch:
		k = shown(&w.i)
		c.cas[a.Number] = w.i.seq
	case replicate.Fill:
		k = guard(func() {
			w.count++
			*f = modelItem{is: value, cas: w.count, seq: c.cas[a.From]}
		})
	case replicate.Drop:
		if k = guard(func() { *f = modelItem{} }); k == replicate.Stored {
			k = replicate.Deleted
		}
	}
	c.fetched = uint8(a.Step) + 1
	c.mend.HandleOutcome(a.Number, replicate.Outcome{Kind: k})
	x.fill(w, i)
	return fmt.Sprint("backfill ", stepNames[a.Step], ": ", k)
}

var stepNames = map[replicate.Step]string{replicate.Claim: "claim", replicate.Look: "look", replicate.Wait: "wait",
	replicate.Fetch: "fetch", replicate.Fill: "fill", replicate.Drop: "drop"}

// explore visits every state that the commands of one set of phases can reach, from each
// combination of items at the two servers.
func (x *modelExplorer) explore(phases []health.Phase, ops []uint8, expires, crashes uint8) {
	for _, own := range []uint8{nothing, placeholder, value} {
		for _, interim := range []uint8{nothing, value} {
			if own == placeholder && slices.Contains(phases, health.In) {
				continue // all have expired before an instance is in IN
			}
			w := modelWorld{expires: expires, crashes: crashes, seq: 1}
			if interim == value {
				w.i = modelItem{is: value, seq: 1}
			}
			if own != value {
				w.count = modelToken
			}
			if own != nothing {
				w.put(own)
				w.floor = w.f.seq
			}
			for i := range w.clients {
				w.clients[i] = modelClient{begun: true, told: true, end: true}
				if i < len(phases) {
					w.clients[i] = modelClient{op: ops[i], phase: phases[i]}
				}
			}
			clear(x.seen)
			var text []string
			for i := range ops {
				text = append(text, fmt.Sprint(modelNames[ops[i]], " in ", phases[i]))
			}
			x.path = append(x.path[:0], fmt.Sprint(text, ", own ", w.f, ", interim ", w.i))
			x.visit(w, "")
			if x.broken != "" {
				return
			}
		}
	}
}

// fewRounds makes commands give up early.
func fewRounds() (undo func()) {
	met, tries := mostMet, mostTries
	mostMet, mostTries = 2, 2
	return func() { mostMet, mostTries = met, tries }
}

func newModel(a omission) *modelExplorer {
	return &modelExplorer{omission: a, seed: maphash.MakeSeed(), seen: map[uint64]struct{}{}}
}

// pairs calls f with every two commands in every two phases that instances can be in at
// once.
func pairs(f func(phases []health.Phase, ops []uint8)) {
	for _, p := range [][]health.Phase{
		{health.Warming, health.Warming}, {health.Warming, health.Settling},
		{health.Settling, health.Settling}, {health.Settling, health.In},
	} {
		for a := range uint8(mCommands) {
			for b := range uint8(mCommands) {
				f(p, []uint8{a, b})
			}
		}
	}
}

func TestNoPlaceholderIsTakenForAValue(t *testing.T) {
	defer fewRounds()()
	x := newModel(omission{})
	events := uint8(1) // a placeholder that expires, and an instance that dies
	if testing.Short() {
		events = 0
	}
	pairs(func(phases []health.Phase, ops []uint8) {
		if x.broken == "" && (phases[0] != phases[1] || !testing.Short()) {
			x.explore(phases, ops, events, events)
		}
	})
	t.Log(x.n, "states of two commands")
	// The owner of a placeholder, a delete or set that may delay it, and a command.
	for op := range uint8(mCommands) {
		for _, other := range []uint8{mDelete, mSet} {
			for _, p := range []health.Phase{health.Warming, health.Settling} {
				if x.broken == "" && (p == health.Settling && other == mDelete || !testing.Short()) {
					x.explore([]health.Phase{health.Warming, p, p}, []uint8{mIncr, op, other}, 0, 0)
				}
			}
		}
	}
	if x.broken != "" {
		t.Error(x.broken)
	}
	t.Log(x.n, "states")
}

func TestWithoutAClauseAPlaceholderIsTakenForAValue(t *testing.T) {
	defer fewRounds()()
	only := func(op uint8) (is [mCommands]bool) {
		is[op] = true
		return is
	}
	for name, a := range map[string]omission{
		"G1: gat leaves what it has lengthened":                         {leaves: true},
		"G1: reads show placeholders":                                   {shows: true},
		"G2: replace runs without the cas of a look":                    {unbound: only(mReplace)},
		"G2: replace runs, and a look follows it":                       {behind: only(mReplace)},
		"G2: append with N runs without the cas of a look":              {unbound: only(mMake)},
		"G2: incr is believed that there is no number":                  {trusts: only(mIncr)},
		"G2: incr is believed after one look":                           {oneLook: true},
		"G2: add is believed that there is something":                   {trusts: only(mAdd)},
		"G2: cas is believed that there is another value":               {trusts: only(mCas)},
		"G2: md C is believed that there is another value":              {trusts: only(mDeleteCas)},
		"G2: touch is believed":                                         {trusts: only(mTouch)},
		"G2: the placeholder of another instance is believed":           {foreign: true},
		"G3: a placeholder is removed without its cas":                  {anyDrop: true},
		"G4: the substitute server is told before the request was done": {sideSoon: true},
	} {
		t.Run(name, func(t *testing.T) {
			x := newModel(a)
			pairs(func(phases []health.Phase, ops []uint8) {
				if x.broken == "" {
					x.explore(phases, ops, 0, 0)
				}
			})
			if !strings.HasPrefix(x.broken, name[:3]) {
				t.Errorf("after %d states: %q", x.n, x.broken)
			}
			t.Log(x.n, "states", x.broken)
		})
	}
}
