//go:build linux

// Package proc reads what a process and the machine have spent.
//
// CPU time of a process comes from its CPU clock (clock_getcpuclockid), in
// nanoseconds and for all of its threads; /proc/PID/stat has only ticks of ten
// milliseconds. What the whole machine did comes from /proc/stat, in ticks, and
// serves to tell whether other work disturbed a measurement.
package proc

// One process: its CPU clock, its context switches, its memory.

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// CPU returns the CPU time that all threads of process pid have used, living
// and ended. Where the kernel accounts interrupts apart (see SoftirqApart) it
// lacks the network's share.
func CPU(pid int) (time.Duration, error) {
	// The clock id of a process as the kernel encodes it: the complement of
	// the pid, then CPUCLOCK_SCHED.
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

// Memory is what a process holds, in bytes.
type Memory struct {
	Anon int64 `json:"anon"` // resident anonymous memory now (RssAnon)
	Peak int64 `json:"peak"` // the most that was ever resident, files included (VmHWM)
}

// ReadMemory returns the memory of process pid.
func ReadMemory(pid int) (Memory, error) {
	fields, err := status(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Memory{}, err
	}
	return Memory{Anon: fields["RssAnon"] << 10, Peak: fields["VmHWM"] << 10}, nil
}

// Switches returns how often the living threads of process pid went to sleep:
// close to the number of its wakeups.
func Switches(pid int) (int64, error) {
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return 0, fmt.Errorf("threads of process %d: %w", pid, err)
	}
	var sum int64
	for _, task := range tasks {
		fields, err := status(fmt.Sprintf("/proc/%d/task/%s/status", pid, task.Name()))
		if err != nil {
			continue // the thread ended between the two reads
		}
		sum += fields["voluntary_ctxt_switches"]
	}
	return sum, nil
}

// status reads the numbers of a /proc status file by their names.
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
