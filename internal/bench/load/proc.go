//go:build linux

package load

// This file reads the resource usage of processes and of the machine.
//
// The CPU time of a process is read from its CPU clock (clock_getcpuclockid), in nanoseconds and
// for all its threads. /proc/PID/stat has only ticks of ten milliseconds. The usage of the machine
// is read from /proc/stat, in ticks. It shows whether other processes disturbed a measurement.

// This part reads the values of one process: CPU time, sleeps, memory, reads and writes.

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Process is the resource usage of a process: since its start, or between two readings.
type Process struct {
	PID        int           `json:"pid"`
	CPU        time.Duration `json:"cpu_ns"`      // CPU time of all threads
	Kernel     time.Duration `json:"kernel_ns"`   // CPU time in the kernel; the kernel estimates it from samples at its ticks
	Sleeps     int64         `json:"sleeps"`      // how often threads that still run went to sleep; close to the number of wakeups
	Reads      int64         `json:"reads"`       // number of read and readv calls
	ReadBytes  int64         `json:"read_bytes"`  // bytes that these calls returned
	Writes     int64         `json:"writes"`      // number of write and writev calls; sendmsg, which memcached uses, does not count
	WriteBytes int64         `json:"write_bytes"` // bytes that these calls accepted
	Memory     int64         `json:"memory"`      // anonymous memory that is resident at the last reading (RssAnon), in bytes
}

// CPU returns the CPU time of all threads of process pid, including threads that have ended. If the
// kernel accounts for interrupts separately, the time of network interrupts is missing.
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

// since returns the usage of the process between the reading p and now. If p has only a PID, that
// is the usage since the start of the process.
func (p Process) since() (now Process, err error) {
	if now, err = ReadProcess(p.PID); err != nil {
		return now, err
	}
	now.CPU -= p.CPU
	now.Kernel -= p.Kernel
	now.Sleeps -= p.Sleeps
	now.Reads -= p.Reads
	now.ReadBytes -= p.ReadBytes
	now.Writes -= p.Writes
	now.WriteBytes -= p.WriteBytes
	return now, nil
}

// ReadProcess returns the usage of process pid since its start.
func ReadProcess(pid int) (p Process, err error) {
	p.PID = pid
	at := fmt.Sprintf("/proc/%d/", pid)
	if p.CPU, err = CPU(pid); err != nil {
		return p, err
	}
	stat, err := os.ReadFile(at + "stat")
	if err != nil {
		return p, err
	}
	if p.Kernel, err = kernelTime(string(stat)); err != nil {
		return p, err
	}
	status, err := numbers(at + "status")
	if err != nil {
		return p, err
	}
	p.Memory = status["RssAnon"] << 10
	if io, err := numbers(at + "io"); err == nil { // a kernel without this file measures everything else
		p.Reads, p.ReadBytes, p.Writes, p.WriteBytes = io["syscr"], io["rchar"], io["syscw"], io["wchar"]
	}
	tasks, err := os.ReadDir(at + "task")
	for _, task := range tasks {
		if fields, err := numbers(at + "task/" + task.Name() + "/status"); err == nil { // otherwise the thread has ended since
			p.Sleeps += fields["voluntary_ctxt_switches"]
		}
	}
	return p, err
}

// kernelTime returns the CPU time in the kernel from the text of /proc/PID/stat.
func kernelTime(text string) (time.Duration, error) {
	// The second field of the file is the program's name in parentheses. The name may contain
	// spaces and parentheses, so the other fields begin after the last parenthesis.
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("%q is no /proc/PID/stat", text)
	}
	ticks, err := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(ticks) * tick, err
}

// Descriptors returns how many files and sockets process pid has open.
func Descriptors(pid int) (int, error) {
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return len(open), err
}

// numbers returns the numbers in a file such as /proc/PID/status, by name.
func numbers(path string) (map[string]int64, error) {
	text, err := os.ReadFile(path)
	fields := make(map[string]int64)
	for line := range strings.Lines(string(text)) {
		name, rest, _ := strings.Cut(line, ":")
		if words := strings.Fields(rest); len(words) > 0 {
			fields[name], _ = strconv.ParseInt(words[0], 10, 64) // a value that is not a number counts as 0
		}
	}
	return fields, err
}
