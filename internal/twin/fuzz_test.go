package twin

// The streams.

import (
	"math/rand/v2"
	"testing"
)

// FuzzTwin lets the fuzzer choose the streams. Its seeds are always the same
// random ones, some of each variant.
func FuzzTwin(f *testing.F) {
	addStreams(f, rand.NewPCG(1, 18), 10, len(variants), 20, 300)
	f.Fuzz(run)
}

// addStreams gives a fuzzer random streams to begin with: each for each of so many ways
// to put servers behind a Ringside, of least bytes and fewer than more besides.
func addStreams(f *testing.F, source rand.Source, each, ways, least, more int) {
	random := rand.New(source)
	for i := range each * ways {
		data := make([]byte, least+random.IntN(more))
		for j := range data {
			data[j] = byte(random.Uint32())
		}
		data[0] = byte(i % ways)
		f.Add(data)
	}
}
