package stats

// This file lists the connected clients for operators: those that send the most requests, use the
// most memory or wait the longest.

import (
	"cmp"
	"slices"
	"time"
)

// ClientSnapshot is the state of one client, as seen by its loop.
type ClientSnapshot struct {
	ID        uint64 // number of the client; clients are numbered from 1, in the order of their connections
	Address   string // address of the client
	Listener  string // network and address of the listener that has accepted the client
	State     string // state of the connection, as in memcached's stats conns
	Age, Idle time.Duration
	Requests  uint64
	In, Out   uint64 // number of bytes read from the client, and of bytes sent to the client
	InFlight  int    // number of commands without a reply
	Held      int64  // size of the buffers that Ringside uses for the client, in bytes
	Waits     Wait
}

// Wait describes what a client waits for.
type Wait struct {
	Phase  string        // phase in which the client waits: one of the constants Login to Order; empty: the client waits for nothing
	Server string        // the server for which the client waits; empty: none
	For    time.Duration // how long the client has waited so far; 0: unknown
	Why    string        // what the client waits for, in words, for operators
}

// The phases in which a client can wait. Logs of slow commands name the phase in which a command
// spent the most time.
const (
	Login   = "login"   // Ringside waits until the client has logged in
	Command = "command" // Ringside waits for the rest of the client's command
	Client  = "client"  // Ringside waits until the client reads its replies
	Turn    = "turn"    // commands have arrived, but the loop handles those of other clients first
	Connect = "connect" // the command waits for a connection to the server
	Send    = "send"    // the command waits until the server accepts the request
	Queue   = "queue"   // the command waits until the server has replied to earlier requests on the connection
	Answer  = "answer"  // the command waits for the first byte of the server's reply
	Value   = "value"   // the command waits for the rest of the server's reply
	Several = "several" // the command waits for several requests to servers, because it has replicas or its server is ejected
	Phase   = "phase"   // the command waits until the key's server changes its phase
	Order   = "order"   // the command waits for earlier commands on the same key
)

// ClientOrder compares two clients. A negative result means that a comes before b in the list.
type ClientOrder func(a, b *ClientSnapshot) int

// ClientOrders are the orders in which clients can be listed, by name. The order id lists the
// lowest number first. All others list the largest value first.
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

// ClientList collects the clients of all loops. It keeps only the first ones in the order By.
type ClientList struct {
	By   ClientOrder
	Most int // maximum number of clients in List; 0: no limit

	All   int // number of all connected clients
	List  []ClientSnapshot
	Waits map[uint64]Wait // what clients wait for at servers, by number of the client; separate, because the loop that runs the commands on a key may not be the client's loop
}

// Cut sorts the clients in list by the order By. It returns the first Most of them.
func (l *ClientList) Cut(list []ClientSnapshot) []ClientSnapshot {
	slices.SortFunc(list, func(a, b ClientSnapshot) int {
		return cmp.Or(l.By(&a, &b), cmp.Compare(b.InFlight, a.InFlight), cmp.Compare(a.ID, b.ID))
	})
	if l.Most > 0 && len(list) > l.Most {
		list = slices.Delete(list, l.Most, len(list))
	}
	return list
}

// RecordWait records what a client waits for. If something is recorded already, the longer wait is
// kept.
func (l *ClientList) RecordWait(client uint64, w Wait) {
	if was, ok := l.Waits[client]; !ok || w.For > was.For {
		l.Waits[client] = w
	}
}

// End is called when the clients of all loops are in the list. It sorts them, and adds what each of
// them waits for.
func (l *ClientList) End() {
	l.List = l.Cut(l.List)
	for i := range l.List {
		c := &l.List[i]
		if w, ok := l.Waits[c.ID]; ok && c.Waits.Phase == "" && c.InFlight > 0 {
			c.Waits = w
		}
	}
}
