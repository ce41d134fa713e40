package health

// This file contains the state of a Keeper, and the methods for its inputs and outputs.

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"ringside/proxy/ablation"
	"ringside/proxy/health/barrier"
	"ringside/proxy/health/resize"
)

// Server is one server of a pool. All functions of this package identify a server by
// its index in the list of servers. The pool's own servers come first, in the order of
// the table, then those of its gutter.
type Server struct {
	Name    string // identifies the server in the view record; must not change while the server has the same keys
	Address string // address of the server, only for comparison: proxies with different addresses have different server lists
	Gutter  bool   // the server belongs to the pool's gutter, so it only serves keys of ejected servers
	Learned bool   // only a list that this process has learned from the servers names the server: see lists.go
	Next    string // name of the server in the next list (package resize); empty: that list lacks the server. If it is empty for all servers, their names do not change
	Joins   bool   // only the next list has the server
}

// Request is one memcached request for the caller to send. The caller must report its
// result with one call of Answered, Unanswered or Unasked.
type Request struct {
	ID     uint64
	Server int
	Conn   uint32 // number of a dedicated connection, which is opened for the first request with this number; 0: the connection that clients use, too
	Close  bool   // close the dedicated connection after the reply
	Line   []byte // the whole request with line ends
}

// Verdict is the state of one server, as decided by the keeper.
type Verdict struct {
	N          uint32   // the server's phase number; PhaseOf(N) is its phase
	Suspect    bool     // this proxy gets no replies from the server: gets miss and mutations fail at once. Always false with Settings.Stays
	Why        string   // reason of the suspicion; if the server is not suspect, reason of its phase, or Answered
	Since      int64    // when the suspicion began; if the server is not suspect, when its phase began
	InPhase    int64    // when the server's phase began
	Override   Override // the current override of the server by an operator, at any proxy
	ValidUntil int64    // a reply of the server may be stale if it arrives, or its request is sent, after this time
	Step       string   // for operators: the next step of the server, or the reason to wait
	Until      int64    // when Step is due; 0: that depends on other proxies or servers
	Lease      int64    // end of the lease that the last good ping granted
}

// Event is a change of the state of a server or of a whole pool, to be logged and counted.
type Event struct {
	Server   int    // index of the server; -1: the event is about the whole pool
	From, To string // the old and the new state: phases, or up and suspect, or states of the pool
	Why      string
}

// IsReturnToNormal reports whether the server, or the pool, needs no attention after the
// event: it replies again, is in again, or is as it should be again.
func (e Event) IsReturnToNormal() bool {
	if e.Server >= 0 {
		return e.To == In.String() || e.To == "up" || e.To == overrideEvent(entry{})
	}
	return e.To == poolKept || e.To == "closed" || e.To == "back" || e.To == "alike" || e.To == "resized"
}

// Keeper decides the phases of the servers of one pool. It is a deterministic state
// machine without goroutines, clock or sockets: the same calls have the same results.
// All times are nanoseconds of CLOCK_BOOTTIME, or of another monotonic clock that keeps
// running while the machine sleeps. It is not safe for concurrent use.
type Keeper struct {
	members []Server
	names
	set    Settings
	hash   uint64 // hash of the server list
	listed uint64 // hash of the server list of a proxy that does not have the servers which only the next list has
	united uint64 // hash of the server list that this proxy had in the change whose end made this keeper; 0: none did
	like   uint32 // hash of the settings that all proxies must share: see settingsHash
	keys   recordKeys
	random *rand.Rand // for the random delays of steps and pings
	off    ablation.Set

	servers []server
	gen     uint64
	quorum  int64   // until this time this proxy has leases on a majority of the view servers
	scratch []int64 // buffer that recount reuses

	pending  map[uint64]ask
	lastID   uint64
	lastConn uint32
	requests []Request
	events   []Event

	next         int64
	stepped      int64    // when the last step was made
	voteAt       int64    // when the next vote is due
	foreignUntil int64    // until this time, a view record with another server list that was read has an effect: see foreignPings
	strangeUntil int64    // the same, for a list that may have servers which this proxy does not know
	unlikeUntil  int64    // until this time, a view record with other settings that was read has an effect: see foreignPings
	wishUntil    int64    // until this time, a view record with another wish that was read has an effect: see foreignPings
	opposedAt    int64    // when a view record of a proxy that requires another list was last read for the first time
	opposedUntil int64    // the same, but a proxy that is cut off does not change it
	unlike       bool     // other proxies have recently had other settings of consistency or ping
	began        int64    // when this keeper first read a view record
	silentAt     [2]int64 // when most servers of the list in use, and of the next one, were last silent; 0: never
	copies       bool     // routes keep replicas on the pool's servers
	parting      bool     // the pool no longer moves keys: see Part
	asWhole
	roll     rollCall
	told     removal
	texts    Texts
	search   search
	formers  formers
	departed map[string]entry // by name: the servers that a reload has removed from the pool, as OUT; a proxy that adds a server back needs this. Also the entries with removedMark
}

// removal records since when the view records say that a reload has removed servers from the pool.
type removal struct {
	since int64   // when this proxy began to publish the removal; 0: not yet
	held  []int64 // for each view server: the time from which its record has contained the removal without interruption; 0: it does not contain it
}

// asWhole is the state of the whole pool.
type asWhole struct {
	barrier barrier.Barrier // state of the handover
	resize  resize.Resize   // state of a change of the server list
	strange bool            // the state of the pool is poolForeign, and a proxy may use servers that this one does not know
	pool    string          // state of the pool: one of poolKept, poolForeign, poolUnlike and poolNoMeta
	open    [2]bool         // for the pool's own servers in use, and for its gutter: more than half of these servers are suspect, so none is ejected
	closed  [2]int64        // when open was last true; 0: never
	skips   bool            // the list that has just come into force did so without a move
	gone    bool            // none of the pool's own servers has replied for the time after which a server is ejected
}

// server is what the keeper knows about one server.
type server struct {
	entry           // phase number and overrides of the server, from all view records and from the decisions of this proxy
	why     string  // why the server is in its phase
	since   int64   // when the server's phase began
	before  int64   // when the server failed before it was OUT, if that was before this keeper started; 0: it was not, or is not known
	beforeN uint32  // the phase number to which before belongs
	held    []int64 // for each view server, the time from which its record has contained this server's phase number without interruption; 0: it does not contain that number; nil: not tracked in this phase
	goTo    uint32  // the phase number to which the server is ready to move; 0: none
	goAt    int64   // when the server moves to the phase number goTo, after a random delay
	step    string  // what happens next with the server, as text for operators
	until   int64

	suspicion
	contact
	identity
	listed
	flush flushing
	warm  warmth
	open  bool // in WARM: all proxies know the phase number, so commands may change the server's keys

	order     order
	inherited bool   // the server was OUT before a reload, under another name, and has not been flushed since: see Inherit
	floor     uint32 // the phase number that the server had before a reload under another name; the next outage gets a higher number: see Inherit

	goes       bool // the list that the configuration requires lacks the server
	incomplete bool // with replicas: the server rejoined empty and is not filled yet
	needed     bool // with replicas: another pool has the same server, and the server may have the last copy of a key of that pool
	unfit      bool // with replicas: the server missed more writes than the ledger can record, and must be flushed
	live       tally
	sus        []tally // for each other server, the votes that it is suspect, as counted on this server; nil until a proxy suspects a server
}

// suspicion records whether this proxy considers the server unreachable, by its own
// pings or by an operator's override.
type suspicion struct {
	suspect      bool
	suspectWhy   string
	suspectSince int64
	down         bool // an operator took the server down at this proxy, so it stays suspect
	refused      refusal
	refuses      bool  // the server has refused the last connection, whether that shows that it has lost its items or not
	saidAt       int64 // when this proxy last published that the server refuses its connections
	soft         int   // consecutive pings without a reply
	good         int   // consecutive pings with a reply
	goodSince    int64 // when the first of the pings counted by good got its reply
}

// refusal records how long a server has refused every connection. The zero value means that the
// last attempt was not refused.
type refusal struct {
	since, last int64
	said        []uint64 // for each other server, the counter there of the proxies that this server refuses
}

// contact is what the last pings of a server have shown: the lease on the server, and its view record.
type contact struct {
	pingAt    int64 // when the next ping is due
	pinging   bool
	writing   bool
	lease     int64
	goodSent  int64 // when the last ping that returned a record was sent
	record    record
	absent    int64  // the time from which pings have found no record, without interruption; 0: there is a record, or that is unknown
	absentCas uint64 // cas of the unreadable item that is stored in place of the record; 0: there is none
	patience  int64  // how long the view record must be absent before it counts as lost
	takeAt    int64  // earliest time to overwrite a view record with another server list or other settings
	by        writer // the last writer of the record
	bySince   int64  // when a ping first found a record of such a writer; by and bySince are zero before the first record
	lacks     string // why the server has no view record that can be replaced: serverNoMeta or serverNoCas; empty: it can have one
	complaint string // the last logged problem with the server's record
}

// listed is the state of the server lists on the server.
type listed struct {
	unverified    bool   // the server gets no requests but pings: see Server.Learned
	listsAt       int64  // when the lists of this process are checked on the server
	formersAt     int64  // when the former lists are stored on the server again
	listComplaint string // the last logged problem with a list
}

// writer is what a view record says about the proxy that has written it last.
type writer struct {
	hash           uint64 // hash of its server list
	settings, wish uint32 // see record
}

// Ablate disables the parts a of the protocol between keepers. Only tests use it.
func (k *Keeper) Ablate(a ablation.Set) { k.off = a }

// New returns the keeper of a pool. Names of servers must be unique. Zero fields of s
// get defaults: see withDefaults. The seed determines the jitter; every proxy should
// have its own.
func New(pool string, members []Server, s Settings, seed uint64) *Keeper {
	members = slices.Clone(members)
	if !slices.ContainsFunc(members, func(m Server) bool { return m.Next != "" }) {
		for i := range members {
			members[i].Next = members[i].Name
		}
	}
	k := &Keeper{
		members:  members,
		names:    newNames(members),
		set:      s.withDefaults(),
		hash:     Membership(pool, members),
		listed:   Membership(pool, slices.DeleteFunc(slices.Clone(members), func(m Server) bool { return m.Joins })),
		like:     settingsHash(s.withDefaults()),
		random:   rand.New(rand.NewPCG(seed, 0)),
		servers:  make([]server, len(members)),
		pending:  make(map[uint64]ask),
		departed: make(map[string]entry),
		gen:      1,
		asWhole:  asWhole{pool: poolKept, barrier: barrier.New(len(members)), resize: resize.New(len(members))},
	}
	for i, m := range members {
		k.servers[i].unverified = m.Learned
	}
	k.keys = makeRecordKeys(pool)
	k.formers.item = k.formerKey(uint32(k.hash))
	k.nameCounters()
	return k
}

func (s Settings) withDefaults() Settings {
	s.AfterFailures = cmp.Or(s.AfterFailures, 3)
	s.EjectAfter.Silent = cmp.Or(s.EjectAfter.Silent, 3*time.Second)
	s.EjectAfter.Restart = cmp.Or(s.EjectAfter.Restart, max(3*time.Second, s.EjectAfter.Silent))
	s.EjectAfter.Refused = cmp.Or(s.EjectAfter.Refused, min(400*time.Millisecond, s.EjectAfter.Silent))
	s.Ping = cmp.Or(s.Ping, 500*time.Millisecond)
	s.Lease = cmp.Or(s.Lease, 2*time.Second)
	s.Request = cmp.Or(s.Request, 500*time.Millisecond)
	return s
}

// Resume continues a handover in the stage that the pool's previous keeper had reached
// before a reload. before is the View of that keeper.
func (k *Keeper) Resume(before *View) {
	k.copies = before.copies.Load()
	if k.barrier.Status = *before.Handover.Status(); k.barrier.Withheld {
		k.told.held = make([]int64, len(k.servers)) // the time in the records starts again
	}
	is := before.Resize()
	k.resize.State, k.resize.Turns = is.State, is.Turns
	k.resize.Opposed = is.Opposed || is.Required() != k.resize.Required()
	if is.Superseded() {
		k.united = before.hash.Load()
	}
}

// Inherit passes to a new keeper the state that a server had in another keeper before a reload: n is
// its phase number (see PhaseOf), and renamed is the number in the names of its keys. elsewhere
// means that the pool or the server had another name in the other keeper. Other proxies may still
// use that former name and count its phase number up. View records under the present name may be old,
// from an earlier use of the name. So phase numbers under the two names can't be compared:
//
//   - A server that was out, rejoining or renamed is flushed before it serves, whatever phase
//     number the first view record contains (see Keeper.adopted).
//   - A server that was IN gets its phase number from the view records. But its next outage gets a
//     higher number than n, because keys of earlier outages may be left on substitute servers.
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

// OutSince reports to the keeper, after Inherit, since when a server that is OUT has been out. It is only shown.
func (k *Keeper) OutSince(server int, since int64) {
	s := &k.servers[server]
	s.before, s.beforeN = since, s.n
}

// leaving returns the next phase number of server i with phase LEAVING.
func (k *Keeper) leaving(i int) uint32 {
	s := &k.servers[i]
	n := max(s.n, s.floor)
	if p := k.former[i]; p >= 0 { // substitute servers may have values of an outage of the server with this name
		n = max(n, k.servers[p].n)
	}
	return leaving(n)
}

// unflushed reports whether a server in phase p has not been flushed since it was ejected.
func unflushed(p Phase) bool { return p == Leaving || p == Out || p == Returning }

// Departed reports to the keeper that a reload has removed a server from the pool, or added it back.
// n is the server's last phase number, and renamed the last number in the names of its keys. Proxies
// do not write to a removed server, so it counts as OUT, and it rejoins as after an outage. In a pool
// with replicas, it does not rejoin while other proxies have lists with it: see Keeper.returns. With strict consistency,
// such a server counts as LEAVING first, because other proxies may read from it until they know that.
func (k *Keeper) Departed(name string, n, renamed uint32) {
	if k.off.Departed {
		return
	}
	_, back := k.index[name]
	leaves := PhaseOf(n) != Out && k.set.Strict && k.copies && k.resize.Mine == 0 && !k.off.Told
	if PhaseOf(n) == Out && !back && k.copies && !k.off.Removed {
		n++ // another proxy may have published RETURN, which this proxy has not read: the next outage overrules that
	}
	e := entry{n: NextOut(n), renamed: renamed}
	switch {
	case leaves:
		e.n--
	case k.resize.Mine == 0:
	case back || PhaseOf(n) == In: // package resize flushes it, and the view records have its phase
		return
	default: // substitute servers have values under the number of this outage, which are old when the server is back
		e.n = leaving(n) + 1
	}
	if i, ok := k.index[name]; ok {
		s := &k.servers[i]
		if s.entry = e; leaves {
			s.held = make([]int64, len(k.servers))
		}
		k.event(i, In.String(), PhaseOf(e.n).String(), "a reload has put it back")
		return
	}
	if k.set.Strict && k.copies && PhaseOf(n) != Out && !k.off.Told {
		k.barrier.Withheld, k.told.held = true, make([]int64, len(k.servers))
	}
	k.departed[name] = e
	if k.resize.Mine == 0 && !k.off.Removed {
		k.departed[removedMark+name] = entry{n: NextOut(e.n)}
	}
}

// ServerFailed reports to the keeper a failure of a server that the engine has seen. The server
// has refused a connection (refused), was unreachable, has not replied to the greeting, or has not
// replied to Settings.AfterFailures consecutive client requests. The server is suspect from now
// on. A refusal by a server with restartable memory counts as silence.
func (k *Keeper) ServerFailed(server int, refused bool, why string, now int64) {
	s := &k.servers[server]
	s.refuses = refused
	refused = refused && k.refusalMeansLoss(server)
	if !s.suspect {
		s.pingAt = min(s.pingAt, now) // ping now: the server may be up again already
	}
	switch {
	case !refused:
		s.refused = refusal{}
	case s.refused.since == 0:
		s.refused = refusal{since: now, last: now, said: make([]uint64, len(k.servers))}
	default:
		s.refused.last = now
	}
	k.markSuspect(server, why, now)
	if !s.down && !s.stranger { // the server may fail for another reason now, for example because it was started again with another password
		s.suspectWhy = why
	}
	k.step(now)
	if refused {
		k.next = now // Tick publishes the refusal, together with those of other servers that fail in the same wakeup
	}
}

// Answered passes to the keeper the whole reply to the request with the given id, which Requests has
// returned. An unknown id is ignored.
func (k *Keeper) Answered(id uint64, answer []byte, now int64) {
	if a, ok := k.pending[id]; ok {
		delete(k.pending, id)
		k.answered(a, answer, now)
		k.stepSoon(now)
	}
}

// Unanswered reports to the keeper that its request with the given id will get no reply. hard means
// that the server refused the connection or is unreachable. Otherwise the request timed out
// or the connection was lost.
func (k *Keeper) Unanswered(id uint64, hard bool, why string, now int64) {
	if a, ok := k.pending[id]; ok {
		delete(k.pending, id)
		if k.unanswered(a, hard, why, now) {
			k.stepSoon(now)
		}
	}
}

// Unasked reports to the keeper that its request with the given id was not sent, or that it timed
// out while the server replied to earlier requests. The reason is overload, not a fault of the
// server, so a ping does not count as failed.
func (k *Keeper) Unasked(id uint64, now int64) {
	if a, ok := k.pending[id]; ok {
		delete(k.pending, id)
		if a.kind == askPing {
			s := &k.servers[a.server]
			s.pinging = false
			s.absent = 0 // the server may have had a view record since the last ping that found none
		} else if !k.unanswered(a, false, "", now) {
			return
		}
		k.stepSoon(now)
	}
}

// Warmed reports to the keeper how many reads this proxy has sent to a WARM server so far (asks),
// and how many of these reads were hits there.
func (k *Keeper) Warmed(server int, asks, hits uint64, now int64) {
	if s := &k.servers[server]; PhaseOf(s.n) == Warming {
		s.warm.Count(asks, hits, now)
	}
	k.stepSoon(now)
}

// Part sets whether the pool must stop moving its keys, because a reload has changed its settings. If
// `is` is true, only an operator's order ejects a server, and ejected servers rejoin.
func (k *Keeper) Part(is bool) {
	k.parting = is
	for i := range k.servers {
		k.servers[i].stranger = k.servers[i].stranger && !is
	}
}

// Flushed reports to the keeper that a client's flush_all through this proxy has emptied a server.
// The keeper writes the server's view record again at once, with a new incarnation number. So a
// proxy that waits until all proxies have read the lost record starts its wait again.
func (k *Keeper) Flushed(server int, now int64) {
	k.servers[server].stranger = false
	if !k.servers[server].writing {
		k.write(server, record{incarnation: k.random.Uint64()}, now)
	}
	k.step(now)
}

// Override applies an operator's override o to a server. It returns an error if no other server
// can serve the keys, or if this proxy reaches too few servers. Even then, Down makes the server
// suspect at this proxy. All proxies read the override in the view record. An override lasts until
// the next override of the server. It also replaces an earlier override that this proxy has not read yet.
func (k *Keeper) Override(server int, o Override, now int64) error {
	err := k.override(server, o, now)
	k.step(now)
	return err
}

// Tick does everything that is due now. The caller must call it once at the start, and at each time
// that Next has returned.
func (k *Keeper) Tick(now int64) {
	k.sayRefused(now)
	k.step(now)
}

// Next returns the time at which Tick must be called next.
func (k *Keeper) Next() int64 { return k.next }

// Requests returns the keeper's new requests, which the caller must send. Requests on the same
// connection must be sent in this order. The caller owns the slice.
func (k *Keeper) Requests() []Request {
	r := k.requests
	k.requests = nil
	return r
}

// Events returns the events since the last call of Events, for logs and counters.
func (k *Keeper) Events() []Event {
	e := k.events
	k.events = nil
	return e
}

// Gen changes whenever a phase or suspicion changes. A hit or an acknowledgement is
// valid only if Gen is the same as when the request was sent.
func (k *Keeper) Gen() uint64 { return k.gen }

// Verdict returns the state of a server, as this keeper knows it. It does not allocate.
func (k *Keeper) Verdict(server int) Verdict {
	s := &k.servers[server]
	v := Verdict{
		N:          s.n,
		Suspect:    s.suspect && !k.set.Stays || s.unverified,
		Why:        s.why,
		Since:      s.since,
		InPhase:    s.since,
		Override:   s.override(),
		ValidUntil: k.validUntil(server),
		Step:       s.step,
		Until:      s.until,
		Lease:      s.lease,
	}
	out := PhaseOf(s.n) == Out
	inherits := out && s.before != 0 && s.n == s.beforeN
	if inherits {
		v.Since, v.InPhase = s.before, s.before
	}
	switch {
	case s.suspect && (v.Suspect || out):
		if v.Why = s.suspectWhy; !inherits {
			v.Since = s.suspectSince
		}
	case out && s.good > 0 && s.goodSince > s.since && v.Override == Restore:
		v.Why, v.Since = Answered, s.goodSince
	case v.Suspect:
		v.Why = unverified
	}
	return v
}

// Answered is the reason in the Verdict of a server that is out and answers again: it returns when it answers most proxies.
const Answered = "answered again"

// Renamed returns the number that the keys of a server carry because the server
// rejected flush_all; 0: none. It is an argument of Path.Add and divert.AppendKey.
func (k *Keeper) Renamed(server int) uint32 { return k.servers[server].renamed }
