package ring

// Which bytes of a key are hashed, and the whole rule in one value.

import "bytes"

// Placement is a whole rule: which part of a key is hashed, how, and what the
// hash is looked up in. The zero Part hashes the whole key.
type Placement struct {
	Part        Part
	Hash        Hash
	Ring        Ring
	Dear        bool   // whether it pays to remember what was found: see Memo
	Fingerprint string // of what it was made from: another one may give some key to another server
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
func (p *Part) Of(key []byte) []byte {
	for _, prefix := range p.StripPrefixes {
		if bytes.HasPrefix(key, prefix) {
			key = key[len(prefix):]
			break
		}
	}
	if len(p.Stop) > 0 {
		if i := bytes.Index(key, p.Stop); i >= 0 {
			key = key[:i]
		}
	}
	if p.HasTag {
		key = p.tagged(key)
	}
	return key
}

// tagged returns what stands between the first opening character and the
// first closing one after it, or the whole key.
func (p *Part) tagged(key []byte) []byte {
	open := bytes.IndexByte(key, p.Tag[0])
	if open < 0 {
		return key
	}
	tag := key[open+1:]
	end := bytes.IndexByte(tag, p.Tag[1])
	if end < 0 || end == 0 && !p.EmptyTag {
		return key
	}
	return tag[:end]
}
