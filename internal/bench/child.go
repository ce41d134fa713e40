//go:build linux

package bench

// This file starts child processes. They are pinned to their CPUs from the start, and they are
// killed when this process ends.

import (
	"bytes"
	"fmt"
	"os/exec"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Starter starts processes from one thread, which exists as long as the Starter. A child process
// inherits the CPUs of the thread that starts it. It is killed when that thread ends (parent-death
// signal).
type Starter struct {
	jobs chan func()
	dir  string // directory for the files of the processes that this Starter starts
}

// newStarter returns a Starter. The processes that it starts have their files below dir.
func newStarter(dir string) *Starter {
	s := &Starter{make(chan func()), dir}
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends when this goroutine ends
		for job := range s.jobs {
			job()
		}
	}()
	return s
}

// Close ends the thread of the Starter. The kernel then kills the child processes that still run.
func (s *Starter) Close() { close(s.jobs) }

// Start starts cmd on the given CPUs.
func (s *Starter) Start(cmd *exec.Cmd, cpus []int) (err error) {
	// The child gets a separate process group, so that a Ctrl-C does not reach it. This process
	// gets the Ctrl-C and then stops its children.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	done := make(chan struct{})
	s.jobs <- func() {
		defer close(done)
		var set unix.CPUSet
		for _, id := range cpus {
			set.Set(id)
		}
		if err = unix.SchedSetaffinity(0, &set); err != nil {
			err = fmt.Errorf("pin to CPUs %v: %w", cpus, err)
			return
		}
		err = cmd.Start()
	}
	<-done
	return err
}

// child is a server or proxy that runs until it is stopped.
type child struct {
	Name   string
	Port   int
	admin  int    // port of the admin interface, if the child is Ringside
	Socket string // path of the unix socket for the load; empty: the load connects to the TCP port
	Cmd    *exec.Cmd
	output lastWords
	Ended  chan struct{} // closed when the process has ended
}

// PID returns the id of the process.
func (c *child) PID() int { return c.Cmd.Process.Pid }

// Addr returns the TCP address on which the process listens.
func (c *child) Addr() string { return fmt.Sprintf("127.0.0.1:%d", c.Port) }

// Alive reports whether the process still runs.
func (c *child) Alive() bool {
	select {
	case <-c.Ended:
		return false
	default:
		return true
	}
}

// Blame returns err together with the state and the last output of the process. The output often
// shows the cause, for instance a timeout.
func (c *child) Blame(err error) error {
	how := "it still ran"
	if !c.Alive() {
		how = "it had ended"
	}
	if c.Name == "ringside" && c.Alive() {
		how += "; " + troubles(c)
	}
	return fmt.Errorf("%s: %w (%s; %s)", c.Name, err, how, &c.output)
}

// Stop kills the process and waits for its end. A graceful end is not necessary, because the
// process has no data to save.
func (c *child) Stop() {
	_ = c.Cmd.Process.Kill() // the process may have ended already
	<-c.Ended
}

// lastWords is an io.Writer that keeps the last bytes of a child's output.
type lastWords struct {
	mu   sync.Mutex
	text []byte
}

func (w *lastWords) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, p...)
	if over := len(w.text) - 2000; over > 0 {
		w.text = append(w.text[:0], w.text[over:]...)
	}
	return len(p), nil
}

func (w *lastWords) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.text) == 0 {
		return "it printed nothing"
	}
	return "it printed: " + string(bytes.TrimSpace(w.text))
}

// descriptors is the limit of open files. It is enough for 5,000 clients of a proxy that opens a
// server connection for each client, as haproxy does.
const descriptors = 16384

// raiseDescriptors raises the descriptor limit, which the children inherit. It uses package
// syscall: otherwise the Go runtime would restore the original limit for children.
func raiseDescriptors() error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("limit of descriptors: %w", err)
	}
	if limit.Max < descriptors {
		return fmt.Errorf("this needs %d descriptors a process and may have %d: raise the hard limit (ulimit -Hn)", descriptors, limit.Max)
	}
	limit.Cur = max(limit.Cur, descriptors)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("raise the limit of descriptors to %d: %w", limit.Cur, err)
	}
	return nil
}
