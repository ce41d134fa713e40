package health

// This file defines the settings of a Keeper, which an operator configures.

import (
	"fmt"
	"time"
)

// Settings control how a pool detects failures and how a server rejoins.
type Settings struct {
	Strict        bool          // strict consistency: leases and the view record are checked for each reply
	AfterFailures int           // number of consecutive requests without a reply after which a server is suspect
	EjectAfter    EjectAfter    // how long a server must be suspect before it is ejected
	Ping          time.Duration // interval of the pings of a server
	Lease         time.Duration // duration of the lease that a good ping grants
	Request       time.Duration // timeout of a request to a server
	OnRejoin      OnRejoin
	Stays         bool // the keys of a failed server do not move to other servers, so a server is only ejected while the server list changes: see Keeper.ejects
}

// goodPings is the number of consecutive good pings after which a server is not suspect any more,
// and may rejoin.
const goodPings = 2

// EjectAfter is how long a server must be suspect before it is ejected. A server that refuses
// connections has no process and has lost its data, so the flush after an ejection costs
// nothing. A silent server may still have all its data, so its time is longer. A server with
// restartable memory has its data also after a restart, so it is not ejected while it restarts.
type EjectAfter struct {
	Refused time.Duration // how long a server must refuse all connections before it is ejected
	Silent  time.Duration // how long a server must be suspect, for whatever reason, before it is ejected
	Restart time.Duration // the same for a server with restartable memory, if this is longer
}

func (e EjectAfter) String() string {
	text := e.Silent.String()
	if e.Refused != e.Silent {
		text = fmt.Sprintf("%v refused, %v silent", e.Refused, e.Silent)
	}
	if e.Restart > e.Silent {
		text += fmt.Sprintf(", %v restart", e.Restart)
	}
	return text
}

// OnRejoin is what happens to an ejected server that replies again.
type OnRejoin uint8

// The modes of OnRejoin. In all modes, the server is flushed before any proxy reads from it.
const (
	Flush OnRejoin = iota // the server serves its keys as soon as it is flushed
	Warm                  // after the flush, reads that miss on the server read from the substitute server, until the hit rate is high
)

func (r OnRejoin) String() string { return [...]string{"flush", "warm"}[r] }
