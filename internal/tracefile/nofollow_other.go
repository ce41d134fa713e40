//go:build !unix

package tracefile

const noFollow = 0
