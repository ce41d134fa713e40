//go:build linux

package peers

// Child processes: pinned from their first instruction, and never left behind.

import (
	"bytes"
	"fmt"
	"os/exec"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Starter starts processes on one thread that lives as long as it does: a child
// inherits the CPUs of the thread that forks it, and its parent-death signal
// comes when that thread ends, not the process.
type Starter struct {
	jobs chan func()
	dir  string // what the processes read and write
}

// NewStarter makes one whose processes keep what they read and write below dir.
func NewStarter(dir string) *Starter {
	s := &Starter{make(chan func()), dir}
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its work
		for job := range s.jobs {
			job()
		}
	}()
	return s
}

// Close ends the thread; children that still live are killed by that.
func (s *Starter) Close() { close(s.jobs) }

// Start starts cmd on the given CPUs.
func (s *Starter) Start(cmd *exec.Cmd, cpus []int) (err error) {
	// A group of its own: a Ctrl-C is for us, and we end the children.
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

// Child is a server or proxy that runs until it is stopped.
type Child struct {
	Name   string
	Port   int
	admin  int    // where a Ringside has its metrics and profiles
	Socket string // the path where the load asks it; empty: at its port
	Cmd    *exec.Cmd
	output lastWords
	Ended  chan struct{} // closed when the process has ended
}

// PID is the number of its process.
func (c *Child) PID() int { return c.Cmd.Process.Pid }

// Addr is where it listens over TCP.
func (c *Child) Addr() string { return fmt.Sprintf("127.0.0.1:%d", c.Port) }

// Alive reports whether the process has not ended.
func (c *Child) Alive() bool {
	select {
	case <-c.Ended:
		return false
	default:
		return true
	}
}

// Blame adds to an error what the process had to say: a timeout of its own, for
// instance.
func (c *Child) Blame(err error) error {
	how := "it still ran"
	if !c.Alive() {
		how = "it had ended"
	}
	if c.Name == "ringside" && c.Alive() {
		how += "; " + troubles(c)
	}
	return fmt.Errorf("%s: %w (%s; %s)", c.Name, err, how, &c.output)
}

// Stop ends the process, which keeps nothing that a gentle end would save.
func (c *Child) Stop() {
	_ = c.Cmd.Process.Kill() // it may have ended by itself
	<-c.Ended
}

// lastWords keeps the last bytes that a child printed.
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

// descriptors is what 5,000 clients need with a proxy that opens a connection
// for each, as haproxy does.
const descriptors = 16384

// RaiseDescriptors lets the children, which inherit it, have that many. It goes
// through package syscall, which otherwise hands on the limit of the start.
func RaiseDescriptors() error {
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
