package health

// This file defines the overrides: the orders of an operator about one server.

import "fmt"

// Override is an operator's setting for one server of one pool. A keeper publishes it
// to all proxies in the view record. In a pool without a keeper it applies to this
// process only.
type Override uint8

// The overrides. View records contain these numbers, so they must not change.
const (
	Restore Override = iota // no override: the server serves its keys if it replies
	Drain                   // the server gets no new requests, and requests in flight finish; a keeper ejects the server phase by phase
	Down                    // the server gets no requests from now on; requests in flight fail, and its connections close except for late deletes
	overrideKinds
)

// String returns the name of the override on the command line and in metrics.
func (o Override) String() string {
	return [...]string{"restore", "drain", "down", "?"}[min(o, overrideKinds)]
}

// Refusal returns the error line for requests to a server with this override, in a pool
// without a keeper.
func (o Override) Refusal(server string) string {
	how := "drained"
	if o == Down {
		how = "taken down"
	}
	return fmt.Sprintf("server %s is %s by an operator: ringside server restore %s", server, how, server)
}
