package ring

// A table of servers that is indexed by the remainder of the hash.

// Table maps hash h to its entry h mod len.
type Table struct {
	owners  []int32
	servers int
	walk    Walk
	next    bool
	space   float64 // number of different hashes; a float because 2^64 does not fit into 64 bits
	noun    string
}

// TableOptions describe what a client does beyond the plain lookup.
type TableOptions struct {
	Walk      Walk   // hash again to find the next server; zero: don't
	Next      bool   // or use the next entry of the table, wrapping at its end
	SpaceBits int    // number of low bits that the key hash can set; 0 means 32
	Noun      string // name of an entry in explanations; "entry" if empty
}

// NewTable returns a table whose entries are indices of servers. If neither Walk
// nor Next is set, the next servers are found by walking over the entries. The
// start and the step of the walk depend on other bits of the hash. A dead server's
// keys then spread over all others by weight; (h+1) mod n would double the load of
// one neighbor.
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

// Shares is exact for the range of the key hash. With 15 bits, for example, the
// first entries of a table get one hash more than the last.
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
