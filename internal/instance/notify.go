package instance

// What systemd hears of a process that it has started with Type=notify. Where
// nobody listens (NOTIFY_SOCKET is not set) nothing is said.

import (
	"fmt"
	"strings"

	"github.com/coreos/go-systemd/v22/daemon"

	"ringside/internal/cli"
)

// tellSupervisor sends states such as READY=1. What can't be sent is logged: the
// supervisor will take the start for a failed one when its time is over.
func (r *Instance) tellSupervisor(states ...string) {
	if _, err := daemon.SdNotify(false, strings.Join(states, "\n")); err != nil {
		r.log.Warn("the supervisor could not be told", "of", strings.Join(states, " "), "error", err)
	}
}

// tellReady says that clients are served, and by what: the line that `systemctl
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
		status += "; the last reload was refused: " + first
	}
	r.tellSupervisor(daemon.SdNotifyReady, status)
}

// tellReloading says that the configuration is read again, and when that began:
// Type=notify-reload waits for the READY=1 behind it.
func (r *Instance) tellReloading() {
	r.tellSupervisor(daemon.SdNotifyReloading, strings.TrimSpace(daemon.SdNotifyMonotonicUsec()))
}
