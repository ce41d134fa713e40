//go:build linux

package proc

// The machine: what each CPU did, how the kernel counts, what it is.

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// tick is the unit of /proc/stat: USER_HZ, 100 a second on every Linux port
// that Go has.
const tick = 10 * time.Millisecond

// Core is what one CPU has done since boot.
type Core struct {
	ID      int           `json:"id"`
	Tasks   time.Duration `json:"tasks_ns"`   // user and system time
	Softirq time.Duration `json:"softirq_ns"` // interrupts, the network's among them
	Steal   time.Duration `json:"steal_ns"`   // taken by the hypervisor for others
}

// Minus returns what the CPU did since an earlier reading.
func (c Core) Minus(earlier Core) Core {
	return Core{c.ID, c.Tasks - earlier.Tasks, c.Softirq - earlier.Softirq, c.Steal - earlier.Steal}
}

// Cores returns what each CPU has done since boot.
func Cores() ([]Core, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return nil, err
	}
	return parseCores(string(text))
}

func parseCores(text string) ([]Core, error) {
	var cores []Core
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "cpu ") {
			continue // the sum of all CPUs
		}
		var id int
		var user, nice, system, idle, iowait, irq, softirq, steal int64
		n, _ := fmt.Sscanf(line, "cpu%d %d %d %d %d %d %d %d %d", &id, &user, &nice, &system, &idle, &iowait, &irq, &softirq, &steal)
		if n != 9 {
			continue // the lines after the CPUs
		}
		cores = append(cores, Core{
			ID:      id,
			Tasks:   time.Duration(user+nice+system) * tick,
			Softirq: time.Duration(irq+softirq) * tick,
			Steal:   time.Duration(steal) * tick,
		})
	}
	if len(cores) == 0 {
		return nil, fmt.Errorf("/proc/stat names no CPU")
	}
	return cores, nil
}

// SoftirqApart reports whether this kernel takes interrupt time out of the
// CPU time of processes (CONFIG_IRQ_TIME_ACCOUNTING), and whether the kernel's
// configuration could be read at all.
func SoftirqApart() (apart, known bool) {
	config, err := kernelConfig()
	if err != nil {
		return false, false
	}
	return bytes.Contains(config, []byte("\nCONFIG_IRQ_TIME_ACCOUNTING=y\n")), true
}

func kernelConfig() ([]byte, error) {
	if packed, err := os.Open("/proc/config.gz"); err == nil {
		defer packed.Close()
		text, err := gzip.NewReader(packed)
		if err != nil {
			return nil, err
		}
		return io.ReadAll(text)
	}
	return os.ReadFile("/boot/config-" + Kernel())
}

// Kernel returns the release of the running kernel.
func Kernel() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(name.Release[:])
}

// Model returns the CPU's name.
func Model() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, model, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(model)
		}
	}
	return "unknown"
}
