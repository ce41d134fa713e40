package health

// The settings of an operator.

import (
	"fmt"
	"time"
)

// Settings control how a pool detects failures and how a server rejoins.
type Settings struct {
	Strict        bool          // strict consistency: leases and the view record are checked for each reply
	AfterFailures int           // consecutive requests without a reply that make a server suspect
	EjectAfter    EjectAfter    // how long a suspicion lasts before the server is ejected
	Ping          time.Duration // interval of the pings of a server
	Lease         time.Duration // duration of the lease that a good ping grants
	Request       time.Duration // timeout of a request to a server
	GoodPings     int           // consecutive good pings before a server rejoins
	OnRejoin      OnRejoin
	Hold          time.Duration // how long OnRejoin Hold keeps a server out
}

// EjectAfter is how long a suspicion must last before the server is ejected. A server
// that refuses connections has no process and has lost its data, so a flush costs
// nothing. A silent server may still have all its data, so it gets more time.
type EjectAfter struct {
	Refused time.Duration // from the first refused connection, if all later ones are refused too
	Silent  time.Duration // for every suspect: from the start of the suspicion, whatever its reason
}

func (e EjectAfter) String() string {
	if e.Refused == e.Silent {
		return e.Silent.String()
	}
	return fmt.Sprintf("%v refused, %v silent", e.Refused, e.Silent)
}

// OnRejoin is what happens to an ejected server that replies again.
type OnRejoin uint8

// The modes. All of them flush the server before any proxy reads from it.
const (
	Flush OnRejoin = iota // the server serves once it is flushed
	Warm                  // for a while, misses on it ask the substitute server
	Hold                  // the server first stays out for Settings.Hold
)

func (r OnRejoin) String() string { return [...]string{"flush", "warm", "hold"}[r] }
