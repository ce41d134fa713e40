package replicate

// This file has the replication settings of a route.

// All is a value of Policy.Copies: every server of the pool has a replica of each key.
const All = -1

// Policy has the replication settings of a route: the number of replicas of a key, their
// placement, and which replies count. The zero Policy means one replica.
type Policy struct {
	Copies      int // number of replicas of each key; 0 and 1: no replication; All: a replica on every server
	Apart       Apart
	Read        Read
	Ack         Ack
	ReadThrough bool // a miss at a healthy replica must be confirmed by the other replicas. While a replica is warming, every miss must be confirmed
	RepairRate  int  // keys per second that are copied to one replica; 0: no repair
}

// Several reports whether the route keeps more than one replica.
func (p *Policy) Several() bool { return p.Copies == All || p.Copies > 1 }

// Apart is what two replicas of a key must not have in common.
type Apart uint8

// The things that two replicas of a key can be required not to have in common.
const (
	Hosts   Apart = iota // two replicas must not be on the same host, by the address of the server
	Zones                // two replicas must not be in the same zone
	Servers              // two replicas must not be on the same server
)

func (a Apart) String() string { return [...]string{"host", "zone", "server"}[a] }

// Read says which replica a read asks first.
type Read uint8

// The values of Read. With each of them, a hit has priority over a miss of a healthy replica, and
// a miss of a healthy replica has priority over an error.
const (
	First   Read = iota // the first healthy replica in the key's order
	Nearest             // a replica in the zone of this instance; if there is none, as First
	Spread              // each read the next replica, in turn
	Fastest             // all replicas are asked at once, and the first hit wins
)

func (r Read) String() string { return [...]string{"first", "nearest", "spread", "fastest"}[r] }

// Ack is how many replicas must store a write before it is acknowledged. Replicas that are Out or
// Gone are not counted. The primary is always one of the required replicas.
type Ack uint8

// The values of Ack: all replicas, more than half of them, or the primary alone.
const (
	AckAll Ack = iota
	AckQuorum
	AckOne
)

func (a Ack) String() string { return [...]string{"all", "quorum", "one"}[a] }
