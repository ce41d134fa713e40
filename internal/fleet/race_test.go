//go:build race

package fleet

// raced says that the race detector watches. Then a simulation takes some ten times as
// long, and it has one goroutine: a little of it is enough.
const raced = true
