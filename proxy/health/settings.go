package health

// What an operator chooses.

import (
	"fmt"
	"time"
)

// Settings say how a pool notices trouble and how a server comes back.
type Settings struct {
	Strict        bool          // serve only what is sure: leases and the view record are checked at each answer
	AfterFailures int           // soft failures in a row that make a server suspect
	EjectAfter    EjectAfter    // suspicion that lasts this long ejects
	Ping          time.Duration // between two pings of a server
	Lease         time.Duration // what a good ping is worth
	Request       time.Duration // after which a request to a server counts as unanswered
	GoodPings     int           // in a row, before a server that was out comes back
	OnRejoin      OnRejoin
	Hold          time.Duration // how long OnRejoin Hold keeps a server out
}

// EjectAfter is how long a suspicion lasts that ejects. Who refuses connections has
// no process any more, and with it has lost what it held: to flush it costs nothing.
// Who is silent may have everything, so silence is believed later.
type EjectAfter struct {
	Refused time.Duration // from the first connection that it refuses, if it refuses all that follow
	Silent  time.Duration // from the beginning of the suspicion, whatever it rests on
}

func (e EjectAfter) String() string {
	if e.Refused == e.Silent {
		return e.Silent.String()
	}
	return fmt.Sprintf("%v refused, %v silent", e.Refused, e.Silent)
}

// OnRejoin is what happens to a server that was out and answers again.
type OnRejoin uint8

// What happens to it. All of them flush it before anybody reads from it.
const (
	Flush OnRejoin = iota // it serves as soon as it is empty
	Warm                  // misses on it ask the interim server for a while
	Hold                  // it stays out for Settings.Hold first
)

func (r OnRejoin) String() string { return [...]string{"flush", "warm", "hold"}[r] }
