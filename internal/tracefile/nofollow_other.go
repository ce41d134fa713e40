//go:build !unix

package tracefile

// Other systems have no flag that rejects symbolic links.

const noFollow = 0
