package watch

// The keys that are seen most, in a table of fixed size.

import (
	"bytes"
	"cmp"
	"math"
	"slices"
)

// sketch counts keys by Space-Saving. It is flat: to go through some hundred numbers
// costs less than to keep them in order.
type sketch struct {
	hashes []uint64 // of the keys, by the same index as rows: what is gone through to find one
	rows   []row
	most   int     // rows
	least  float64 // no row before next has so few requests, and none has fewer
	next   int
}

// row is a key of a sketch.
type row struct {
	key []byte
	Counts
}

// Counts is what was seen of a key, each request as often as it stands for others.
type Counts struct {
	Requests float64
	Over     float64 // by how much Requests may be too high, for what the sketch has forgotten
	Noise    float64 // the variance of Requests: they come by chance, and are looked at by chance
	Reads    float64 // since the key is in the sketch, as all that follows
	Hits     float64
	Bytes    float64 // of values that were read and requests that brought some
}

// seen is one request.
type seen struct {
	weight    float64 // how many requests it stands for
	read, hit bool
	bytes     int
}

func newSketch(most int) sketch {
	return sketch{hashes: make([]uint64, 0, most), rows: make([]row, 0, most), most: most}
}

// add counts a request on key. It returns what was counted.
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

// row is the row of key. A key that has none gets one.
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

// rarest is a row that has the least requests. Counts only grow, so the rows that have been
// passed need no second look until none is left with so few.
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

// floor is how often a key that is not in the sketch may have been asked for.
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

// scale multiplies all counts by f.
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

// Row is a key and what was seen of it.
type Row struct {
	Key string
	Counts
}

// top are the keys that are asked for most, so many at most.
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

// Likely is how often the key was asked for, as far as is known: the middle of what
// is possible.
func (c *Counts) Likely() float64 { return c.Requests - c.Over/2 }

// deviations is how many standard deviations are told: 997 of 1,000 are within them.
const deviations = 3

// MoreOrLess is how far Likely may be off.
func (c *Counts) MoreOrLess() float64 { return c.Over/2 + deviations*math.Sqrt(c.Noise) }
