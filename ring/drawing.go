package ring

// A ring as a picture: what a page needs to draw it.

// Drawing is a ring laid out on a circle. The zero Owners are those of a rule
// that gives no place to a server before it sees the key.
type Drawing struct {
	Kind   string   // "points", "entries", "buckets", or "scores", which have no places
	At     []uint32 // of points: where they are, sorted; the rest of a wider point is cut off
	Owners []int32  // of each point, entry or bucket: the server
	Before bool     // of points: a hash belongs to the point before it, not to the next
}

// Draw lays r out.
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

// Place is where on a drawing of points the hash h is.
func (d *Drawing) Place(r Ring, h uint64) uint32 {
	if _, wide := r.(*Wide); wide {
		return uint32(h >> 32)
	}
	return uint32(h)
}

// Hops are the buckets that jump hash visits for h, the last of which owns it.
func (j *Jump) Hops(h uint64) (hops []int) {
	for at := int64(0); at < int64(len(j.order)); {
		hops = append(hops, int(at))
		h = h*2862933555777941757 + 1
		at = int64(float64(at+1) * (float64(int64(1)<<31) / float64((h>>33)+1)))
	}
	return hops
}
