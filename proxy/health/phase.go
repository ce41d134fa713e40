package health

// This file defines the phases of a server, and finds the servers of a key by the phases.

// Phase determines where all proxies send commands on the keys of a server: see the
// table in the package comment. The phase of a server with phase number n is n mod 6.
type Phase uint8

// The phases, in their order.
const (
	In        Phase = iota // the server serves its keys, as usual
	Leaving                // no server serves the keys: a proxy neither reads from the server nor writes to it
	Out                    // the substitute server serves the keys of the server
	Returning              // the substitute server serves the keys; each write also deletes the key on the server
	Warming                // the server serves its keys; on a miss the substitute server may still have the key
	Settling               // the server serves its keys; each write also deletes the key on the substitute server
)

const phases = 6

// PhaseOf returns the phase of a server with the phase number n.
func PhaseOf(n uint32) Phase { return Phase(n % phases) }

// Outages returns how often a server with phase number n was ejected, including the current
// outage.
func Outages(n uint32) uint32 { return (n + phases - 1) / phases }

// Emptied returns how often a server with phase number n was flushed when it rejoined. The flush is
// directly before phase Warming.
func Emptied(n uint32) uint32 { return (n + phases - uint32(Warming)) / phases }

// String returns the name of the phase in logs, in metrics and on pages.
func (p Phase) String() string {
	return [...]string{"IN", "LEAVING", "OUT", "RETURN", "WARM", "SETTLE", "?"}[min(p, phases)]
}

// leaving returns the next phase number after n that means LEAVING.
func leaving(n uint32) uint32 {
	if PhaseOf(n) == In {
		return n + 1
	}
	return n - n%phases + phases + 1
}

// NextOut returns the phase number n if n means OUT, and otherwise the next phase number after n that
// means OUT.
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
// server. skipped are the phase numbers of the servers before the substitute server in the key's
// order. The epoch grows with every outage of one of these servers, and is constant from LEAVING to
// SETTLE. So data that an earlier outage left on a substitute server can't be addressed again.
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
	Number   uint64 // number in the key's name on the server (divert.AppendKey); 0: the server has the plain key
	Diverted bool   // the server is a substitute server for the key, so the TTL of values is limited
}

// Route says which servers serve a key, and how. First is the server that owns the key, or its
// substitute server while the owner is OUT (then First.Diverted is set). If First rejoins, Interim
// is its substitute server. Role is one of
//
//	In         read and write First
//	Leaving    no server serves: gets miss, mutations fail
//	Returning  read Interim; write Interim and delete at First
//	Warming    read First, on a miss Interim; write First and delete at Interim
//	Settling   read First; write First and delete at Interim
type Route struct {
	Role           Phase
	First, Interim Place
}

// Path finds the Route of a key. The caller calls Add for the servers in the key's order, until Add
// returns true. The server that owns the key is the first. In a pool with a gutter, the servers of
// the gutter follow; otherwise other servers of the pool do. The zero Path is ready to use.
type Path struct {
	route     Route
	returning bool // the server route.First rejoins, and its substitute server is not found yet
	done      bool
	skipped   uint64
	passed    bool // Add has been called, so the next server does not own the key
}

// Add adds the next server of the key's order, and reports whether the route is complete. n is the
// server's phase number. renamed is the number that its keys carry because the server rejected a
// flush; 0: none.
//
// Only one rejoining server may be on a path. With two rejoining servers, or with one rejoining and
// one LEAVING server, proxies could disagree about the substitute server. No server serves the key
// then.
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

// Route returns the route that the calls of Add have found. If Add has not returned true for any
// server, no server can serve the key, and the role is Leaving.
func (p *Path) Route() Route {
	if !p.done {
		return Route{Role: Leaving}
	}
	return p.route
}
