package misses

// The rule: which set is stored.

// Scope says what a set must share with a miss to be its rebuild.
type Scope struct {
	Shared    bool // the connection: it has had two requests unanswered at once, or is declared so
	AfterMiss bool // the process: no client of the route sets without a miss
	Pooled    bool // nothing: every set is a write
}

// one reports whether the scope has at most one outstanding miss of a key.
func (s Scope) one() bool { return !s.Shared && !s.AfterMiss }

// Entry is what is known of the outstanding misses of one key in one scope. The zero
// Entry has none.
type Entry struct {
	CAS   uint64 // of the item behind the newest miss; 0: unknown, its rebuild is refused
	N     uint32 // misses whose set has not come
	Mixed int64  // until then the misses may belong to different items, so that no set is stored
	Last  int64  // when the newest miss was answered
	Gone  bool   // the item is a placeholder or deleted: an add may replace it
	Won   bool   // the server has named the client of the newest miss the one that rebuilds
	Busy  bool   // a set that is bound to CAS is on its way
}

// Kind is a kind of event.
type Kind uint8

// The kinds of events. Those of one connection come in the order in which the server
// has executed the commands.
const (
	Missed   Kind = iota // a get was answered "not found"
	Found                // a get was answered with a value
	Set                  // a set has arrived
	Add                  // an add has arrived
	SetDone              // a set that was sent is over
	Deleted              // a delete of this connection was answered
	Unplaced             // the cas is worth nothing any more: the server, its connection, phase or place has changed
	Closed               // the connection is closed
)

// Outcome says how a set has ended that was sent.
type Outcome uint8

// The outcomes.
const (
	Stored  Outcome = iota
	Refused         // the server has not stored it
	Failed          // there is no answer: the set may run late
)

// Event is something that happens to a key in a scope. Times are on one clock.
type Event struct {
	Kind      Kind
	CAS       uint64  // Missed: the cas that was seen, 0: unknown. SetDone: the new one
	Bound     uint64  // SetDone: the cas that the set was sent with, 0: none
	Gone, Won bool    // Missed: of the item; of this get
	Outcome   Outcome // SetDone

	Now, Lease, LeaseMax int64
}

// Act is what is done about an event.
type Act uint8

// The acts.
const (
	None     Act = iota
	Write        // the command is served as if there were no miss
	Bind         // it is sent with the cas that Decide returns
	Refuse       // it is not sent: NOT_STORED
	Wait         // it waits for the set that is on its way, and is decided again after that
	GiveBack     // the placeholder with the cas that Decide returns is removed
)

// Decide returns the entry after the event, what to do, and a cas for Bind and GiveBack.
func Decide(s Scope, e Entry, ev Event) (Entry, Act, uint64) {
	if e.N > 0 && !e.Busy && ev.Now-e.Last > ev.LeaseMax {
		e = Entry{}
	}
	switch ev.Kind {
	case Missed:
		switch {
		case s.Pooled:
			return e, None, 0
		case s.one() || e.N == 0:
			return Entry{CAS: ev.CAS, N: 1, Last: ev.Now, Gone: ev.Gone, Won: ev.Won, Busy: e.Busy}, None, 0
		case ev.CAS != e.CAS:
			e.Mixed = e.Last + ev.Lease
		}
		e.CAS, e.Gone, e.Won, e.Last = ev.CAS, ev.Gone, ev.Won, ev.Now
		e.N++
	case Found, Deleted:
		if s.one() {
			e = Entry{Busy: e.Busy}
		}
	case Set, Add:
		switch {
		case e.N == 0 && s.AfterMiss && ev.Kind == Set:
			return e, Refuse, 0
		case e.N == 0:
			return e, Write, 0
		case e.Busy:
			return e, Wait, 0
		case e.CAS == 0 || ev.Now < e.Mixed || ev.Kind == Add && !e.Gone:
			return e.answered(), Refuse, 0
		}
		e.Busy = true
		return e, Bind, e.CAS
	case SetDone:
		if ev.Bound == 0 {
			break
		}
		e.Busy = false
		if ev.Outcome == Failed { // the client may send it again
			break
		}
		same := e.CAS == ev.Bound // else a newer miss has seen another item, or the cas is worth nothing any more
		e = e.answered()
		if ev.Outcome == Stored && same && e.N > 0 {
			e.CAS, e.Gone, e.Won = ev.CAS, false, false
		}
	case Unplaced:
		e.CAS, e.Gone, e.Won = 0, false, false
	case Closed:
		if e.N > 0 && e.Won && e.Gone && !s.Shared {
			return Entry{}, GiveBack, e.CAS
		}
		e = Entry{}
	}
	return e, None, 0
}

// answered is e with one miss less.
func (e Entry) answered() Entry {
	if e.N > 1 {
		e.N--
		return e
	}
	return Entry{Busy: e.Busy}
}
