//go:build race

package fleet

// With the race detector a simulation takes some ten times as long, and it has
// one goroutine: a little of it is enough.

const (
	usualSeeds = 1
	raced      = true
)
