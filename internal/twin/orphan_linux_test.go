package twin

import (
	"os/exec"
	"syscall"
)

// tie ends a server when this process ends, however it does: the fuzzer kills a
// worker that doesn't answer.
func tie(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
