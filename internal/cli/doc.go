// Package cli holds what all ringside commands share: flags, errors of the command line, the
// address of a running instance, colours, and exit codes.
package cli

// This file contains only the documentation of the package.
