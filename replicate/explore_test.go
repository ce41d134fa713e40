package replicate

// Every rule with every vector of outcomes, in every order of arrival.

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"ringside/internal/testenv"
)

func init() { countRounds = 2 }

// explorer visits every state of a rule.
type explorer struct {
	t        *testing.T
	p        Policy
	c        Command
	replicas []Replica
	few      bool
	faults   int                 // most failures or interventions in one history; -1: any number
	begun    map[beginning]bool  // beginnings that have been explored
	seen     map[uint64]struct{} // digests of the states visited from this beginning
	seed     maphash.Seed
	menu
	visited int
	bad     int
}

func newExplorer(t *testing.T) *explorer {
	return &explorer{t: t, begun: map[beginning]bool{}, seen: map[uint64]struct{}{}, seed: maphash.MakeSeed()}
}

func (x *explorer) fail(r *Rule, format string, args ...any) {
	x.t.Helper()
	if x.bad++; x.bad <= 3 {
		s, ok := r.Settled()
		x.t.Errorf("%s\n policy %+v command %+v replicas %v\n asks %s\n settled %v %+v over %v", fmt.Sprintf(format, args...), x.p, x.c, x.replicas, history(r), ok, s, r.IsDone())
	}
}

func history(r *Rule) string {
	var b strings.Builder
	for i, e := range r.asks[:r.n] {
		fmt.Fprintf(&b, "%d: %s at %d -> %s; ", i, stepNames[e.step], e.replica, kindNames[e.kind])
	}
	return b.String()
}

var stepNames = []string{"forward", "join", "extend", "remove", "fetch", "look", "preview", "check", "claim", "bury", "remark", "fill", "store", "drop", "wait"}
var kindNames = []string{"?", "hit", "miss", "marked", "expiring", "stale", "stored", "not stored", "exists", "not found", "deleted", "touched", "number", "ok", "client error", "server error", "unsent", "in doubt"}
var stateNames = []string{"in", "returning", "filling", "warming", "settling", "leaving", "out", "suspect", "dirty", "gone"}

func (m Replica) String() string { return stateNames[m.State] }

func (x *explorer) run() {
	b := x.beginning()
	if x.begun[b] {
		return
	}
	x.begun[b] = true
	clear(x.seen)
	x.visit(b.rule, 0)
}

// troubles counts the asks of r that failed, and those that another write overtook.
func (x *explorer) troubles(r *Rule) (faults, races int) {
	for _, e := range r.asks[:r.n] {
		if e.kind.failed() || e.kind.refused() {
			faults++
		}
		if e.step.guarded() && e.kind == Exists {
			races++
		}
	}
	if x.faults >= 0 {
		faults += races
	}
	return faults, races
}

// visit explores all states that may follow r. The asks before begun have repaired the
// primary; 0: it is being repaired, or needs no repair.
func (x *explorer) visit(r Rule, begun uint8) {
	var room [maxAsks]Ask
	r.Next(room[:0])
	h := x.digest(r, begun)
	if _, ok := x.seen[h]; ok {
		return
	}
	x.seen[h] = struct{}{}
	x.visited++
	x.check(&r)
	if r.open == 0 && !r.IsDone() {
		x.fail(&r, "stuck")
		return
	}
	before, settled := r.Settled()
	faults, races := x.troubles(&r)
	for i := range int(r.n) {
		if r.asks[i].kind != pending {
			continue
		}
		for _, o := range x.outcomes(r.asks[i].step, x.few || r.copy.rounds > 1 || r.rounds > 0) {
			if (o.Kind.failed() || o.Kind.refused()) && (faults == x.faults || races == 1 && faults > 0) {
				continue
			}
			if o.Kind == Exists && r.asks[i].step.guarded() && (races == 1 || faults > 1 || faults == x.faults) {
				continue // another write comes between once, and not if everything fails already
			}
			next := r
			next.HandleOutcome(i, o)
			if after, ok := next.Settled(); settled && (!ok || after.Verdict != before.Verdict || after.Answer != before.Answer) {
				x.fail(&next, "changed its mind from %+v", before)
			}
			x.visit(next, past(&r, &next, begun))
			if x.bad > 3 {
				return
			}
		}
	}
}

// guarded reports whether d runs only if nothing has changed since an earlier ask.
func (d Step) guarded() bool {
	return d == Fill || d == Store || d == Drop || d == Check || d == Join
}

// positive reports whether k tells the client that its write is done.
func positive(c Command, k Kind) bool {
	switch c.Op {
	case Gat, Gats:
		return k == Hit
	case Set, Add, Replace, Append, Prepend, Cas:
		return k == Stored
	case Incr, Decr:
		return k == Number
	case Touch:
		return k == Touched
	case Delete:
		return k == Deleted || k == NotFound && !c.If
	case Flush:
		return k == OK
	}
	return false
}

// holds reports, from the replies of a replica, whether it has the write (or the primary's
// value).
func holds(r *Rule, replica int) bool {
	has, nothing, joined, refused := false, false, false, false
	removes := r.c.Op == Delete || r.makesStale()
	for _, e := range r.asks[:r.n] {
		if e.step == Fetch {
			nothing = e.kind == Miss || e.kind == Expiring || e.kind == Stale
		}
		if int(e.replica) != replica {
			continue
		}
		switch e.step {
		case Forward, Store, Extend:
			has = positive(r.c, e.kind) || e.kind == Stored || e.kind == Touched
		case Join:
			has = e.kind == Stored
		case Remove:
			has = r.c.Op == Delete && (e.kind == Deleted || e.kind == NotFound)
		case Look:
			switch copied := r.copy.rounds > 0 && !joined; {
			case copied && r.copy.overwrite:
				has = false
			case copied:
				has = has || e.kind == Hit
			}
		case PlaceTombstone:
			has = false
		case RefreshTombstone: // a tombstone of the delete itself was still there
			has = (removes || nothing) && e.kind == Stored
		case Fill:
			has, refused = e.kind == Stored, e.kind.refused()
		case Drop: // a replica that has refused the value has nothing to touch
			has = has && (removes || nothing) || (nothing || removes || r.extends() && refused) && e.kind == Deleted
		}
		joined = e.step == Join || e.step == Forward
	}
	return has || nothing && r.copy.taken.Has(replica) // it is another command's to remove
}

func (x *explorer) check(r *Rule) {
	replicas := x.replicas
	lead := Authority(replicas)
	var clientSteps [Max][]Kind
	for _, e := range r.asks[:r.n] {
		switch st := replicas[e.replica].State; {
		case st == Out || st == Gone || st == Leaving || st == Suspect:
			x.fail(r, "asked a replica that is %s", stateNames[st])
		case r.class == reads && (st == Dirty || st == Returning || e.step != Forward):
			x.fail(r, "a read asked a replica that is %s", stateNames[st])
		}
		switch e.step {
		case Forward, Store, Join, Extend:
			clientSteps[e.replica] = append(clientSteps[e.replica], e.kind)
		}
	}
	for m, kinds := range clientSteps {
		again := r.marked && len(kinds) <= 1+maxLooks
		for _, k := range kinds[:max(len(kinds)-1, 0)] {
			again = again || (k == Miss || k == NotFound || k == NotStored) && len(kinds) <= 1+maxLooks ||
				(r.c.Op == Replace || r.c.Op == Delete || r.conditional()) && k == Exists || (r.c.Op == Delete && k == Deleted || r.makesStale()) && len(kinds) <= 1+maxLooks+maxRounds || k == Marked || k == ClientError && r.counts()
		}
		if len(kinds) > 1 && !again {
			x.fail(r, "replica %d got the client's command %d times", m, len(kinds))
		}
	}
	x.checkDrops(r)
	x.checkOwnTombstones(r)
	s, ok := r.Settled()
	if !ok {
		return
	}
	if s.Undo&^s.Dirty != 0 || s.Clean&s.Dirty != 0 {
		x.fail(r, "masks contradict each other")
	}
	if s.Verdict == Answered && s.Answer >= 0 && !x.c.If && x.c.Op != Cas {
		switch k := r.asks[s.Answer].kind; {
		case k == Exists, k == NotFound && (x.c.Op == Set || x.c.Op == Add || x.c.Op == Replace || r.joins()):
			x.fail(r, "a command without a token is answered %s", kindNames[k])
		}
	}
	if s.Repair != 0 && (s.Source < 0 || s.Repair.Has(s.Source) || s.Dirty.Has(s.Source)) || s.Repair == 0 && s.Source >= 0 {
		x.fail(r, "repair without a source")
	}
	for i, m := range replicas {
		if s.Repair.Has(i) && (m.State == Out || m.State == Gone || m.State == Leaving || m.State == Suspect) {
			x.fail(r, "repair of a replica that can't be asked")
		}
	}
	if r.class == reads {
		x.checkRead(r, s)
		return
	}
	if s.Verdict == Held || s.Verdict == Refused {
		if r.n != 0 {
			x.fail(r, "asked before refusing")
		}
		return
	}
	x.checkAbsence(r, s)
	gone := (s.Verdict == Absent || s.Verdict == Done) && x.c.Op == Delete
	if r.class == alone || s.Answer < 0 && !gone {
		x.checkEnd(r, s, false)
		return
	}
	seen := false
	for i, e := range r.asks[:r.n] {
		seen = seen || e.step == Look && e.kind == Hit && (r.in|r.warm).Has(int(e.replica)) || e.step == RefreshTombstone && int(e.guard) == i && e.kind == Stored
	}
	if r.class == buries && gone && seen != (s.Verdict == Done) {
		x.fail(r, "it was there for readers: %v", seen)
	}
	done := gone || s.Verdict == Answered && positive(x.c, r.asks[s.Answer].kind)
	x.checkEnd(r, s, done)
	if !done {
		return
	}
	if x.c.Op != Gat && x.c.Op != Gats && !holds(r, lead) {
		x.fail(r, "acknowledged without the authority")
	}
	has, counted := 0, 0
	for i, m := range replicas {
		if m.State != Out && (m.State != Gone || x.c.Op == Flush) {
			counted++
		}
		if holds(r, i) || x.c.Op == Add && s.Repair.Has(i) {
			has++
		}
	}
	if n := need(x.p.Ack, x.c, counted); has < n {
		x.fail(r, "acknowledged with %d of %d", has, n)
	}
}

// checkEnd checks what the settlement reports about replicas that lack the write.
func (x *explorer) checkEnd(r *Rule, s Settlement, done bool) {
	if !r.IsDone() {
		return
	}
	for i, m := range x.replicas {
		if m.State == Out {
			continue
		}
		reached := m.State != Leaving && m.State != Suspect && m.State != Gone
		known := s.Dirty.Has(i) || s.Repair.Has(i)
		if done && !known && !holds(r, i) && (reached || !r.extends()) {
			x.fail(r, "replica %d lacks the write and nobody is told", i)
		}
		for _, e := range r.asks[:r.n] {
			if int(e.replica) != i || e.kind != InDoubt {
				continue
			}
			switch e.step {
			case Join:
				if !s.Overwrite.Has(i) {
					x.fail(r, "replica %d may append something late", i)
				}
			case Forward:
				if (x.c.Op == Set || x.c.Op == Add || x.c.Op == Replace) && !x.c.If && !s.Undo.Has(i) {
					x.fail(r, "replica %d may execute the command late", i)
				}
			case Store:
				if r.conditional() && x.c.Op == Set && i != int(r.lead) && !s.Overwrite.Has(i) && !s.Dirty.Has(i) && x.replicas[i].State != Dirty {
					x.fail(r, "replica %d may execute the command late", i)
				}
			}
		}
	}
}

func (x *explorer) checkRead(r *Rule, s Settlement) {
	var hit, miss, open, asked int
	failed, marked := false, false
	for _, e := range r.asks[:r.n] {
		asked++
		marked = marked || e.kind == Marked && r.in.Has(int(e.replica))
		failed = failed || e.kind.failed() || e.kind.refused()
		switch {
		case e.kind == Hit:
			hit++
		case e.kind == Miss && r.in.Has(int(e.replica)):
			miss++
		case e.kind == pending:
			open++
		}
	}
	if s.Verdict == Answered && r.asks[s.Answer].kind == Hit || s.Verdict == Refused || s.Verdict == Absent {
		return
	}
	answer := ServerError
	if s.Answer >= 0 {
		answer = r.asks[s.Answer].kind
	}
	switch {
	case hit > 0 && open == 0 && r.confirm && asked == 1:
		x.fail(r, "a hit was thrown away")
	case miss > 0 && !r.through && (s.Verdict != Answered || answer != Miss):
		x.fail(r, "an error beat a miss")
	case r.through && s.Verdict == Answered && answer == Miss && (failed || r.away != 0):
		x.fail(r, "a miss beat an error")
	case s.Verdict == Answered && answer == Miss && r.confirm && asked < (r.in|r.warm).Len():
		x.fail(r, "a miss though not all were asked")
	case s.Verdict == Answered && answer == Miss && miss == 0 && !marked && r.in|r.away != 0:
		x.fail(r, "an incomplete replica decided a miss")
	}
}

// forStates calls f with every combination of states of n replicas.
func forStates(n int, f func([]Replica)) {
	replicas := make([]Replica, n)
	var walk func(int)
	walk = func(i int) {
		if i == n {
			f(replicas)
			return
		}
		for s := State(0); s < NumStates; s++ {
			if n > 2 && (s == Settling || s == Suspect || s == Filling) {
				continue // nearly the same as Warming and Leaving
			}
			replicas[i].State = s
			walk(i + 1)
		}
	}
	walk(0)
}

func policies(c Command) []Policy {
	var ps []Policy
	for _, through := range []bool{false, true} {
		if classOf(c) == all && through {
			continue // it makes no difference
		}
		if readsAtOne(c) && classOf(c) != reads {
			ps = append(ps, Policy{ReadThrough: through})
			continue
		}
		if classOf(c) == reads {
			for _, how := range []Read{First, Nearest, Spread, Fastest} {
				ps = append(ps, Policy{Read: how, ReadThrough: through})
			}
			continue
		}
		for _, ack := range []Ack{AckAll, AckQuorum, AckOne} {
			ps = append(ps, Policy{Ack: ack, ReadThrough: through})
		}
	}
	return ps
}

func exploreAll(t *testing.T, n int, few bool, faults int, which func(Command) bool) {
	x := newExplorer(t)
	x.few, x.faults = few, faults
	for _, c := range commands() {
		x.menu = menu{}
		switch c {
		case Command{Op: Gats}, Command{Op: Prepend}, Command{Op: Decr}, Command{Op: Set, If: true}, Command{Op: Replace, If: true}, Command{Op: Append, If: true}:
			continue // same as gat, append, incr and cas
		}
		if !which(c) {
			continue
		}
		for _, p := range policies(c) {
			if faults == 1 && (p.Ack != AckAll || !p.ReadThrough) {
				continue // two replicas cover what these change
			}
			forStates(n, func(replicas []Replica) {
				if n > 2 && slices.ContainsFunc(replicas, func(m Replica) bool { return m.State == Gone }) {
					return // same as Out: TestGoneMissesWrites
				}
				if classOf(c) != reads && classOf(c) != all && !everyVector() && !sorted(replicas) {
					return
				}
				if x.bad > 3 || faults == 1 && slices.ContainsFunc(replicas, func(m Replica) bool { return !worth(c, m.State) }) {
					return
				}
				x.p, x.c, x.replicas = p, c, replicas
				x.run()
			})
		}
	}
	t.Logf("%d states", x.visited)
}

// worth reports whether replicas in a state show something that others don't with a command
// of many rounds.
func worth(c Command, s State) bool {
	switch c.Op {
	case Incr:
		return everyVector() || s == In || s == Returning // a touch covers a repair before it
	case Append, Add, Delete, Replace:
		return s == In || s == Returning && c.Op != Append
	case Gat:
		return s == In || s == Warming
	}
	return s != Filling && s != Suspect && s != Settling
}

func TestEveryOutcomeOfOne(t *testing.T) {
	exploreAll(t, 1, false, -1, func(Command) bool { return true })
}

// Commands of several rounds have too many vectors, so they get one fault. Those with the
// most rounds are explored in a full run only.
func TestEveryOutcomeOfTwo(t *testing.T) {
	short := func(c Command) bool { k := classOf(c); return k == reads || k == all || k == alone }
	set := Command{Op: Set, Conditional: true}
	exploreAll(t, 2, false, -1, func(c Command) bool { return short(c) && c != set })
	exploreAll(t, 2, true, 2, func(c Command) bool { return c == set })
	exploreAll(t, 2, true, 1, func(c Command) bool {
		switch {
		case short(c), c.Conditional: // a conditional delete has too many vectors: TestMarksOfConditionalCommands
			return false
		case testing.Short():
			return c == Command{Op: Add}
		}
		return testenv.Full() || c.Op != Append && c.Op != Cas && c.Op != Incr
	})
}

// Every vector of reads and of commands that are sent to all replicas alike.
func TestEveryOutcomeOfThree(t *testing.T) {
	exploreAll(t, 3, true, -1, func(c Command) bool {
		k := classOf(c)
		return k == reads || k == all && !c.Conditional || c.Op == Gets && testenv.Full()
	})
}

// Commands that are decided by one replica after the other have too many vectors: up to one
// fault, and only the command whose followers need the fewest asks. Copies to two followers have
// too many vectors, too: TestEveryOutcomeOfTwo, TestManyMembers.
func TestOneFaultOfThree(t *testing.T) {
	exploreAll(t, 3, true, 1, func(c Command) bool { return c == Command{Op: Gat} })
}

func TestTwoFaultsOfFour(t *testing.T) {
	faults := 2
	if testing.Short() {
		faults = 1
	}
	exploreAll(t, 4, true, faults, func(c Command) bool { return c == Command{} || c == Command{Op: Set} })
}

// Up to eight replicas, with random states.
func TestManyMembers(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 8))
	cs := commands()
	x := newExplorer(t)
	most := 0
	for try := range 30000 {
		long := try%2 == 1
		x.c = cs[rnd.IntN(len(cs))]
		ps := policies(x.c)
		x.p = ps[rnd.IntN(len(ps))]
		x.replicas = make([]Replica, 1+rnd.IntN(Max))
		for i := range x.replicas {
			x.replicas[i] = Replica{State: State(rnd.IntN(int(NumStates))), Near: rnd.IntN(2) == 0}
			if rnd.IntN(2) == 0 {
				x.replicas[i].State = In
			}
			if long && i == 0 {
				x.replicas[i].State = Dirty
			}
		}
		r := begin(x.p, x.c, x.replicas, rnd.Uint64())
		for !r.IsDone() && x.bad == 0 {
			var room [maxAsks]Ask
			r.Next(room[:0])
			var open []int
			for i, e := range r.asks[:r.n] {
				if e.kind == pending {
					open = append(open, i)
				}
			}
			if len(open) == 0 {
				if !r.IsDone() {
					x.fail(&r, "stuck")
				}
				break
			}
			i := open[rnd.IntN(len(open))]
			os := outcomes(x.c, r.asks[i].step, rnd.IntN(4) > 0)
			o := os[rnd.IntN(len(os))]
			if long {
				o = longest(x.c, &r, i)
			}
			r.HandleOutcome(i, o)
			most = max(most, int(r.n))
			x.check(&r)
		}
	}
	t.Log("at most", most, "asks of", maxAsks)
}

// longest returns the outcome of ask i that makes the command send the most asks.
func longest(c Command, r *Rule, i int) Outcome {
	e := r.asks[i]
	nothing := 0 // how often the primary had nothing
	for _, b := range r.asks[:i] {
		if b.step == Forward && b.replica == e.replica {
			nothing++
		}
	}
	all := outcomes(c, e.step, true)
	switch e.step {
	case Forward:
		return all[min(1-min(nothing, 1), len(all)-1)]
	case Join, Extend:
		return Outcome{Kind: NotFound}
	case Look, Check:
		if r.makesStale() {
			return Outcome{Kind: Hit}
		}
		return Outcome{Kind: Hit, Value: uint64(i)}
	case Claim, PlaceTombstone:
		return Outcome{Kind: Stored}
	case Fetch: // the last source has the key
		if r.stage == fetching && r.copy.sources == 0 || r.stage == looking && r.at == r.last {
			return Outcome{Kind: Hit}
		}
		return Outcome{Kind: Miss}
	case Fill:
		if r.copy.then == starting && r.copy.rounds == 1 {
			return Outcome{Kind: Exists}
		}
		if r.copy.then == starting || r.copy.then == asking {
			return Outcome{Kind: Stored}
		}
		return Outcome{Kind: ServerError}
	case Drop, RefreshTombstone:
		return Outcome{Kind: Exists}
	}
	return all[0]
}
