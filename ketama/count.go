package ketama

// This file contains the number of labels of a server, by its weight. Each label makes
// one or several points. How a client rounds this number changes the share of every
// server.

import "math"

// Count returns the number of labels of a server with weight w. n is the number of
// servers in the list. total is the sum of their weights.
type Count func(w, total, n int) int

// fixed returns a Count for which every server has the same number of labels, whatever
// its weight.
func fixed(labels int) Count {
	return func(_, _, _ int) int { return labels }
}

// times returns a Count for which a server has `labels` labels per unit of its weight.
// Adding a server does not change the labels of other servers.
func times(labels int) Count {
	return func(w, _, _ int) int { return labels * w }
}

// The conversions to float32 in floatLibmemcached and floatLibketama round to 32 bits.
// They also keep the compiler from fusing a multiplication with an addition. On arm64 a
// fused operation would round once instead of twice.

// floatLibmemcached computes the number of labels of a server as libmemcached does: it
// rounds to float32 at every step. For example, 25 equal servers have 39 labels each,
// not 40.
func floatLibmemcached(w, total, n int) int {
	share := float32(w) / float32(total)
	labels := float32(share * 160)
	labels = float32(labels / 4)
	labels = float32(labels * float32(n))
	labels = float32(labels + 1e-10)
	return int(math.Floor(float64(labels)))
}

// floatLibketama computes the number of labels of a server as libketama does: it rounds
// the server's share and the result to float32.
func floatLibketama(w, total, n int) int {
	share := float32(w) / float32(total)
	labels := float32(float64(share) * 40 * float64(n))
	return int(math.Floor(float64(labels)))
}

// double computes the number of labels of a server in float64. For example, 7 equal
// servers have 39 labels each.
func double(w, total, n int) int {
	return int(math.Floor(float64(w) / float64(total) * 40 * float64(n)))
}

// integer returns a Count that computes with integers and divides as the last step.
func integer(labels int) Count {
	return func(w, total, n int) int { return labels * n * w / total }
}

// dalli computes the number of labels of a server as the Ruby client dalli does. It
// divides as the last step, in float64.
func dalli(w, total, n int) int {
	return int(math.Floor(float64(n*160*w) / float64(total)))
}
