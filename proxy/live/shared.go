package live

// This file describes servers that only this instance or only another one ejects.

import (
	"fmt"
	"slices"
	"strings"

	"ringside/proxy/stats"
)

// SharedServers returns how many servers of a pool other instances treat differently in
// an outage.
func SharedServers(sum *stats.Snapshot, pool string) int {
	var names []string
	for _, s := range sum.Shared {
		if s.Pool == pool && !slices.Contains(names, s.Server) {
			names = append(names, s.Server)
		}
	}
	return len(names)
}

// mostShared is the maximum number of these servers that are named.
const mostShared = 3

// ejectedElsewhere describes the servers of a pool that only this instance or only
// another one ejects, and the remedy. It returns "" if there are none.
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

// serversOf lists the servers of a pool that another Ringside ejects, or those that it keeps.
func serversOf(sum *stats.Snapshot, pool string, keeps bool) string {
	var list []string
	for _, s := range sum.Shared {
		if s.Pool == pool && s.Keeps == keeps {
			list = append(list, fmt.Sprintf("%s (in its pool %s)", s.Server, Clean(s.Other)))
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
	return text
}
