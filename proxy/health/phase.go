package health

// The phases of a server, and the route of a key past servers that are not IN.

// Phase determines where all proxies send commands on the keys of a server: see the
// table in the package comment. The phase of a server with number n is n mod 6.
type Phase uint8

// The phases, in their order.
const (
	In        Phase = iota // the server is in use
	Leaving                // no proxy reads from the server or writes to it
	Out                    // the substitute server serves the keys of the server
	Returning              // the substitute server serves; writes are also deleted on the server
	Warming                // the server serves; on a miss the substitute server may still have the key
	Settling               // the server serves; writes are also deleted on the substitute server
)

const phases = 6

// PhaseOf returns the phase of a server with the number n.
func PhaseOf(n uint32) Phase { return Phase(n % phases) }

// Outages returns how often a server with number n was ejected, including the current
// outage.
func Outages(n uint32) uint32 { return (n + phases - 1) / phases }

// Emptied returns how often a server with number n was flushed. The flush precedes
// Warming.
func Emptied(n uint32) uint32 { return (n + phases - uint32(Warming)) / phases }

// String returns the name used in logs, metrics and pages.
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

// leaving returns the next number after n with phase LEAVING.
func leaving(n uint32) uint32 {
	if PhaseOf(n) == In {
		return n + 1
	}
	return n - n%phases + phases + 1
}

// NextOut returns n if its phase is OUT, and otherwise the next number after n with that
// phase.
func NextOut(n uint32) uint32 {
	switch PhaseOf(n) {
	case Out:
		return n
	case Leaving:
		return n + 1
	}
	return leaving(n) + 1
}

// Generation returns the epoch of an outage: the number in the names of keys on a substitute
// server. It is computed from the numbers of the servers that were skipped to find that server. It
// grows with every outage of one of them and is constant from LEAVING to SETTLE. So data that an
// earlier outage left on a substitute server can't be addressed again.
func Generation(skipped ...uint32) uint64 {
	var g uint64
	for _, n := range skipped {
		g += uint64(n-n%phases) + uint64(Out)
	}
	return g
}

// Place is the location of a key on one server.
type Place struct {
	Server   int
	Number   uint64 // epoch in the key's name on the server (divert.AppendKey); 0: the server has the plain key
	Diverted bool   // the server is the key's substitute: limit the time to live
}

// Route says which servers serve a key, and how. Role is one of
//
//	In         First serves: the owner of the key, or its substitute (then First.Diverted)
//	Leaving    no server serves: gets miss, mutations fail
//	Returning  read Interim; write Interim and delete at First
//	Warming    read First, on a miss Interim; write First and delete at Interim
//	Settling   read First; write First and delete at Interim
type Route struct {
	Role           Phase
	First, Interim Place
}

// Path finds the Route of a key. Call Add with the servers in the key's order until it returns
// true. The owner is first; in a pool with a gutter it is followed by the servers of the gutter.
// The zero Path is ready to use.
type Path struct {
	route     Route
	returning bool // First is set and Interim still missing
	done      bool
	skipped   uint64
	passed    bool // Add has been called, so the next server is not the owner
}

// Add adds the next server of the key's order. n is its number (see PhaseOf), and renamed the
// number that its keys carry because it rejected a flush. It reports whether the route is complete.
//
// Only one rejoining server may be on a path. With two of them, or with one and a
// LEAVING server, proxies could disagree about the substitute server.
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

// Route returns the result. If the order ended before Add returned true, no server can serve the
// key.
func (p *Path) Route() Route {
	if !p.done {
		return Route{Role: Leaving}
	}
	return p.route
}
