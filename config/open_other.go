//go:build !unix

package config

// On systems other than Unix, files are opened without a special flag.

const nonBlocking = 0
