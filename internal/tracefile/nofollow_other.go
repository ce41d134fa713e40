//go:build !unix

package tracefile

// Systems other than Unix have no flag with which opening a symbolic link fails.

const noFollow = 0
