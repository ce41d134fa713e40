package ring

// A table of servers looked up by the remainder of the hash.

// Table gives hash h to its entry h mod len.
type Table struct {
	owners  []int32
	servers int
	walk    Walk
	next    bool
	space   float64 // how many different hashes there are; 2^64 is no integer of 64 bits
	noun    string
}

// TableOptions are what a client does with its table beyond looking up.
type TableOptions struct {
	Walk      Walk   // hash again for the next server
	Next      bool   // or take the next entry of the table, around its end
	SpaceBits int    // the key hash sets only so many low bits; 0 means 32
	Noun      string // what people call an entry; "entry" if empty
}

// NewTable returns the table whose entries are indices of servers. Without a
// walk of its own it goes on over the entries from a place and by a step that
// other bits of the hash give, so that a dead server's keys spread over all
// others by their weight: (h+1) mod n would double one neighbour's load.
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

// Shares are exact for the range of the key hash: with 15 bits the first
// entries of a table get one hash more than the last.
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
