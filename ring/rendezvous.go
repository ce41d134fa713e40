package ring

// This file contains rendezvous hashing. Each server has a score for a key. The server
// with the highest score owns the key. If that server is dead, the server with the next
// highest score is tried.

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"unicode/utf8"
)

const rendezvousSeed = 2718281828

// Mcrouter is the rendezvous hashing of mcrouter. The hash of a key must be
// Murmur64Key.
type Mcrouter struct {
	tags []uint64 // by server: hash of the text (tag) that identifies the server
}

// NewMcrouter returns the rule Mcrouter for servers that these texts (tags) identify.
func NewMcrouter(tags []string) *Mcrouter {
	m := &Mcrouter{}
	for _, tag := range tags {
		m.tags = append(m.tags, murmur64([]byte(tag), furcSeed))
	}
	return m
}

func (m *Mcrouter) Len() int { return len(m.tags) }

func (m *Mcrouter) At(_ []byte, h uint64, n int) int {
	last := contender{score: 1 << 63 * 2, server: len(m.tags)}
	for ; n >= 0; n-- {
		best := contender{server: -1}
		for i, tag := range m.tags {
			c := contender{float64(combine(tag, h)), i}
			if c.below(last) && best.below(c) {
				best = c
			}
		}
		if best.server < 0 {
			return -1
		}
		last = best
	}
	return last.server
}

func (m *Mcrouter) once() bool { return true }

func (m *Mcrouter) Shares() []float64 { return even(len(m.tags)) }

func (m *Mcrouter) Explain(_ []byte, h uint64) Hit {
	at := m.At(nil, h, 0)
	if at < 0 {
		return Hit{}
	}
	return Hit{Kind: "score", Value: fmt.Sprintf("%016x", combine(m.tags[at], h))}
}

// combine mixes two 64-bit numbers into one, with the function that mcrouter copied
// from CityHash.
func combine(upper, lower uint64) uint64 {
	const k = 0x9ddfea08eb382d69
	a := (lower ^ upper) * k
	a ^= a >> 47
	b := (upper ^ a) * k
	b ^= b >> 47
	return b * k
}

// contender is a server with its score for a key. Of two servers with equal scores, the
// one with the higher index wins.
type contender struct {
	score  float64
	server int
}

func (c contender) below(d contender) bool {
	return c.score < d.score || c.score == d.score && c.server < d.server
}

// Pymemcache is the rendezvous hashing of the Python client pymemcache. The score of a
// server (node) for a key is the MurmurHash3 of the Python string "node-key". Only the
// low 8 bits of each character are hashed.
type Pymemcache struct {
	starts []murmur3State // by server: hash state after the text "node-"
	rank   []int          // by server: index of its text in the sorted list of all texts; of two equal scores, the one with the greater text wins
	bytes  bool           // true: the program's keys are Python bytes, and their printed form (b'key') is hashed
}

// NewPymemcache returns the rule Pymemcache for servers that the texts in nodes
// identify. bytesKeys is for programs with keys of the type Python bytes. For these,
// pymemcache hashes the printed form (b'key').
func NewPymemcache(nodes []string, bytesKeys bool) *Pymemcache {
	p := &Pymemcache{bytes: bytesKeys, rank: make([]int, len(nodes))}
	for i, node := range nodes {
		var s murmur3State
		for _, r := range node {
			s.add(byte(r))
		}
		s.add('-')
		p.starts = append(p.starts, s)
		for j, other := range nodes {
			if other < node || other == node && j < i {
				p.rank[i]++
			}
		}
	}
	return p
}

// PymemcacheHash returns a hash of the key, for uses that need one number per key. It
// is the score of a server with an empty name. Real scores are different for each
// server.
func PymemcacheHash(key []byte) uint64 {
	var s murmur3State
	s.addText(key)
	return uint64(s.sum())
}

func (p *Pymemcache) Len() int { return len(p.starts) }

func (p *Pymemcache) At(key []byte, _ uint64, n int) int {
	at, _ := p.find(key, n)
	return at
}

func (p *Pymemcache) find(key []byte, n int) (server int, score uint32) {
	lastScore, lastRank := uint32(1<<32-1), len(p.starts)
	server = -1
	for ; n >= 0; n-- {
		best, bestRank := uint32(0), -1
		for i := range p.starts {
			s, rank := p.score(i, key), p.rank[i]
			if (s < lastScore || s == lastScore && rank < lastRank) && (s > best || s == best && rank > bestRank) {
				best, bestRank, server = s, rank, i
			}
		}
		if bestRank < 0 {
			return -1, 0
		}
		lastScore, lastRank = best, bestRank
	}
	return server, lastScore
}

func (p *Pymemcache) score(i int, key []byte) uint32 {
	s := p.starts[i]
	if p.bytes {
		s.addPrinted(key)
	} else {
		s.addText(key)
	}
	return s.sum()
}

func (p *Pymemcache) once() bool { return true }

func (p *Pymemcache) Shares() []float64 { return even(len(p.starts)) }

func (p *Pymemcache) Explain(key []byte, _ uint64) Hit {
	at, score := p.find(key, 0)
	if at < 0 {
		return Hit{}
	}
	return Hit{Kind: "score", Value: fmt.Sprintf("%08x", score)}
}

// murmur3State is an unfinished MurmurHash3 x86_32 with seed 0. With it, the name of a
// server is hashed once, and not again for every key.
type murmur3State struct {
	h, block uint32
	n        int
}

func (s *murmur3State) add(b byte) {
	s.block |= uint32(b) << (s.n & 3 * 8)
	if s.n++; s.n&3 == 0 {
		s.h = bits.RotateLeft32(s.h^murmur3Scramble(s.block), 13)*5 + 0xe6546b64
		s.block = 0
	}
}

func murmur3Scramble(k uint32) uint32 {
	return bits.RotateLeft32(k*0xcc9e2d51, 15) * 0x1b873593
}

// addText adds the key to the hash, as the characters of a Python string. The client
// has encoded that string as UTF-8.
func (s *murmur3State) addText(key []byte) {
	for s.n&3 != 0 && len(key) > 0 && key[0] < utf8.RuneSelf {
		s.add(key[0])
		key = key[1:]
	}
	// This loop adds four ASCII bytes at a time.
	for s.n&3 == 0 && len(key) >= 4 {
		block := binary.LittleEndian.Uint32(key)
		if block&0x80808080 != 0 {
			break
		}
		s.h = bits.RotateLeft32(s.h^murmur3Scramble(block), 13)*5 + 0xe6546b64
		s.n += 4
		key = key[4:]
	}
	for len(key) > 0 {
		r, size := utf8.DecodeRune(key)
		s.add(byte(r))
		key = key[size:]
	}
}

// addPrinted adds the key to the hash in the form in which Python prints bytes: b'key'.
func (s *murmur3State) addPrinted(key []byte) {
	quote := byte('\'')
	if bytes.IndexByte(key, '\'') >= 0 && bytes.IndexByte(key, '"') < 0 {
		quote = '"'
	}
	s.add('b')
	s.add(quote)
	for _, b := range key {
		switch {
		case b == quote || b == '\\':
			s.add('\\')
			s.add(b)
		case b == '\t' || b == '\n' || b == '\r':
			s.add('\\')
			s.add("tn  r"[b-'\t'])
		case b < ' ' || b > '~':
			const hex = "0123456789abcdef"
			s.add('\\')
			s.add('x')
			s.add(hex[b>>4])
			s.add(hex[b&15])
		default:
			s.add(b)
		}
	}
	s.add(quote)
}

func (s *murmur3State) sum() uint32 {
	h := s.h
	if s.n&3 != 0 {
		h ^= murmur3Scramble(s.block)
	}
	h ^= uint32(s.n)
	h ^= h >> 16
	h *= 0x85ebca6b
	h ^= h >> 13
	h *= 0xc2b2ae35
	return h ^ h>>16
}
