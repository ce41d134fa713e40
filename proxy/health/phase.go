package health

// The phases of a server, and the way of a key past servers that are not in.

// Phase is what everybody does with the keys of a server: the table in the
// package comment. The phase of a server with the number n is n mod 6.
type Phase uint8

// The phases, in the order in which a server goes through them.
const (
	In        Phase = iota // it serves
	Leaving                // nobody reads from it or writes to it any more
	Out                    // the interim server serves its keys
	Returning              // the interim server serves, what is written is deleted here
	Warming                // it serves; what it doesn't have may still be at the interim server
	Settling               // it serves; what is written is deleted at the interim server
)

const phases = 6

// PhaseOf returns the phase of a server with the number n.
func PhaseOf(n uint32) Phase { return Phase(n % phases) }

// Outages is how often a server with the number n has been taken out, an outage
// that lasts included.
func Outages(n uint32) uint32 { return (n + phases - 1) / phases }

// Emptied is how often a server with the number n has been flushed, which it is
// before it is Warming.
func Emptied(n uint32) uint32 { return (n + phases - uint32(Warming)) / phases }

// String is the name that logs, metrics and pages use.
func (p Phase) String() string {
	switch p {
	case In:
		return "IN"
	case Leaving:
		return "LEAVING"
	case Out:
		return "OUT"
	case Returning:
		return "RETURN"
	case Warming:
		return "WARM"
	case Settling:
		return "SETTLE"
	}
	return "?"
}

// leaving is the next number after n at which a server is LEAVING.
func leaving(n uint32) uint32 {
	if PhaseOf(n) == In {
		return n + 1
	}
	return n - n%phases + phases + 1
}

// Generation returns the g of a diverted key from the numbers of the servers
// that were skipped. It grows with every outage of any of them and stays the
// same from LEAVING to SETTLE, so nothing that an earlier outage left at an interim
// server can be addressed again.
func Generation(skipped ...uint32) uint64 {
	var g uint64
	for _, n := range skipped {
		g += uint64(n-n%phases) + uint64(Out)
	}
	return g
}

// Place is where a key lives at one server.
type Place struct {
	Server   int
	Number   uint64 // goes into the key there (divert.AppendKey); 0: the key is used as it is
	Diverted bool   // the server is the key's interim one: cap its time to live
}

// Route says who serves a key and how. Role is one of
//
//	In         First serves: the key's own server, or its interim one (then First.Diverted)
//	Leaving    nobody: get misses, mutations fail
//	Returning  read Interim; write Interim and delete at First
//	Warming    read First, on a miss Interim; write First and delete at Interim
//	Settling   read First; write First and delete at Interim
type Route struct {
	Role           Phase
	First, Interim Place
}

// Path finds the Route of a key. Add the servers in the key's order, its own
// first (in a pool with a gutter: its own, then those of the gutter), until Add
// says that it has seen enough. The zero Path is ready.
type Path struct {
	route     Route
	returning bool // First is set, Interim is looked for
	done      bool
	skipped   uint64
	passed    bool // somebody stands before the server that comes next
}

// Add takes the next server of the order with its number and Renamed. It
// reports whether the route is known.
//
// Only one returning server may be on a path: with two of them, or with one
// LEAVING, proxies could disagree about who the interim server is.
func (p *Path) Add(server int, n, renamed uint32) bool {
	phase := PhaseOf(n)
	place := Place{server, p.skipped + uint64(renamed), p.passed}
	p.skipped += Generation(n)
	p.passed = true
	switch {
	case p.done, phase == Out:
	case phase == In && !p.returning:
		p.route = Route{Role: In, First: place}
		p.done = true
	case phase == In:
		p.route.Interim = place
		p.done = true
	case phase == Leaving, p.returning:
		p.route = Route{Role: Leaving}
		p.done = true
	default:
		p.route = Route{Role: phase, First: place}
		p.returning = true
	}
	return p.done
}

// Route returns what was found. When the order ended before Add had seen
// enough, nobody can serve the key.
func (p *Path) Route() Route {
	if !p.done {
		return Route{Role: Leaving}
	}
	return p.route
}
