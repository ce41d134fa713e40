package replicate

// Choosing a key's members: who may hold its copies.

// Members appends to dst the first n servers of an order that may all stand
// beside each other. order(i) is the i-th server to try, -1 at the end; same
// reports whether two may not both hold a copy. All is as many as there are. There may
// be fewer than n, and are never more than Max.
func Members(dst []int, order func(i int) int, n int, same func(a, b int) bool) []int {
	if n == All || n > Max {
		n = Max
	}
	start := len(dst)
next:
	for i := 0; len(dst)-start < n; i++ {
		s := order(i)
		if s < 0 {
			break
		}
		for _, chosen := range dst[start:] {
			if chosen == s || same(chosen, s) {
				continue next
			}
		}
		dst = append(dst, s)
	}
	return dst
}
