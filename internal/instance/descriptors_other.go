//go:build !unix

package instance

// This file is for systems other than Unix, where the limit of open files is unknown.

// openFiles returns the maximum number of descriptors of the process. known is false on
// this system.
func openFiles() (n uint64, known bool) { return 0, false }
