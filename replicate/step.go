package replicate

// This file has the steps: the kinds of requests that a rule sends to one replica.

// Step is the kind of request that an Ask sends.
type Step uint8

// The steps. A comment shows the request, in which <M> are the flags of a tombstone and <T> is
// the TTL of a tombstone. A step requests the meta flag c if a later request needs the item's
// cas. Guard and From are fields of Ask: the numbers of earlier asks.
const (
	Forward          Step = iota // the client's own request, but its reply must be complete: incr and decr must show their number (ma: v)
	Join                         // the client's append or prepend, if the item has not changed since the ask Guard
	Extend                       // mg k s f c T, with the client's exptime. The outcome is Marked if the item is a tombstone; the request has then changed the TTL of the tombstone
	Remove                       // md k: removes the item
	Fetch                        // mg k v f t s c: reads the value, flags, remaining TTL and cas, and changes nothing
	Look                         // mg k s f c: the outcome is Hit, Marked or Miss. It changes nothing
	Preview                      // like Look, but also returns the result that the client's command would have: the size after an append, the number after an incr
	Check                        // like Look, but the outcome is Exists if the item has another cas than the ask Guard returned; after a set, which returns no cas, if it has another value. The ask Guard may have been sent right before, and have no reply yet
	Claim                        // ms k 0 ME F<M> T<T> c: stores a tombstone if there is no item. The outcome is Stored, and Fill, Store and Drop can depend on the tombstone, or NotStored
	PlaceTombstone               // ms k 0 F<M> T<T> c: stores a tombstone in place of whatever is there
	RefreshTombstone             // ms k 0 C F<M> T<T> c: stores a fresh tombstone in place of the item that the ask Guard has found or stored. If Guard is the ask's own number: in place of the item whose cas is the client's token
	Fill                         // ms k C F T: stores what the ask From has fetched, if the item has not changed since the ask Guard
	Store                        // ms k C F T c: stores the client's value, if the item has not changed since the ask Guard. For the client's md I: md k I C
	Drop                         // md k C: removes the item that the ask Guard has found or stored, if the item has not changed since
	Wait                         // no request: a delay, so that the command that has stored a tombstone can finish
	NumSteps
)

// Mutates reports whether the step d may change what a client can see. RefreshTombstone does not
// count: in a delete, a Drop follows it, which counts.
func (d Step) Mutates() bool {
	switch d {
	case Fetch, Look, Preview, Check, Claim, RefreshTombstone, Wait:
		return false
	}
	return true
}

// LeavesTombstone reports whether a tombstone of this command is at the replica after the step d
// has the outcome Stored.
func (d Step) LeavesTombstone() bool { return d >= Claim && d <= RefreshTombstone }

// Ask is one request to one replica. Asks are numbered from 0 in the order in which Next returns
// them. A number can be used again after a repair of a counter has started again. All earlier
// asks with this number or a higher one have their outcome then, and the rule no longer uses
// them.
type Ask struct {
	Number  int
	Replica int
	Step    Step
	From    int // for a Fill: number of the Fetch with the value to store
	Guard   int // number of the ask that has shown a cas. The item must still have this cas, on the same connection, for Join, Check, RefreshTombstone, Fill, Store and Drop

	// Compares says that a Fetch is only compared with the primary's: nothing is copied from the replica. So
	// its state does not matter.
	Compares bool
}
