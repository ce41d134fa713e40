//go:build !race

package proxy

// How much of the simulation is played where it costs little.

const (
	usualSeeds = 20 // of each case
	unhurried  = true
)
