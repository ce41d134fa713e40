package twin

import (
	"os/exec"
	"syscall"
)

// tie ends a server when this process ends, however it does: the fuzzer kills a
// worker that doesn't answer. Nor does the server inherit the pipes that package
// testing hands to a worker, of which the fuzzer waits for the end.
func tie(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	for fd := 3; fd <= 5; fd++ {
		syscall.CloseOnExec(fd)
	}
}
