package table

// This file defines the settings of a route that prevent several clients from rebuilding one
// value at once.

import "time"

// GuardSettings holds the settings of a guarded route. Package guard implements them.
type GuardSettings struct {
	Hide bool // the route has no guard: Ringside only hides from clients what guards of other instances store on the servers

	Lease    time.Duration // how long one rebuild can take before another client may start one
	LeaseMax time.Duration // upper bound of the lease, which grows with the measured duration of rebuilds
	Wait     time.Duration // how long a get can wait for the rebuild of another client; 0: it does not wait
	Early    time.Duration // how long before the expiry of a value it is rebuilt; 0: not before it expires
	Auto     bool          // replaces Early by twice the duration of the route's slow rebuilds
	Stale    time.Duration // how long an old value is served after its expiry or delete; 0: it is not served

	OnlyAfterMiss bool // clients set a key only after a miss, so every set is a rebuild

	Late    GuardLate
	Clients GuardClients
}

// GuardLate is the reply to a get that has waited for guard.wait without receiving a value.
type GuardLate uint8

// The replies to a get that has waited without receiving a value.
const (
	LateMiss  GuardLate = iota // a miss: the client rebuilds the value too
	LateError                  // SERVER_ERROR
	LateStale                  // the old value, which is served only after the wait; a miss if there is none
)

func (l GuardLate) String() string { return [...]string{"miss", "error", "stale"}[l] }

// GuardClients is how clients use connections. It decides which miss a set belongs to.
type GuardClients uint8

// The ways to use connections.
const (
	Detected   GuardClients = iota // a connection counts as Sequential until two of its requests are in flight at once, then as Shared
	Sequential                     // one request at a time: a set belongs to the miss before it on the connection
	Shared                         // several threads use a connection, or one thread pipelines
	Pooled                         // a connection pool: a set can use another connection than its miss
)

func (c GuardClients) String() string {
	return [...]string{"detect", "connection", "shared", "pooled"}[c]
}
