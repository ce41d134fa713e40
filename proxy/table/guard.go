package table

// How a route guards against simultaneous rebuilding.

import "time"

// Guard is what a guarded route does: package guard.
type Guard struct {
	Hide bool // only hides what other Ringsides with a guard leave on the servers

	Lease    time.Duration // how long one rebuild may take before another client may start
	LeaseMax time.Duration // what the lease grows to at most, by what rebuilds are seen to take
	Wait     time.Duration // how long a get may be held for another's rebuild
	Early    time.Duration // how long before its expiry a value may be rebuilt
	Auto     bool          // Early is twice what slow rebuilds of the route take
	Stale    time.Duration // how long an old value is served after its expiry or delete

	HoldMany      bool // keys of a multi-get are held too
	LateFails     bool // a get whose wait is over fails instead of missing
	ShowRefused   bool // a set that came too late is answered NOT_STORED
	OnlyAfterMiss bool // every set is a rebuilder's

	Clients GuardClients
}

// GuardClients says whose set a set is.
type GuardClients uint8

// The kinds of clients.
const (
	ByEvidence   GuardClients = iota // of the connection that missed, unless others' sets are seen to come on other connections
	ByConnection                     // of the connection that missed
	Pooled                           // of any connection that missed
)

func (c GuardClients) String() string { return [...]string{"auto", "connection", "pooled"}[c] }
