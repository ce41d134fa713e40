package ring

// This file contains the part of a key that is hashed, and the complete placement rule.

import "bytes"

// Placement is a complete placement rule: which part of a key is hashed, with which
// hash, and in which ring the hash is looked up. A zero Part means that the whole key
// is hashed.
type Placement struct {
	Part        Part
	Hash        Hash
	Ring        Ring
	Dear        bool   // whether a Memo is faster than the rule itself: the result of the function Dear
	Keys        string // text that identifies Part and Hash; empty: unknown. If two placements have different ones, some keys may have different hashes
	Fingerprint string // text that identifies all settings of the rule; if two placements have different ones, some keys may have different owners
}

// Nowhere returns the placement of a pool without servers.
func Nowhere() Placement {
	return Placement{Hash: func([]byte) uint64 { return 0 }, Ring: nowhere{}}
}

type nowhere struct{}

func (nowhere) Len() int                   { return 0 }
func (nowhere) At([]byte, uint64, int) int { return -1 }
func (nowhere) once() bool                 { return true }

// Locate returns the part of key that is hashed, the hash of that part, and the index
// of the server that owns key. The index is -1 if no server owns it.
func (p *Placement) Locate(key []byte) (part []byte, h uint64, server int) {
	part = p.Part.Of(key)
	h = p.Hash(part)
	return part, h, p.Ring.At(part, h, 0)
}

// Part selects the bytes of a key that are hashed, in three steps. First, it removes
// the first of StripPrefixes with which the key begins. Then it keeps only the bytes
// before Stop. Last, it keeps only the bytes between the two characters of Tag.
type Part struct {
	StripPrefixes [][]byte
	Stop          []byte // only the bytes before the first occurrence of this text are hashed; nil: off
	Tag           [2]byte
	HasTag        bool
	EmptyTag      bool // for an empty tag "{}": true hashes the empty string (memcached's proxy), false the whole key (twemproxy)
}

// Of returns the part of key that is hashed.
func (p *Part) Of(key []byte) []byte {
	if len(p.StripPrefixes)+len(p.Stop) == 0 && !p.HasTag { // the usual case, which is inlined
		return key
	}
	return p.of(key)
}

func (p *Part) of(key []byte) []byte {
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

// tagged returns the part of key between the first opening character of the tag and the
// first closing character after it. Without such a pair, it returns the whole key.
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
