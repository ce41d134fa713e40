//go:build race

package proxy

// With the race detector a simulation takes some ten times as long.

const usualSeeds = 2
