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
	OnlyAfterMiss bool // no client sets without a miss: every set is a rebuild

	Late    GuardLate
	Clients GuardClients
}

// GuardLate says what a get gets whose wait is over.
type GuardLate uint8

// What a get gets whose wait is over.
const (
	LateMiss  GuardLate = iota // a miss: its client rebuilds too
	LateError                  // SERVER_ERROR
	LateStale                  // the old value: no get is served that before it has waited. A miss if there is none
)

func (l GuardLate) String() string { return [...]string{"miss", "error", "stale"}[l] }

// GuardClients says how clients use connections.
type GuardClients uint8

// The ways to use connections.
const (
	Detected   GuardClients = iota // a connection is Sequential until two of its requests are unanswered at once, then Shared
	Sequential                     // one request at a time: a set belongs to the miss before it on the connection
	Shared                         // several threads, or one that pipelines
	Pooled                         // a set may come on another connection than its miss
)

func (c GuardClients) String() string {
	return [...]string{"detect", "connection", "shared", "pooled"}[c]
}
