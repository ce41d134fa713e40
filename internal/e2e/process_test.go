package e2e

// Processes: started, signalled by pid, waited for, and gone when a test ends.

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

// patience bounds every wait. Only a failing test waits that long.
const patience = testenv.Hang

// eventually waits until done holds.
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
	exited chan struct{} // closed once it has been waited for
	ended  time.Time     // then
}

// start runs a program until the test ends.
func start(t testing.TB, program string, args ...string) *process {
	t.Helper()
	p := &process{name: program, cmd: exec.Command(need(t, program), args...), exited: make(chan struct{})}
	p.run(t)
	return p
}

// run starts p.cmd, and ends it when the test ends.
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

// pause stops it, and returns when it has stopped: the signal may find threads
// at work.
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
			// pid (name) state …; the name may hold anything but ends at the last bracket
			if i := bytes.LastIndexByte(stat, ')'); err != nil || i < 0 || !bytes.HasPrefix(stat[i:], []byte(") T")) {
				return false
			}
		}
		return true
	})
}

// resume ends a pause.
func (p *process) resume(t testing.TB) {
	t.Helper()
	p.signal(t, syscall.SIGCONT)
}

// kill ends it now, stopped or not.
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

// wait returns its exit status once it has ended.
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

// logged waits until the process has written something that matches.
func (p *process) logged(t testing.TB, pattern string) {
	t.Helper()
	re := regexp.MustCompile(pattern)
	eventually(t, p.name+" writes "+pattern, func() bool { return re.MatchString(p.out.String()) })
}

// packages says where Debian keeps the programs that tests run.
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

// need finds a program or fails.
func need(t testing.TB, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Fatalf("%v; `make deps` installs Debian's %s", err, packages[program])
	}
	return path
}

// freeAddress is an address of host nobody listens on at this moment. Another
// process may take it before it is used: whoever starts a server there must
// see that the server came up.
func freeAddress(t testing.TB, host string) string {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// ownHost is a loopback address that nobody else uses: else a server of another
// test may take the port of one that was killed, and answer in its place.
func ownHost() string {
	if runtime.GOOS != "linux" {
		return "127.0.0.1"
	}
	return fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
}

// shortDir is a directory whose name fits into the 108 bytes of a unix
// socket's address, which those of t.TempDir may not.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ringside")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
