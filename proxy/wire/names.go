package wire

// This file contains names of operations and releases, for metrics and messages.

import "fmt"

var opNames = [NumOps]string{
	"none", "get", "gets", "gat", "gats", "set", "add", "replace", "append", "prepend", "cas", "incr", "decr",
	"touch", "delete", "debug", "noop", "flush_all", "version", "verbosity", "cache_memlimit", "stats", "quit", "shutdown", "dump", "auth", "bad",
}

// String returns the name of op's text command, or a descriptive name if op has no text
// command.
func (op Op) String() string { return opNames[op] }

func (v Release) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }
