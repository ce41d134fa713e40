package ketama

// The number of labels of a server, by its weight. Where and how precisely a client
// rounds changes the share of every server.

import "math"

// Count returns the number of labels of a server of weight w. n is the number of
// servers in the list, and total is the sum of their weights.
type Count func(w, total, n int) int

// fixed returns the same number for every server, whatever its weight.
func fixed(labels int) Count {
	return func(_, _, _ int) int { return labels }
}

// times multiplies the weight, so adding a server does not change the labels of the
// others.
func times(labels int) Count {
	return func(w, _, _ int) int { return labels * w }
}

// The explicit conversions in the next two functions round to 32 bits. They also
// stop the compiler from fusing a multiplication with an addition. It may do that
// on arm64, and would then round once instead of twice.

// floatLibmemcached rounds to float32 at every step. For example, 25 equal servers
// get 39 labels each, not 40.
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

// double computes in float64. For example, 7 equal servers get 39 labels each.
func double(w, total, n int) int {
	return int(math.Floor(float64(w) / float64(total) * 40 * float64(n)))
}

// integer computes with integers and divides last.
func integer(labels int) Count {
	return func(w, total, n int) int { return labels * n * w / total }
}

// dalli computes the number of points with the formula of the Ruby client dalli. It divides last,
// as integer does, but in float64.
func dalli(w, total, n int) int {
	return int(math.Floor(float64(n*160*w) / float64(total)))
}
