// Package resize coordinates a change of the server list of a pool, for keys with one copy: no proxy
// reads a value that is older than the last acknowledged write.
//
// A server list is everything that decides which server owns a key: servers, weights and
// distribution. All proxies serve by the list in force, which the view records name by its hash. The
// configuration of a proxy is only its wish. The progress is one number n, which only grows. A WAIT is
// the time in which all proxies learn what one of them has published (package health). The owners of a
// key that moves are its old owner, by the list in force, and its new owner, by the next list.
//
//	n mod 6  stage   keys that move                               the next stage begins
//	0        Stable  are served by the old owner                  when all proxies have wished the same other list for some time, and
//	                                                              the servers that gain keys have no old values of them
//	1        Pause   announced: the old owner                     when the pause begins: see below
//	                 then reads: old owner; mutations wait        when n has been in the records of all servers for a WAIT
//	2        Move    new owner; the old one is asked and emptied  after a WAIT, and a walk that found nothing at the old owners
//	3        Settle  new owner; the old one is emptied            after a WAIT, and a further walk that found nothing
//	4        Cool    new owner, which may have placeholders       after a WAIT and the lifetime of a placeholder; then Stable
//	5        Clear   reads miss, mutations wait                   when n has been in the records of all servers for a WAIT; then Stable
//
// A change can be reversed: if all proxies wish the list in force again in Move or Settle, the next stage is Pause of the
// next change, from the next list to the list in force (a turn). It begins like Pause after Stable, but no server is swept:
// the keys that move already have their values at either owner. So reads ask the new owner and then the old one, as
// in Move, which follows. Mutations wait, because a proxy in the stage before may still empty the former old owner. A proxy recognizes a
// turn by the stage that it knew before. One that was started in between takes it for another Pause, and its reads may
// miss. Changes that are not reversed begin with an even number, so an odd one is a turn (State.Turned). That says by which list
// peers find the servers of keys that do not move. Two proxies may begin Settle and a turn at once: the turn has the higher number. Cool can't be reversed: mutations do
// not empty the old owner there, so it would have to be swept. A change to a list with a dead server is reversed, too, if all proxies wish a
// third list (Status.Replaced).
//
// Mutations wait for less than a WAIT, because the pause is announced first. While it is announced (State.Announced), keys are served
// as in Stable, but leases are short and pings frequent. The announcement has the number n of the pause. Move begins when n has been in
// the records for a WAIT, and the pause itself for a short WAIT, which is shorter because the leases are. A proxy that
// still has a lease after the WAIT knows the announcement. So its lease is short, and it knows the pause after the short WAIT. A pause that
// was not announced, such as a turn, lasts for a WAIT: the same rule (State.Known).
//
// A release without announcements does not know short leases. If it served keys in an announcement, it could write to the old owner
// when keys already move. So the record does not have the hash of the next list then (State.Written). Such a
// release serves no key until the pause begins, because it lacks the list. That is safe whenever an instance starts, but
// costs misses. If the instance knew both lists, it forgets one, and its peers see another server list. The announcement
// then lasts until they go on in spite of that (Resize.Patience). So a pause is announced only if all instances in the list of
// instances have the same release. Clear is not announced: an older release that lacks the next list would put it in force.
// If all proxies wish a third list, the announcement is taken back (State.Recalled). announce_test.go explores this with leases that end
// at a time.
//
// Mode warm goes through all stages but Clear, and moves the values. Mode flush has only Stable and
// Clear: its values are lost. A proxy in mode flush that finds its peers in a stage of mode warm serves
// no key that moves.
//
// A proxy that reads a higher n adopts the whole State. So all proxies are within one stage of each
// other. The stages Pause and Clear are needed because a proxy in the stage before may read the old
// value at the old owner, and one in the stage after may write a newer value at the new owner. The rule
// of the commands in Move, Settle and Cool is replicate.Relocate. Its package comment says why the other
// stages are needed; its tests explore them.
//
// The servers that gain keys are emptied of old values while the list is in force. No proxy stores a
// moving key at its next owner then. So the next owner has no value of it when keys begin to move.
//
// A proxy that is started with the list in force and the next one (table.Pool.From) is like one that was reloaded.
// If other lists turn out to be in use, it forgets the first one, and is like one that was started with the second one only.
//
// In an announcement, all keys are served by the list in force. So a proxy that knows this list keeps it, also if it is reloaded, and serves by it. It
// learns the next list meanwhile, flushes nothing, and can take the announcement back.
//
// A proxy that is started with another list than that of its peers learns the lists that are in use from the servers
// (Status.Lacks, package health). It is then like one that had these lists and was reloaded with its own.
//
// A proxy that can't learn the list in force serves no key. When all proxies wish its list, one of them begins the next
// stage. If all proxies are in this state, none knows which servers gain keys. After a longer
// time one of them flushes all servers. The same happens in the stages of mode warm, if no proxy knows
// both lists. Clear follows then, until no placeholder can live. In mode warm, the vote of a proxy says
// whether it knows the lists. As long as one does, the others flush nothing. A proxy that moves keys also says
// so by an item on the servers (package replication).
//
// That is too strict for a pool whose operator has not chosen the mode: with each rolling update that starts proxies with
// another list, they would serve nothing, and the last one would flush all servers. There (Lists.Own), such a proxy
// uses its own list and flushes nothing, as without this package. So reads may be old until all proxies have
// the same list. A proxy that is reloaded follows the stages.
//
// All this needs the keeper of each proxy all the time, also in mode fail_fast, where nothing else needs it. A proxy
// without a keeper, which only reads now and then which list is in force, is not safe: P and Q serve by the list 1, and P is
// reloaded with the list 2. Q writes no vote, so P takes it for a proxy that does not exist, and begins the change. Q's next read
// of the list times out, or finds that the item was evicted, so Q goes on with the list 1. P moves a key to its new owner, and
// a client of P sets it there. Q reads the key at the old owner, or stores a value there: a value is old or lost although no proxy
// has failed. To prevent that, Q must write its vote, and must not serve when it has not read the record for some time. These are the
// records and the leases of a keeper.
//
// If the configuration requires a third list, or in Stable the list in force again, a peer may just begin the change to
// the second one. So a proxy can still change to the second list until its peers have read its vote for
// the other one. If the change begins before, the proxy takes part, and the next change follows.
package resize

import (
	"cmp"
	"time"
)

// Stage is the progress of a change.
type Stage uint8

// The stages.
const (
	Stable Stage = iota // all keys are served by the list in force
	Pause               // keys that move are read by the list in force, and not changed
	Move                // keys move with their values
	Settle              // the old owners are not asked any more, only emptied
	Cool                // the old owners are empty, but the new ones may have placeholders
	Clear               // keys that move are not served
	stages
)

// State is what all proxies must agree on. The zero State means that nothing is known yet.
type State struct {
	N         uint32 // number of the stage: it only grows
	List      uint32 // hash of the list in force
	Next      uint32 // hash of the list that will be in force; in Stable 0
	Announced bool   // Pause is only announced: all keys are still served as in Stable, but with short leases
}

// First returns the state of a pool without records: its first list is in force at once.
func First(list uint32) State { return State{N: stable(1), List: list} }

// stable returns the number of the stage Stable from which the next change that is not reversed begins: that of the first even
// change from the given one. So an odd change is a turn of an even one. Older releases begin odd changes, too.
func stable(change uint32) uint32 { return (change + change%2) * uint32(stages) }

// Change returns the number of the change: it is the same from one Stable to the next.
func (s State) Change() uint32 { return s.N / uint32(stages) }

// Stage returns the stage of s.
func (s State) Stage() Stage { return Stage(s.N % uint32(stages)) }

// Merge returns the later of two states. Two proxies that do not reach each other may have begun the
// same stage with different lists. The higher hash wins then. An announcement is earlier than the stage itself.
func Merge(a, b State) State {
	x, _ := a.Written()
	y, _ := b.Written()
	if cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(b.List, a.List), cmp.Compare(y, x), cmp.Compare(b.Next, a.Next)) > 0 {
		return b
	}
	return a
}

// announcing is the hash of the next list that view records have in an announcement. It is that of no list.
const announcing = 1

// Written returns what the view records have as the next list and as the announced list (0: none). A release that does not
// know announcements takes the next list of an announcement for one that it lacks. So it serves no key until it reads the
// next state.
func (s State) Written() (next, announced uint32) {
	if s.Announced {
		return announcing, s.Next
	}
	return s.Next, 0
}

// Read returns the state in a view record that has s, and an announced list.
func (s State) Read(announced uint32) State {
	if s.Next == announcing && announced != 0 {
		s.Next, s.Announced = announced, true
	}
	return s
}

// Short reports whether leases are short, so that the pause that follows can be short. That is so too with a record that an older
// release has written again in an announcement.
func (s State) Short() bool { return s.Announced || s.Next == announcing }

// Known returns how long the view records must have had the number N, and how long they must have had the whole state, until
// the next state may follow. long and short are the durations of a WAIT with usual leases and with short ones.
//
// Once all proxies know that a pause is announced, all have short leases until they know that it has begun. So they know that
// after a short WAIT.
//
// A turn is not announced, so it lasts for a WAIT. Leases are long in Move. So a proxy that does not know the turn may still move a
// key to its former new owner until such a lease ends. There are three ways to a shorter turn. It would save half of the WAIT, once in a reversal:
//   - Short leases on proxies that wish the reversal. That is not safe: another proxy may just have started with another wish. It
//     has a long lease before its peers read its vote.
//   - Short leases in all of Move and Settle. These may last for hours, and a short lease ends each time that a process stalls.
//   - An announcement, with the number of the turn. That would be a further state: keys are served as in Move of the change before, and
//     a proxy that starts in it must know that. Cas tokens must have the tag of that change, too.
//
// Clear is not announced either. Its announcement would need another number, because an older release in Clear puts any list Next
// in force. So the records could not show that all leases are short.
func (s State) Known(long, short time.Duration) (number, state time.Duration) {
	switch {
	case s.Announced:
		return long - short, 0
	case s.Stage() == Pause:
		return long, short
	}
	return 0, long
}

// Recalled returns the state in which the announcement s is taken back: its list Next is not wanted any more, and another change can
// begin. Nothing has moved in an announcement. So if the configuration of all proxies requires a further list, for example because a server
// of the list Next is dead, nothing is lost.
//
// Another proxy may begin the pause at the same time, and then move keys. So a proxy does not decide this on its own. It
// replaces the announcement in a view record, and adopts what it reads there afterwards. A pause ends only if it has been in the records
// of all servers in use for a time. In that record it is not.
func (s State) Recalled() State { return State{N: stable(s.Change() + 1), List: s.List} }

// usual reports whether all keys are served by the list in force.
func (s State) usual() bool { return s.Stage() == Stable || s.Announced }

// advanced returns the state after s. wish is the list that all proxies wish, warm says whether values
// move, and announce whether a pause is announced; only Stable uses them.
func (s State) advanced(wish uint32, warm, announce bool) State {
	switch s.Stage() {
	case Stable:
		next := State{N: stable(s.Change()) + uint32(Clear), List: s.List, Next: wish}
		if warm {
			next.N, next.Announced = stable(s.Change())+uint32(Pause), announce
		}
		return next
	case Pause:
		if s.Announced {
			s.Announced = false
			return s
		}
	case Cool, Clear:
		return State{N: stable(s.Change() + 1), List: s.Next}
	}
	return State{N: s.N + 1, List: s.List, Next: s.Next}
}

// Turned reports whether the keys that move go back: a peer that was there before the change finds the servers of the other keys by
// the list Next.
func (s State) Turned() bool { return s.Stage() != Stable && s.Change()%2 != 0 }

// turned returns the state after s if the change is reversed.
func (s State) turned() State {
	return State{N: (s.Change()+1)*uint32(stages) + uint32(Pause), List: s.Next, Next: s.List}
}

// Service says how a proxy serves a key.
type Service uint8

// The kinds of service. In Paused and later kinds, they are those of a key that moves; other keys are
// served by their server.
const (
	All      Service = iota // by its server in the proxy's own list
	Nothing                 // not at all, because the proxy does not know the list in force
	Staying                 // not now: reads miss, and mutations wait
	Paused                  // by its old owner, but mutations wait
	Turning                 // by both owners, as in the stage Move, but mutations wait
	Moving                  // by both owners, as in the stage Move
	Settling                // as in the stage Settle
	Cooling                 // by its new owner, which may have a placeholder
)

// Status is the published state of a keeper.
type Status struct {
	State
	Lists
	Seeks   bool // this process searches for the lists that it lacks (Lacks), and serves no key until it has ended the search
	Opposed bool // another process may have had another wish when a server in use last replied to this one
	Cut     bool // a change waits for an operator: no server in use answers, and Opposed is true
	Drops   bool // no change to the list Wish can begin any more: the loops must replace it by the list Later
	Late    bool // in Pause and Clear: the stage lasts unusually long, so a reload does not wait for its end
	Turns   bool // in Pause: keys that move may have their values at either owner already

	Retreats bool // in Move, the change is reversed when all proxies agree: see Replaced
}

// Lists are the hashes of the lists of a proxy, and how it changes from one to the other.
type Lists struct {
	Mine  uint32 // hash of the list by which the loops of this process find servers
	Wish  uint32 // hash of the list to which this process can change; Mine: there is none
	Later uint32 // hash of the list that the configuration requires, if it is not Wish; 0: it is Wish
	Warm  bool   // the values of keys that move are kept
	Own   bool   // if this process does not know the list in force, it serves by its own: see Status.UsesOwn
	Again bool   // the list Wish gives a name of the list Mine to a server at another address
}

// Required returns the hash of the list that the configuration requires.
func (l Lists) Required() uint32 { return cmp.Or(l.Later, l.Wish) }

// Vote returns what the view records say about this process: which list its configuration requires and, in
// mode warm, that it knows the lists by which keys are served. No process agrees with the vote of one that
// can't change to the required list yet. If a server has the name of another one, a process of an older release does not
// agree with the vote: it would take both for one server.
func (s Status) Vote() uint32 {
	switch {
	case s.Stage() == Stable && s.Later != 0:
		return informed(informed(s.Later))
	case s.Warm && s.Serves() != Nothing && s.Again:
		return informed(informed(informed(s.Required())))
	case s.Warm && s.Serves() != Nothing:
		return informed(s.Required())
	}
	return s.Required()
}

// informed returns the vote for a list of a proxy that knows the lists by which keys are served. Like all
// hashes of lists, it is not 0, and below 1<<30.
func informed(list uint32) uint32 { return 1 + (list+1<<28)%(1<<30-1) }

// Agrees reports whether this process may begin a stage although another one votes so. A process that must
// flush servers, because it does not know the lists, waits for one that does.
func (s Status) Agrees(vote uint32) bool {
	list := informed(s.Required())
	if s.Again {
		list = informed(informed(list))
	}
	return vote == s.Required() || vote == list && s.Serves() != Nothing
}

// Opposes reports whether a vote is for another list than this process requires. A process that requires the same list, but
// can still change to another one, has a vote with which no process agrees: Opposes returns false for it.
func (s Status) Opposes(vote uint32) bool {
	return vote != 0 && !s.Agrees(vote) && vote != informed(informed(s.Required()))
}

// Serves returns how this process serves keys that move, or Nothing or All for all keys.
func (s Status) Serves() Service {
	switch {
	case s.usual() && s.List == s.Mine && s.N != 0:
		return All
	case s.Superseded() && s.Warm:
		return Cooling
	case s.Superseded():
		return Staying
	case s.Mine == s.Wish || (s.List != s.Mine || s.Next != s.Wish) && !s.Reversed() || s.usual():
		return Nothing
	case !s.Warm:
		return Staying
	case s.Stage() == Pause && s.Turns:
		return Turning
	}
	return [...]Service{Pause: Paused, Move: Moving, Settle: Settling, Cool: Cooling, Clear: Staying}[s.Stage()]
}

// Superseded reports whether the list that the configuration requires is in force, and the loops must
// now use it.
func (s Status) Superseded() bool {
	return s.usual() && s.Mine != s.Wish && s.List == s.Wish
}

// Reversed reports whether keys move from the list Wish to the list Mine, and not from Mine to Wish.
func (s Status) Reversed() bool {
	return !s.usual() && s.Mine != s.Wish && s.List == s.Wish && s.Next == s.Mine
}

// Strays reports whether this process finds the servers of keys that do not move by another list than its peers: it has missed
// the end of a change, or it was started while keys move. If no server is out, both lists have the same servers for them.
func (s Status) Strays() bool {
	return !s.usual() && s.Mine != s.Wish && s.Turned() != s.Reversed()
}

// TakenBack reports whether the configuration requires the list that keys leave. The next stage is then a turn, when all
// proxies agree.
func (s Status) TakenBack() bool {
	return (s.Stage() == Move || s.Stage() == Settle) && s.Required() == s.List
}

// Ends reports whether the list Wish is in force, or will be even if the configuration requires another one by then.
func (s Status) Ends() bool {
	return s.Superseded() || (s.Stage() == Cool || s.Stage() == Clear) && s.List == s.Mine && s.Next == s.Wish && s.Mine != s.Wish
}

// Replaced reports whether keys begin to move to the list Next, but the configuration requires a further list. If a server that only the
// list Next has is dead, values can't move to it, and would be lost at the end. So the change is reversed, before that to the further
// list begins. This is a turn like any other: it depends only on the stage whether it is safe.
func (s Status) Replaced() bool {
	return s.Stage() == Move && s.Mine == s.List && s.Next == s.Wish && s.Later != 0 && s.Later != s.List
}

// UsesOwn reports whether this process serves by its own list, although its peers use another one, which it does
// not know. Reads may be old then, as without this package. While keys move with their values, it serves nothing
// instead: it would store values that the move then removes.
func (s Status) UsesOwn() bool {
	return s.Own && s.N != 0 && !s.Seeks && s.usual() && s.Serves() == Nothing
}

// Forgets reports whether the lists Mine and Wish are not those by which the pool is served, and the loops must
// use only the list Wish. The process is then like one that was started with that list.
func (s Status) Forgets() bool {
	return s.N != 0 && s.Mine != s.Wish && !s.Superseded() && !s.Reversed() && (s.List != s.Mine || !s.usual() && s.Next != s.Wish)
}

// Lacks returns the hashes of the lists by which the peers of this process serve, and which it does not know: the list in
// force and, while keys move, the next one. It returns none if the process serves keys, or can't serve them by these lists.
// When the process has learned them, its list Mine is the list in force, and it votes for the same list as before.
func (s Status) Lacks() (lists []uint32) {
	if s.N == 0 || s.Mine == 0 || s.Mine != s.Wish && !s.misses() || s.Serves() != Nothing && !s.Announced || s.Next == s.List {
		return nil
	}
	if s.List != s.Mine {
		lists = append(lists, s.List)
	}
	if s.Next != 0 && s.Next != s.Mine {
		lists = append(lists, s.Next)
	}
	return lists
}

// misses reports whether a pause is announced for another list than Wish. This process serves by the list in force, but
// it needs the announced one when the pause begins.
func (s Status) misses() bool { return s.Announced && s.List == s.Mine && s.Next != s.Wish }

// Holds reports whether the keys of this process have their servers by the list Mine, or move to them. If they do,
// a reload must not use another list at once.
func (s Status) Holds() bool { return s.N != 0 && (s.List == s.Mine || s.Reversed()) }

// Moves reports whether keys move from the list Mine to the list Wish, or back.
func (s Status) Moves() bool { return s.Stage() != Stable && s.Next == s.Wish || s.Reversed() }

// Changing reports whether this process knows the list in force, and another one follows it.
func (s Status) Changing() bool {
	return s.Serves() != Nothing && (s.Stage() != Stable || s.List != s.Wish || s.Later != 0)
}

// Compatible reports whether a command on a moving key that began at the number began may continue now:
// Settle is no change for a command that began in Move.
func (s State) Compatible(began uint32) bool {
	return s.N == began || s.Stage() == Settle && s.N == began+1
}

const (
	waitPings  = 18 // minimum time between two changes, and from a wish until the next stage, in pings
	dropPings  = 10 // time after which all proxies have read the vote of this one, in pings
	aloneTimes = 2  // a proxy that does not know the list in force waits this many times longer
)

// Resize is what a keeper knows about a change. Times are in nanoseconds on the keeper's clock. The
// zero Resize is that of a pool that does not coordinate changes: Mine is 0.
type Resize struct {
	Status
	Held
	Number   Held  // the same for the number N: it is known for longer than the state if a pause was announced
	Announce bool  // the next pause is announced: all proxies know announcements, as far as this one knows
	Recalls  bool  // the announcement of a pause is taken back when all proxies agree: see Recalled
	wished   int64 // when the wish was set
	swept    [2]uint32
	sweeps   bool
}

// Held says for how long view records have had something.
type Held struct {
	Since int64   // when this process adopted it
	In    []int64 // for each view server, the time from which its record has had it without interruption; 0: it does not have it
}

func (h *Held) begin(now int64) {
	h.Since = now
	clear(h.In)
}

// Hold records in since, the time since which a view record has something, whether it has it now (says). 0: it does not have it.
func Hold(since *int64, says bool, now int64) {
	switch {
	case !says:
		*since = 0
	case *since == 0:
		*since = now
	}
}

// New returns the Resize of a pool with a number of view servers.
func New(servers int) Resize {
	return Resize{Held: Held{In: make([]int64, servers)}, Number: Held{In: make([]int64, servers)}}
}

// PlaceholderLife is the longest lifetime of a placeholder of mode warm, in seconds. A command takes less
// time.
const PlaceholderLife = 10

const placeholders = PlaceholderLife * time.Second * 11 / 10 // clocks may differ

// Set sets the lists of this process.
func (r *Resize) Set(l Lists, now int64) {
	if r.Mine != l.Mine || r.Required() != l.Required() {
		r.wished = now
	}
	r.Opposed = r.Opposed || r.Mine != 0 && r.Required() != l.Required()
	if r.Lists != l {
		r.Lists, r.sweeps, r.Drops = l, false, false
	}
}

// Read adopts the state s from a view record if it is later, and reports whether it did.
func (r *Resize) Read(s State, now int64) bool {
	if m := Merge(r.State, s); m != r.State {
		r.set(m, now)
		return true
	}
	return false
}

func (r *Resize) set(s State, now int64) {
	if r.N != s.N {
		r.Turns = s.Stage() == Pause && !s.Announced && r.N+1 != s.N && (r.Stage() != Stable || s.N != stable(r.Change())+uint32(Pause)) // otherwise this process knew the stage Stable before it
		r.Number.begin(now)
	}
	r.State, r.sweeps = s, false
	r.begin(now)
}

// Hold records that the view record of a server has the state s. The zero State means that the record is lost.
func (r *Resize) Hold(server int, s State, now int64) {
	Hold(&r.In[server], s == r.State, now)
	Hold(&r.Number.In[server], s.N == r.N, now)
}

// Step begins the next stage if that is due, and reports whether it did. agreed means that no other
// wish was seen recently. ready means that no server that stays is between two phases or out. The
// function replicated reports whether all proxies must know the state by now, and have done so for a
// time that it is given.
func (r *Resize) Step(now int64, agreed, ready bool, replicated func(time.Duration) bool, ping time.Duration) bool {
	r.sweeps = false
	r.wished = cmp.Or(r.wished, now) // a new keeper
	r.Drops = r.Later != 0 && r.Stage() == Stable && (r.List != r.Mine || now >= r.wished+dropPings*int64(ping))
	wait := waitPings * int64(ping)
	if !r.Holds() { // perhaps no proxy knows the list in force; a peer that does is earlier
		wait *= aloneTimes
	}
	r.Late = (r.Stage() == Pause || r.Stage() == Clear) && now >= r.Since+aloneTimes*waitPings*int64(ping)
	change := [2]uint32{r.N, r.Wish}
	switch stage := r.Stage(); {
	case r.Mine == 0 || r.N == 0:
		return false
	case stage == Clear:
		if !replicated(0) {
			return false
		}
		if r.List == r.Next && !replicated(placeholders) { // other proxies may have moved keys until they knew this stage
			return false
		}
	case stage != Stable && r.Mine == r.Wish && r.Serves() == Nothing: // perhaps no proxy knows both lists
		switch {
		case !agreed || now < max(r.Since, r.wished)+aloneTimes*waitPings*int64(ping):
			return false
		case r.swept != change && !r.Own:
			r.sweeps = true
			return false
		}
		r.set(State{N: r.N - r.N%uint32(stages) + uint32(Clear), List: r.Mine, Next: r.Mine}, now)
		return true
	case stage != Stable:
		life := time.Duration(0)
		if stage == Cool {
			life = placeholders
		}
		switch {
		case !r.Warm || r.Serves() == Nothing || !replicated(life):
			return false
		case r.Announced && (r.Recalls || r.Next != r.Wish || !ready):
			return false
		case (r.TakenBack() || r.Retreats) && agreed && ready && now >= r.wished+wait:
			r.set(r.turned(), now)
			return true
		case (stage == Move || stage == Settle) && r.swept != change:
			r.sweeps = true
			return false
		}
	case r.Later != 0 || r.List == r.Wish || r.List != r.Mine && r.Mine != r.Wish:
		return false
	case !agreed || !ready || now < max(r.Since, r.wished)+wait:
		return false
	case r.Own && r.Mine == r.Wish:
		r.Skip(now)
		return true
	case r.swept != change:
		r.sweeps = true
		return false
	}
	r.set(r.advanced(r.Wish, r.Warm && r.Mine != r.Wish, r.Announce), now)
	return true
}

// Recall reports whether this process may now take the announcement back in a view record that has the state s.
func (r *Resize) Recall(s State, now int64, agreed bool, ping time.Duration) bool {
	return r.Recalls && r.Unwanted() && agreed && s == r.State && now >= r.wished+waitPings*int64(ping)
}

// Unwanted reports whether a pause is announced for a list that the configuration does not require any more.
func (s Status) Unwanted() bool {
	return s.Announced && s.Warm && s.Serves() == All && s.Required() != s.Next
}

// Skip puts the list Wish in force without a stage in between: other proxies that serve by their own lists know it
// at some time.
func (r *Resize) Skip(now int64) {
	r.set(State{N: stable(r.Change() + 1), List: r.Wish}, now)
}

// Began returns when this process adopted the state, or, if that is later, when its wish was set.
func (r *Resize) Began() int64 { return max(r.Since, r.wished) }

// Overdue reports whether the next stage could have begun if all proxies had the same wish.
func (r *Resize) Overdue(now int64, ping time.Duration) bool {
	return r.wished != 0 && now >= r.Began()+waitPings*int64(ping) // 0: this is the first step of a new keeper
}

// Patience returns how long a step waits at most until all proxies have the same servers, although they wish
// the same list. A proxy that knows the list in force is the first that goes on.
func (r *Resize) Patience(ping time.Duration) int64 {
	wait := aloneTimes * waitPings * int64(ping)
	if !r.Holds() {
		wait *= aloneTimes
	}
	return max(r.Since, r.wished) + wait
}

// Sweeps reports whether work on the servers is due, and for which change. The work is that of the
// stage: in Stable, old values must leave the servers that gain keys; in Move, values leave the old
// owners for the new ones; in Settle, they are deleted there. If no proxy may know both lists, all servers
// must be flushed. Work for another change does not count.
func (r *Resize) Sweeps() (change [2]uint32, ok bool) {
	return [2]uint32{r.N, r.Wish}, r.sweeps
}

// Swept records that the work for a change is done.
func (r *Resize) Swept(change [2]uint32) { r.swept = change }
