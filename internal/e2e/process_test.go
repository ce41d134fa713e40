package e2e

// This file starts processes, signals them by pid, waits for them, and kills them at the end of
// the test.

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"ringside/internal/testenv"
)

// patience limits every wait. Only a failing test waits that long.
const patience = testenv.Hang

// eventually waits until done returns true. It fails the test after patience.
func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if done() {
			return
		}
	}
	t.Fatalf("waited %v in vain: %s", patience, what)
}

// output collects what a process writes.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// process is a program under test.
type process struct {
	name   string
	cmd    *exec.Cmd
	out    output
	exited chan struct{} // closed when the process has ended
	ended  time.Time     // when it ended; set before exited is closed
}

// start starts a program, and kills it at the end of the test.
func start(t testing.TB, program string, args ...string) *process {
	t.Helper()
	p := &process{name: program, cmd: exec.Command(need(t, program), args...), exited: make(chan struct{})}
	p.run(t)
	return p
}

// run starts p.cmd, and kills it at the end of the test. If the test failed, it logs the output.
func (p *process) run(t testing.TB) {
	t.Helper()
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.cmd.Wait() // the outcome is read from ProcessState
		p.ended = time.Now()
		close(p.exited)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() && p.out.String() != "" {
			t.Logf("%s (pid %d) wrote:\n%s", p.name, p.cmd.Process.Pid, p.out.String())
		}
	})
}

func (p *process) signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatalf("signal %v to %s: %v", s, p.name, err)
	}
}

// pause stops p with SIGSTOP, and returns when all its threads have stopped. Threads may still
// run for a moment after the signal.
func (p *process) pause(t testing.TB) {
	t.Helper()
	p.signal(t, syscall.SIGSTOP)
	eventually(t, p.name+" stops", func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid))
		if err != nil || len(threads) == 0 {
			t.Fatalf("no threads of %s: %v", p.name, err)
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

// kill sends SIGKILL, which also ends a paused process, and waits for the end.
func (p *process) kill() {
	p.cmd.Process.Kill()
	<-p.exited
}

func (p *process) running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// wait waits until p has ended, and returns its exit status.
func (p *process) wait(t testing.TB) int {
	t.Helper()
	select {
	case <-p.exited:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		t.Fatalf("%s has not ended after %v", p.name, patience)
		return -1
	}
}

// logged waits until the output of p matches pattern.
func (p *process) logged(t testing.TB, pattern string) {
	t.Helper()
	re := regexp.MustCompile(pattern)
	eventually(t, p.name+" writes "+pattern, func() bool { return re.MatchString(p.out.String()) })
}

// packages maps each program that tests run to its Debian package.
var packages = map[string]string{
	"ip":               "iproute2",
	"java":             "default-jdk-headless",
	"memcached":        "memcached",
	"memccapable":      "libmemcached-tools",
	"node":             "nodejs",
	"nsenter":          "util-linux",
	"chromedriver":     "chromium-driver",
	"chromium":         "chromium",
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

// freeAddress returns an address of host with a port on which no process listens at this moment.
// Another process may listen there before the caller does. So the caller must check that its
// server has started.
func freeAddress(t testing.TB, host string) string {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// ownHost returns a random loopback address, which no other server is likely to use. On a shared
// address, a server of another test could get the port of a killed server and answer in its
// place. Outside Linux there is only 127.0.0.1.
func ownHost() string {
	if runtime.GOOS != "linux" {
		return "127.0.0.1"
	}
	return fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
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
