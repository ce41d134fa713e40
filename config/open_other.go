//go:build !unix

package config

// Opening of files on systems other than Unix, without a special flag.

const nonBlocking = 0
