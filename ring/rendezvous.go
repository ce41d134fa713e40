package ring

// This file contains rendezvous hashing. Each server has a score for a key. The server
// with the highest score owns the key. If that server is dead, the server with the next
// highest score is tried.

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/twmb/murmur3"
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
	return nthBest(len(m.tags), n, func(i int) float64 { return float64(combine(m.tags[i], h)) })
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

// nthBest returns the server with the n-th highest score of the given number of servers; n counts from
// 0. Of two servers with equal scores, the one with the higher index wins. It returns -1 if there are
// fewer servers.
func nthBest(servers, n int, score func(server int) float64) int {
	best, last := servers, math.Inf(1)
	for ; n >= 0; n-- {
		below, at := math.Inf(-1), -1
		for i := range servers {
			if s := score(i); (s < last || s == last && i < best) && s >= below {
				below, at = s, i
			}
		}
		if at < 0 {
			return -1
		}
		best, last = at, below
	}
	return best
}

// Pymemcache is the rendezvous hashing of the Python client pymemcache. The score of a
// server (node) for a key is the MurmurHash3 of the Python string "node-key". Only the
// low 8 bits of each character are hashed.
type Pymemcache struct {
	nodes []string // texts of the servers, sorted, with "-" after each; of each character only the low 8 bits
	order []int    // by index in nodes: the server
	bytes bool     // true: the program's keys are Python bytes, and their printed form (b'key') is hashed
}

// NewPymemcache returns the rule Pymemcache for servers that the texts in nodes
// identify. bytesKeys is for programs with keys of the type Python bytes. For these,
// pymemcache hashes the printed form (b'key').
func NewPymemcache(nodes []string, bytesKeys bool) *Pymemcache {
	p := &Pymemcache{bytes: bytesKeys, order: make([]int, len(nodes))}
	for i := range p.order {
		p.order[i] = i
	}
	slices.SortStableFunc(p.order, func(i, j int) int { return cmp.Compare(nodes[i], nodes[j]) })
	for _, i := range p.order {
		p.nodes = append(p.nodes, string(appendText(nil, []byte(nodes[i]+"-"))))
	}
	return p
}

// PymemcacheHash returns a hash of the key, for uses that need one number per key. It
// is the score of a server with an empty name. Real scores are different for each
// server.
func PymemcacheHash(key []byte) uint64 {
	var room [keyRoom]byte
	return uint64(murmur3.Sum32(appendText(room[:0], key)))
}

func (p *Pymemcache) Len() int { return len(p.nodes) }

func (p *Pymemcache) At(key []byte, _ uint64, n int) int {
	at, _ := p.find(key, n)
	return at
}

// find returns the server with the n-th highest score for key, and the score. n counts from 0.
func (p *Pymemcache) find(key []byte, n int) (server int, score uint32) {
	var room, text [2 * keyRoom]byte
	hashed := appendText(room[:0], key)
	if p.bytes {
		hashed = appendPrinted(room[:0], key)
	}
	of := func(i int) uint32 { return murmur3.Sum32(append(append(text[:0], p.nodes[i]...), hashed...)) }
	at := nthBest(len(p.nodes), n, func(i int) float64 { return float64(of(i)) })
	if at < 0 {
		return -1, 0
	}
	return p.order[at], of(at)
}

func (p *Pymemcache) once() bool { return true }

func (p *Pymemcache) Shares() []float64 { return even(len(p.nodes)) }

func (p *Pymemcache) Explain(key []byte, _ uint64) Hit {
	at, score := p.find(key, 0)
	if at < 0 {
		return Hit{}
	}
	return Hit{Kind: "score", Value: fmt.Sprintf("%08x", score)}
}

// appendText appends the low 8 bits of each character of key.
func appendText(dst, key []byte) []byte {
	for len(key) > 0 {
		r, size := utf8.DecodeRune(key)
		dst = append(dst, byte(r))
		key = key[size:]
	}
	return dst
}

// appendPrinted appends key as Python prints bytes: b'key'.
func appendPrinted(dst, key []byte) []byte {
	quote := byte('\'')
	if bytes.IndexByte(key, '\'') >= 0 && bytes.IndexByte(key, '"') < 0 {
		quote = '"'
	}
	dst = append(dst, 'b', quote)
	for _, b := range key {
		switch {
		case b == quote || b == '\\':
			dst = append(dst, '\\', b)
		case b == '\t' || b == '\n' || b == '\r':
			dst = append(dst, '\\', "tn  r"[b-'\t'])
		case b < ' ' || b > '~':
			const hex = "0123456789abcdef"
			dst = append(dst, '\\', 'x', hex[b>>4], hex[b&15])
		default:
			dst = append(dst, b)
		}
	}
	return append(dst, quote)
}
