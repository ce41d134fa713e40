package proxy_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// seeds returns the seeds of the random runs of a test: those below RINGSIDE_SEEDS or only RINGSIDE_SEED if it is set, as in
// package fleet. A short run plays only the first few.
func seeds(t *testing.T) (list []uint64) {
	from, to := uint64(0), uint64(200)
	if testing.Short() {
		to = 5
	}
	for _, name := range []string{"RINGSIDE_SEEDS", "RINGSIDE_SEED"} {
		text := os.Getenv(name)
		if text == "" {
			continue
		}
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("%s is %q: it must be a number", name, text)
		}
		if from, to = 0, n; name == "RINGSIDE_SEED" {
			from, to = n, n+1
		}
	}
	for seed := from; seed < to; seed++ {
		list = append(list, seed)
	}
	return list
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
