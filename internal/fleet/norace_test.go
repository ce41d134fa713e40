//go:build !race

package fleet

// raced says that the race detector watches.
const raced = false
