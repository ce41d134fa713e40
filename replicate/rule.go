package replicate

// The rule: the asks of one command, and when it is settled.

import "math/bits"

// Mask is a set of replicas: bit i is replica i.
type Mask uint8

// Has reports whether replica i is in m.
func (m Mask) Has(i int) bool { return m>>uint(i)&1 != 0 }

// Len returns the number of replicas in m.
func (m Mask) Len() int { return bits.OnesCount8(uint8(m)) }

// Verdict is the kind of reply that the client gets.
type Verdict uint8

// The verdicts.
const (
	Answered Verdict = iota // the client gets the reply to the ask Answer. If that ask was neither the client's request nor a Store, the reply must be translated to the client's protocol
	Done                    // the command is done, but no server has sent the reply for the client: DELETED
	Absent                  // the client gets a miss, NOT_FOUND or NOT_STORED, whatever value the replicas have or had
	Held                    // the write can be neither sent nor acknowledged now. Begin again when the replicas change; at the deadline reply SERVER_ERROR
	Refused                 // no replica can be asked: SERVER_ERROR, or what get_errors sets
	Unmet                   // too few replicas stored the write, or none could reply: SERVER_ERROR (the line of ask Answer if that is not -1)
)

// Settlement is the result of a command. The masks are complete when IsDone.
type Settlement struct {
	Verdict   Verdict
	Answer    int  // the ask whose reply the client gets, or -1
	Dirty     Mask // missed the write: not read for this key until repaired
	Clean     Mask // no longer dirty for this key
	Undo      Mask // may still run a set late: the caller sends a tombstone after it on the same connection
	Repair    Mask // should be repaired from Source in the background: Mend
	Overwrite Mask // the replicas in Repair that may have a value that the Source does not have: the repair replaces it
	Source    int  // the source of the repair, or -1
}

// Rule runs one command on its replicas. It is a small value without pointers, and its
// methods do not allocate.
type Rule struct {
	c       Command
	class   class
	stage   stage
	confirm bool // a miss of one replica must be confirmed by the other replicas
	through bool // a miss counts only if all replicas report it
	chosen  bool // all replicas get the same cas, by the meta flag E
	looks   int8 // how often the other replicas were asked for a key that the primary does not have
	known   bool // in the stage looking: another replica had the key
	marked  bool // the primary has a tombstone, so only the other replicas can confirm a miss
	late    bool // a reply of a replica other than the primary was late
	unsure  bool // the value that the followers are about to get, or that a review checks, may be lost by now
	peeked  bool // the primary got a look before the command (stage peeking)

	lead   int8   // the primary; for a read at one replica, that replica
	need   int8   // number of replicas that must store the write
	reply  int8   // the ask whose reply the client gets after the copies to the followers
	number uint64 // the result at the primary: a count, or the size after an append

	said
	groups
	effect
	marks
	turns

	copy   copying
	differ Mask // followers that need a copy from the primary
	refuse Mask // followers that refused to store the value

	askList
}

// said is the client's result, from the moment that it is known.
type said struct {
	settled bool
	verdict Verdict
	answer  int8 // the ask whose reply the client gets, or -1
}

// groups has the replicas in groups, by their use. The comment of a mask says what its replicas
// have in common.
type groups struct {
	in          Mask // are In and not dirty: have all values that they should have
	warm        Mask // are readable, but their miss alone proves nothing: Warming, Settling or Filling
	stale       Mask // are dirty for this key
	away        Mask // can't be asked: Leaving or Suspect; for a Flush also Gone
	gone        Mask // are Gone: get no requests, so they miss writes
	takes       Mask // get writes
	failedLeads Mask // were asked as primary and failed, or could not be repaired as primary
}

// effect is the result of the write. The comment of a mask says what its replicas have in
// common.
type effect struct {
	stored    Mask // have stored the write
	without   Mask // have not got the write, and have no value that must be replaced: they only get a copy
	dirty     Mask // have another value, or an unknown one
	undo      Mask // the replicas in dirty that may run the write late, or must not have the written value
	clean     Mask // were dirty and are not any more
	tardy     Mask // replied to a set so late that other replicas may have lost the value since
	waited    Mask // in the stage reviewing: have a tombstone of another command, which has got time to finish
	overwrite Mask // may have a value that the primary does not have: a copy replaces it
	needsCopy Mask // have the right value but another TTL, or may differ from a primary whose reply is missing
	from      int8 // the replica that the repair copies from; -1: the primary
}

// marks is the state of the command's tombstones and looks. Each mask is a set of replicas.
type marks struct {
	held   Mask       // have a tombstone of this command
	hits   Mask       // had a value that a delete removed
	intact Mask       // the replicas in held that still had their tombstone when all replicas had one
	again  Mask       // followers that got a second look
	guard  [Max]uint8 // by replica: the ask that found or stored its present item
	rounds uint8      // attempts of a delete, or of a replace, that started again because of other writes
	races  uint8      // of a conditional command: how often another write ran between a look and the request that depends on it
	main   uint8      // the ask that carries the command to the primary
	looked uint8      // 1 plus the number of the Look or Review sent with main; 0: none. For class grants the number of a Look, without the 1
	ready  Mask       // followers that get the client's incr or decr if the primary's number is unchanged
	later  uint8      // the last ask that fetched the primary's number

	foreseen [Max]uint64 // by replica: the size or number that the command would produce there
}

// turns lists the replicas that are asked one after the other: by a read, or in the stage looking,
// for a key that the primary does not have.
type turns struct {
	order  [Max]uint8
	at     uint8 // index of the next replica in order
	last   uint8 // the length of order
	silent Mask  // in the stage looking: have not reported whether they have the key
}

// askList holds all asks of the command, in the order in which they were made.
type askList struct {
	n     uint8 // asks made
	given uint8 // number of asks that Next has returned
	open  uint8 // asks without an outcome, whether returned by Next or not
	asks  [maxAsks]asked
}

// maxAsks is more than any command needs: 8 replicas, one of them repaired first, and all
// others appended to, found different and copied.
const maxAsks = 96

// asked is one ask and its outcome.
type asked struct {
	replica uint8
	step    Step
	from    uint8
	guard   uint8
	kind    Kind
}

// class is one of the ways in which a command is distributed over its replicas.
type class uint8

const (
	reads  class = iota // one replica after the other until the first hit
	alone               // one replica; other replicas are only asked to confirm a miss
	all                 // all replicas at once
	buries              // all replicas get a tombstone, which is then removed
	grants              // an add: one replica after the other must store a tombstone, and all must succeed
	leads               // the primary, then the followers
	mends               // no client command: a repair of one replica, or the removal of a key from a server that had it before a reload
)

// stage is the purpose of the asks in flight.
type stage uint8

const (
	done stage = iota
	reading
	spreading // class "all": the command was sent to all replicas
	reviewing // class "all", for a set: check that the replicas that replied early still have the value
	burying   // class "buries", in the order of the replicas: store tombstones
	verifying
	unearthing
	granting  // class "grants", in the order of the replicas: an add stores a tombstone (claim) at one replica after the other
	storing   // class "grants": the client's value replaces the tombstones (claims) that the add has stored, the primary's first
	revoking  // class "grants": the add failed at a replica, so the tombstones (claims) and values that it has stored are removed
	leading   // class "leads" or "alone": the primary was asked
	remarking // the command has changed a tombstone: a fresh tombstone replaces it
	emptying  // the dirty primary has no source for a repair, so the key is removed there
	peeking   // check that an incomplete primary has the key, before it creates one
	looking   // the primary does not have the key: ask the other replicas
	following // class "leads": the followers were asked
	sweeping  // replicas that refused a value lose their old one
	claiming  // first stage of a copy of the key: store a tombstone at the replica that lacks the key
	fetching
	filling
	checking
	seeking // Move: read the key at the server that had it before a reload
	leaving // Move: remove the key from that server
)

// next is what follows a copy of the key.
type next uint8

const (
	starting next = iota // run the command: its dirty primary has been repaired
	asking               // send the command to the primary again: it now has the value of another replica
	closing              // finish: the followers that differed are repaired
	refusing             // reply with the refusal of the replica that refused an add
	mending              // nothing: the copy was a repair, not part of a command
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

// Begin returns the rule of command c under policy p. replicas are the key's, in its order,
// at most Max. spread is any number that changes from read to read (for Spread).
func Begin(p Policy, c Command, replicas []Replica, spread uint64) Rule {
	r := Rule{c: c, class: classOf(c), lead: int8(Authority(replicas)), chosen: true}
	r.answer, r.reply, r.from = -1, -1, -1
	near, settling, returning, calm, count := r.sortOut(replicas)
	r.confirm = p.ReadThrough || !calm
	r.through = p.ReadThrough
	r.chosen = r.chosen && changesValue(c)
	r.need = int8(need(p.Ack, c, count))
	if c.Op == Set && p.Ack != AckAll { // with this policy other replicas may get the value after the client has its reply
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
		r.settle(Held, -1) // the replicas that could repair the primary can't be asked
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

// sortOut groups the replicas by state. The replicas in near are in this instance's own zone;
// those in settling and returning are in these states. calm is true if all replicas that are not skipped are In. count is
// the number of replicas that may count for the acknowledgement of a write.
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
		case m.State == Gone && r.c.Op != Flush: // if the replica missed the flush, no ledger would record that
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

// Mend returns the rule of a repair: replica gets a copy of what source has. The copy is
// guarded, so a concurrent write or delete at replica wins. An existing item stays unless
// overwrite is set (the replica is Dirty, or differs). A tombstone stays unless take or
// overwrite is set. With take, an existing item also stays if the source has nothing. The
// rule settles as Answered, without a reply, if the replica is right, else as Unmet.
func Mend(replica, source int, overwrite, take bool) Rule {
	r := Rule{class: mends, lead: int8(replica)}
	r.answer, r.reply, r.from = -1, -1, -1
	r.takes = 1<<replica | 1<<source
	r.in = 1 << source
	r.copyThen(mending, 1<<replica, 1<<source, overwrite)
	r.copy.take, r.copy.keep = take, take
	return r
}

// Move returns the rule by which a key leaves a former holder, source. The replicas in to
// get its value, guarded as by Mend, and then source loses it. away are replicas that should
// get it, too, but can't be asked. If there are any, source keeps it. The rule settles as
// Answered, without a reply, if source has nothing any more, else as Unmet. The package
// doc, Former holders, explains why that is enough.
func Move(to, away Mask, source int, overwrite bool) Rule {
	r := Rule{class: mends, lead: int8(source), stage: seeking}
	r.takes, r.away = to|1<<source, away
	r.answer, r.reply, r.from = -1, -1, -1
	r.copy = copying{then: moving, overwrite: overwrite, keep: true, take: true, from: 1 << source}
	r.guard[source] = uint8(r.ask(source, Look))
	return r
}

// handingOver reports whether the next state of another replica may make it the primary.
// Another proxy may have seen that state already.
func (r *Rule) handingOver(settling, returning Mask) bool {
	before := Mask(1)<<r.lead - 1
	if r.warm.Has(int(r.lead)) {
		return settling&^(1<<r.lead)|returning&before != 0
	}
	return settling&before != 0
}

// readsAtOne reports whether c is a read that one replica answers. Such a command is sent to
// another replica instead of being held.
func readsAtOne(c Command) bool {
	switch c.Op {
	case Get, Gets, Gat, Gats, Debug:
		return true
	}
	return false
}

// changesValue reports whether c changes the item's cas.
func changesValue(c Command) bool {
	switch c.Op {
	case Set, Add, Replace, Append, Prepend, Cas, Incr, Decr:
		return true
	}
	return false
}

// need returns how many of count replicas must store a write. A read that also sets an
// exptime needs only one.
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

// Authority returns the primary of the key: the first replica that is In, Filling, Dirty,
// Leaving or Suspect, else the first that is Warming or Settling, else -1. Proxies that see
// the same states agree on it, even if they can reach different replicas.
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

// Next appends the asks to send now. If there are none, wait for an outcome, or see
// Settled.
func (r *Rule) Next(dst []Ask) []Ask {
	for ; r.given < r.n; r.given++ {
		e := &r.asks[r.given]
		a := Ask{Number: int(r.given), Replica: int(e.replica), Step: e.step, From: int(e.from), Guard: int(e.guard)}
		switch e.step {
		case Forward, Store, Put, Join, Count, Fill:
			a.Chosen = r.chosen
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
	case revoking:
		if r.open == 0 {
			r.stage = done
		}
	case emptying:
		r.handleEmpty(m, o.Kind)
	case leading, remarking:
		r.handleLead(ask, o)
	case peeking:
		r.handlePeek(o.Kind)
	case looking:
		r.handleLook(ask)
	case following:
		r.handleFollow(ask, m, o)
	case sweeping:
		r.handleSweep(m, o.Kind)
	case seeking, leaving:
		r.handleMove(o.Kind)
	case claiming, fetching, filling, checking:
		if e.step == Fetch {
			r.foreseen[e.replica] = o.Value
		}
		r.late = r.late || o.Late && r.joins() && r.copy.then == closing
		r.handleCopy(ask, m)
	}
}

// Hedge reports that the policy's hedge delay has passed: a plain get asks one more replica.
// Other commands ignore it.
func (r *Rule) Hedge() {
	if r.class == reads && !r.settled {
		r.readNext()
	}
}

// Asked reports whether the rule has made any ask.
func (r *Rule) Asked() bool { return r.n > 0 }

// Settled returns what the client gets, as soon as it is known. Asks may still be in flight
// and new ones may follow: continue until IsDone.
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
	case r.stored != 0:
		s.Dirty |= (r.away | r.gone) & r.behind()
	}
	if r.verdict == Unmet { // the replicas in overwrite may have a write that was not acknowledged, but have missed none
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

// behind returns the replicas that become dirty if a write doesn't reach them.
func (r *Rule) behind() Mask {
	if r.class == alone || r.followerStep() == Extend {
		return 0 // replicas that missed the command have the same value, only with a shorter TTL
	}
	return ^Mask(0)
}

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

// askFrom makes an ask that depends on an earlier one.
func (r *Rule) askFrom(replica int, d Step, guard uint8) int {
	i := r.ask(replica, d)
	r.asks[i].guard = guard
	return i
}

func (r *Rule) askAll(m Mask, d Step) {
	for ; m != 0; m &= m - 1 {
		r.ask(m.first(), d)
	}
}

// first returns the lowest replica; m must not be empty.
func (m Mask) first() int { return bits.TrailingZeros8(uint8(m)) }

// failed reports whether no reply arrived.
func (k Kind) failed() bool { return k == Unsent || k == InDoubt }

// refused reports whether the server replied with an error.
func (k Kind) refused() bool { return k == ClientError || k == ServerError }
