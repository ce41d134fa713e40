//go:build linux

package load

// This file reads the resource usage of processes and of the machine.
//
// The CPU time of a process is read from its CPU clock (clock_getcpuclockid), in nanoseconds and
// for all its threads. /proc/PID/stat has only ticks of ten milliseconds. The usage of the machine
// is read from /proc/stat, in ticks. It shows whether other processes disturbed a measurement.

// This part reads the values of one process: CPU time, context switches, memory, open files.

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// CPU returns the CPU time of all threads of process pid, including threads that have ended. If the
// kernel accounts for interrupts separately (see SoftirqApart), the time of network interrupts is
// missing.
func CPU(pid int) (time.Duration, error) {
	// The clock id of a process, in the kernel's encoding: the complement of the pid, shifted by
	// three bits, plus the constant CPUCLOCK_SCHED, which is 2.
	clock := int32(^pid<<3 | 2)
	if pid == os.Getpid() {
		clock = unix.CLOCK_PROCESS_CPUTIME_ID
	}
	var ts unix.Timespec
	if err := unix.ClockGettime(clock, &ts); err != nil {
		return 0, fmt.Errorf("no CPU clock for process %d, is it running? %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}

// Times returns the CPU time of process pid in user mode and in the kernel. The kernel estimates
// both from samples at its ticks.
func Times(pid int) (user, kernel time.Duration, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	return parseTimes(string(text))
}

func parseTimes(text string) (user, kernel time.Duration, err error) {
	// The second field of the file is the program's name in parentheses. The name may contain
	// spaces and parentheses, so the other fields begin after the last parenthesis.
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 13 {
		return 0, 0, fmt.Errorf("%q is no /proc/PID/stat", text)
	}
	var ticks [2]int64
	for i := range ticks {
		if ticks[i], err = strconv.ParseInt(fields[11+i], 10, 64); err != nil {
			return 0, 0, fmt.Errorf("/proc/PID/stat: %w", err)
		}
	}
	return time.Duration(ticks[0]) * tick, time.Duration(ticks[1]) * tick, nil
}

// Memory is the memory of a process, in bytes.
type Memory struct {
	Anon int64 `json:"anon"` // anonymous memory that is resident now (RssAnon), in bytes
	Peak int64 `json:"peak"` // greatest resident memory since the start, including files (VmHWM), in bytes
}

// ReadMemory returns the memory of process pid.
func ReadMemory(pid int) (Memory, error) {
	fields, err := status(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Memory{}, err
	}
	return Memory{Anon: fields["RssAnon"] << 10, Peak: fields["VmHWM"] << 10}, nil
}

// Descriptors returns how many files and sockets process pid has open.
func Descriptors(pid int) (int, error) {
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return len(open), err
}

// Switches returns how often the threads of process pid that still run have gone to sleep. That is
// close to their number of wakeups.
func Switches(pid int) (int64, error) {
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return 0, fmt.Errorf("threads of process %d: %w", pid, err)
	}
	var sum int64
	for _, task := range tasks {
		fields, err := status(fmt.Sprintf("/proc/%d/task/%s/status", pid, task.Name()))
		if err != nil {
			continue // the thread ended after the directory was read
		}
		sum += fields["voluntary_ctxt_switches"]
	}
	return sum, nil
}

// status returns the numbers in a file such as /proc/PID/status, by name.
func status(path string) (map[string]int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	fields := make(map[string]int64)
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		name, rest, _ := bytes.Cut(lines.Bytes(), []byte(":"))
		words := bytes.Fields(rest)
		if len(words) == 0 {
			continue
		}
		if n, err := strconv.ParseInt(string(words[0]), 10, 64); err == nil {
			fields[string(name)] = n
		}
	}
	return fields, nil
}
