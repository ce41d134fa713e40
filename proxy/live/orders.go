package live

// This file has what an operator is asked before an order for a server is given.

import (
	"strings"

	"ringside/proxy/table"
)

// Question is what an operator is asked before an order for a server is given. Its texts are the same
// for all servers of a pool: {server} stands for the name of the server, {share} for its share of the
// keys, and {rps} for the requests per second to it.
type Question struct {
	Title string `json:"title"`
	Text  string `json:"text"` // what the order changes
	Yes   string `json:"yes"`  // the answer that gives the order
}

// About returns the title and the text of the question about the server s, which gets rate requests
// per second.
func (q Question) About(s *TopoServer, rate float64) (title, text string) {
	r := strings.NewReplacer("{server}", s.Name, "{share}", Percent(s.Share), "{rps}", Count(rate))
	return r.Replace(q.Title), r.Replace(q.Text)
}

// questions returns the questions about the servers of a pool, by order. The order hang is a fault
// that the dashboard can set. loss is the result of lossOf.
func (of *Topo) questions(loss string) map[string]Question {
	kept := 0 // number of routes with replicas
	for _, r := range of.Routes {
		if r.Replicas > 1 {
			kept++
		}
	}
	moves, after := "move to other servers and miss once each", "Restore brings it back, flushed."
	back := "It is flushed first, then gets its {share} of the keys again. "
	if of.Failover == table.FailFast.String() {
		moves = loss + ", until it is restored"
	}
	switch {
	case kept > 0 && kept == len(of.Routes):
		moves, back = "are served by their other replicas", back+"Their other replicas serve them meanwhile."
	case kept > 0:
		moves, back = "are served by their other replicas, where they have some; the others "+moves, back+"Each that has no other replica misses once."
	case of.Failover == table.FailFast.String():
		after = "It keeps its items."
		back = "It gets its {share} of the keys again, with its old values; values that other servers got meanwhile are not copied to it."
	default:
		back += "Each of them misses once."
	}
	text := "Its {share} of the keys, now {rps} requests/s, " + moves + ". " + after
	return map[string]Question{
		"drain":   {"Drain {server}?", text, "Drain {server}"},
		"down":    {"Take {server} down at once?", "Its requests in flight fail. " + text, "Take it down"},
		"restore": {"Restore {server}?", back, "Restore {server}"},
		"hang":    {"Make {server} hang?", "Only this instance is affected. For 10 s it gets no replies from the server: now {rps} requests/s.", "Make it hang"},
	}
}
