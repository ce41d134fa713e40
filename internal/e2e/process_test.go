package e2e

// This file starts processes, signals them by pid, waits for them, and kills them at the end of
// the test.

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"ringside/internal/testenv"
)

const patience = testenv.Patience

var (
	eventually  = testenv.Eventually
	freeAddress = testenv.FreeAddress
	ownHost     = testenv.OwnHost
	dialError   = testenv.Dial
)

// process is a program under test.
type process struct{ *testenv.Process }

// start starts a program, and kills it at the end of the test.
func start(t testing.TB, program string, args ...string) *process {
	t.Helper()
	return &process{testenv.Run(t, program, exec.Command(need(t, program), args...))}
}

func (p *process) signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := p.Cmd.Process.Signal(s); err != nil {
		t.Fatalf("signal %v to %s: %v", s, p.Name, err)
	}
}

// pause stops p with SIGSTOP, and returns when all its threads have stopped. Threads may still
// run for a moment after the signal.
func (p *process) pause(t testing.TB) {
	t.Helper()
	p.signal(t, syscall.SIGSTOP)
	eventually(t, p.Name+" stops", func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.Cmd.Process.Pid))
		if err != nil || len(threads) == 0 {
			t.Fatalf("no threads of %s: %v", p.Name, err)
		}
		for _, thread := range threads {
			stat, err := os.ReadFile(thread)
			// The format is "pid (name) state …". The name can contain any character, so it
			// ends at the last bracket.
			if i := bytes.LastIndexByte(stat, ')'); err != nil || i < 0 || !bytes.HasPrefix(stat[i:], []byte(") T")) {
				return false
			}
		}
		return true
	})
}

// resume continues p after pause.
func (p *process) resume(t testing.TB) {
	t.Helper()
	p.signal(t, syscall.SIGCONT)
}

// wait waits until p has ended, and returns its exit status.
func (p *process) wait(t testing.TB) int {
	t.Helper()
	select {
	case <-p.Exited:
		return p.Cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		t.Fatalf("%s has not ended after %v", p.Name, patience)
		return -1
	}
}

// logged waits until the output of p matches pattern.
func (p *process) logged(t testing.TB, pattern string) {
	t.Helper()
	re := regexp.MustCompile(pattern)
	eventually(t, p.Name+" writes "+pattern, func() bool { return re.MatchString(p.Output()) })
}

// packages maps each program that tests run to its Debian package.
var packages = map[string]string{
	"ip":               "iproute2",
	"java":             "default-jdk-headless",
	"memcached":        "memcached",
	"memccapable":      "libmemcached-tools",
	"node":             "nodejs",
	"openssl":          "openssl",
	"nsenter":          "util-linux",
	"chromedriver":     "chromium-driver",
	chromium:           "chromium-headless-shell",
	"perl":             "perl",
	"php":              "php-cli",
	"unshare":          "util-linux",
	"/usr/bin/python3": "python3",
}

// need returns the path of a program. It fails the test if the program is not installed.
func need(t testing.TB, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Fatalf("%v; `make deps` installs Debian's %s", err, packages[program])
	}
	return path
}

// shortDir returns a temporary directory with a short path. The address of a unix socket has at
// most 108 bytes, and paths of t.TempDir can be longer.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ringside")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
