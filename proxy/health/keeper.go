package health

// The keeper's state, inputs and outputs.

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"ringside/proxy/ablation"
	"ringside/proxy/health/barrier"
)

// Server is one server of a pool. All functions of this package identify a server by
// its index in the list of servers. The pool's own servers come first, in the order of
// the table, then those of its gutter.
type Server struct {
	Name    string // stable; identifies the server in the view record
	Address string // only compared: proxies with different addresses have different server lists
	Gutter  bool   // only serves keys of other servers
}

// Request is one memcached request for the caller to send. The caller must report its
// result with one call of Answered, Unanswered or notAsked.
type Request struct {
	ID     uint64
	Server int
	Conn   uint32 // 0: the shared connection; else a dedicated one, opened for the first request with this number
	Close  bool   // close the dedicated connection after the reply
	Line   []byte // the whole request with line ends
}

// Verdict is the state of one server, as decided by the keeper.
type Verdict struct {
	N          uint32   // the server's number; PhaseOf(N) is its phase
	Suspect    bool     // this proxy gets no replies: gets miss and mutations fail at once
	Why        string   // reason of the suspicion; if there is none, reason of the phase
	Since      int64    // when the suspicion began, or the phase if there is none
	InPhase    int64    // when the phase began
	Override   Override // by an operator, at any proxy
	ValidUntil int64    // a reply may be stale if it arrives, or its request is sent, after this time
	Step       string   // for operators: the next step, or the reason to wait
	Until      int64    // when Step is due; 0: that depends on other proxies or servers
	Lease      int64    // end of the lease that the last good ping granted
}

// Event is a change to log and count.
type Event struct {
	Server   int    // -1: the whole pool
	From, To string // phases, or up and suspect, or states of the pool
	Why      string
}

// IsReturnToNormal reports whether the server, or the pool, needs no attention after the
// event: it replies again, is in again, or is as it should be again.
func (e Event) IsReturnToNormal() bool {
	if e.Server >= 0 {
		return e.To == In.String() || e.To == "up" || e.To == overrideEvent(entry{})
	}
	return e.To == poolKept || e.To == "closed" || e.To == "back" || e.To == "alike"
}

// Keeper decides the phases of the servers of one pool. It is a deterministic state
// machine without goroutines, clock or sockets: the same calls have the same results.
// All times are nanoseconds of CLOCK_BOOTTIME, or of another monotonic clock that keeps
// running while the machine sleeps. It is not safe for concurrent use.
type Keeper struct {
	members []Server
	index   map[string]int // indexes of servers by name
	set     Settings
	hash    uint64 // hash of the server list
	like    uint32 // settingsHash
	keys    recordKeys
	random  *rand.Rand // for jitter
	off     ablation.Set

	servers []server
	gen     uint64
	quorum  int64   // this proxy has leases on enough view servers until this time
	scratch []int64 // buffer of recount

	pending  map[uint64]ask
	lastID   uint64
	lastConn uint32
	requests []Request
	events   []Event

	next         int64
	voteAt       int64 // when the next vote is due
	foreignUntil int64 // a record with another server list has an effect until this time: see foreignPings
	unlikeUntil  int64 // a record with other settings has an effect until this time: see foreignPings
	unlike       bool  // unlikeUntil is not over: other proxies have other settings of consistency or ping
	began        int64 // when the first record was read
	copies       bool  // routes keep replicas on its servers
	parting      bool  // see Part
	asWhole
	roll     rollCall
	departed map[string]entry // servers that a reload removed from the pool, by name. A proxy that adds one back treats it as OUT
}

// asWhole is the state of the whole pool.
type asWhole struct {
	barrier barrier.Barrier // state of the handover
	pool    string          // poolKept, or why the guarantee is suspended
	open    [2]bool         // by group: more than half of its servers are suspect, so none is ejected
	gone    bool            // none of the pool's own servers has replied for the time after which one is ejected
}

// server is what the keeper knows about one server.
type server struct {
	entry         // merged from all records, with the decisions of this proxy
	why   string  // why it is in its phase
	since int64   // when its phase began
	held  []int64 // for each view server, the time from which its record has contained n without interruption; 0: it does not contain n; nil: not tracked in this phase
	goTo  uint32  // the number to which the server is ready to move; 0: none
	goAt  int64   // when the server moves to the number goTo, after the jitter
	step  string  // what happens next, for operators
	until int64

	suspicion
	contact
	identity
	flush flushing
	warm  warmth

	inherited bool   // the server was OUT before a reload, under another name, and has not been flushed since: see Inherit
	floor     uint32 // the number that the server had under another name: see Inherit

	incomplete bool // with replicas: the server rejoined empty and is not filled yet
	needed     bool // with replicas: another pool has the same server, and the server may have the last copy of a key of that pool
	unfit      bool // with replicas: the server missed more writes than the ledger can record, and must be flushed
	live       tally
	sus        []tally // for each server, the votes of suspicion about it that are counted on this server; nil until a proxy suspects one
}

// suspicion records whether this proxy considers the server unreachable, by its own
// pings or by an operator's override.
type suspicion struct {
	suspect      bool
	suspectWhy   string
	suspectSince int64
	down         bool // an operator took the server down at this proxy, so it stays suspect
	restored     bool // an operator restored the server at this proxy, so OnRejoin Hold does not apply
	refused      refusal
	saidAt       int64 // when this proxy last published a refusal
	soft         int   // consecutive pings without a reply
	good         int   // consecutive pings with a reply
	goodSince    int64 // when the first of the pings counted by good got its reply
}

// refusal records how long a server has refused every connection. The zero value means that the
// last attempt was not refused.
type refusal struct {
	since, last int64
	said        []uint64 // for each other server, the number of proxies that have published on it that this server refuses them too
}

// contact is what the last pings of the server have shown: the lease on it, and its view record.
type contact struct {
	pingAt    int64 // when the next ping is due
	pinging   bool
	writing   bool
	lease     int64
	goodSent  int64 // when the last ping that returned a record was sent
	record    record
	absent    int64  // the time from which pings have found no record, without interruption; 0: there is a record, or that is unknown
	absentCas uint64 // cas of the unreadable item that is stored in place of the record; 0: there is none
	patience  int64  // how long the record must be absent before it counts as lost
	takeAt    int64  // earliest time to overwrite a record with another server list
	noMeta    bool
	complaint string // the last logged problem with the server's record
}

// Ablate disables parts of the protocol. Only tests use it.
func (k *Keeper) Ablate(a ablation.Set) { k.off = a }

// New returns the keeper of a pool. Names of servers must be unique. Zero fields of s
// get defaults: see withDefaults. The seed determines the jitter; every proxy should
// have its own.
func New(pool string, members []Server, s Settings, seed uint64) *Keeper {
	k := &Keeper{
		members: slices.Clone(members),
		index:   make(map[string]int, len(members)),
		set:     s.withDefaults(),
		hash:    membership(pool, members),
		like:    settingsHash(s.withDefaults()),
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
	k.keys = makeRecordKeys(pool, names)
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

// Resume continues a handover in the stage at which the pool's previous keeper was
// before a reload.
func (k *Keeper) Resume(before *View) { k.barrier.Status = *before.Handover.Status() }

// Inherit passes to a new keeper the numbers that a server had in another keeper before a reload:
// n tells its outage and its phase (see PhaseOf), renamed is the number in the names of its keys.
// elsewhere means that the pool or the server had another name in that keeper. Other proxies may
// still use the other name and continue its numbers. Records under the present name may be old,
// from an earlier use of the name. So numbers under the two names can't be compared:
//
//   - A server that was out is flushed before it serves, whatever number the first record of
//     a server contains (see Keeper.adopted), and even if it was in WARM or SETTLE.
//   - A server that was in takes its number from the records. But its next outage has a
//     higher number than its earlier ones, because keys of these may be left on substitutes.
func (k *Keeper) Inherit(server int, n, renamed uint32, elsewhere bool) {
	s := &k.servers[server]
	if elsewhere {
		if PhaseOf(n) == In && renamed == 0 {
			s.floor = n
			return
		}
		if s.inherited = true; !unflushed(PhaseOf(n)) {
			n = NextOut(n)
		}
		k.event(server, In.String(), PhaseOf(n).String(), "it was out before a reload, under another name")
	}
	s.entry = entry{n: n, renamed: renamed}
	if p := PhaseOf(n); p != In && p != Out {
		s.held = make([]int64, len(k.servers))
	}
}

// leaving returns the next number of server i with phase LEAVING.
func (k *Keeper) leaving(i int) uint32 {
	s := &k.servers[i]
	return leaving(max(s.n, s.floor))
}

// unflushed reports whether a server in phase p has not been flushed since it was ejected.
func unflushed(p Phase) bool { return p == Leaving || p == Out || p == Returning }

// Departed reports to the keeper a server that a reload has removed from the pool, or added back. n
// and renamed are the server's last numbers. Proxies no longer write to a removed server, so it
// counts as out, and it rejoins as after an outage.
func (k *Keeper) Departed(name string, n, renamed uint32) {
	e := entry{n: NextOut(n), renamed: renamed}
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

// ServerFailed reports a failure that the engine saw. The server refused a connection
// (refused), was unreachable, failed the handshake, or did not answer
// Settings.AfterFailures consecutive client requests. The server is suspect from now
// on.
func (k *Keeper) ServerFailed(server int, refused bool, why string, now int64) {
	s := &k.servers[server]
	if !s.suspect {
		s.pingAt = min(s.pingAt, now) // ping now: the server may be up again already
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
	k.markSuspect(server, why, now)
	k.step(now)
}

// Answered delivers the whole reply to a request from Requests. Unknown ids are
// ignored.
func (k *Keeper) Answered(id uint64, answer []byte, now int64) {
	if a, ok := k.pending[id]; ok {
		delete(k.pending, id)
		k.answered(a, answer, now)
		k.step(now)
	}
}

// Unanswered reports that a request from Requests will get no reply. hard means that
// the server refused the connection or is unreachable. Otherwise the request timed out
// or the connection was lost.
func (k *Keeper) Unanswered(id uint64, hard bool, why string, now int64) {
	if a, ok := k.pending[id]; ok {
		delete(k.pending, id)
		k.unanswered(a, hard, why, now)
		k.step(now)
	}
}

// Unasked reports that a request from Requests was not sent, or timed out while the
// server was answering earlier requests. That is overload and says nothing about the
// server, so it is not a failed ping.
func (k *Keeper) Unasked(id uint64, now int64) {
	if a, ok := k.pending[id]; ok {
		delete(k.pending, id)
		if a.kind == askPing {
			s := &k.servers[a.server]
			s.pinging = false
			s.absent = 0 // a record may have existed since the last ping that found none
		} else {
			k.unanswered(a, false, "", now)
		}
		k.step(now)
	}
}

// Warmed reports this proxy's running totals for a WARM server: the reads sent to it,
// and how many of them it could answer itself.
func (k *Keeper) Warmed(server int, asks, hits uint64, now int64) {
	if s := &k.servers[server]; PhaseOf(s.n) == Warming {
		s.warm.Count(asks, hits, now)
	}
	k.step(now)
}

// Part sets whether the pool no longer moves keys. If so, no server is ejected or flushed, not even
// a stranger, and servers that are out rejoin.
func (k *Keeper) Part(is bool) {
	k.parting = is
	for i := range k.servers {
		k.servers[i].stranger = k.servers[i].stranger && !is
	}
}

// Flushed reports that a client's flush_all through this proxy has emptied a server.
// Its record is written again at once, as a new incarnation, so every proxy that waits
// on the old one starts its wait again.
func (k *Keeper) Flushed(server int, now int64) {
	k.servers[server].stranger = false
	if !k.servers[server].writing {
		k.write(server, record{incarnation: k.random.Uint64()}, now)
	}
	k.step(now)
}

// Override applies an operator's override to a server. It fails if no server could take
// over; Down still makes the server suspect at this proxy then. All proxies learn of
// the override from the view record. It lasts until the next one.
func (k *Keeper) Override(server int, o Override, now int64) error {
	err := k.override(server, o, now)
	k.step(now)
	return err
}

// Tick runs everything that is due. Call it once at the start, and whenever Next is
// reached.
func (k *Keeper) Tick(now int64) { k.step(now) }

// Next returns when something is due.
func (k *Keeper) Next() int64 { return k.next }

// Requests returns the requests to send since the last call. Requests on the same
// connection must be sent in this order. The caller owns the slice.
func (k *Keeper) Requests() []Request {
	r := k.requests
	k.requests = nil
	return r
}

// Events returns the events since the last call.
func (k *Keeper) Events() []Event {
	e := k.events
	k.events = nil
	return e
}

// Gen changes whenever a phase or suspicion changes. A hit or an acknowledgement is
// valid only if Gen is the same as when the request was sent.
func (k *Keeper) Gen() uint64 { return k.gen }

// Verdict returns the state of a server. It does not allocate.
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

// Renamed returns the number that the keys of a server carry because the server
// rejected flush_all; 0: none. It is an argument of Path.Add and divert.AppendKey.
func (k *Keeper) Renamed(server int) uint32 { return k.servers[server].renamed }
