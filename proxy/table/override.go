package table

// What a person orders of a server, over what the servers show of themselves.

import (
	"fmt"
	"time"
)

// Override is what a person wants of one server of one pool.
type Override uint8

// The orders.
const (
	Restore Override = iota // it serves, as every server does without an order
	Drain                   // it gets no new request; those in flight finish
	Down                    // it gets none; those in flight fail, and its connections are closed, but for late deletes
)

func (o Override) String() string { return [...]string{"restore", "drain", "down"}[o] }

// OverrideSince is an order that is in force, and since when. The zero one is none.
type OverrideSince struct {
	Order Override
	Since time.Time
}

// Refusal is the error line for the requests of a server that has order o.
func (o Override) Refusal(server string) string {
	how := "drained"
	if o == Down {
		how = "taken down"
	}
	return fmt.Sprintf("server %s is %s by a person: ringside server restore %s", server, how, server)
}
