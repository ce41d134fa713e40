//go:build !linux

package twin

import "os/exec"

// tie does nothing on this system. TestMain ends the servers.
func tie(*exec.Cmd) {}
