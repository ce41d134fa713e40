package stats

// Clients as they are now, for people: who asks for much, holds much, waits long.

import (
	"cmp"
	"slices"
	"time"
)

// ClientSnapshot is one client as its loop sees it.
type ClientSnapshot struct {
	ID        uint64 // counts clients from the start
	Address   string // its own
	Listener  string // network and address of where it came in
	State     string // in the words of memcached's stats conns
	Age, Idle time.Duration
	Requests  uint64
	In, Out   uint64 // bytes from it, to it
	InFlight  int    // commands without an answer
	Held      int64  // bytes that Ringside holds for it
	Waits     Wait
}

// Wait is what a client waits for.
type Wait struct {
	Phase  string        // one of the phases; empty: for nothing
	Server string        // where; empty: at no server
	For    time.Duration // so far; 0: nobody knows
	Why    string        // for people
}

// The phases of what a client waits for, and of what was slow.
const (
	Login   = "login"   // for the client to say who it is
	Command = "command" // for the rest of the client's command
	Client  = "client"  // for the client to take its answers
	Connect = "connect" // for a connection to the server
	Send    = "send"    // for the server to take the request
	Queue   = "queue"   // for answers of the server to what was asked before
	Answer  = "answer"  // for the server's answer to begin
	Value   = "value"   // for the rest of that answer
	Several = "several" // for several requests to servers: copies, or a server that is out
	Phase   = "phase"   // for the pool to move the key's server to another phase
	Order   = "order"   // for commands before it on the same key
)

// ClientOrder says which clients come first.
type ClientOrder func(a, b *ClientSnapshot) int

// ClientOrders are the orders by name: each but id has those with most first.
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

// ClientList is the clients of all loops that come first by some order.
type ClientList struct {
	By   ClientOrder
	Most int // so many of them; 0: all

	All   int // how many there are
	List  []ClientSnapshot
	Waits map[uint64]Wait // what clients wait for at servers, by ID: a key's commands may be led on another loop
}

// Cut keeps those of list that come first.
func (l *ClientList) Cut(list []ClientSnapshot) []ClientSnapshot {
	slices.SortFunc(list, func(a, b ClientSnapshot) int {
		return cmp.Or(l.By(&a, &b), cmp.Compare(b.InFlight, a.InFlight), cmp.Compare(a.ID, b.ID))
	})
	if l.Most > 0 && len(list) > l.Most {
		list = slices.Delete(list, l.Most, len(list))
	}
	return list
}

// Told notes what a client waits for, unless it is known to wait for something else
// for longer.
func (l *ClientList) Told(client uint64, w Wait) {
	if was, ok := l.Waits[client]; !ok || w.For > was.For {
		l.Waits[client] = w
	}
}

// End puts the clients of all loops in order, and says what they wait for.
func (l *ClientList) End() {
	l.List = l.Cut(l.List)
	for i := range l.List {
		c := &l.List[i]
		if w, ok := l.Waits[c.ID]; ok && c.Waits.Phase == "" && c.InFlight > 0 {
			c.Waits = w
		}
	}
}
