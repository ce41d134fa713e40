package wire

// Names of things, for people and metrics.

import "fmt"

var opNames = [NumOps]string{
	"none", "get", "gets", "gat", "gats", "set", "add", "replace", "append", "prepend", "cas", "incr", "decr",
	"touch", "delete", "debug", "noop", "flush_all", "version", "verbosity", "cache_memlimit", "stats", "quit", "shutdown", "dump", "auth", "bad",
}

// String is the command word of op in the text dialect, where it has one.
func (op Op) String() string { return opNames[op] }

func (v Release) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }
