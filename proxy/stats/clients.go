package stats

// A snapshot of the connected clients for operators: which send the most requests, hold
// the most memory or wait the longest.

import (
	"cmp"
	"slices"
	"time"
)

// ClientSnapshot is the state of one client, as seen by its loop.
type ClientSnapshot struct {
	ID        uint64 // the client's number; clients are numbered from 1 since the start
	Address   string // of the client
	Listener  string // network and address of the listener that accepted it
	State     string // as in memcached's stats conns
	Age, Idle time.Duration
	Requests  uint64
	In, Out   uint64 // bytes read from the client, bytes sent to it
	InFlight  int    // commands without a reply
	Held      int64  // bytes of buffers that Ringside holds for it
	Waits     Wait
}

// Wait describes what a client waits for.
type Wait struct {
	Phase  string        // one of the phases below; empty: it waits for nothing
	Server string        // the server for which the client waits; empty: none
	For    time.Duration // how long the client has waited so far; 0: unknown
	Why    string        // an explanation for operators
}

// The phases in which a client can wait, also used to say where a slow request lost its
// time.
const (
	Login   = "login"   // for the client to log in
	Command = "command" // for the rest of the client's command
	Client  = "client"  // for the client to read its replies
	Connect = "connect" // for a connection to the server
	Send    = "send"    // for the server to accept the request
	Queue   = "queue"   // for the server to reply to earlier requests on the connection
	Answer  = "answer"  // for the server's reply to begin
	Value   = "value"   // for the rest of the reply
	Several = "several" // for several requests to servers: replicas, or a server that is ejected
	Phase   = "phase"   // for the key's server to change its phase
	Order   = "order"   // for earlier commands on the same key
)

// ClientOrder compares two clients: a negative result sorts a before b.
type ClientOrder func(a, b *ClientSnapshot) int

// ClientOrders are the orders by name. All but id sort the largest value first.
var ClientOrders = map[string]ClientOrder{
	"held":      func(a, b *ClientSnapshot) int { return cmp.Compare(b.Held, a.Held) },
	"age":       func(a, b *ClientSnapshot) int { return cmp.Compare(b.Age, a.Age) },
	"idle":      func(a, b *ClientSnapshot) int { return cmp.Compare(b.Idle, a.Idle) },
	"requests":  func(a, b *ClientSnapshot) int { return cmp.Compare(b.Requests, a.Requests) },
	"in":        func(a, b *ClientSnapshot) int { return cmp.Compare(b.In, a.In) },
	"out":       func(a, b *ClientSnapshot) int { return cmp.Compare(b.Out, a.Out) },
	"in_flight": func(a, b *ClientSnapshot) int { return cmp.Compare(b.InFlight, a.InFlight) },
	"id":        func(a, b *ClientSnapshot) int { return cmp.Compare(a.ID, b.ID) },
}

// ClientList collects the clients of all loops and keeps the first ones by an order.
type ClientList struct {
	By   ClientOrder
	Most int // the maximum length of List; 0: no limit

	All   int // the number of connected clients
	List  []ClientSnapshot
	Waits map[uint64]Wait // what clients wait for at servers, by client ID; the loop that runs the commands on a key is not always the client's loop
}

// Cut sorts list and returns its first Most clients.
func (l *ClientList) Cut(list []ClientSnapshot) []ClientSnapshot {
	slices.SortFunc(list, func(a, b ClientSnapshot) int {
		return cmp.Or(l.By(&a, &b), cmp.Compare(b.InFlight, a.InFlight), cmp.Compare(a.ID, b.ID))
	})
	if l.Most > 0 && len(list) > l.Most {
		list = slices.Delete(list, l.Most, len(list))
	}
	return list
}

// RecordWait records what a client waits for, unless it already waits longer for something
// else.
func (l *ClientList) RecordWait(client uint64, w Wait) {
	if was, ok := l.Waits[client]; !ok || w.For > was.For {
		l.Waits[client] = w
	}
}

// End sorts the clients of all loops and fills in what each of them waits for.
func (l *ClientList) End() {
	l.List = l.Cut(l.List)
	for i := range l.List {
		c := &l.List[i]
		if w, ok := l.Waits[c.ID]; ok && c.Waits.Phase == "" && c.InFlight > 0 {
			c.Waits = w
		}
	}
}
