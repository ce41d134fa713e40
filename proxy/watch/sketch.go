package watch

// This file finds the most requested keys with a table of fixed size.

import (
	"bytes"
	"cmp"
	"math"
	"slices"
)

// sketch counts requests by key with the algorithm Space-Saving. The table is not sorted: to scan
// some hundred numbers costs less than to keep them sorted.
type sketch struct {
	hashes []uint64 // hashes of the keys, for a fast search; index i is for the key of rows[i]
	rows   []row
	most   int     // maximum number of keys in the table
	least  float64 // lowest Requests at the last scan of the table; rows with an index below next have more
	next   int
}

// row is one key of the table of a sketch, with its counts.
type row struct {
	key []byte
	Counts
}

// Counts has the counts of one key. Each sample counts as the number of requests that it
// represents.
type Counts struct {
	Requests float64
	Over     float64 // possible error of Requests, which may be this much too high, because the table forgets keys
	Noise    float64 // variance of Requests that is due to the sampling
	Reads    float64 // reads since the key was added to the table; Hits and Bytes count from then, too
	Hits     float64
	Bytes    float64 // size of the values that were read and of the requests with a value, in bytes
}

// seen is one sampled request.
type seen struct {
	weight    float64 // how many requests the sample represents
	read, hit bool
	bytes     int
}

func newSketch(most int) sketch {
	return sketch{hashes: make([]uint64, 0, most), rows: make([]row, 0, most), most: most}
}

// add counts one sample of a request for the key. It returns all counts of the key.
func (s *sketch) add(hash uint64, key []byte, is seen) *Counts {
	r := s.row(hash, key)
	r.Requests += is.weight
	r.Noise += is.weight * is.weight
	r.Bytes += is.weight * float64(is.bytes)
	if is.read {
		r.Reads += is.weight
	}
	if is.hit {
		r.Hits += is.weight
	}
	return &r.Counts
}

// row returns the row of the key. If the key has no row, it gets a new one, or the row with the
// fewest requests if the table is full.
func (s *sketch) row(hash uint64, key []byte) *row {
	for i, h := range s.hashes {
		if h == hash && bytes.Equal(s.rows[i].key, key) {
			return &s.rows[i]
		}
	}
	if n := len(s.rows); n < s.most {
		s.hashes, s.rows = append(s.hashes, hash), append(s.rows, row{key: bytes.Clone(key)})
		return &s.rows[n]
	}
	i := s.rarest()
	r := &s.rows[i]
	s.hashes[i] = hash
	r.key = append(r.key[:0], key...)
	r.Counts = Counts{Requests: r.Requests, Over: r.Requests, Noise: r.Noise}
	return r
}

// rarest returns the index of a row with the fewest requests. The search continues after the last
// result, because counts only grow: rows before it have more than the lowest count. When no row is
// left with the lowest count, all rows are scanned again.
func (s *sketch) rarest() int {
	for ; s.next < len(s.rows); s.next++ {
		if s.rows[s.next].Requests <= s.least {
			return s.next
		}
	}
	s.least, s.next = math.Inf(1), 0
	for i := range s.rows {
		if n := s.rows[i].Requests; n < s.least {
			s.least, s.next = n, i
		}
	}
	return s.next
}

// floor returns how many requests a key that is not in the table may have had.
func (s *sketch) floor() float64 {
	if len(s.rows) < s.most {
		return 0
	}
	least := math.Inf(1)
	for i := range s.rows {
		least = min(least, s.rows[i].Requests)
	}
	return least
}

// scale multiplies all counts by f, so that old requests count less.
func (s *sketch) scale(f float64) {
	s.least *= f
	for i := range s.rows {
		c := &s.rows[i].Counts
		c.Requests *= f
		c.Over *= f
		c.Noise *= f * f
		c.Reads *= f
		c.Hits *= f
		c.Bytes *= f
	}
}

// Row is one key with its counts.
type Row struct {
	Key string
	Counts
}

// top returns the most requested keys, at most `most` of them.
func (s *sketch) top(most int) []Row {
	order := make([]int, len(s.rows))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(s.rows[b].Likely(), s.rows[a].Likely()) })
	list := make([]Row, 0, min(most, len(order)))
	for _, i := range order[:cap(list)] {
		list = append(list, Row{string(s.rows[i].key), s.rows[i].Counts})
	}
	return list
}

// Likely returns the estimated number of requests. It is the middle of the possible range.
func (c *Counts) Likely() float64 { return c.Requests - c.Over/2 }

// deviations is the number of standard deviations that MoreOrLess allows for the sampling. 997 of
// 1,000 estimates are within them.
const deviations = 3

// MoreOrLess returns how much the estimate of Likely may be too high or too low.
func (c *Counts) MoreOrLess() float64 { return c.Over/2 + deviations*math.Sqrt(c.Noise) }
