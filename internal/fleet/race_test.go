//go:build race

package fleet

// raced reports whether the race detector is on. A simulation then takes about ten
// times as long. It has only one goroutine, so a small part of it is enough.
const raced = true
