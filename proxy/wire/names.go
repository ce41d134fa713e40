package wire

// Names of operations and releases, for metrics and messages.

import "fmt"

var opNames = [NumOps]string{
	"none", "get", "gets", "gat", "gats", "set", "add", "replace", "append", "prepend", "cas", "incr", "decr",
	"touch", "delete", "debug", "noop", "flush_all", "version", "verbosity", "cache_memlimit", "stats", "quit", "shutdown", "dump", "auth", "bad",
}

// String returns the text command of op, or a descriptive name if it has none.
func (op Op) String() string { return opNames[op] }

func (v Release) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }
