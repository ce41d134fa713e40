//go:build !race

package fleet

// raced reports whether the race detector is on.
const raced = false
