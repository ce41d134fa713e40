//go:build linux

package bench

// This file starts processes. They are pinned to their CPUs from the start, and they are killed
// when this process ends.

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ringside/internal/ports"
)

// starter starts processes from one thread, which exists as long as the starter. A process inherits
// the CPUs of the thread that starts it. It is killed when that thread ends (parent-death signal).
type starter struct {
	jobs chan func()
	dir  string // directory for the files of the processes that this starter starts
}

func newStarter(dir string) *starter {
	s := &starter{make(chan func()), dir}
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends when this goroutine ends
		for job := range s.jobs {
			job()
		}
	}()
	return s
}

// close ends the thread of the starter. The kernel then kills the processes that still run.
func (s *starter) close() {
	close(s.jobs)
	_ = os.RemoveAll(s.dir) // files that stay in the temporary directory do not change the results
}

// start starts cmd on the given CPUs.
func (s *starter) start(cmd *exec.Cmd, cpus []int) (err error) {
	// The process gets a separate process group, so that a Ctrl-C does not reach it. This process
	// gets the Ctrl-C and then stops its children.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	done := make(chan struct{})
	s.jobs <- func() {
		defer close(done)
		var set unix.CPUSet
		for _, id := range cpus {
			set.Set(id)
		}
		if err = unix.SchedSetaffinity(0, &set); err == nil {
			err = cmd.Start()
		}
	}
	<-done
	return err
}

// process is a server or proxy that runs until it is stopped.
type process struct {
	*exec.Cmd
	name   string
	port   int
	admin  int    // port of the admin interface, if the process is Ringside
	socket string // path of the unix socket for the load; empty: the load connects to the TCP port
	output lastWords
	ended  chan struct{} // closed when the process has ended
}

// addr returns the TCP address on which the process listens.
func (c *process) addr() string { return fmt.Sprintf("127.0.0.1:%d", c.port) }

func addrs(all []*process) (list []string) {
	for _, c := range all {
		list = append(list, c.addr())
	}
	return list
}

// spawn starts a program and waits until it listens on the given port.
func (s *starter) spawn(ctx context.Context, name string, cmd *exec.Cmd, port int, cpus []int) (*process, error) {
	c := &process{name: name, port: port, Cmd: cmd, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &c.output, &c.output
	if err := s.start(cmd, cpus); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = cmd.Wait() // the error is not returned here: blame reports whether the process has ended
		close(c.ended)
	}()
	limit := time.After(10 * time.Second)
	for {
		conn, err := net.DialTimeout("tcp", c.addr(), time.Second)
		if err == nil {
			conn.Close()
			return c, nil
		}
		select {
		case <-time.After(5 * time.Millisecond):
			continue
		case <-c.ended:
		case <-limit:
		case <-ctx.Done():
		}
		c.stop()
		return nil, c.blame(fmt.Errorf("it does not listen on %s: %w", c.addr(), err))
	}
}

// stop kills the process and waits for its end. A graceful end is not necessary, because the
// process has no data to save.
func (c *process) stop() {
	_ = c.Process.Kill() // the process may have ended already
	<-c.ended
}

func stop(all []*process) {
	for _, c := range all {
		c.stop()
	}
}

// blame returns err together with the state and the last output of the process. The output often
// shows the cause, for instance a timeout. If err is nil, it returns nil.
func (c *process) blame(err error) error {
	if err == nil {
		return nil
	}
	how := "it still ran"
	select {
	case <-c.ended:
		how = "it had ended"
	default:
		if c.name == ringside {
			how += "; " + troubles(c)
		}
	}
	return fmt.Errorf("%s: %w (%s; %s)", c.name, err, how, &c.output)
}

// lastWords is an io.Writer that keeps the last bytes of a process's output.
type lastWords struct {
	mu   sync.Mutex
	text []byte
}

func (w *lastWords) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, p...)
	w.text = w.text[max(0, len(w.text)-2000):]
	return len(p), nil
}

func (w *lastWords) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return fmt.Sprintf("it printed: %q", bytes.TrimSpace(w.text))
}

// freePorts returns ports on which no process listens. Another process may use one before the child
// does; the child's start then reports it.
func freePorts(n int) ([]int, error) {
	free, release, err := ports.Free(n)
	if err == nil {
		release()
	}
	return free, err
}

// raiseDescriptors raises the limit of open files, which the processes inherit. It uses package
// syscall: otherwise the Go runtime would restore the original limit for child processes.
func raiseDescriptors() error {
	const descriptors = 16384 // enough for 1,000 clients that connect to each of three servers
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("limit of descriptors: %w", err)
	}
	if limit.Max < descriptors {
		return fmt.Errorf("this needs %d descriptors a process and may have %d: raise the hard limit (ulimit -Hn)", descriptors, limit.Max)
	}
	limit.Cur = max(limit.Cur, descriptors)
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
}
