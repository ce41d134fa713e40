package instance

// This file reserves file descriptors. Clients must not use up those that servers and
// the admin interface need. They also must not wait in the kernel for a descriptor that
// never becomes free.

import (
	"fmt"
	"log/slog"

	"ringside/proxy/table"
)

// Descriptors needed in addition to those of clients.
const (
	filesOfProcess = 32 // standard streams, the Go runtime, files that are read
	filesOfAdmin   = 32 // concurrent scrapes, health checks and commands
	filesOfLoop    = 8  // for each loop: its poller, and a spare one
	filesOfBurst   = 64 // for each loop: clients over the limit, from accept until they are rejected
)

// filesBeside returns how many descriptors a table needs in addition to its clients.
func filesBeside(t *table.Table, loops int) int {
	connections := map[string]int{} // by address, because pools that share a server share its connections
	for _, p := range t.Pools {
		for _, s := range p.Servers {
			at := s.Network + " " + s.Address
			connections[at] = max(connections[at], p.Connections)
		}
	}
	n := filesOfProcess + filesOfAdmin + loops*(filesOfLoop+filesOfBurst) + len(t.Listeners)*2*loops
	for _, c := range connections {
		n += loops * (c + 1) // one more may wait for a late reply
	}
	return n
}

// fitClients lowers limits.clients of t to the number of files that the process may
// open.
func fitClients(t *table.Table, loops int, log *slog.Logger) error {
	files, known := openFiles()
	if !known {
		return nil
	}
	beside := filesBeside(t, loops)
	if files >= uint64(beside+t.Limits.Clients) {
		return nil
	}
	fit := int(files) - beside
	if fit < 1 {
		return fmt.Errorf("the process may open %d files, and needs %d beside its clients: raise the limit (ulimit -n, LimitNOFILE)", files, beside)
	}
	log.Warn("limits.clients lowered to the limit of open files: raise that limit (ulimit -n, LimitNOFILE)",
		"clients", fit, "limits.clients", t.Limits.Clients, "open_files", files, "reserved", beside)
	t.Limits.Clients = fit
	return nil
}
