package replicate

// The deeds: what a rule asks of one member.

// Deed is what one member is asked to do.
type Deed uint8

// The deeds. Each is one request to one server. <M> are the flags of a mark and <T> its
// TTL; c is shown by all of them whose cas is needed later.
const (
	Forward Deed = iota // the client's own request, but with a counted answer; incr and decr must show their number (ma: v)
	Put                 // the client's value, flags and exptime, unconditionally: set, ms without C, E, I and mode
	Join                // the client's append or prepend, if nothing has changed since ask Guard
	Count               // the client's incr or decr likewise, showing its number
	Extend              // mg k s f c T, with the client's exptime: Marked if it has lengthened a mark
	Remove              // md k
	Fetch               // value, flags, remaining TTL and cas: mg k v f t s c. Changes nothing
	Look                // mg k s f c: Hit, Marked or Miss. Changes nothing
	Weigh               // as Look, and how the client's token compares: Exists if it is above the cas that is there, as nothing is stored then
	Preview             // as Look, and what the command would make of it: the size behind an append, the number behind an incr
	Review              // as Look, but Exists if the item is not as ask Guard, right before it, has left it
	Check               // as Look, but Exists if the item has another cas than ask Guard has shown; behind a set, which shows none, another value than the client's
	Claim               // ms k 0 ME F<M> T<T> c: Stored, a mark that guards Fill, Store and Drop; or NotStored
	Bury                // ms k 0 F<M> T<T> c: a mark in the place of whatever there was
	Swap                // ms k 0 C<token> F<M> T<T> c: the client's md C, as a Bury
	Remark              // ms k 0 C F<M> T<T> c: a fresh mark in the place of the one that ask Guard met, or left itself
	Fill                // what ask From fetched, if nothing has changed since ask Guard: ms k C F T
	Store               // the client's value likewise, and its answer: ms k C F T c; or its md I: md k I C
	Drop                // md k C: removes what ask Guard has seen or left, if nothing has changed since
	Wait                // no request: some time for whoever is at work
	NumDeeds
)

// Mutates reports whether d may change what a client can see. A mark hides what
// it replaces.
func (d Deed) Mutates() bool {
	switch d {
	case Fetch, Look, Weigh, Preview, Review, Check, Claim, Remark, Wait:
		return false
	}
	return true
}

// LeavesMark reports whether d, where it is Stored, leaves a mark that is the command's own.
func (d Deed) LeavesMark() bool { return d >= Claim && d <= Remark }

// Ask is one request to one member. Asks are numbered from 0 in the order in
// which Next gives them. If one has a number that there was before, those from that
// number on have all been told, and are of no use any more.
type Ask struct {
	Number int
	Member int
	Deed   Deed
	From   int // Fill: the Fetch whose value is stored
	Guard  int // Join, Count, Review, Check, Remark, Fill, Store, Drop: the ask whose cas must still be there, on the connection that brought it
	// Chosen: send it with E. Forward, Store, Put, Join and Count of one command all
	// carry the same number, which the engine chooses; Fill carries the cas
	// that was fetched. Then all copies have one cas.
	Chosen bool
}
