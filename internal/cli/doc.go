// Package cli is what all commands of ringside have in common: flags, what is said of mistakes
// on the command line, where a running Ringside is, colours, and exit codes.
package cli

// The package's manual.
