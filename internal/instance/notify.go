package instance

// This file reports the state to systemd, for a service with Type=notify. If
// NOTIFY_SOCKET is not set it does nothing.

import (
	"fmt"
	"strings"

	"github.com/coreos/go-systemd/v22/daemon"

	"ringside/internal/cli"
)

// tellSupervisor sends states such as READY=1. If this fails it logs a warning, because
// the supervisor will consider the start failed after its timeout.
func (r *Instance) tellSupervisor(states ...string) {
	if _, err := daemon.SdNotify(false, strings.Join(states, "\n")); err != nil {
		r.log.Warn("cannot notify the supervisor", "of", strings.Join(states, " "), "error", err)
	}
}

// tellReady reports that clients are served, with the status line that `systemctl
// status` shows.
func (r *Instance) tellReady() {
	servers, addresses := 0, []string{}
	for _, p := range r.file.Pools {
		servers += len(p.Servers)
	}
	for _, a := range r.driver.Addrs() {
		addresses = append(addresses, a.String())
	}
	is := r.reloaded()
	status := fmt.Sprintf("STATUS=serving %s in %s on %s; generation %d", cli.Counted(servers, "server"), cli.Counted(len(r.file.Pools), "pool"), strings.Join(addresses, ", "), is.Generation)
	if is.Err != nil {
		first, _, _ := strings.Cut(is.Err.Error(), "\n")
		status += "; the last reload was rejected: " + first
	}
	r.tellSupervisor(daemon.SdNotifyReady, status)
}

// tellReloading reports that a reload has begun, and when. Type=notify-reload then
// waits for READY=1.
func (r *Instance) tellReloading() {
	r.tellSupervisor(daemon.SdNotifyReloading, strings.TrimSpace(daemon.SdNotifyMonotonicUsec()))
}
