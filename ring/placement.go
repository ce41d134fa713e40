package ring

// Placement is a whole rule: which part of a key is hashed, how, and what the
// hash is looked up in. The zero Part hashes the whole key.
type Placement struct {
	Part Part
	Hash Hash
	Ring Ring
}

// Locate returns the hashed part of key, its hash, and the index of its owner
// (-1 where the rule gives the key to nobody).
func (p *Placement) Locate(key []byte) (part []byte, h uint64, server int) {
	part = p.Part.Of(key)
	h = p.Hash(part)
	return part, h, p.Ring.At(part, h, 0)
}

// Part says which bytes of a key are hashed, in this order: the first of
// StripPrefixes that the key begins with is left out; then what stands before
// Stop; then what stands between the Tag characters.
type Part struct {
	StripPrefixes [][]byte
	Stop          []byte // hash what stands before its first occurrence; nil: off
	Tag           [2]byte
	HasTag        bool
	EmptyTag      bool // "{}" hashes the empty string (memcached's proxy), not the whole key (twemproxy)
}

// Of returns the part of key that is hashed.
func (p *Part) Of(key []byte) []byte { return key }
