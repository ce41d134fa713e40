//go:build linux

package bench

// This file counts the system calls of a running process. It uses perf, which hardly slows the
// process down, or strace, which slows it down much.

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Tracer is a program that counts the system calls of a process.
type Tracer struct {
	name string
	note string
	// start starts the command and returns when it counts system calls. The command continues until
	// it gets an interrupt signal, and then prints the counts into file.
	start func(t *Tracer, pid int, file string) (*exec.Cmd, error)
	parse func(text string) (map[string]int64, error)

	*Starter
	cpus []int // CPUs on which the tracer runs
}

var tracers = []Tracer{
	{name: "perf", note: "perf stat on the kernel's tracepoints of system calls", start: startPerf, parse: parsePerf},
	{name: "strace", note: "strace -c -f, which makes every call slow: batches are larger than without it, and calls per request fewer", start: startStrace, parse: parseStrace},
}

// FindTracer returns the first tracer that can count the system calls of this process, and a note
// about how it counts. If no tracer works, it returns nil and the reasons.
func (s *Starter) FindTracer(cpus []int) (*Tracer, string) {
	var missing []string
	for _, t := range tracers {
		t.Starter, t.cpus = s, cpus
		_, err := t.Trace(os.Getpid(), func() error { return nil })
		if err == nil {
			return &t, t.note
		}
		missing = append(missing, fmt.Sprintf("%s: %v", t.name, err))
	}
	return nil, "not counted, for want of perf or strace: " + strings.Join(missing, "; ")
}

// Trace counts the system calls of process pid while work runs.
func (t *Tracer) Trace(pid int, work func() error) (map[string]int64, error) {
	if _, err := exec.LookPath(t.name); err != nil {
		return nil, err
	}
	file := filepath.Join(t.dir, t.name+".counts")
	cmd, err := t.start(t, pid, file)
	if err != nil {
		return nil, err
	}
	worked := work()
	// perf and strace both print their counts when they get an interrupt signal.
	err = errors.Join(worked, cmd.Process.Signal(syscall.SIGINT))
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // Wait returns an error because of the interrupt signal; whether the counts are complete is visible in the output file
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		err = errors.Join(err, fmt.Errorf("%s does not end", t.name), cmd.Process.Kill())
		<-ended
	}
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%s counted nothing: %w", t.name, err)
	}
	return t.parse(string(text))
}

// perfCalls are the system calls of proxies and of Go's runtime under load. Each has its own
// tracepoint. The kernel needs some milliseconds per thread to remove a tracepoint, so all other
// system calls share one.
var perfCalls = []string{
	"read", "readv", "recvfrom", "recvmsg", "write", "writev", "sendto", "sendmsg",
	"epoll_wait", "epoll_pwait", "epoll_pwait2", "epoll_ctl", "accept4", "close", "fcntl", "setsockopt", "getsockopt",
	"futex", "nanosleep", "clock_nanosleep", "timerfd_settime", "tgkill", "getpid", "rt_sigreturn", "sched_yield", "madvise",
}

const (
	perfCall = "syscalls:sys_enter_"
	perfAll  = "raw_syscalls:sys_enter"
)

// startPerf starts perf. perf reports through a pipe when it begins to count.
func startPerf(t *Tracer, pid int, file string) (*exec.Cmd, error) {
	controlRead, controlWrite, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer controlRead.Close()
	defer controlWrite.Close()
	ackRead, ackWrite, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer ackRead.Close()
	defer ackWrite.Close()
	events := perfAll + "," + perfCall + strings.Join(perfCalls, ","+perfCall)
	cmd := exec.Command("perf", "stat", "-x", ";", "-o", file, "-p", strconv.Itoa(pid), "-D", "-1", "--control", "fd:3,4", "-e", events)
	cmd.ExtraFiles = []*os.File{controlRead, ackWrite}
	var said lastWords
	cmd.Stderr = &said
	if err := t.Starter.Start(cmd, t.cpus); err != nil {
		return nil, err
	}
	ackWrite.Close() // with this copy closed, the pipe ends when perf ends
	if _, err := io.WriteString(controlWrite, "enable\n"); err != nil {
		return nil, abandon(cmd, err, &said)
	}
	if err := ackRead.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return nil, abandon(cmd, err, &said)
	}
	if _, err := ackRead.Read(make([]byte, 16)); err != nil {
		return nil, abandon(cmd, err, &said)
	}
	return cmd, nil
}

// parsePerf reads lines such as "1234;;syscalls:sys_enter_read;1000;100.00;;".
func parsePerf(text string) (map[string]int64, error) {
	counts := make(map[string]int64)
	others := int64(0)
	for line := range strings.Lines(text) {
		fields := strings.Split(line, ";")
		if len(fields) < 3 {
			continue // the line is empty or a comment
		}
		n, err := strconv.ParseInt(fields[0], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("perf did not count %s: %s", fields[2], fields[0])
		}
		if name, ok := strings.CutPrefix(fields[2], perfCall); ok && n > 0 {
			counts[name] = n
			others -= n
		} else if fields[2] == perfAll {
			others += n
		}
	}
	if others > 0 {
		counts["others"] = others
	}
	if len(counts) == 0 {
		return nil, errors.New("perf saw no system call")
	}
	return counts, nil
}

// startStrace starts strace. strace reports on standard error when it is attached to the process.
func startStrace(t *Tracer, pid int, file string) (*exec.Cmd, error) {
	cmd := exec.Command("strace", "-c", "-f", "-U", "calls,name", "-o", file, "-p", strconv.Itoa(pid))
	said := &attached{seen: make(chan struct{})}
	cmd.Stderr = said
	if err := t.Starter.Start(cmd, t.cpus); err != nil {
		return nil, err
	}
	select {
	case <-said.seen:
		return cmd, nil
	case <-time.After(10 * time.Second):
		return nil, abandon(cmd, errors.New("it does not attach"), &said.lastWords)
	}
}

// attached is the standard error of strace. It closes the channel seen when strace has reported
// that it is attached.
type attached struct {
	lastWords
	once sync.Once
	seen chan struct{}
}

func (a *attached) Write(p []byte) (int, error) {
	n, err := a.lastWords.Write(p)
	if bytes.Contains(p, []byte("attached")) {
		a.once.Do(func() { close(a.seen) })
	}
	return n, err
}

// parseStrace reads lines such as "   1234 read" between two lines of dashes.
func parseStrace(text string) (map[string]int64, error) {
	counts := make(map[string]int64)
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) != 2 || fields[1] == "total" {
			continue
		}
		if n, err := strconv.ParseInt(fields[0], 10, 64); err == nil {
			counts[fields[1]] = n
		}
	}
	if len(counts) == 0 {
		return nil, errors.New("strace saw no system call")
	}
	return counts, nil
}

// abandon ends a tracer that did not start to count. It returns err together with the output of the
// tracer.
func abandon(cmd *exec.Cmd, err error, said *lastWords) error {
	_ = cmd.Process.Kill() // the process may have ended already
	_ = cmd.Wait()
	return fmt.Errorf("%w; %s", err, said)
}
