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
	"time"

	"github.com/prometheus/procfs"
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
	if p.CPU, err = CPU(pid); err != nil {
		return p, err
	}
	from, err := procfs.NewProc(pid)
	if err != nil {
		return p, err
	}
	stat, err := from.Stat()
	if err != nil {
		return p, err
	}
	status, err := from.NewStatus()
	if err != nil {
		return p, err
	}
	p.Kernel, p.Memory = time.Duration(stat.STime)*tick, int64(status.RssAnon)
	if io, err := from.IO(); err == nil { // a kernel without this file measures everything else
		p.Reads, p.ReadBytes, p.Writes, p.WriteBytes = int64(io.SyscR), int64(io.RChar), int64(io.SyscW), int64(io.WChar)
	}
	threads, err := procfs.AllThreads(pid)
	for _, thread := range threads {
		if status, err := thread.NewStatus(); err == nil { // otherwise the thread has ended since
			p.Sleeps += int64(status.VoluntaryCtxtSwitches)
		}
	}
	return p, err
}

// Descriptors returns how many files and sockets process pid has open.
func Descriptors(pid int) (int, error) {
	from, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	return from.FileDescriptorsLen()
}
