package ring

// This file describes a ring for the drawing on the dashboard.

// Drawing describes how the dashboard draws a ring. Owners is empty for rules that
// compute a score per key, because their servers have no fixed positions.
type Drawing struct {
	Kind   string   // what belongs to servers: "points", "entries", "buckets" or "scores"; scores have no positions
	At     []uint32 // sorted positions of the points; of a 128-bit point, only the upper 32 bits
	Owners []int32  // index of the server to which each point, entry or bucket belongs
	Before bool     // true: a hash belongs to the point before it; false: to the next point
}

// Draw returns the description of the ring r for its drawing.
func Draw(r Ring) Drawing {
	switch r := r.(type) {
	case *Circle:
		return Drawing{Kind: "points", At: r.points, Owners: r.owners, Before: r.seek == AtOrBefore}
	case *Wide:
		d := Drawing{Kind: "points", Owners: r.owners}
		for _, hi := range r.hi {
			d.At = append(d.At, uint32(hi>>32))
		}
		return d
	case *Table:
		return Drawing{Kind: "entries", Owners: r.owners}
	case *Jump:
		return Drawing{Kind: "buckets", Owners: r.order}
	}
	return Drawing{Kind: "scores"}
}

// Place returns the position of the hash h in the drawing of a ring with points.
func (d *Drawing) Place(r Ring, h uint64) uint32 {
	if _, wide := r.(*Wide); wide {
		return uint32(h >> 32)
	}
	return uint32(h)
}

// Hops returns the buckets through which jump hash moves for the hash h. The last of
// them owns h.
func (j *Jump) Hops(h uint64) (hops []int) {
	for at := int64(0); at < int64(len(j.order)); {
		hops = append(hops, int(at))
		h = h*2862933555777941757 + 1
		at = int64(float64(at+1) * (float64(int64(1)<<31) / float64((h>>33)+1)))
	}
	return hops
}
