package replicate

// This file has the inputs of a rule: the command, the replicas, and the outcome of each ask.

// Max is how many replicas a Rule can have.
const Max = 8

// Op is the operation of a command. It is the same for a text command and its meta command.
type Op uint8

// The operations. mg is Get. With the flag c it is Gets, with T Gat, with both flags Gats. ms is
// Set, Add, Replace, Append or Prepend, as its mode says. ms with the flag C is Cas in the modes
// set and replace. ma is Incr or Decr, md is Delete, and me is Debug.
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

// Command is an Op with the effect of its meta flags. A field with its zero value means the same
// as a command of the text protocol.
type Command struct {
	Op     Op
	If     bool // the command has a cas condition: the flag C of ms, ma or md. A Cas always has one
	Vivify bool // the command creates a missing item: the flag N of mg, ma or ms
	Win    bool // the command may grant one client the right to rebuild: the flag N or R of mg. Only the primary may grant it
	Stale  bool // the flag I: md marks the item as stale, and ms stores the value as stale if its cas is older than the item's

	// Expires says that the command sets an exptime that has passed, so it removes the item.
	Expires bool

	// Conditional makes a set or a delete replace at each replica only the item that a look has
	// seen at this replica. So the command removes no newer item if a server runs it late. Other
	// commands ignore Conditional. A set that is acknowledged before all replicas have the value
	// ignores it, too.
	Conditional bool
}

// Reads reports whether c changes nothing, not even an exptime.
func (c Command) Reads() bool {
	return (c.Op == Get || c.Op == Gets || c.Op == Debug) && !c.Vivify && !c.Win
}

// removes reports whether the key is gone after c. A delete with the flag I counts, because its
// stale item expires.
func (c Command) removes() bool { return c.Op == Delete || c.Op == Flush || c.Expires }

// State is what this instance knows of a replica for this key.
type State uint8

// The states. Writes skip only replicas that are Out or Gone: all other replicas count when a
// write is acknowledged.
const (
	In        State = iota // the replica gets reads and writes
	Returning              // the replica gets all writes and no reads; it will be flushed
	Filling                // the replica is In, but was restarted or is not identified yet, so it is read like Warming. It can be the primary, because other instances may still see it as In
	Warming                // the replica gets writes and reads; its miss alone does not prove that the key is missing
	Settling               // like Warming, but the next state is In. If the replica then becomes the primary, commands that the primary decides must wait (Held)
	Leaving                // the replica is soon Out: other replicas get its reads, and writes wait (Held)
	Out                    // the replica gets no requests
	Suspect                // this instance can't reach the replica, but other instances may: other replicas get its reads, and writes wait (Held)
	Dirty                  // the replica is In, but has missed a write to this key: it is not read until it is repaired
	Gone                   // this instance reaches no server of the replica's pool: the replica gets no requests, and is Dirty after a write
	NumStates
)

// Replica is one replica of a key. Its index in the list of replicas is its position in the key's
// order.
type Replica struct {
	State State
	Near  bool // the replica is in the zone of this instance, so reads with the policy Nearest prefer it
}

// Kind is the kind of the outcome of a request (Ask).
type Kind uint8

// The kinds of outcomes. A server's reply ERROR counts as ClientError.
const (
	pending     Kind = iota
	Hit              // the reply is a value, or HD to an mg
	Miss             // the reply is END or EN
	Marked           // the item is a tombstone, recognized by its flags: a command on the key is in progress, and the replica has no value
	Expiring         // for the step Fetch: the reply is a value with a remaining TTL of 1 s. It counts as a miss where a copy does not store it: see Rule.takesExpiring
	Stale            // for the step Fetch: the reply is a value that is stale, or has a remaining TTL of 0 s. No copy stores it
	Stored           // the reply is STORED, or HD to an ms
	NotStored        // the reply is NOT_STORED or NS
	Exists           // the reply is EXISTS or EX
	NotFound         // the reply is NOT_FOUND or NF
	Deleted          // the reply is DELETED, or HD to an md
	Touched          // the reply is TOUCHED; for the step Extend HD, or EN without a value
	Number           // the reply is the result of incr or decr, which is in Outcome.Value
	OK               // a flush_all is done, or the delay of the step Wait is over
	ClientError      // the server has rejected the request, and ran nothing
	ServerError      // the server has failed (value too large, out of memory…): it has stored nothing, and may have removed the old value
	Unsent           // the request failed, and the server certainly did not run it
	InDoubt          // the request failed, and the server may have run it or may still run it
	NumKinds
)

// Outcome is the result of an Ask, a request to one replica.
type Outcome struct {
	Kind Kind
	// Value is a number. Its meaning depends on the step of the ask:
	//   - an incr or decr with the Kind Number: the result;
	//   - Look and Check: the item's size;
	//   - Look, for an ms with the flags C and I: 1 if the item's cas is the client's token, and 2 if
	//     the token is newer, because the client's command would then store nothing;
	//   - Preview: the size or number that the item would have after the command;
	//   - Fetch: for incr and decr the item's number; for others 1 if the value is the one that the
	//     command stores; for the Kind Miss 1 if the command has set an exptime that has passed.
	Value uint64
	Late  bool // the reply arrived so long after those of the other replicas that another command may have run in between
}
