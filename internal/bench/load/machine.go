//go:build linux

package load

// This file describes the machine: the usage of each CPU, and the names of the kernel and the CPU.

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// tick is the unit of /proc/stat: USER_HZ, which is 100 a second on every Linux port of Go.
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
func Cores() ([]Core, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return nil, err
	}
	return parseCores(string(text), time.Since(started))
}

func parseCores(text string, wall time.Duration) ([]Core, error) {
	var cores []Core
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "cpu ") {
			continue // this line is the sum of all CPUs
		}
		var id int
		var user, nice, system, idle, iowait, irq, softirq, steal int64
		n, _ := fmt.Sscanf(line, "cpu%d %d %d %d %d %d %d %d %d", &id, &user, &nice, &system, &idle, &iowait, &irq, &softirq, &steal)
		if n != 9 {
			continue // this line is not about a CPU
		}
		cores = append(cores, Core{
			ID:    id,
			Wall:  wall,
			Idle:  time.Duration(idle+iowait) * tick,
			Steal: time.Duration(steal) * tick,
		})
	}
	if len(cores) == 0 {
		return nil, fmt.Errorf("/proc/stat names no CPU")
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
	text, _ := os.ReadFile("/proc/cpuinfo") // without it, the model stays unknown
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			model = strings.TrimSpace(value)
		}
	}
	return kernel, model, runtime.NumCPU()
}
