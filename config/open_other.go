//go:build !unix

package config

// Elsewhere, files are opened as they are.

const nonBlocking = 0
