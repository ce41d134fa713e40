// The rule: which asks one command becomes, and when it is settled.

package replicate

import "math/bits"

// Deed is what one member is asked to do.
type Deed uint8

// The deeds. Each is one request to one server.
const (
	Forward Deed = iota // the client's own request, but with a counted answer; incr and decr must show their number (ma: v)
	Put                 // the client's value, flags and exptime, unconditionally: set, ms without C, E, I and mode
	Join                // the client's append or prepend without its condition
	Count               // the client's incr or decr without its condition, showing its number
	Extend              // touch with the client's exptime
	Mark                // the client's md I, without its condition
	Remove              // md k
	Fetch               // value, flags, remaining TTL and cas: mg k v f t s c. Changes nothing
	Stub                // mg k s c N30: Hit there is an item, Miss there is a stub now. Its cas guards Fill and Drop
	Fill                // what ask From fetched, if nothing has changed since ask Guard (a Stub): ms k C<c> F T
	Drop                // md k C<c>: removes what ask Guard (a Stub) saw or made, if nothing has changed since
	NumDeeds
)

// Mutates reports whether d may change what a client can see.
func (d Deed) Mutates() bool { return d != Fetch && d != Stub }

// Ask is one request to one member. Asks are numbered from 0 in the order in
// which Next gives them.
type Ask struct {
	Member int
	Deed   Deed
	From   int // Fill: the Fetch whose value is stored
	Guard  int // Fill, Drop: the Stub whose cas must still be there
	// Chosen: send it with E. Forward, Put, Join and Count of one command all
	// carry the same number, which the engine chooses; Fill carries the cas
	// that was fetched. Then all copies have one cas.
	Chosen bool
}

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
	Answered Verdict = iota // the reply of ask Answer
	Absent                  // a miss, NOT_FOUND or NOT_STORED without asking anybody: what the members have is not the truth
	Held                    // the write may be neither acknowledged nor sent; wait for the members to change, begin again, at the deadline SERVER_ERROR
	Refused                 // there is nobody to ask: SERVER_ERROR, or what get_errors says
	Unmet                   // too few have taken the write, or no one could answer: SERVER_ERROR (the line of ask Answer if that is not -1)
)

// Settlement is what a command came to. The masks are complete when Over.
type Settlement struct {
	Verdict Verdict
	Answer  int  // the ask whose reply the client gets, or -1
	Dirty   Mask // missed the write: not to be read for this key until repaired
	Clean   Mask // no longer dirty for this key
	Undo    Mask // must lose the key (md; right behind what is in doubt, on the same connection), then be repaired
	Repair  Mask // should be made like Source, in the background: Mend
	Source  int  // the member that has the truth, or -1
}

// Rule carries one command through its members. It is a small value without
// pointers; its methods do not allocate.
type Rule struct {
	todo int
}

// Begin returns the rule of command c under policy p. members are those of the
// key in its order, at most Max; spread is any number that changes from read to
// read (for Spread).
func Begin(p Policy, c Command, members []Member, spread uint64) Rule { panic("not yet") }

// Mend returns the rule of a repair: member is made like source, guarded, so
// that a concurrent write or delete wins. An item that is there already stays
// unless overwrite is set (the member is Dirty, or differs).
func Mend(member, source int, overwrite bool) Rule { panic("not yet") }

// Next appends the asks that are to be sent now; none: wait, or see Settled.
func (r *Rule) Next(dst []Ask) []Ask { panic("not yet") }

// Told says what became of an ask.
func (r *Rule) Told(ask int, o Outcome) { panic("not yet") }

// Late says that the policy's hedge delay has passed: a pure read asks one more
// member. Anything else ignores it.
func (r *Rule) Late() { panic("not yet") }

// Settled reports what the client gets, as soon as that is known. Asks may
// still be outstanding and new ones may follow; go on until Over.
func (r *Rule) Settled() (Settlement, bool) { panic("not yet") }

// Over reports that no ask is outstanding and none will follow.
func (r *Rule) Over() bool { panic("not yet") }

// Authority is the member that decides for the key: the first that is In,
// Dirty, Leaving or Suspect, else the first that is Warming or Settling; -1:
// nobody.
func Authority(members []Member) int { panic("not yet") }
