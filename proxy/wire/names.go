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

// Command returns the name by which clients know op's command in the dialect, for messages. f has the flags of the
// request; with the flag Binary, it is the name of the text command.
func (op Op) Command(d Dialect, f Flags) string {
	switch {
	case op == Dump:
		return "lru_crawler metadump"
	case op == Bad:
		return "an unknown command"
	case op == Debug:
		return "me"
	case op == Get && f.IsBinaryTouch():
		return Touch.String()
	case op == Get && f&(Binary|Effects) == Binary|Effects:
		return Gat.String()
	case d == Text || f&Binary != 0:
	case op == Noop:
		return "mn"
	case op <= Gats && op != None:
		return "mg"
	case op.Stores():
		return "ms"
	case op == Incr || op == Decr:
		return "ma"
	case op == Delete:
		return "md"
	}
	return op.String()
}

func (v Release) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }
