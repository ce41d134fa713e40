package twin

// The fuzz test of text and meta commands, and its seeds.

import (
	"math/rand/v2"
	"testing"
)

// FuzzTwin lets the fuzzer choose the streams. Its seeds are always the same
// random streams, some for each variant.
func FuzzTwin(f *testing.F) {
	addStreams(f, rand.NewPCG(1, 18), 10, len(variants), 20, 300)
	f.Fuzz(run)
}

// addStreams adds random streams to the seeds. For each of `ways` variants it adds as
// many streams as `each` says. The length of a stream is at least `least` bytes, and
// less than least + more.
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
