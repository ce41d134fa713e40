// Package fast reads guarded keys as ordinary exchanges, which is all that a value needs
// which stands.
//
// What a server says else, a win, a stub, a value that is old or whose tags are others by
// now, becomes a task of package guard.
package fast

// The package's manual.
