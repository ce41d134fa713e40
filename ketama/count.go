package ketama

// How many labels a server gets for its weight. Where a client rounds, and in
// which precision, decides the size of everybody's share.

import "math"

// Count returns the number of labels of a server of weight w, in a list of n
// servers whose weights add up to total.
type Count func(w, total, n int) int

// fixed gives every server the same number, whatever its weight.
func fixed(labels int) Count {
	return func(_, _, _ int) int { return labels }
}

// times multiplies: adding a server changes nobody else's labels.
func times(labels int) Count {
	return func(w, _, _ int) int { return labels * w }
}

// Every conversion in the next two rounds to 32 bits. They also keep the
// compiler from fusing a multiplication with an addition, which it may do on
// arm64 and which would round once instead of twice.

// floatLibmemcached rounds to float32 at every step: 25 equal servers get 39
// labels each, not 40.
func floatLibmemcached(w, total, n int) int {
	share := float32(w) / float32(total)
	labels := float32(share * 160)
	labels = float32(labels / 4)
	labels = float32(labels * float32(n))
	labels = float32(labels + 1e-10)
	return int(math.Floor(float64(labels)))
}

// floatLibketama rounds the share and the result to float32.
func floatLibketama(w, total, n int) int {
	share := float32(w) / float32(total)
	labels := float32(float64(share) * 40 * float64(n))
	return int(math.Floor(float64(labels)))
}

// double computes in float64: 7 equal servers get 39 labels each.
func double(w, total, n int) int {
	return int(math.Floor(float64(w) / float64(total) * 40 * float64(n)))
}

// integer divides last.
func integer(labels int) Count {
	return func(w, total, n int) int { return labels * n * w / total }
}

// dalli divides last too, in float64.
func dalli(w, total, n int) int {
	return int(math.Floor(float64(n*160*w) / float64(total)))
}
