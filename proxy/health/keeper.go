package health

// The keeper: what it is told, what it wants sent and what it says.

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"ringside/proxy/health/barrier"
	"ringside/proxy/health/meta"
	"ringside/proxy/health/tally"
)

// Member is one server of a pool. Its index in the list is its number
// everywhere in this package; the pool's own servers come first, in the order
// of the table, then those of its gutter.
type Member struct {
	Name    string // stable; in the view record it stands for the server
	Address string // only compared: proxies with another one have another membership list
	Gutter  bool   // takes keys only in place of others
}

// Request is one memcached request that the keeper wants sent. Each one is
// answered by one call of Answered or Unanswered.
type Request struct {
	ID     uint64
	Server int
	Conn   uint32 // 0: the usual connection; else one of the keeper's own, opened for the first request with this number
	Close  bool   // close that own connection after the answer
	Line   []byte // the whole request, with its line ends
}

// Verdict is what the keeper says of one server.
type Verdict struct {
	N          uint32   // its number; PhaseOf(N) is its phase
	Suspect    bool     // this proxy gets no answers: get misses and mutations fail, at once
	Why        string   // of the suspicion, else of the phase
	Since      int64    // of that
	InPhase    int64    // since when
	Override   Override // by a person, at any proxy
	ValidUntil int64    // what is sent or answered later than this can't be sure
	Step       string   // for people: what is to happen next, or what it waits for
	Until      int64    // when that is due, 0 if it depends on others
	Lease      int64    // until when the last good ping of this server counts
}

// Event is something to log and count.
type Event struct {
	Server   int    // -1: the whole pool
	From, To string // phases, or up and suspect, or what the whole pool is
	Why      string
}

// Keeper keeps the phases of the servers of one pool. It is a state machine:
// no goroutine, no clock, no socket, and the same calls give the same answers.
// All times are nanoseconds of CLOCK_BOOTTIME, or of any clock that never goes
// back and doesn't stop while the machine sleeps. It is not safe for concurrent
// use.
type Keeper struct {
	members []Member
	index   map[string]int // of members by name
	set     Settings
	hash    uint64 // of the membership
	keys    meta.Keys
	random  *rand.Rand // of jitter
	off     Ablation

	servers []server
	gen     uint64
	quorum  int64   // until when this proxy has leases from enough view servers
	scratch []int64 // of recount

	pending  map[uint64]ask
	lastID   uint64
	lastConn uint32
	requests []Request
	events   []Event

	next         int64
	voteAt       int64 // when the next vote is due
	foreignUntil int64 // how long other membership lists that were seen count
	began        int64 // when the first record was read
	copies       bool  // routes keep copies on its servers
	parting      bool  // see Part
	asWhole
	roll     rollCall
	departed map[string]entry // servers that reloads have taken out of the list: out for whoever puts one back
}

// asWhole is what the keeper makes of the pool as a whole.
type asWhole struct {
	barrier barrier.Barrier // of a handover
	pool    string          // what it is: poolKept, or why it isn't
	open    [2]bool         // fail-open, of the pool's own servers and of its gutter
	gone    bool            // none of the pool's own servers has answered for as long as it takes to eject one
}

// server is what the keeper knows of one server.
type server struct {
	entry         // merged from all records, and what this proxy added
	why   string  // of the phase
	since int64   // of the phase
	held  []int64 // by view server: since when its record has been seen to hold this n without a gap; 0: it doesn't
	goTo  uint32  // the number it is ready for, 0: none
	goAt  int64   // when it goes there, after its jitter
	step  string  // for people
	until int64

	suspicion
	contact
	identity
	flush flushing
	warm  tally.Warmth

	incomplete bool // copies: it came back empty, and was not filled yet
	needed     bool // copies: another pool that has it may have the only copy of a key there
	unfit      bool // copies: it has missed more than is remembered, and must be emptied
	live       tally.Tally
	sus        []tally.Tally // by suspect; nil until somebody is one
}

// suspicion is whether this proxy takes the server for gone, by its own pings
// and by what a person has told it.
type suspicion struct {
	suspect      bool
	suspectWhy   string
	suspectSince int64
	down         bool // by a person at this proxy: stays suspect
	restored     bool // by a person at this proxy: no hold
	refused      refusal
	saidAt       int64 // when this proxy told others of a refusal
	soft         int   // pings in a row without an answer
	good         int   // pings in a row with one
	goodSince    int64 // first of those
}

// refusal is for how long a server has refused every connection. The zero one says
// that the last thing heard of the server was something else.
type refusal struct {
	since, last int64
	said        []uint64 // by server: how many proxies have said there that they are refused, too
}

// contact is the last that this proxy has heard of the server: the lease on it,
// and the view record there.
type contact struct {
	pingAt    int64 // when the next ping is due
	pinging   bool
	writing   bool
	lease     int64
	goodSent  int64 // when the last ping that brought a record was sent
	record    record
	absent    int64  // since when there has been no record, without a gap; 0: there is one, or nobody knows
	absentCas uint64 // of what is in its place
	patience  int64  // how long that must have lasted where nobody holds leases
	takeAt    int64  // not before this another list's record is written over
	noMeta    bool
	complaint string // about its record
}

// Ablation leaves parts of the protocol out, for tests that show what each part
// is for. The zero Ablation leaves out nothing.
type Ablation struct {
	EjectWait  bool // LEAVING becomes OUT at once
	ReturnWait bool // RETURN is flushed at once
	Flush      bool // RETURN becomes WARM without a flush
	Settle     bool // WARM becomes IN at once
	Out        bool // a server that answers again goes from LEAVING to RETURN
	OnlyCopy   bool // a silent server leaves though another one lacks copies
	Stranger   bool // whoever answers at a server's address is taken for it
	Departed   bool // a server that a reload puts back is as it was when it went
}

// Ablate makes k leave out parts of the protocol. Only tests do that.
func (k *Keeper) Ablate(a Ablation) { k.off = a }

// New returns the keeper of a pool. Names of members must differ. What is not set in
// s has a default: see withDefaults. The seed makes the jitter: every proxy should have
// its own.
func New(pool string, members []Member, s Settings, seed uint64) *Keeper {
	k := &Keeper{
		members: slices.Clone(members),
		index:   make(map[string]int, len(members)),
		set:     s.withDefaults(),
		hash:    membership(pool, members),
		random:  rand.New(rand.NewPCG(seed, 0)),
		servers: make([]server, len(members)),
		pending: make(map[uint64]ask),
		gen:     1,
		asWhole: asWhole{pool: poolKept, barrier: barrier.New(len(members))},
	}
	names := make([]string, len(members))
	for i, m := range members {
		k.index[m.Name], names[i] = i, m.Name
	}
	k.keys = meta.MakeKeys(pool, names)
	return k
}

func (s Settings) withDefaults() Settings {
	s.AfterFailures = cmp.Or(s.AfterFailures, 3)
	s.EjectAfter.Silent = cmp.Or(s.EjectAfter.Silent, 3*time.Second)
	s.EjectAfter.Refused = cmp.Or(s.EjectAfter.Refused, min(400*time.Millisecond, s.EjectAfter.Silent))
	s.Ping = cmp.Or(s.Ping, 500*time.Millisecond)
	s.Lease = cmp.Or(s.Lease, 2*time.Second)
	s.Request = cmp.Or(s.Request, 500*time.Millisecond)
	s.GoodPings = cmp.Or(s.GoodPings, 2)
	return s
}

// Resume goes on with a handover where the keeper was that the pool had before a reload.
func (k *Keeper) Resume(before *View) { k.barrier.Standing = *before.Handover.Standing() }

// Departed says that a reload has taken a server out of the list, or back into it,
// whose number was n when it went, and of what keys carry. Nobody writes there any
// more, so it counts as out from then on, and comes back as from an outage.
func (k *Keeper) Departed(name string, n, renamed uint32) {
	e := entry{n: n, renamed: renamed}
	switch PhaseOf(n) {
	case Out:
	case Leaving:
		e.n++
	default:
		e.n = leaving(n) + 1
	}
	if k.off.Departed {
		return
	}
	if i, ok := k.index[name]; ok {
		k.servers[i].entry = e
		k.event(i, In.String(), Out.String(), "a reload has put it back")
		return
	}
	if k.departed == nil {
		k.departed = map[string]entry{}
	}
	k.departed[name] = e
}

// ServerFailed says that the engine saw a server fail: it refuses connections
// (refused), can't be reached or greets wrongly, or Settings.AfterFailures requests
// of clients in a row had no answer. The server is suspect from now on.
func (k *Keeper) ServerFailed(server int, refused bool, why string, now int64) {
	s := &k.servers[server]
	if !s.suspect {
		s.pingAt = min(s.pingAt, now) // it may be back already
	}
	switch {
	case !refused:
		s.refused = refusal{}
	case s.refused.since == 0:
		s.refused = refusal{since: now, last: now, said: make([]uint64, len(k.servers))}
		k.sayRefused(server, now)
	default:
		s.refused.last = now
	}
	k.isSuspect(server, why, now)
	k.step(now)
}

// Answered brings the whole answer to a request of Requests. An id that isn't
// waited for is ignored.
func (k *Keeper) Answered(id uint64, answer []byte, now int64) {
	if a, ok := k.pending[id]; ok {
		delete(k.pending, id)
		k.answered(a, answer, now)
		k.step(now)
	}
}

// Unanswered says that a request of Requests has no answer and won't get one:
// the server refused or can't be reached (hard), or the time was up or the
// connection was lost.
func (k *Keeper) Unanswered(id uint64, hard bool, why string, now int64) {
	if a, ok := k.pending[id]; ok {
		delete(k.pending, id)
		k.unanswered(a, hard, why, now)
		k.step(now)
	}
}

// Unasked says that a request of Requests has not been sent, or has waited too
// long behind others that the server has answered meanwhile. That is overload,
// which says nothing of the server: it is no failed ping.
func (k *Keeper) Unasked(id uint64, now int64) {
	if a, ok := k.pending[id]; ok {
		delete(k.pending, id)
		if a.kind == askPing {
			s := &k.servers[a.server]
			s.pinging = false
			s.absent = 0 // it may have had a record in between
		} else {
			k.unanswered(a, false, "", now)
		}
		k.step(now)
	}
}

// Warmed brings the running totals of this proxy's reads at a WARM server: how
// many there were and how many it could answer itself.
func (k *Keeper) Warmed(server int, asks, hits uint64, now int64) {
	if s := &k.servers[server]; PhaseOf(s.n) == Warming {
		s.warm.Count(asks, hits, now)
	}
	k.step(now)
}

// Part says whether the pool's keys move no more: then no server is taken out or
// emptied, whoever it is, and those that are out come back.
func (k *Keeper) Part(is bool) {
	k.parting = is
	for i := range k.servers {
		k.servers[i].stranger = k.servers[i].stranger && !is
	}
}

// Flushed says that a flush_all of a client, through this proxy, has emptied a
// server. Its record is put back at once, as another incarnation: whoever waits
// for the one that was there begins again.
func (k *Keeper) Flushed(server int, now int64) {
	k.servers[server].stranger = false
	if !k.servers[server].writing {
		k.write(server, record{incarnation: k.random.Uint64()}, now)
	}
	k.step(now)
}

// Override is what a person wants of a server. It fails if nobody would be left to
// take over; Down makes the server suspect at this proxy even then. All proxies
// learn of an order from the view record, and it lasts until the next one.
func (k *Keeper) Override(server int, o Override, now int64) error {
	err := k.override(server, o, now)
	k.step(now)
	return err
}

// Tick does what is due. Call it first of all and whenever Next is reached.
func (k *Keeper) Tick(now int64) { k.step(now) }

// Next is when something is due.
func (k *Keeper) Next() int64 { return k.next }

// Requests returns what is to be sent since the last call, in the order in
// which it is to be sent on each connection. The caller may keep it.
func (k *Keeper) Requests() []Request {
	r := k.requests
	k.requests = nil
	return r
}

// Events returns what has happened since the last call.
func (k *Keeper) Events() []Event {
	e := k.events
	k.events = nil
	return e
}

// Gen changes whenever a phase or a suspicion does. A hit or an acknowledgement
// counts only if Gen is what it was when the request was sent.
func (k *Keeper) Gen() uint64 { return k.gen }

// Verdict returns what is known of a server. It allocates nothing.
func (k *Keeper) Verdict(server int) Verdict {
	s := &k.servers[server]
	v := Verdict{
		N:          s.n,
		Suspect:    s.suspect,
		Why:        s.why,
		Since:      s.since,
		InPhase:    s.since,
		Override:   s.override(),
		ValidUntil: k.validUntil(server),
		Step:       s.step,
		Until:      s.until,
		Lease:      s.lease,
	}
	if s.suspect {
		v.Why, v.Since = s.suspectWhy, s.suspectSince
	}
	return v
}

// Renamed returns the number that the keys of a server carry because it refused
// to be flushed, 0 for none. Path and divert.AppendKey take it.
func (k *Keeper) Renamed(server int) uint32 { return k.servers[server].renamed }
