package instance

// This file reserves file descriptors for servers and the admin interface, so that
// clients cannot use up all of them. A client beyond the limit is rejected. Otherwise it
// would wait in the kernel for a descriptor, perhaps for ever.

import (
	"fmt"
	"log/slog"
	"math"
	"slices"

	"ringside/config"
	"ringside/internal/discover"
	"ringside/proxy/admin"
	"ringside/proxy/link"
	"ringside/proxy/loop"
	"ringside/proxy/table"
)

// These are numbers of descriptors that the process needs in addition to those of
// clients.
const (
	filesOfProcess = 32 // for standard streams, the Go runtime, and files that are read
	filesOfAdmin   = 32 // for the admin interface of a process that may open few files: see filesBeside
	filesOfLoop    = 8  // for each loop: its poller, and some in reserve
	filesOfBurst   = 64 // for each loop: clients over the limit, between their accept and their rejection
)

// filesBeside returns how many descriptors an instance with the configuration f and its table t needs in
// addition to those of its clients. files is how many it may open. The admin interface gets as many as it
// can hold, but at most an eighth of them, so that clients can connect.
func filesBeside(f *config.File, t *table.Table, loops, files int) int {
	connections := map[string]int{} // by address, because the connections of a server are shared by all its pools
	for _, p := range t.Pools {
		for _, s := range p.Servers {
			at := s.Network + " " + s.Address
			connections[at] = max(connections[at], p.Connections)
		}
	}
	n := filesOfProcess + max(filesOfAdmin, min(admin.MostConnections, files/8)) + loops*(filesOfLoop+filesOfBurst) + len(t.Listeners)*2*loops
	for _, c := range connections {
		n += loops * (c + 1) // one more than its connections, because an old connection may still wait for a late reply
	}
	for i := range f.Pools {
		for _, s := range f.Pools[i].Sources {
			n += discover.Files(s.Source)
		}
	}
	if slices.ContainsFunc(t.Listeners, func(l table.Listener) bool { return l.TLS != nil }) {
		n += loops * loop.HandshakesMost
	}
	return n
}

// fitClients lowers limits.clients in the table t of the configuration f if the process may not open enough
// files for so many clients.
func fitClients(f *config.File, t *table.Table, loops int, log *link.LimitedLog) error {
	files, known := openFiles()
	if !known {
		return nil
	}
	beside := filesBeside(f, t, loops, int(min(files, math.MaxInt32)))
	if files >= uint64(beside+t.Limits.Clients) {
		return nil
	}
	fit := int(files) - beside
	if fit < 1 {
		return fmt.Errorf("the process may open %d files, and needs %d beside its clients: raise the limit (ulimit -n, LimitNOFILE)", files, beside)
	}
	log.LogOrder(slog.LevelWarn, "limits.clients", "limits.clients lowered to the limit of open files: raise that limit (ulimit -n, LimitNOFILE)",
		"clients", fit, "limits.clients", t.Limits.Clients, "open_files", files, "reserved", beside)
	t.Limits.Clients = fit
	return nil
}
