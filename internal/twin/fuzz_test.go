package twin

// The streams.

import (
	"math/rand/v2"
	"testing"
)

// FuzzTwin lets the fuzzer choose the streams. Its seeds are always the same
// random ones, some of each variant.
func FuzzTwin(f *testing.F) {
	random := rand.New(rand.NewPCG(1, 18))
	for i := range 10 * len(variants) {
		data := make([]byte, 20+random.IntN(300))
		for j := range data {
			data[j] = byte(random.Uint32())
		}
		data[0] = byte(i % len(variants))
		f.Add(data)
	}
	f.Fuzz(run)
}
