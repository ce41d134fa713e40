package replicate

// The inputs of a rule: the command, the replicas, and the outcome of each ask.

// Max is how many replicas a Rule can have.
const Max = 8

// Op is the operation of a command, in either protocol.
type Op uint8

// The operations. mg is Get; with c Gets, with T Gat, with both Gats. ms is Set, Add,
// Replace, Append or Prepend by its mode, and Cas if S or R is set with C. ma is Incr or
// Decr, md is Delete, me is Debug.
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
	Flush // flush_all, and any other command that all replicas must run
	NumOps
)

// Command is an Op with the effect of its meta flags. The zero value of a flag is the
// behavior of the text protocol.
type Command struct {
	Op     Op
	If     bool // has a cas condition: C of ms, ma and md. Cas always has one
	Vivify bool // creates a missing item: N of mg, ma and ms
	Win    bool // grants one client the right to fill: N or R of mg. Only the primary may grant it
	Bound  bool // the other replicas get a copy of what the primary has when it is read for them, not the client's set. So a delete in between wins. Only tests leave it unset
	Stale  bool // I of md (marks the item stale) or of ms (stores as stale under an older cas)

	// Conditional makes a set or a delete replace at each replica only the item that it saw there,
	// so it removes nothing newer if it runs late. Other commands ignore Conditional, and so does a
	// set that is acknowledged before all replicas have the value.
	Conditional bool
}

// Reads reports whether c changes nothing, not even an exptime.
func (c Command) Reads() bool {
	return (c.Op == Get || c.Op == Gets || c.Op == Debug) && !c.Vivify && !c.Win
}

// State is what this instance knows of a replica for this key.
type State uint8

// The states. Writes skip only Out and Gone: all other replicas count when a write is
// acknowledged.
const (
	In        State = iota // gets reads and writes
	Returning              // gets all writes and no reads; it will be flushed
	Filling                // In, but restarted or not identified yet: used like Warming. Other proxies may still see it as In, so another replica does not become the primary
	Warming                // gets writes and reads; its miss alone does not prove that the key is missing
	Settling               // like Warming, and its next state is In. If it then becomes the primary, commands that the primary decides wait until then (Held)
	Leaving                // soon Out: other replicas get its reads, and writes wait (Held)
	Out                    // skipped
	Suspect                // this instance can't reach the replica, but other instances may: other replicas get its reads, and writes wait (Held)
	Dirty                  // In, but missed a write to this key: not read until it is repaired
	Gone                   // this instance reaches no server of the replica's pool: the replica is skipped like Out, and Dirty after a write
	NumStates
)

// Replica is one replica of a key. Its index is its position in the key's order.
type Replica struct {
	State State
	Near  bool // in the zone of this instance: Nearest prefers it
	// ChosenCAS is true if the server supports the meta flag E (memcached 1.6.27 and
	// later).
	ChosenCAS bool
}

// Kind is the kind of the outcome of a request (Ask).
type Kind uint8

// The kinds. A server's ERROR counts as ClientError.
const (
	pending     Kind = iota
	Hit              // a value; HD to mg
	Miss             // END, EN
	Marked           // a tombstone, recognized by its flags: a command on the key is in progress, and the replica has no value
	Expiring         // for Fetch: a value with a remaining TTL of 1 s. It counts as a miss where a copy does not store it: see Rule.takesExpiring
	Stored           // STORED, HD to ms
	NotStored        // NOT_STORED, NS
	Exists           // EXISTS, EX
	NotFound         // NOT_FOUND, NF
	Deleted          // DELETED, HD to md
	Touched          // TOUCHED; for Extend, HD, or EN without a value
	Number           // the result of incr or decr, in Outcome.Value
	OK               // flush_all is done; Wait is over
	ClientError      // the server rejected the request: nothing ran
	ServerError      // too large, out of memory…: nothing was stored, and the old value may be gone
	Unsent           // failed, and the server certainly did not run it
	InDoubt          // failed, and the server may run it, even later
	NumKinds
)

// Outcome is the result of a request (Ask).
type Outcome struct {
	Kind Kind
	// Value is the number of a Number. For other asks it is
	//   - Look and Review: the item's size;
	//   - CompareVersion: 1 if the item's cas is the client's token;
	//   - Preview: the size or number that the item would have after the command;
	//   - Fetch: for incr and decr the item's number; for others 1 if the value is the one that the
	//     command stores, or if there is nothing because that value has expired.
	Value uint64
	Late  bool // the reply arrived so long after those of the other replicas that another command may have run in between
}
