package ring

// This file contains orders that name each server once. Replicas need such an order.
// Fallbacks need one if the client has no rule of its own.

// seenWords is the size in words of a bit set on the stack, which is enough for 4096
// servers. For longer lists, the search for a fallback allocates memory.
const seenWords = 64

// Distinct returns r with an order that names every server exactly once. The servers
// that r names come first, in the order of r. The servers that r never names follow.
// The hash selects with which of them they start.
func Distinct(r Ring) Ring {
	if o, ok := r.(interface{ once() bool }); ok && o.once() {
		return r
	}
	return distinct{r}
}

type distinct struct{ Ring }

func (d distinct) once() bool { return true }

func (d distinct) At(key []byte, h uint64, n int) int {
	if n == 0 {
		return d.Ring.At(key, h, 0)
	}
	size := d.Len()
	var room [seenWords]uint64
	seen := marks(room[:], size)
	for i := 0; ; i++ {
		s := d.Ring.At(key, h, i)
		if s < 0 {
			if i == 0 {
				return -1
			}
			break
		}
		if seen.add(s) {
			if n == 0 {
				return s
			}
			n--
		}
	}
	start := int(Mix(h) >> 1 % uint64(size))
	for i := range size {
		s := (start + i) % size
		if seen.add(s) {
			if n == 0 {
				return s
			}
			n--
		}
	}
	return -1
}

// scatter returns the n-th server after owner, n >= 1. It walks over owners, the
// servers of all entries of a table. The hash h decides where the walk starts and how
// long its steps are. Each server occurs once. A server with more entries tends to
// occur earlier.
func scatter(owners []int32, servers int, owner int32, h uint64, n int) int {
	size := uint64(len(owners))
	x := Mix(h)
	start, step := x>>32%size, 1+x&0xffffffff%size
	for gcd(step, size) != 1 {
		step++
	}
	return nth(owners, servers, owner, int(start), int(step%size), n)
}

// nth returns the n-th distinct server other than owner, or -1 if there are fewer
// servers. It walks over owners, the servers of all points or entries, from the index
// pos in steps of step. At the end of owners it continues at the beginning.
func nth(owners []int32, servers int, owner int32, pos, step, n int) int {
	var room [seenWords]uint64
	seen := marks(room[:], servers)
	seen.add(int(owner))
	for range owners {
		if s := int(owners[pos]); seen.add(s) {
			if n--; n == 0 {
				return s
			}
		}
		if pos += step; pos >= len(owners) {
			pos -= len(owners)
		}
	}
	return -1
}

// marked is a set of indices of servers, as a bit set.
type marked []uint64

func marks(room []uint64, servers int) marked {
	if servers > 64*len(room) {
		return make(marked, (servers+63)/64)
	}
	return room
}

// add adds the server s to the set, and reports whether s is new in it.
func (m marked) add(s int) bool {
	word, bit := &m[s>>6], uint64(1)<<(s&63)
	if *word&bit != 0 {
		return false
	}
	*word |= bit
	return true
}

// Mix is the finalizer of the hash splitmix64. Its result does not depend on the
// remainder of h, so it can choose another server than h mod n does.
func Mix(h uint64) uint64 {
	h += 0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
