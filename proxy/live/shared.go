package live

// This file describes servers that only this instance ejects, or only another instance.

import (
	"fmt"
	"slices"

	"ringside/proxy/stats"
)

// SharedServers returns how many servers of a pool either this instance or another one ejects, but
// not both in the same way.
func SharedServers(sum *stats.Snapshot, pool string) int {
	var names []string
	for _, s := range sum.Shared {
		if s.Pool == pool && !slices.Contains(names, s.Server) {
			names = append(names, s.Server)
		}
	}
	return len(names)
}

// ejectedElsewhere describes the servers of a pool that only this instance ejects, or only another
// instance, and what to do. It returns "" if there are no such servers.
func ejectedElsewhere(sum *stats.Snapshot, pool string) (text string) {
	if list := serversOf(sum, pool, false); list != "" {
		text = "Another instance ejects " + list + ", and flushes a server when it returns, with what this pool has stored there by then. "
	}
	if list := serversOf(sum, pool, true); list != "" {
		text += "Another instance does not eject " + list + ", and loses what it has stored there when this one flushes a server that returns. "
	}
	if text != "" {
		text += "Give all instances the same pools, or each pool its own servers."
	}
	return text
}

// serversOf returns a text with servers of a pool. If keeps is set, these are the servers that
// another instance does not eject. Otherwise they are the servers that another instance ejects.
func serversOf(sum *stats.Snapshot, pool string, keeps bool) string {
	var list []string
	for _, s := range sum.Shared {
		if s.Pool == pool && s.Keeps == keeps {
			list = append(list, fmt.Sprintf("%s (in its pool %s)", s.Server, Clean(s.Other)))
		}
	}
	return enumerate(list)
}
