package replicate

// The steps: the kinds of requests that a rule sends to one replica.

// Step is the kind of a request (Ask).
type Step uint8

// The steps. Each is one request to one server. <M> are the flags of a tombstone and <T>
// its TTL. A step requests the meta flag c if a later request needs the item's cas.
const (
	Forward          Step = iota // the client's own request, but its reply must be complete: incr and decr must show their number (ma: v)
	Put                          // the client's value, flags and exptime, unconditionally: set, ms without C, E, I and mode
	Join                         // the client's append or prepend, if nothing has changed since ask Guard
	Count                        // the client's incr or decr, if nothing has changed since ask Guard; shows its number
	Extend                       // mg k s f c T, with the client's exptime. The outcome is Marked if the item is a tombstone, whose TTL it has then extended
	Remove                       // md k
	Fetch                        // value, flags, remaining TTL and cas: mg k v f t s c. Changes nothing
	Look                         // mg k s f c: Hit, Marked or Miss. Changes nothing
	CompareVersion               // like Look, and compares the client's token with the item's cas. The outcome is Exists if the token is newer, because then the command would store nothing
	Preview                      // like Look, and returns the result that the command would have: the size after an append, the number after an incr
	Review                       // like Look, but the outcome is Exists if the item is not as the ask Guard, sent right before it, has left it
	Check                        // like Look, but Exists if the item's cas is not the one that ask Guard returned. After a set, which returns none, Exists if the value is not the client's
	Claim                        // ms k 0 ME F<M> T<T> c: Stored, a tombstone that guards Fill, Store and Drop; or NotStored
	PlaceTombstone               // ms k 0 F<M> T<T> c: a tombstone that replaces whatever was there
	Swap                         // ms k 0 C<token> F<M> T<T> c: the client's md C, with a tombstone as by PlaceTombstone
	RefreshTombstone             // ms k 0 C F<M> T<T> c: a fresh tombstone that replaces what ask Guard found or placed
	Fill                         // ms k C F T: stores what ask From fetched, if nothing has changed since ask Guard
	Store                        // ms k C F T c: stores the client's value, if nothing has changed since ask Guard, and returns its reply; for its md I: md k I C
	Drop                         // md k C: removes what ask Guard found or placed, if nothing has changed since
	Wait                         // no request: a delay, so that the command that has stored a tombstone can finish
	NumSteps
)

// Mutates reports whether d may change what a client can see. A tombstone hides the item
// that it replaces.
func (d Step) Mutates() bool {
	switch d {
	case Fetch, Look, CompareVersion, Preview, Review, Check, Claim, RefreshTombstone, Wait:
		return false
	}
	return true
}

// LeavesTombstone reports whether a Stored d leaves a tombstone of this command.
func (d Step) LeavesTombstone() bool { return d >= Claim && d <= RefreshTombstone }

// Ask is one request to one replica. Asks are numbered from 0 in the order in which Next
// returns them. If a number repeats, all earlier asks from that number on have their
// outcome, and the rule no longer uses them.
type Ask struct {
	Number  int
	Replica int
	Step    Step
	From    int // of Fill: the Fetch whose value is stored
	Guard   int // of Join, Count, Review, Check, RefreshTombstone, Fill, Store and Drop: the ask whose cas must still be there, on the connection that returned it
	// Chosen makes the request carry the meta flag E, so that all replicas have one cas.
	// Forward, Store, Put, Join and Count of one command all carry the same number, which
	// the engine chooses. Fill carries the cas that was fetched.
	Chosen bool
}
