package ring

// The part of a key that is hashed, and the complete placement rule.

import "bytes"

// Placement is a complete rule: which part of a key is hashed, with which hash, and
// in which ring the hash is looked up. The zero Part hashes the whole key.
type Placement struct {
	Part        Part
	Hash        Hash
	Ring        Ring
	Dear        bool   // whether a Memo should cache the owners, see the function Dear
	Fingerprint string // identifies the configuration of the rule; if it differs, some keys may have another owner
}

// Locate returns the hashed part of key, its hash, and the index of its owner (-1
// if the key has no owner).
func (p *Placement) Locate(key []byte) (part []byte, h uint64, server int) {
	part = p.Part.Of(key)
	h = p.Hash(part)
	return part, h, p.Ring.At(part, h, 0)
}

// Part selects the bytes of a key that are hashed. The steps apply in this order:
// remove the first of StripPrefixes that the key begins with; keep what precedes
// Stop; keep what is between the Tag characters.
type Part struct {
	StripPrefixes [][]byte
	Stop          []byte // hash only what precedes its first occurrence; nil: off
	Tag           [2]byte
	HasTag        bool
	EmptyTag      bool // an empty tag "{}" hashes the empty string (memcached's proxy), not the whole key (twemproxy)
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

// tagged returns the text between the first opening character and the first closing
// character after it. Without such a pair it returns the whole key.
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
