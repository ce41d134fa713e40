//go:build !race

package fleet

// How much of the simulation is played where it costs little.

const (
	usualSeeds = 20 // of each case
	raced      = false
)
