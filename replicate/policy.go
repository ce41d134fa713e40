package replicate

// The replication settings of a route.

import "time"

// All, as Policy.Copies, keeps a replica on every server of the pool.
const All = -1

// Policy is the number of replicas that a route keeps of a key, their placement, and which
// replies count. The zero Policy keeps one: no replication.
type Policy struct {
	Copies      int // replicas of each key; 0 and 1: only the owner's; or All
	Apart       Apart
	Read        Read
	Ack         Ack
	ReadThrough bool          // a miss at a healthy replica must be confirmed by the other replicas. While a replica is warming, this is always so
	Hedge       time.Duration // delay after which a read without a reply also asks the next replica; 0: never
	RepairRate  int           // keys per second that are copied to one replica; 0: no repair
}

// Several reports whether the route keeps more than one replica.
func (p *Policy) Several() bool { return p.Copies == All || p.Copies > 1 }

// Apart is what two replicas of a key must not share.
type Apart uint8

// The units of placement.
const (
	Hosts   Apart = iota // the host of the server's address
	Zones                // the server's zone
	Servers              // only the server itself
)

func (a Apart) String() string { return [...]string{"host", "zone", "server"}[a] }

// Read is the rule by which a read selects the first replica to ask.
type Read uint8

// The rules. With each of them, a hit has priority over a miss of a healthy replica, and such a
// miss over an error.
const (
	First   Read = iota // the first healthy replica in the key's order
	Nearest             // one in this instance's own zone, else First
	Spread              // round robin over the replicas
	Fastest             // all replicas at once: the first hit wins
)

func (r Read) String() string { return [...]string{"first", "nearest", "spread", "fastest"}[r] }

// Ack is the number of replicas, of those not Out or Gone, that must store a write before it
// is acknowledged. The primary is always one of them.
type Ack uint8

// The numbers: all replicas, more than half, or the primary alone.
const (
	AckAll Ack = iota
	AckQuorum
	AckOne
)

func (a Ack) String() string { return [...]string{"all", "quorum", "one"}[a] }
