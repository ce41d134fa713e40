package instance

// This file reports the state of the process to systemd, for a service with Type=notify.
// It does nothing if the environment variable NOTIFY_SOCKET is not set.

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/coreos/go-systemd/v22/daemon"

	"ringside/internal/cli"
)

// tellSupervisor sends states such as READY=1 to systemd. It logs a warning if this
// fails: without the state, systemd considers the start failed after its timeout.
func (r *Instance) tellSupervisor(states ...string) {
	if _, err := daemon.SdNotify(false, strings.Join(states, "\n")); err != nil {
		r.lines.LogLimited(slog.LevelWarn, "", "cannot notify the supervisor", "of", strings.Join(states, " "), "error", err)
	}
}

// tellReady reports to systemd that clients are served. The report contains the status
// line that `systemctl status` shows.
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
	if why := r.unready(); why != nil {
		r.tellSupervisor("STATUS=" + why.Error())
		return
	}
	r.tellSupervisor(daemon.SdNotifyReady, status)
}

// tellReloading reports to systemd that a reload begins, and the time. With
// Type=notify-reload, systemd then waits for READY=1.
func (r *Instance) tellReloading() {
	r.tellSupervisor(daemon.SdNotifyReloading, strings.TrimSpace(daemon.SdNotifyMonotonicUsec()))
}
