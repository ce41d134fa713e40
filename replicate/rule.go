package replicate

// This file has the Rule: the asks of one command, and the result that the client gets.

import "math/bits"

// Mask is a set of replicas: bit i is replica i.
type Mask uint8

// Has reports whether replica i is in m.
func (m Mask) Has(i int) bool { return m>>uint(i)&1 != 0 }

// Len returns the number of replicas in m.
func (m Mask) Len() int { return bits.OnesCount8(uint8(m)) }

// each calls yield with the index of each replica in m, in ascending order.
func (m Mask) each(yield func(replica int) bool) {
	for ; m != 0 && yield(m.first()); m &= m - 1 {
	}
}

// Verdict says which reply the client gets.
type Verdict uint8

// The values of Verdict.
const (
	Answered Verdict = iota // the client gets the reply to the ask Settlement.Answer. The caller translates the reply, unless the ask was the client's own request or a Store
	Done                    // the command is done, but no server has sent the reply that the client must get: DELETED
	Absent                  // the client gets a miss, NOT_FOUND or NOT_STORED, whatever value the replicas have or had
	Held                    // the write can be neither sent nor acknowledged now. The caller begins again when the replicas change; at the client's deadline the reply is SERVER_ERROR
	Refused                 // no replica can be asked, so the reply is SERVER_ERROR, or what the route sets with get_errors
	Unmet                   // too few replicas have stored the write, or none could reply: the client gets the error of the ask Settlement.Answer, or SERVER_ERROR if that is -1
)

// Settlement is the result of a command. Its masks of replicas are complete when Rule.IsDone
// reports true.
type Settlement struct {
	Verdict   Verdict
	Answer    int  // number of the ask that has the reply for the client; -1: none
	Dirty     Mask // replicas that have missed the write: they are not read for this key until they are repaired
	Clean     Mask // replicas that are no longer dirty for this key
	Undo      Mask // replicas that may still run a set late: the caller sends a tombstone after the set on the same connection
	Repair    Mask // replicas that should get a copy from Source in the background: see Mend
	Overwrite Mask // replicas in Repair that may have a value that Source does not have: the copy replaces this value
	Source    int  // replica that is the source of the copies; -1: none
}

// Rule runs one command on the replicas of a key. It is a small value without pointers, and its
// methods do not allocate.
type Rule struct {
	c       Command
	class   class
	stage   stage
	confirm bool // a miss of one replica must be confirmed by the other replicas
	through bool // a miss counts only if all replicas report it
	looks   int8 // how often the rule has asked the other replicas for a key that the primary does not have
	known   bool // in the stage looking: another replica has the key
	marked  bool // the primary has a tombstone, so only the other replicas can confirm a miss
	late    bool // a reply of a replica other than the primary was late, so the primary may have changed since its own reply
	unsure  bool // the command's value may be lost by now, so the command does not succeed
	expires bool // the primary's item expires soon, is stale, or has been removed by an exptime that has passed: a follower without an item has the write
	peeked  bool // a look at the primary was sent before the command (stage peeking)
	resumed bool // class "grants": the add goes on with the value that it has stored (Continue)

	lead   int8   // index of the primary; for a read at one replica, index of that replica
	need   int8   // number of replicas that must store the write
	reply  int8   // number of the ask that has the reply for the client, while the followers get their copies; -1: none
	number uint64 // the result of the command at the primary: the number of a counter, or the size after an append

	said
	groups
	effect
	marks
	turns
	relocating

	copy   copying
	differ Mask // followers that need a copy of the primary's value

	askList
}

// said is the result for the client. It is known as soon as settled is set.
type said struct {
	settled bool
	verdict Verdict
	answer  int8 // number of the ask that has the reply for the client; -1: none
}

// groups has the replicas of the key in groups, by the use that the rule makes of them.
type groups struct {
	in          Mask // replicas that are In and not dirty: they have all values that they should have
	warm        Mask // replicas that can be read, but their miss alone proves nothing: Warming, Settling or Filling
	stale       Mask // replicas that are dirty for this key
	away        Mask // replicas that can't be asked: Leaving or Suspect; for a Flush also Gone
	gone        Mask // replicas that are Gone: they get no requests, so they miss writes
	takes       Mask // replicas that get writes
	failedLeads Mask // replicas that were asked as primary and failed, or could not be repaired as primary
}

// effect is what the write has done at the replicas.
type effect struct {
	stored    Mask // replicas that have stored the write
	without   Mask // replicas that have not got the write, and have no value that must be replaced: they get a copy
	dirty     Mask // replicas that have another value, or an unknown one
	undo      Mask // replicas in dirty that may run the write late, or must not have the written value
	clean     Mask // replicas that were dirty and are no longer dirty
	tardy     Mask // replicas that replied to a set so late that other replicas may have lost the value since
	waited    Mask // in the stage reviewing: replicas with a tombstone of another command, for which the rule has waited once (Wait)
	overwrite Mask // replicas that may have a value that the primary does not have: a copy replaces it
	needsCopy Mask // replicas that have the right value but another TTL, or may differ from the primary because the primary's reply is missing
	from      int8 // index of the replica that is the source of repairs; -1: the primary
}

// marks is the state of the command's tombstones and looks.
type marks struct {
	held   Mask       // replicas that have a tombstone of this command
	hits   Mask       // replicas that had a value which this delete has removed
	intact Mask       // replicas in held at which the tombstone was still unchanged when all replicas had one
	again  Mask       // followers that have got a second look
	guard  [Max]uint8 // by replica: number of the ask that has found or stored the present item of the replica
	rounds uint8      // number of rounds of a delete; for another command, how often it has started again because of other writes
	races  uint8      // how often another write was run between a look of a conditional command and the request that depends on it
	main   uint8      // number of the ask that sends the command to the primary
	looked uint8      // 1 plus the number of the Look or Check that was sent with the command; 0: none. For an add (class grants): the number of a Look
	ready  Mask       // followers of a counter that get the primary's item if a fetch shows that the primary's number is unchanged
	later  uint8      // number of the last ask that fetches the primary's number
	since  uint8      // number of the first ask since Continue

	foreseen [Max]uint64 // by replica: the size or number that the command would produce at this replica
}

// turns lists the replicas that are asked one after the other. That is for a read, or for a key
// that the primary does not have (stage looking).
type turns struct {
	order  [Max]uint8
	at     uint8 // index in order of the next replica to ask
	last   uint8 // number of replicas in order
	silent Mask  // in the stage looking: replicas for which it is unknown whether they have the key
}

// askList holds all asks of the command, in the order in which they were made.
type askList struct {
	n     uint8 // number of asks that the rule has made
	given uint8 // number of asks that Next has returned already
	open  uint8 // number of asks that have no outcome yet
	asks  [maxAsks]asked
}

// maxAsks is the maximum number of asks of a rule. No command needs more: the longest one has 8
// replicas, repairs one of them first, and copies to all others after an append.
const maxAsks = 96

// asked is one ask and its outcome.
type asked struct {
	replica uint8
	step    Step
	from    uint8
	guard   uint8
	kind    Kind
}

// class is the way in which a command is distributed over its replicas.
type class uint8

const (
	reads     class = iota // one replica after the other is asked until the first hit
	alone                  // one replica is asked; the other replicas are only asked to confirm a miss
	all                    // all replicas get the command at once
	buries                 // all replicas get a tombstone, which is then removed
	grants                 // an add: one replica after the other must store a tombstone. The value is stored if all have done so
	leads                  // the primary runs the command, and then the followers repeat it
	mends                  // no client command: a repair of one replica, or the removal of a key from a server that had it before a reload
	relocates              // the key has one copy, which moves from one server to another (Relocate)
)

// stage says why the asks in flight were made.
type stage uint8

const (
	done stage = iota
	reading
	spreading // class "all": the command or its look was sent to all replicas
	reviewing // class "all", for a set: check that the replicas that replied early still have the value
	burying   // class "buries": store a tombstone at each replica
	verifying
	unearthing
	granting  // class "grants": the add stores a tombstone (claim) at one replica after the other
	storing   // class "grants": the client's value replaces the tombstones (claims) that the add has stored, the primary's first
	leading   // class "leads" or "alone": the primary was asked
	remarking // the command has changed a tombstone: a fresh tombstone replaces it
	emptying  // the dirty primary has no source for a repair, so the key is removed there
	peeking   // check that a primary that may lack values has the key, before the command creates it
	looking   // the primary does not have the key: the other replicas are asked
	following // class "leads": the followers were asked
	sweeping  // remove the old value from replicas that have refused the new one
	claiming  // first stage of a copy: store a tombstone at replicas that lack the key, or look at the item to replace
	fetching
	filling
	checking
	seeking   // first stage of Move: read the key at the server that had it before a reload
	leaving   // last stage of Move: remove the key from the server that had it before a reload
	probing   // class "relocates": store a tombstone at the new owner if it has no item, and look at the item
	yielding  // class "relocates": wait for the end of another command, which has a tombstone at the new owner
	relocated // class "relocates": all other requests, one after the other
)

// next is what the rule does after a copy of the key has ended.
type next uint8

const (
	starting next = iota // run the command: its dirty primary has been repaired
	asking               // send the command to the primary again, because the primary has got the value of another replica
	closing              // finish the command, because the followers that differed are repaired
	refusing             // reply that the add has failed, with the reply of the replica that has refused it
	mending              // end the command, because the copy was its only purpose (Mend)
	moving               // remove the key at the server that had it before a reload
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

// Begin makes r, a zero Rule, the rule of the command c with the policy p. replicas has at most Max
// replicas, in the key's order. spread is any number that changes from read to read; the policy
// Spread uses it.
func (r *Rule) Begin(p Policy, c Command, replicas []Replica, spread uint64) {
	r.c, r.class, r.lead = c, classOf(c), int8(Authority(replicas))
	r.answer, r.reply, r.from = -1, -1, -1
	near, settling, returning, calm, count := r.sortOut(replicas)
	r.confirm = p.ReadThrough || !calm
	r.through = p.ReadThrough
	r.need = int8(need(p.Ack, c, count))
	if c.Op == Set && !c.Expires && p.Ack != AckAll { // with this policy the client may get its reply before all replicas have the value
		r.c.Conditional = false
	}

	switch {
	case r.class == reads:
		r.beginRead(p.Read, near, spread)
		return
	case r.lead < 0:
		r.settle(Refused, -1)
		return
	case readsAtOne(c):
		if r.away.Has(int(r.lead)) {
			if r.in == 0 {
				r.settle(Refused, -1)
				return
			}
			r.lead = int8(r.in.first())
		}
		if r.stale.Has(int(r.lead)) && r.in|r.warm == 0 && r.away != 0 {
			r.settle(Refused, -1)
			return
		}
	case r.away.Has(int(r.lead)), r.takes.Len() < int(r.need):
		r.settle(Held, -1)
		return
	case r.class == leads && r.handingOver(settling, returning):
		r.settle(Held, -1)
		return
	case r.class != all && r.class != buries && r.stale.Has(int(r.lead)) && r.in == 0 && r.away != 0:
		r.settle(Held, -1) // the replicas that could repair the primary can't be asked
		return
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
}

// sortOut groups the replicas by state. It returns the replicas in the zone of this instance
// (near), and those with the states Settling and Returning. calm is true if all replicas that are
// not skipped are In. count is the number of replicas that count for the acknowledgement of a
// write.
func (r *Rule) sortOut(replicas []Replica) (near, settling, returning Mask, calm bool, count int) {
	calm = true
	for i, m := range replicas {
		bit := Mask(1) << i
		if m.Near {
			near |= bit
		}
		switch {
		case m.State == Out:
			continue
		case m.State == Gone && r.c.Op != Flush: // for a flush, a replica that is Gone counts as away: if it missed the flush, no ledger would record that
			r.gone |= bit
			continue
		}
		count++
		calm = calm && m.State == In
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

// Mend returns the rule of a repair: `replica` gets a copy of what `source` has. A write or
// delete at `replica` in the meantime wins. An existing item stays unless overwrite is set (the
// replica is Dirty, or differs). A tombstone stays unless take or overwrite is set. With take, an
// existing item also stays if the source has nothing. If the replica is right at the end, the
// rule settles as Answered, without a reply. Otherwise it settles as Unmet.
func Mend(replica, source int, overwrite, take bool) Rule {
	r := Rule{class: mends, lead: int8(replica)}
	r.answer, r.reply, r.from = -1, -1, -1
	r.takes = 1<<replica | 1<<source
	r.in = 1 << source
	r.copyThen(mending, 1<<replica, 1<<source, overwrite)
	r.copy.take, r.copy.keep = take, take
	return r
}

// Move returns the rule that removes a key from `source`, which must no longer keep it. First the
// replicas in `to` get the value, as by Mend. The replicas in `away` should get the value, too,
// but can't be asked. If there are any, source keeps the key. If source has nothing at the end,
// the rule settles as Answered, without a reply. Otherwise it settles as Unmet. See Former
// holders in the package doc.
func Move(to, away Mask, source int, overwrite bool) Rule {
	r := Rule{class: mends, lead: int8(source), stage: seeking}
	r.takes, r.away = to|1<<source, away
	r.answer, r.reply, r.from = -1, -1, -1
	r.copy = copying{then: moving, overwrite: overwrite, keep: true, take: true, from: 1 << source}
	r.guard[source] = uint8(r.ask(source, Look))
	return r
}

// handingOver reports whether another replica may become the primary with its next state. Another
// instance may have seen that state already. settling and returning are replicas in these states.
func (r *Rule) handingOver(settling, returning Mask) bool {
	before := Mask(1)<<r.lead - 1
	if r.warm.Has(int(r.lead)) {
		return settling&^(1<<r.lead)|returning&before != 0
	}
	return settling&before != 0
}

// readsAtOne reports whether c is a read that one replica answers. If the primary can't be asked,
// the read is sent to another replica, and is not Held. A read that removes the item is a write.
func readsAtOne(c Command) bool {
	switch c.Op {
	case Get, Gets, Gat, Gats, Debug:
		return !c.Expires
	}
	return false
}

// need returns how many of `count` replicas must store a write with the policy a. A read that
// also sets an exptime needs only one replica. A command that removes the item needs all: a read
// that finds nothing at the primary returns the value of a follower, and copies it back.
func need(a Ack, c Command, count int) int {
	switch {
	case c.removes():
		return count
	case readsAtOne(c) || a == AckOne:
		return 1
	case a == AckQuorum:
		return count/2 + 1
	default:
		return count
	}
}

// Authority returns the index of the key's primary: the first replica that is In, Filling, Dirty,
// Leaving or Suspect, else the first that is Warming or Settling, else -1. Instances that see the
// same states agree on the primary, even if they can reach different replicas.
func Authority(replicas []Replica) int {
	warm := -1
	for i, m := range replicas {
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

// Next appends to dst the asks to send now. If there are none, the rule waits for an outcome, or
// is settled.
func (r *Rule) Next(dst []Ask) []Ask {
	for ; r.given < r.n; r.given++ {
		e := &r.asks[r.given]
		a := Ask{Number: int(r.given), Replica: int(e.replica), Step: e.step, From: int(e.from), Guard: int(e.guard)}
		if e.step == Fetch {
			a.Compares = r.levels() && r.copy.targets.Has(a.Replica)
		}
		dst = append(dst, a)
	}
	return dst
}

// HandleOutcome records the outcome of an ask. It ignores a second outcome of the same ask.
func (r *Rule) HandleOutcome(ask int, o Outcome) {
	e := &r.asks[ask]
	if ask >= int(r.n) || e.kind != pending || o.Kind == pending {
		return
	}
	e.kind = o.Kind
	r.open--
	m := Mask(1) << e.replica
	switch r.stage {
	case reading:
		r.handleRead(ask)
	case spreading:
		if o.Late && r.c.Op == Set {
			r.tardy |= m
		}
		r.handleSpread(ask, m)
	case reviewing:
		r.handleReview(ask, m)
	case burying, verifying, unearthing:
		r.handleTombstones(ask, m)
	case granting:
		r.handleGrant(m)
	case storing:
		r.handleStore(ask)
	case emptying:
		r.handleEmpty(m, o.Kind)
	case leading, remarking:
		r.handleLead(ask, o)
	case peeking:
		r.handlePeek(o.Kind.compared())
	case looking:
		r.handleLook(ask)
	case following:
		r.handleFollow(ask, m, o)
	case sweeping:
		r.handleSweep(m, o.Kind)
	case seeking, leaving:
		r.handleMove(o.Kind)
	case probing, yielding, relocated:
		r.handleRelocation()
	case claiming, fetching, filling, checking:
		if e.step == Fetch {
			r.foreseen[e.replica] = o.Value
			r.noteExpiry(e.replica, o)
		}
		r.late = r.late || o.Late && r.joins() && r.copy.then == closing
		r.handleCopy(ask, m)
	}
}

// Asked reports whether the rule has made any ask.
func (r *Rule) Asked() bool { return r.n > 0 }

// Settled returns the result of the command, and whether the result is known. Asks may still be
// in flight and new ones may follow: the caller continues until IsDone.
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
	case r.kept && r.answer >= 0 && r.asks[r.answer].replica == oldOwner:
		s.Repair, s.Source = 1<<newOwner, oldOwner
		return s, true
	case r.class == mends || r.class == relocates || r.c.Op == Flush:
		return s, true
	case r.stored != 0:
		s.Dirty |= (r.away | r.gone) & r.behind()
	}
	if r.verdict == Unmet { // the replicas in overwrite may have a write that was not acknowledged, but have missed no write
		s.Dirty &^= r.overwrite &^ r.undo
	}
	s.Clean &^= s.Dirty
	s.Repair = (s.Dirty | r.dirty | r.without | r.needsCopy | r.overwrite) & r.takes
	switch right := r.in &^ s.Dirty &^ r.without; {
	case r.from >= 0:
		s.Source = int(r.from)
	case r.stored.Has(int(r.lead)):
		s.Source = int(r.lead)
	case r.stored != 0:
		s.Source = r.stored.first()
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

// behind returns the replicas that become dirty if the write does not reach them: all, or none
// for a command that only sets a TTL which has not passed.
func (r *Rule) behind() Mask {
	if r.class == alone || r.extends() && !r.c.Expires {
		return 0 // replicas that missed the command have the same value, only with another TTL
	}
	return ^Mask(0)
}

// IsPlainGet reports whether the rule only forwards a get to replicas, so that no ask depends on a reply.
func (r *Rule) IsPlainGet() bool { return r.stage == reading }

// IsDone reports whether no ask is in flight and none will follow.
func (r *Rule) IsDone() bool { return r.settled && r.open == 0 && r.given == r.n }

func (r *Rule) settle(v Verdict, answer int) {
	if !r.settled {
		r.settled, r.verdict, r.answer = true, v, int8(answer)
	}
}

func (r *Rule) ask(replica int, d Step) int {
	i := r.n
	r.asks[i] = asked{replica: uint8(replica), step: d}
	r.n++
	r.open++
	return int(i)
}

// askFrom makes an ask that depends on the item that an earlier ask, guard, has found or stored.
func (r *Rule) askFrom(replica int, d Step, guard uint8) int {
	i := r.ask(replica, d)
	r.asks[i].guard = guard
	return i
}

func (r *Rule) askAll(m Mask, d Step) {
	for i := range m.each {
		r.ask(i, d)
	}
}

// drops removes from the replicas in m the item that the ask of their guard has found or stored.
func (r *Rule) drops(m Mask) {
	for i := range m.each {
		r.askFrom(i, Drop, r.guard[i])
	}
}

// first returns the lowest index of a replica in m; m must not be empty.
func (m Mask) first() int { return bits.TrailingZeros8(uint8(m)) }

// failed reports whether the request has got no reply.
func (k Kind) failed() bool { return k == Unsent || k == InDoubt }

// refused reports whether the server has replied with an error.
func (k Kind) refused() bool { return k == ClientError || k == ServerError }
