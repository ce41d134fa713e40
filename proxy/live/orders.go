package live

// This file has what an operator is asked before an order for a server is given.

import "ringside/proxy/table"

// Question is what an operator is asked before an order is given.
type Question struct {
	Title string `json:"title"`
	Text  string `json:"text"` // what the order changes; RatePlace in it stands for the requests per second to the server
	Yes   string `json:"yes"`  // the answer that gives the order
}

// RatePlace is the part of a Question's text that a view replaces by the current number of requests
// per second to the server.
const RatePlace = "{rps}"

// questions returns the questions about a server with the given name and fraction of all keys, by
// order. hang is the fault that a page can set.
func (of *Topo) questions(name string, fraction float64) map[string]Question {
	kept := 0 // number of routes with replicas
	for _, r := range of.Routes {
		if r.Replicas > 1 {
			kept++
		}
	}
	share, all := Percent(fraction), kept == len(of.Routes)
	moves, after := "move to other servers and miss once each", "Restore brings it back, emptied."
	back := "It is emptied first, then takes back its " + share + " of the keys. "
	if of.Failover == table.FailFast.String() {
		moves = "miss, and writes to them fail, until it is restored"
	}
	switch fate := moves; {
	case kept > 0 && all:
		moves, back = "are served by their other replicas", back+"Their other replicas serve them meanwhile."
	case kept > 0:
		moves, back = "are served by their other replicas, where they have some; the others "+fate, back+"Each that has no other replica misses once."
	case of.Failover == table.FailFast.String():
		after = "It keeps what it holds."
		back = "It gets its " + share + " of the keys again, with the values that it holds: those written elsewhere meanwhile are not among them."
	default:
		back += "Each of them misses once."
	}
	text := "Its " + share + " of the keys, now " + RatePlace + " requests/s, " + moves + ". " + after
	return map[string]Question{
		"drain":   {"Drain " + name + "?", text, "Drain " + name},
		"down":    {"Take " + name + " down at once?", "What is in flight to it fails. " + text, "Take it down"},
		"restore": {"Restore " + name + "?", back, "Restore " + name},
		"hang": {"Make " + name + " hang?", "Only this instance is affected. For 10 s it gets no replies from the server: now " + RatePlace + " requests/s.",
			"Let it hang"},
	}
}
