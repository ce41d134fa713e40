package ring

// This file contains a table of servers. The index of an entry is the hash modulo the
// length of the table.

// Table maps the hash h to its entry h mod n, where n is the number of entries. An
// entry is a server.
type Table struct {
	owners  []int32
	servers int
	walk    Walk
	next    bool
	space   float64 // number of different hashes; it is a float64 because 2^64 does not fit into 64 bits
	noun    string
}

// TableOptions describe how a client finds the next server after a dead one, and the
// key hash.
type TableOptions struct {
	Walk      Walk   // how the client computes another hash to find the next server; zero: it does not
	Next      bool   // whether the next server is that of the next entry of the table; after the last entry follows the first
	SpaceBits int    // number of low bits that the key hash can set; 0 means 32
	Noun      string // name of an entry in explanations of a lookup; empty: "entry"
}

// NewTable returns a table with these entries, which are indices of servers. If the
// options set neither Walk nor Next, the next servers are found by a walk over the
// entries. The start and the step of the walk depend on other bits of the hash than the
// owner does. The keys of a dead server are then distributed over all other servers by
// weight. The entry (h+1) mod n would double the load of one neighbor.
func NewTable(servers int, entries []int, o TableOptions) *Table {
	t := &Table{servers: servers, walk: o.Walk, next: o.Next, noun: o.Noun}
	for _, s := range entries {
		t.owners = append(t.owners, int32(s))
	}
	if t.noun == "" {
		t.noun = "entry"
	}
	t.space = 1
	for range max(o.SpaceBits, 0) {
		t.space *= 2
	}
	if o.SpaceBits == 0 {
		t.space = 1 << 32
	}
	return t
}

func (t *Table) Len() int { return t.servers }

func (t *Table) At(key []byte, h uint64, n int) int {
	size := uint64(len(t.owners))
	if size == 0 {
		return -1
	}
	if n == 0 {
		return int(t.owners[h%size])
	}
	switch {
	case t.walk.Tries > 0:
		if h, ok := t.walk.at(key, h, n); ok {
			return int(t.owners[h%size])
		}
		return -1
	case t.next:
		if n >= len(t.owners) {
			return -1
		}
		return int(t.owners[(h%size+uint64(n))%size])
	}
	return scatter(t.owners, t.servers, t.owners[h%size], h, n)
}

func (t *Table) once() bool { return t.walk.Tries == 0 && !t.next }

func (t *Table) Explain(_ []byte, h uint64) Hit {
	if len(t.owners) == 0 {
		return Hit{}
	}
	return Hit{Kind: t.noun, Index: int(h % uint64(len(t.owners))), Of: len(t.owners)}
}

// Shares returns the exact share of each server for the range of the key hash. With a
// hash of 15 bits, for example, the first entries of a table get one hash more than the
// last.
func (t *Table) Shares() []float64 {
	shares := make([]float64, t.servers)
	size := float64(len(t.owners))
	each := float64(int64(t.space / size))
	extra := int(t.space - each*size)
	for i, s := range t.owners {
		if i < extra {
			shares[s] += (each + 1) / t.space
		} else {
			shares[s] += each / t.space
		}
	}
	return shares
}
