package replicate

// What a rule is told: the command, the members, and what became of an ask.

// Max is how many members a Rule can have.
const Max = 8

// Op is what a command does, whatever the dialect that spelled it.
type Op uint8

// The operations. mg is Get; with c Gets, with T Gat, with both Gats. ms is
// Set, Add, Replace, Append, Prepend by its mode, and Cas where S or R comes
// with C. ma is Incr or Decr, md is Delete, me is Debug.
const (
	Get Op = iota
	Gets
	Gat
	Gats
	Set
	Add
	Replace
	Append
	Prepend
	Cas
	Incr
	Decr
	Touch
	Delete
	Debug
	Flush // flush_all, and whatever else goes to everybody and must be done by all
	NumOps
)

// Command is an Op with what meta flags make of it. The zero value of a flag
// is what the text protocol does.
type Command struct {
	Op     Op
	If     bool // it has a cas condition: C of ms, ma and md. Cas always has one
	Vivify bool // N of mg, ma and ms: it makes what is missing
	Win    bool // N or R of mg: it hands out the right to fill, which only the authority may
	Bound  bool // what the authority has stored is copied to the rest, as it is then: nothing may have been deleted since. Tests leave it out
	Stale  bool // I of md (marks the item stale) and of ms (stores as stale under an older cas)

	// Conditional: a set and a delete replace at each member only what they have seen
	// there, so they remove nothing newer if they run late. Other commands ignore it, and so
	// does a set that is acknowledged before all members have it.
	Conditional bool
}

// Reads reports whether c changes nothing, not even an exptime.
func (c Command) Reads() bool {
	return (c.Op == Get || c.Op == Gets || c.Op == Debug) && !c.Vivify && !c.Win
}

// State is what Ringside thinks of a member for this key.
type State uint8

// The states. Only Out and Gone are skipped: every other member counts when a write
// asks whether enough have taken it.
const (
	In        State = iota // reads and writes
	Returning              // takes all writes, is not read; it will be flushed
	Filling                // In, and started anew or not known: as Warming, but others may take it for In, so the authority stays where it is
	Warming                // takes writes, readable, a miss there decides nothing
	Settling               // as Warming, and next In: if that makes it the authority, what the authority decides is held until then
	Leaving                // soon Out: reads elsewhere, writes held
	Out                    // skipped
	Suspect                // Ringside can't reach it but others may: reads elsewhere, writes held
	Dirty                  // In, but missed a write to this key: not read before it is repaired
	Gone                   // Out for this Ringside alone, which reaches nobody of its pool: skipped, and Dirty behind a write
	NumStates
)

// Member is one of a key's members; its index is its place in the key's order.
type Member struct {
	State State
	Near  bool // in Ringside's own zone: what Nearest prefers
	// ChosenCAS: the server knows the meta flag E (memcached 1.6.27 and later).
	ChosenCAS bool
}

// Kind is what became of an ask.
type Kind uint8

// The kinds. A server's ERROR counts as ClientError.
const (
	pending     Kind = iota
	Hit              // a value; HD to mg
	Miss             // END, EN
	Marked           // a mark, known by its flags: somebody is at work, and this member knows nothing
	Stored           // STORED, HD to ms
	NotStored        // NOT_STORED, NS
	Exists           // EXISTS, EX
	NotFound         // NOT_FOUND, NF
	Deleted          // DELETED, HD to md
	Touched          // TOUCHED, HD or EN without value to what Extend is sent as
	Number           // of incr and decr; Outcome.Value
	OK               // to flush_all; to Wait: it is over
	ClientError      // the server refused the request: nothing ran
	ServerError      // too large, out of memory…: nothing was stored, the old value may be gone
	Unsent           // failed, and the server surely executed nothing
	InDoubt          // failed, and the server may execute it, even later
	NumKinds
)

// Outcome is what became of an ask.
type Outcome struct {
	Kind  Kind
	Value uint64 // of Number; to Look and Review: the item's size; to Weigh: 1 if its cas is the client's token; to Preview: its size or number behind the command; to Fetch: its number for incr and decr, else 1 if it is what the command stores, or nothing where that has expired
	Late  bool   // so long after others that something may have come between
}
