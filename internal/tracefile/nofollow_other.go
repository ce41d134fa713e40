//go:build !unix

package tracefile

// Elsewhere, there is no flag that refuses symbolic links.

const noFollow = 0
