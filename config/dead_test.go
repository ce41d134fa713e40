package config

// This file has the placements of clients that do not rebuild their ring when servers are dead.

import "ringside/ring"

// withoutDead returns the placement that a client of the preset uses when some of servers are dead. In
// presets with DeadStays, the keys of dead servers have no owner (-1).
func withoutDead(distribution string, servers []PlacementServer, o PlacementOptions, dead []bool) (ring.Placement, error) {
	if p, _ := FindPreset(distribution); p.Dead == DeadRebuilds {
		return BuildPlacementWithout(distribution, servers, o, dead)
	} else if placement, err := BuildPlacement(distribution, servers, o); err != nil || p.Dead == DeadWalks {
		placement.Ring = walks{placement.Ring, dead}
		return placement, err
	} else {
		placement.Ring = stays{placement.Ring, dead}
		return placement, nil
	}
}

// walks is a ring in which the keys of dead servers go to their next server.
type walks struct {
	ring.Ring
	dead []bool
}

func (w walks) At(key []byte, h uint64, n int) int {
	for i := 0; ; i++ {
		at := w.Ring.At(key, h, i)
		if at >= 0 && w.dead[at] {
			continue
		}
		if at < 0 || n == 0 {
			return at
		}
		n--
	}
}

// stays is a ring in which the keys of dead servers have no owner.
type stays struct {
	ring.Ring
	dead []bool
}

func (s stays) At(key []byte, h uint64, _ int) int {
	if at := s.Ring.At(key, h, 0); at >= 0 && !s.dead[at] {
		return at
	}
	return -1
}
