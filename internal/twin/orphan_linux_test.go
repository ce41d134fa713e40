package twin

import (
	"os/exec"
	"syscall"
)

// tie makes the kernel kill a server when this process ends in any way. The fuzzer
// kills a worker that does not respond. tie also keeps the server from inheriting
// the pipes between fuzzer and worker, because the fuzzer waits until they are
// closed.
func tie(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	for fd := 3; fd <= 5; fd++ {
		syscall.CloseOnExec(fd)
	}
}
