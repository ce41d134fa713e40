//go:build linux

package load

// This file describes the machine: the usage of each CPU, and the names of the kernel and the CPU.

import (
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// tick is the unit of /proc/PID/stat: USER_HZ, which is 100 a second on every Linux port of Go.
const tick = 10 * time.Millisecond

// Core is the usage of one CPU between two readings.
type Core struct {
	ID    int           `json:"id"`
	Wall  time.Duration `json:"wall_ns"`  // elapsed time between the two readings; in one reading: the time since this program started
	Idle  time.Duration `json:"idle_ns"`  // time in which the CPU waited for work or for a disk
	Steal time.Duration `json:"steal_ns"` // time in which the hypervisor used the CPU for other machines
}

// Busy returns the time in which the CPU worked: for processes, for interrupts, and for falling
// asleep and waking up. Its error is a tick or two, because tickless kernels measure idle time. The
// kernel only samples how busy time divides into user, kernel and interrupt time.
func (c Core) Busy() time.Duration { return max(0, c.Wall-c.Idle-c.Steal) }

// Minus returns the usage of the CPU between an earlier reading and c.
func (c Core) Minus(earlier Core) Core {
	return Core{c.ID, c.Wall - earlier.Wall, c.Idle - earlier.Idle, c.Steal - earlier.Steal}
}

var started = time.Now() // the clock of Wall starts here; any fixed time would do

// Cores returns the usage of each CPU since boot.
func Cores() (cores []Core, err error) {
	machine, err := procfs.NewDefaultFS()
	if err != nil {
		return nil, err
	}
	stat, err := machine.Stat()
	if err != nil {
		return nil, err
	}
	wall := time.Since(started)
	of := func(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }
	for _, id := range slices.Sorted(maps.Keys(stat.CPU)) {
		cpu := stat.CPU[id]
		cores = append(cores, Core{int(id), wall, of(cpu.Idle + cpu.Iowait), of(cpu.Steal)})
	}
	return cores, nil
}

// Machine returns the version of the running kernel without the vendor's suffix, the name of the
// CPU, and the number of CPUs.
func Machine() (kernel, model string, cpus int) {
	kernel, model = "unknown", "unknown"
	var name unix.Utsname
	if err := unix.Uname(&name); err == nil {
		kernel, _, _ = strings.Cut(unix.ByteSliceToString(name.Release[:]), "-")
	}
	if machine, err := procfs.NewDefaultFS(); err == nil {
		if cpus, err := machine.CPUInfo(); err == nil && len(cpus) > 0 {
			model = cpus[0].ModelName
		}
	}
	return kernel, model, runtime.NumCPU()
}
