package ring

// This file contains mcrouter's Ch3 hash (furc_hash). It descends a binary tree. A
// stream of bits decides the way, and the key's hash is the seed of that stream.

import (
	"encoding/binary"
	"math/bits"
)

const (
	furcSeed   = 4193360111
	furcStep   = 23 // distance, in the stream of bits, from one bit that furc uses to the next
	furcRounds = 32 // maximum number of tries; after them furc returns server 0
)

// Ch3 is mcrouter's Ch3 rule for servers in the order of the list. The hash passed to
// it must be the Murmur64 of the key.
type Ch3 struct{ ordered }

// NewCh3 returns the Ch3 rule for n servers.
func NewCh3(n int) *Ch3 {
	c := &Ch3{ordered{make([]int32, n)}}
	for i := range c.order {
		c.order[i] = int32(i)
	}
	return c
}

func (c *Ch3) At(_ []byte, h uint64, n int) int {
	return c.at(int(furc(h, uint32(len(c.order)))), h, n)
}

func (c *Ch3) Explain(_ []byte, h uint64) Hit {
	return Hit{Kind: "bucket", Index: int(furc(h, uint32(len(c.order)))), Of: len(c.order)}
}

// furc returns a number below m, the number of servers. word is the first 64-bit word
// of the stream of bits. Each further word of the stream is the hash of the word before
// it.
func furc(word uint64, m uint32) uint32 {
	if m <= 1 {
		return 0
	}
	at, stream := 0, word // stream is the current word of the stream of bits, and at is its index
	bit := func(i int) uint32 {
		if i>>6 < at {
			at, stream = 0, word
		}
		for ; at < i>>6; at++ {
			var b [8]byte
			binary.LittleEndian.PutUint64(b[:], stream)
			stream = murmur64(b[:], furcSeed)
		}
		return uint32(stream>>(i&63)) & 1
	}
	depth := bits.Len32(m - 1)
	draw := depth
	for range furcRounds {
		for bit(draw) == 0 {
			if depth--; depth == 0 {
				return 0
			}
			draw = depth
		}
		draw += furcStep
		num := uint32(1)
		for range depth - 1 {
			num = num<<1 | bit(draw)
			draw += furcStep
		}
		if num < m {
			return num
		}
	}
	return 0
}
