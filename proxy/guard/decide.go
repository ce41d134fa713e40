package guard

// This file has the rule that decides which set of a guarded key is stored.

// Scope says which sets can follow a miss as its rebuild: sets of the connection that got the
// miss, or all sets of the process. The zero Scope is one connection that sends one request at a
// time.
type Scope struct {
	Shared    bool // sets of the same connection follow a miss, but several threads of the client may send requests on it
	AfterMiss bool // every set of the process follows a miss, because the route is configured in this way (after_miss)
	Pooled    bool // no set follows a miss: several clients share the connection, so every set is an ordinary write
}

// one reports whether a key has at most one miss in the scope that no set has followed yet.
func (s Scope) one() bool { return !s.Shared && !s.AfterMiss }

// KeyMisses is the state of one key in one Scope: the misses that no set has followed yet. The
// zero KeyMisses has no misses.
type KeyMisses struct {
	CAS   uint64 // cas of the item that the newest miss has seen; 0: unknown, so the set after this miss is refused
	N     uint32 // number of misses that no set has followed yet
	Mixed int64  // until this time no set of the key is stored, because its misses may have seen different items; in nanoseconds
	Last  int64  // time of the newest miss, in nanoseconds
	Gone  bool   // the newest miss has seen a placeholder or a deleted item, so an add may replace the item, and a replace may not
	Won   bool   // the client of the newest miss is the lease holder
	Busy  bool   // a set with the cas CAS was sent and has no reply yet
}

// Kind is the kind of an Event.
type Kind uint8

// The kinds of an Event. Events of one connection are reported in the order in which the server
// executed the commands.
const (
	Missed   Kind = iota // a get was answered with a miss
	Found                // a get was answered with a value
	Set                  // a set has arrived
	Add                  // an add has arrived
	Replace              // a replace has arrived
	SetDone              // a set that was sent to the server has ended
	Deleted              // a delete by this client connection was answered
	Changed              // a command by this client connection, other than set, add, replace and delete, was answered and has changed the item
	Unplaced             // the cas that the newest miss has seen is no longer valid: the server, its connection or its phase has changed, or the key has moved
	Closed               // the client connection is closed
)

// Outcome is the result of a set that was sent to the server.
type Outcome uint8

// The values of Outcome.
const (
	Stored  Outcome = iota
	Refused         // the server did not store the set
	Failed          // no reply was received: the server may still run the set later
)

// Event is the input of Decide: something that has happened to a key. All times are in
// nanoseconds on one clock.
type Event struct {
	Kind      Kind
	CAS       uint64  // of Missed: cas of the item that the get has found, 0: unknown; of SetDone: cas of the new value
	Bound     uint64  // of SetDone: the cas that was sent with the set; 0: none
	Gone, Won bool    // of Missed: the new values of KeyMisses.Gone and KeyMisses.Won
	Outcome   Outcome // of SetDone: the result of the set

	Now, Lease, LeaseMax int64
}

// Act is what the guard does about an Event.
type Act uint8

// The values of Act.
const (
	None              Act = iota
	Write                 // serve the command as on a route without a guard, because it follows no miss
	Bind                  // send the set with the cas that Decide returns
	Refuse                // answer NOT_STORED without sending the set
	Wait                  // wait for the end of the key's set that is in flight, and then call Decide again
	RemovePlaceholder     // remove the placeholder with the cas that Decide returns
)

// Decide is the rule of the guard for one key in one Scope. It returns the state after the event
// ev, what the guard must do, and the cas for Bind and RemovePlaceholder.
func Decide(s Scope, e KeyMisses, ev Event) (KeyMisses, Act, uint64) {
	if e.N > 0 && !e.Busy && ev.Now-e.Last > ev.LeaseMax {
		e = KeyMisses{}
	}
	switch ev.Kind {
	case Missed:
		switch {
		case s.Pooled:
			return e, None, 0
		case s.one() || e.N == 0:
			return KeyMisses{CAS: ev.CAS, N: 1, Last: ev.Now, Gone: ev.Gone, Won: ev.Won, Busy: e.Busy}, None, 0
		case ev.CAS != e.CAS:
			e.Mixed = e.Last + ev.Lease
		}
		e.CAS, e.Gone, e.Won, e.Last = ev.CAS, ev.Gone, ev.Won, ev.Now
		e.N++
	case Found, Deleted, Changed:
		if s.one() {
			e = KeyMisses{Busy: e.Busy}
		}
	case Set, Add, Replace:
		switch {
		case e.N == 0 && s.AfterMiss && ev.Kind == Set:
			return e, Refuse, 0
		case e.N == 0:
			return e, Write, 0
		case e.Busy:
			return e, Wait, 0
		case e.CAS == 0 || ev.Now < e.Mixed || ev.Kind == Add && !e.Gone || ev.Kind == Replace && e.Gone:
			return e.answered(), Refuse, 0
		}
		e.Busy = true
		return e, Bind, e.CAS
	case SetDone:
		if ev.Bound == 0 {
			break
		}
		e.Busy = false
		if ev.Outcome == Failed { // the set had no reply, so the miss stays: its client may retry the set
			break
		}
		same := e.CAS == ev.Bound // false: a newer miss has seen another item, or the cas that it has seen is no longer valid
		e = e.answered()
		if ev.Outcome == Stored && same && e.N > 0 {
			e.CAS, e.Gone, e.Won = ev.CAS, false, false
		}
	case Unplaced:
		e.CAS, e.Gone, e.Won = 0, false, false
	case Closed:
		if e.N > 0 && e.Won && e.Gone && !s.Shared {
			return KeyMisses{}, RemovePlaceholder, e.CAS
		}
		e = KeyMisses{}
	}
	return e, None, 0
}

// answered returns e with one miss less, because a set has followed the miss.
func (e KeyMisses) answered() KeyMisses {
	if e.N > 1 {
		e.N--
		return e
	}
	return KeyMisses{Busy: e.Busy}
}
