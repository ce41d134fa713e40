package guard

// Servers on which there is no guard: it is made of meta commands and of cas.

import (
	"ringside/proxy/guard/item"
	"ringside/proxy/upstream"
)

// The reasons.
const (
	noMeta = "it knows no meta commands"
	noCas  = "it has no cas: start it without -C"
)

// lack is what a server lacks.
type lack struct {
	why string
	via upstream.Via // of the answer that has shown it; none: a connection says so itself
}

// lacks notes what srv lacks.
func (g *Guard) lacks(srv *upstream.Server, l lack) {
	before := g.off[srv]
	g.off[srv] = l
	if before.why != l.why {
		g.Log.Warn("the guard is off for a server", "server", srv.Label(), "address", srv.Target.Address, "why", l.why)
	}
}

// Heard learns whether the server that said s has cas.
func (g *Guard) Heard(srv *upstream.Server, via upstream.Via, s *item.Seen) {
	if string(s.Cas) == "0" {
		g.lacks(srv, lack{noCas, via})
	}
}

// Blind says that the server at the other end of c has shown that it has no cas.
// Another process at its address may have.
func (g *Guard) Blind(c *upstream.Conn) bool {
	if len(g.off) == 0 || c == nil {
		return false
	}
	l, known := g.off[c.Server]
	return known && c.Reaches(l.via)
}
