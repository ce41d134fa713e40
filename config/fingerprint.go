package config

// A hash of everything that determines placement. Instances compare it, and so does a reload,
// to detect whether every key keeps its server.

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"strconv"

	"ringside/ring"
)

// fingerprint returns a hash of everything that the placement is built from: the settings of
// the file, with defaults filled in. It is the same in every process, and for equivalent
// settings: an alias of the distribution, an explicit default, or a weight that the client
// ignores.
func (p *Preset) fingerprint(servers []ring.Server, o PlacementOptions, part ring.Part) string {
	hash := o.Hash
	if len(p.hashes) > 0 {
		hash = cmp.Or(hash, p.hashes[0].name)
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%q hash %q point_hash %q points %d order %q seed %q salt %q unsigned %t stop %q tag %t %q strip %q",
		p.Name, hash, cmp.Or(o.PointHash, hash), cmp.Or(o.Points, p.Points), cmp.Or(o.Order, "listed"), o.Seed, o.Salt, o.UnsignedChars,
		part.Stop, part.HasTag, part.Tag, part.StripPrefixes)
	for _, s := range servers {
		if p.Weights == WeightsIgnored {
			s.Weight = 0
		}
		fmt.Fprintf(h, " server %q %d %q %q %d", s.Host, s.Port, s.Path, s.Name, s.Share())
	}
	return strconv.FormatUint(h.Sum64(), 36)
}
