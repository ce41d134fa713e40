package proxy_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// seeds returns how many random runs a test plays. A short run plays only the first of them.
func seeds() uint64 {
	if testing.Short() {
		return 5
	}
	return 200
}

// dice decide what happens next, from a seed or from the bytes of a fuzzer. When they are used up they always return 0.
type dice struct {
	rng   *rand.Rand
	left  int
	bytes []byte
}

func (d *dice) over() bool { return d.left <= 0 && len(d.bytes) == 0 }

func (d *dice) n(k int) int {
	if k <= 1 || d.over() {
		return 0
	}
	if d.rng != nil {
		d.left--
		return d.rng.IntN(k)
	}
	v := 0
	for m := 1; m < k && len(d.bytes) > 0; m *= 256 {
		v = v*256 + int(d.bytes[0])
		d.bytes = d.bytes[1:]
	}
	return v % k
}

// one returns true once in k times.
func (d *dice) one(k int) bool { return d.n(k) == k-1 }

// value returns a value of at least size bytes, which no other key or number has.
func value(key string, seq, size int) []byte {
	b := fmt.Appendf(make([]byte, 0, size+40), "%s#%d#%d#", key, seq, size)
	for i := len(b); i < size; i++ {
		b = append(b, byte((i*131+seq*17+len(key))>>2))
	}
	return b
}
