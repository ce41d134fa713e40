package ring

// The layout of a ring as the dashboard draws it.

// Drawing is the layout of a ring. Owners is empty for rules that have no fixed
// places, because they compute a score per key.
type Drawing struct {
	Kind   string   // "points", "entries", "buckets" or "scores"; scores have no places
	At     []uint32 // positions of the points, sorted; only the upper 32 bits of a 128-bit point
	Owners []int32  // server of each point, entry or bucket
	Before bool     // for points: a hash belongs to the point before it, not to the next one
}

// Draw returns the layout of r.
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

// Place returns the position of the hash h on a drawing of points.
func (d *Drawing) Place(r Ring, h uint64) uint32 {
	if _, wide := r.(*Wide); wide {
		return uint32(h >> 32)
	}
	return uint32(h)
}

// Hops returns the buckets that jump hash visits for h. The last one owns h.
func (j *Jump) Hops(h uint64) (hops []int) {
	for at := int64(0); at < int64(len(j.order)); {
		hops = append(hops, int(at))
		h = h*2862933555777941757 + 1
		at = int64(float64(at+1) * (float64(int64(1)<<31) / float64((h>>33)+1)))
	}
	return hops
}
