package live

// Servers that another Ringside ejects by a pool of its own.

import (
	"fmt"
	"slices"
	"strings"

	"ringside/proxy/stats"
)

// SharedServers is how many servers of a pool other Ringsides eject by pools of their own.
func SharedServers(sum *stats.Snapshot, pool string) int {
	var names []string
	for _, s := range sum.Shared {
		if s.Pool == pool && !slices.Contains(names, s.Server) {
			names = append(names, s.Server)
		}
	}
	return len(names)
}

// mostShared is how many of these servers are told by name.
const mostShared = 3

// ejectedElsewhere says in two sentences which servers of a pool another Ringside ejects, and
// what to do; empty: there are none.
func ejectedElsewhere(sum *stats.Snapshot, pool string) string {
	var list []string
	for _, s := range sum.Shared {
		if s.Pool == pool {
			list = append(list, fmt.Sprintf("%s (by its pool %s)", s.Server, Clean(s.Other)))
		}
	}
	n := len(list)
	switch {
	case n == 0:
		return ""
	case n > mostShared:
		list = append(list[:mostShared], fmt.Sprintf("%d more", n-mostShared))
	}
	text := strings.Join(list, ", ")
	if last := len(list) - 1; last > 0 {
		text = strings.Join(list[:last], ", ") + " and " + list[last]
	}
	return "Another Ringside ejects " + text + ", and flushes a server when it returns, with what this pool has stored there by then. Give all Ringsides the same pools, or each pool its own servers."
}
