package replicate

// The rule: which asks one command becomes, and when it is settled.

import "math/bits"

// Mask is a set of members: bit i is member i.
type Mask uint8

// Has reports whether member i is in m.
func (m Mask) Has(i int) bool { return m>>uint(i)&1 != 0 }

// Len is the number of members in m.
func (m Mask) Len() int { return bits.OnesCount8(uint8(m)) }

// Verdict says what the client is told.
type Verdict uint8

// The verdicts.
const (
	Answered Verdict = iota // the reply of ask Answer; if that was not the client's request or Store, what it means in the client's words
	Done                    // what the client wanted has been done, though no reply says so in its words: DELETED
	Absent                  // a miss, NOT_FOUND or NOT_STORED whatever the members say: what they have, or had, is not the truth
	Held                    // the write may be neither acknowledged nor sent; wait for the members to change, begin again, at the deadline SERVER_ERROR
	Refused                 // there is nobody to ask: SERVER_ERROR, or what get_errors says
	Unmet                   // too few have taken the write, or no one could answer: SERVER_ERROR (the line of ask Answer if that is not -1)
)

// Settlement is what a command came to. The masks are complete when Over.
type Settlement struct {
	Verdict   Verdict
	Answer    int  // the ask whose reply the client gets, or -1
	Dirty     Mask // missed the write: not to be read for this key until repaired
	Clean     Mask // no longer dirty for this key
	Undo      Mask // may run a set, late: a mark goes behind it, on the same connection
	Repair    Mask // should be made like Source, in the background: Mend
	Overwrite Mask // of these, may have something that the Source hasn't: the copy replaces it
	Source    int  // the member that has the truth, or -1
}

// Rule carries one command through its members. It is a small value without
// pointers; its methods do not allocate.
type Rule struct {
	c       Command
	class   class
	stage   stage
	confirm bool // a miss of one member is asked of the others too
	through bool // and a miss counts only if all have said so
	chosen  bool // all copies get one cas, by E
	looks   int8 // how often the others were asked for what the authority hasn't
	known   bool // when looking for what the authority hasn't, another had it
	marked  bool // the authority has a mark: that it has no such key is for the others to say
	late    bool // one of the rest was late
	unsure  bool // the authority has lost meanwhile what the rest follow
	peeked  bool // it was looked for before the authority was asked

	lead   int8   // the authority; of a read at one member, that member
	need   int8   // members that must have taken the write
	reply  int8   // the ask that will be the answer when the copies have settled
	number uint64 // the authority's count

	said
	standing
	effect
	marks
	turns

	copy   copying
	differ Mask // followers that are to be copied from the authority
	refuse Mask // followers that would not store the value

	askList
}

// said is what the client is told, from the moment that this is known.
type said struct {
	settled bool
	verdict Verdict
	answer  int8 // the ask whose reply it gets, or -1
}

// standing are the members by what they are good for.
type standing struct {
	in    Mask // have all that they should have
	warm  Mask // are readable, but a miss there decides nothing: Warming, Settling or Filling
	stale Mask // are dirty for this key
	away  Mask // can't be asked: Leaving or Suspect; Gone counts as that for a Flush
	gone  Mask // are skipped, and miss what is written: Gone
	takes Mask // take writes
	deaf  Mask // were asked to lead and have failed
}

// effect is what has become of the write at the members.
type effect struct {
	took      Mask // have it
	without   Mask // have not the write, and nothing that must go: they only get a copy
	dirty     Mask // have something else, or nobody knows
	undo      Mask // of these, who may execute it late, or must not have it
	clean     Mask // were dirty and are not
	tardy     Mask // have answered a set so late that others may have lost it since
	waited    Mask // a set is reviewed: have a mark, whose owner has been given some time
	overwrite Mask // may have something that the authority hasn't: a copy replaces it
	fix       Mask // are right but for their TTL, or unlike an authority in doubt
	from      int8 // the member that fix is made like; -1: the authority
}

// marks is what a command knows of marks, and of what it has looked at.
type marks struct {
	held   Mask       // have a mark of ours
	hits   Mask       // had a value that a delete has removed
	intact Mask       // of these, were still there when all had theirs
	again  Mask       // of the rest, were looked at once more
	guard  [Max]uint8 // by member: the ask that has seen or left what is there
	rounds uint8      // of a delete, or of a replace that others come before
	races  uint8      // of a conditional command: how often somebody came between a look and what builds on it
	main   uint8      // the ask that the authority decides the command with
	looked uint8      // the Look or Review behind main, as a number above that of the ask; 0: none
	ready  Mask       // of the rest, are to count if the authority still has its number
	later  uint8      // the ask that has fetched that last

	foreseen [Max]uint64 // by member: what the command would make of what is there
}

// turns are the members that are asked one after the other: by a read, or when
// looking for what the authority hasn't.
type turns struct {
	order  [Max]uint8
	at     uint8 // the next in order
	last   uint8 // the length of order
	silent Mask  // when looking: have not said whether they have it
}

// askList is every ask of the command, in the order in which they were made.
type askList struct {
	n     uint8 // asks made
	given uint8 // of these, handed out
	open  uint8 // unanswered, handed out or not
	asks  [maxAsks]asked
}

// maxAsks is more than any command needs: 8 members, one of them repaired
// first, all the others appended to, found different and copied.
const maxAsks = 96

// asked is one ask and what came of it.
type asked struct {
	member uint8
	deed   Deed
	from   uint8
	guard  uint8
	kind   Kind
}

// class is one of the ways in which a command meets its members.
type class uint8

const (
	reads  class = iota // one member after the other until the first hit
	alone               // one member, others only to confirm a miss
	all                 // all members at once
	buries              // all members get a mark, and then lose it
	grants              // one after the other in the key's order, and all must agree
	leads               // the authority, then the rest follow
	mends               // no command: one copy from another, or a key leaves a former holder
)

// stage says what the unanswered asks are for.
type stage uint8

const (
	done stage = iota
	reading
	spreading // all: the command is everywhere
	reviewing // set: is it still where it was early?
	burying   // buries, in their order
	verifying
	unearthing
	granting  // grants, in their order: a claim at one member after the other
	storing   // the value is stored on all claims, the authority's first
	revoking  // what it has left is taken back
	leading   // leads, alone: the authority has it
	remarking // what it did was done to a mark
	emptying  // the only authority is dirty and nobody knows better
	peeking   // does an incomplete authority have the key, before it makes one?
	looking   // the authority has nothing; do others?
	following // leads: the rest
	sweeping  // members that refused what others have lose their old value
	claiming  // copying, in its order
	fetching
	filling
	checking
	seeking // moves: has the former holder anything?
	leaving // and loses it
)

// next is what follows a copying.
type next uint8

const (
	starting next = iota // the command: its dirty authority is repaired
	asking               // the authority once more: it has now what others had
	closing              // the end: the followers that differed are repaired
	refusing             // the answer of the member that refused an add
	mending              // nothing: that was all
	moving               // the former holder loses it
)

func classOf(c Command) class {
	switch c.Op {
	case Get:
		if c.Win || c.Vivify {
			return alone
		}
		return reads
	case Gets, Debug:
		return alone
	case Set:
		if c.If {
			return leads
		}
		return all
	case Delete:
		if c.If || c.Stale {
			return leads
		}
		return buries
	case Flush:
		return all
	case Add:
		if c.If {
			return leads
		}
		return grants
	default:
		return leads
	}
}

// Begin returns the rule of command c under policy p. members are those of the
// key in its order, at most Max; spread is any number that changes from read to
// read (for Spread).
func Begin(p Policy, c Command, members []Member, spread uint64) Rule {
	r := Rule{c: c, class: classOf(c), lead: int8(Authority(members)), chosen: true}
	r.answer, r.reply, r.from = -1, -1, -1
	near, settling, returning, calm, count := r.sortOut(members)
	r.confirm = p.ReadThrough || !calm
	r.through = p.ReadThrough
	r.chosen = r.chosen && changesValue(c)
	r.need = int8(need(p.Ack, c, count))
	if c.Op == Set && p.Ack != AckAll { // it would come to the rest behind what the client asks there when it has its answer
		r.c.Conditional = false
	}

	switch {
	case r.class == reads:
		r.beginRead(p.Read, near, spread)
		return r
	case r.lead < 0:
		r.settle(Refused, -1)
		return r
	case readsAtOne(c):
		if r.away.Has(int(r.lead)) {
			if r.in == 0 {
				r.settle(Refused, -1)
				return r
			}
			r.lead = int8(r.in.first())
		}
		if r.stale.Has(int(r.lead)) && r.in|r.warm == 0 && r.away != 0 {
			r.settle(Refused, -1)
			return r
		}
	case r.away.Has(int(r.lead)), r.takes.Len() < int(r.need):
		r.settle(Held, -1)
		return r
	case r.class == leads && r.handingOver(settling, returning):
		r.settle(Held, -1)
		return r
	case r.class != all && r.class != buries && r.stale.Has(int(r.lead)) && r.in == 0 && r.away != 0:
		r.settle(Held, -1) // who could repair the authority can't be asked
		return r
	}

	switch {
	case r.class == buries:
		r.bury(r.takes, 0)
	case r.class == all && r.conditional():
		r.stage = spreading
		r.askAll(r.takes, Look)
	case r.class == all:
		r.stage = spreading
		r.askAll(r.takes, Forward)
	default:
		r.prepare()
	}
	return r
}

// sortOut says what the members are good for: near are in Ringside's own zone, settling
// and returning in these states. calm: all that are not skipped are In. count is of how
// many a write asks whether enough have taken it.
func (r *Rule) sortOut(members []Member) (near, settling, returning Mask, calm bool, count int) {
	calm = true
	for i, m := range members {
		bit := Mask(1) << i
		if m.Near {
			near |= bit
		}
		switch {
		case m.State == Out:
			continue
		case m.State == Gone && r.c.Op != Flush: // what it keeps of a flush nobody would know
			r.gone |= bit
			continue
		}
		count++
		calm = calm && m.State == In
		r.chosen = r.chosen && m.ChosenCAS
		switch m.State {
		case In:
			r.in |= bit
		case Warming, Filling:
			r.warm |= bit
		case Settling:
			r.warm |= bit
			settling |= bit
		case Returning:
			returning |= bit
		case Dirty:
			r.stale |= bit
		case Leaving, Suspect, Gone:
			r.away |= bit
			continue
		}
		r.takes |= bit
	}
	return near, settling, returning, calm, count
}

// Mend returns the rule of a repair: member is made like source, guarded, so
// that a concurrent write or delete at member wins. An item that is there
// already stays unless overwrite is set (the member is Dirty, or differs), and a
// mark unless take or overwrite is. With take, what is there stays also if the
// source has nothing. It settles as Answered, without a reply, if the member is
// right, else as Unmet.
func Mend(member, source int, overwrite, take bool) Rule {
	r := Rule{class: mends, lead: int8(member)}
	r.answer, r.reply, r.from = -1, -1, -1
	r.takes = 1<<member | 1<<source
	r.in = 1 << source
	r.copyThen(mending, 1<<member, 1<<source, overwrite)
	r.copy.take, r.copy.keep = take, take
	return r
}

// Move returns the rule by which a key leaves a former holder, source: the members of to
// get what it has, guarded as by Mend, and then it loses that, unless there are some who
// should get it and can't be asked: away. It settles as Answered, without a reply, if the
// source has nothing any more, else as Unmet. Why that is enough is in the doc of the
// package: Former holders.
func Move(to, away Mask, source int, overwrite bool) Rule {
	r := Rule{class: mends, lead: int8(source), stage: seeking}
	r.takes, r.away = to|1<<source, away
	r.answer, r.reply, r.from = -1, -1, -1
	r.copy = copying{then: moving, overwrite: overwrite, keep: true, take: true, from: 1 << source}
	r.guard[source] = uint8(r.ask(source, Look))
	return r
}

// handingOver reports whether the next state of another member may make it the
// authority. Another proxy may have seen that already.
func (r *Rule) handingOver(settling, returning Mask) bool {
	before := Mask(1)<<r.lead - 1
	if r.warm.Has(int(r.lead)) {
		return settling&^(1<<r.lead)|returning&before != 0
	}
	return settling&before != 0
}

// readsAtOne reports whether c is a read that one member answers, so that it
// goes to another rather than being held.
func readsAtOne(c Command) bool {
	switch c.Op {
	case Get, Gets, Gat, Gats, Debug:
		return true
	}
	return false
}

// changesValue reports whether c gives the item another cas.
func changesValue(c Command) bool {
	switch c.Op {
	case Set, Add, Replace, Append, Prepend, Cas, Incr, Decr:
		return true
	}
	return false
}

// need is how many of count members must take a write. What only moves an
// exptime while it reads is never refused for that.
func need(a Ack, c Command, count int) int {
	switch {
	case c.Op == Flush:
		return count
	case readsAtOne(c) || a == AckOne:
		return 1
	case a == AckQuorum:
		return count/2 + 1
	default:
		return count
	}
}

// Authority is the member that decides for the key: the first that is In, Filling,
// Dirty, Leaving or Suspect, else the first that is Warming or Settling; -1:
// nobody. Proxies that see the same members agree on it, whatever each of them
// can reach.
func Authority(members []Member) int {
	warm := -1
	for i, m := range members {
		switch m.State {
		case In, Filling, Dirty, Leaving, Suspect:
			return i
		case Warming, Settling:
			if warm < 0 {
				warm = i
			}
		}
	}
	return warm
}

// Next appends the asks that are to be sent now; none: wait, or see Settled.
func (r *Rule) Next(dst []Ask) []Ask {
	for ; r.given < r.n; r.given++ {
		e := &r.asks[r.given]
		a := Ask{Number: int(r.given), Member: int(e.member), Deed: e.deed, From: int(e.from), Guard: int(e.guard)}
		switch e.deed {
		case Forward, Store, Put, Join, Count, Fill:
			a.Chosen = r.chosen
		}
		dst = append(dst, a)
	}
	return dst
}

// Told says what became of an ask. What it is told of one ask twice, it ignores
// the second time.
func (r *Rule) Told(ask int, o Outcome) {
	e := &r.asks[ask]
	if ask >= int(r.n) || e.kind != pending || o.Kind == pending {
		return
	}
	e.kind = o.Kind
	r.open--
	m := Mask(1) << e.member
	switch r.stage {
	case reading:
		r.readTold(ask)
	case spreading:
		if o.Late && r.c.Op == Set {
			r.tardy |= m
		}
		r.spreadTold(ask, m)
	case reviewing:
		r.reviewTold(ask, m)
	case burying, verifying, unearthing:
		r.buryTold(ask, m)
	case granting:
		r.grantTold(m)
	case storing:
		r.storeTold(ask)
	case revoking:
		if r.open == 0 {
			r.stage = done
		}
	case emptying:
		r.emptyTold(m, o.Kind)
	case leading, remarking:
		r.leadTold(ask, o)
	case peeking:
		r.peekTold(o.Kind)
	case looking:
		r.lookTold(ask)
	case following:
		r.followTold(ask, m, o)
	case sweeping:
		r.sweepTold(m, o.Kind)
	case seeking, leaving:
		r.moveTold(o.Kind)
	case claiming, fetching, filling, checking:
		if e.deed == Fetch {
			r.foreseen[e.member] = o.Value
		}
		r.late = r.late || o.Late && r.joins() && r.copy.then == closing
		r.copyTold(ask, m)
	}
}

// Hedge says that the policy's hedge delay has passed: a plain get asks one more
// member. Anything else ignores it.
func (r *Rule) Hedge() {
	if r.class == reads && !r.settled {
		r.readNext()
	}
}

// Asked reports whether anybody was asked for anything.
func (r *Rule) Asked() bool { return r.n > 0 }

// Settled reports what the client gets, as soon as that is known. Asks may
// still be outstanding and new ones may follow; go on until Over.
func (r *Rule) Settled() (Settlement, bool) {
	if !r.settled {
		return Settlement{Answer: -1, Source: -1}, false
	}
	s := Settlement{Verdict: r.verdict, Answer: int(r.answer), Dirty: r.dirty, Undo: r.undo, Clean: r.clean, Source: -1}
	if r.n == 0 { // nothing was sent
		return s, true
	}
	switch {
	case r.class == reads:
		s.Repair, s.Source = r.readRepair()
		return s, true
	case r.class == mends || r.c.Op == Flush:
		return s, true
	case r.took != 0:
		s.Dirty |= (r.away | r.gone) & r.behind()
	}
	if r.verdict == Unmet { // they may have more than was acknowledged, and not less
		s.Dirty &^= r.overwrite &^ r.undo
	}
	s.Clean &^= s.Dirty
	s.Repair = (s.Dirty | r.dirty | r.without | r.fix | r.overwrite) & r.takes
	switch right := r.in &^ s.Dirty &^ r.without; {
	case r.from >= 0:
		s.Source = int(r.from)
	case r.took.Has(int(r.lead)):
		s.Source = int(r.lead)
	case r.took != 0:
		s.Source = r.took.first()
	case right != 0:
		s.Source = right.first()
	}
	if s.Source >= 0 {
		s.Repair &^= 1 << s.Source
	}
	if s.Source < 0 || s.Repair == 0 {
		s.Source, s.Repair = -1, 0
	}
	s.Overwrite = r.overwrite & s.Repair
	return s, true
}

// behind are the members that a write leaves behind when it doesn't reach them.
func (r *Rule) behind() Mask {
	if r.class == alone || r.deed() == Extend {
		return 0 // they have the value, if for a shorter time
	}
	return ^Mask(0)
}

// Over reports that no ask is outstanding and none will follow.
func (r *Rule) Over() bool { return r.settled && r.open == 0 && r.given == r.n }

func (r *Rule) settle(v Verdict, answer int) {
	if !r.settled {
		r.settled, r.verdict, r.answer = true, v, int8(answer)
	}
}

func (r *Rule) ask(member int, d Deed) int {
	i := r.n
	r.asks[i] = asked{member: uint8(member), deed: d}
	r.n++
	r.open++
	return int(i)
}

// askFrom asks a member for what depends on an earlier ask.
func (r *Rule) askFrom(member int, d Deed, guard uint8) int {
	i := r.ask(member, d)
	r.asks[i].guard = guard
	return i
}

func (r *Rule) askAll(m Mask, d Deed) {
	for ; m != 0; m &= m - 1 {
		r.ask(m.first(), d)
	}
}

// first is the lowest member; m must not be empty.
func (m Mask) first() int { return bits.TrailingZeros8(uint8(m)) }

// failed reports whether no answer came.
func (k Kind) failed() bool { return k == Unsent || k == InDoubt }

// refused reports whether the server answered with an error.
func (k Kind) refused() bool { return k == ClientError || k == ServerError }
