//go:build !unix

package instance

// No limit of open files is known here.

// openFiles is how many descriptors the process may have, where that is limited.
func openFiles() (n uint64, known bool) { return 0, false }
