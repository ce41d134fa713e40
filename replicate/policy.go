package replicate

// What a route says about copies.

import "time"

// All as Policy.Copies keeps a copy on every server of the pool.
const All = -1

// Policy says how many copies of a key a route keeps, where, and whose answers
// count. The zero Policy keeps one: no replication.
type Policy struct {
	Copies      int // of each key; 0 and 1: only the owner's; or All
	Apart       Apart
	Read        Read
	Ack         Ack
	ReadThrough bool          // a miss at a healthy member asks the others; while one is warming it always does
	Hedge       time.Duration // a read without an answer for so long asks the next member too; 0: never
	RepairRate  int           // keys a second that are copied to one member; 0: no repair
}

// Several says that it keeps more than one.
func (p *Policy) Several() bool { return p.Copies == All || p.Copies > 1 }

// Apart says what two copies of a key must not share.
type Apart uint8

// What copies don't share.
const (
	Hosts   Apart = iota // the host of the server's address
	Zones                // the server's zone
	Servers              // only the server itself
)

func (a Apart) String() string { return [...]string{"host", "zone", "server"}[a] }

// Read says which member a read asks first.
type Read uint8

// The choices. Whatever is asked, a hit beats a healthy miss beats an error.
const (
	First   Read = iota // the first healthy member in the key's order
	Nearest             // one in Ringside's own zone, else First
	Spread              // members in turns
	Fastest             // all members at once: the first hit
)

func (r Read) String() string { return [...]string{"first", "nearest", "spread", "fastest"}[r] }

// Ack says how many of the members that are not Out or Gone must have taken a write
// before it is acknowledged. The authority is always among them.
type Ack uint8

// The choices.
const (
	AckAll Ack = iota
	AckQuorum
	AckOne
)

func (a Ack) String() string { return [...]string{"all", "quorum", "one"}[a] }
