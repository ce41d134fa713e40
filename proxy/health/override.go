package health

// What a person wants of a server, over what the server shows of itself.

import "fmt"

// Override is what a person wants of one server of one pool. A keeper carries it to
// all Ringsides in the view record; where a pool has no keeper it is this process's.
type Override uint8

// What a person may want. In the view record they stand by these numbers.
const (
	Restore Override = iota // nothing: the server serves when it answers
	Drain                   // it gets no new request; those in flight finish. A keeper takes it out in good order
	Down                    // it gets none from this moment on; those in flight fail, and its connections close, but for late deletes
	overrideKinds
)

// String is the word that people use.
func (o Override) String() string {
	return [...]string{"restore", "drain", "down", "?"}[min(o, overrideKinds)]
}

// Refusal is the error line for the requests of a server with this override, in a
// pool without a keeper.
func (o Override) Refusal(server string) string {
	how := "drained"
	if o == Down {
		how = "taken down"
	}
	return fmt.Sprintf("server %s is %s by a person: ringside server restore %s", server, how, server)
}
