//go:build linux

package bench

// This file measures the cost of a wakeup on this machine. Proxies send requests in batches mainly
// to save wakeups.

import (
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Wakeups has the costs of some operations on this machine. A cost is the CPU time of the thread
// that performs the operation.
type Wakeups struct {
	Call   time.Duration // cost of a system call that does no work
	Waker  time.Duration // cost of waking a thread that sleeps on another, idle CPU
	Woken  time.Duration // cost for a thread of falling asleep and being woken by another thread
	Nap    time.Duration // cost of sleeping until a timer ends the sleep
	NapFor time.Duration // requested length of a sleep that a timer ends
	Napped time.Duration // real length of a sleep that a timer ends
}

// MeasureWakeups performs each operation n times and returns the average costs. It uses two CPUs.
func MeasureWakeups(n, cpu, other int) (Wakeups, error) {
	w := Wakeups{NapFor: 80 * time.Microsecond}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return w, fmt.Errorf("eventfd: %w", err)
	}
	defer unix.Close(fd)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return w, err
	}
	defer unix.SchedSetaffinity(0, &before)
	if err := pin(cpu); err != nil {
		return w, err
	}
	unix.Prctl(unix.PR_SET_TIMERSLACK, 1000, 0, 0, 0) // timers as precise as in Ringside's loops
	defer unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0)

	spent := threadTime()
	for range 100 * n {
		unix.RawSyscall(unix.SYS_GETPPID, 0, 0, 0)
	}
	w.Call = (threadTime() - spent) / time.Duration(100*n)

	nap := unix.NsecToTimespec(int64(w.NapFor))
	began := time.Now()
	spent = threadTime()
	for range n {
		unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&nap)), 0, 0)
	}
	w.Nap, w.Napped = (threadTime()-spent)/time.Duration(n), time.Since(began)/time.Duration(n)

	woken := make(chan error, 1)
	go func() {
		woken <- func() error {
			runtime.LockOSThread() // never unlocked, because the thread's CPU affinity is changed
			if err := pin(other); err != nil {
				return err
			}
			var b [8]byte
			spent := threadTime()
			for range n {
				if _, err := unix.Read(fd, b[:]); err != nil {
					return err
				}
			}
			w.Woken = (threadTime() - spent) / time.Duration(n)
			return nil
		}()
	}()
	one := [8]byte{1}
	for range n {
		for idle := time.Now().Add(200 * time.Microsecond); time.Now().Before(idle); { // leaves the other thread time to fall asleep
		}
		spent := threadTime()
		if _, err := unix.Write(fd, one[:]); err != nil {
			return w, err
		}
		w.Waker += threadTime() - spent
	}
	w.Waker /= time.Duration(n)
	for {
		select {
		case err := <-woken:
			return w, err
		default: // the other thread has read two writes as one, so it waits for one more
			unix.Write(fd, one[:])
		}
		time.Sleep(time.Millisecond)
	}
}

func pin(cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("CPU %d: %w", cpu, err)
	}
	return nil
}

func threadTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// String formats w as a table.
func (w Wakeups) String() string {
	us := func(d time.Duration) float64 { return float64(d) / 1e3 }
	return fmt.Sprintf(`%6.2f us  a system call that does nothing
%6.2f us  to wake a thread that sleeps on another CPU
%6.2f us  to be woken so
%6.2f us  to sleep %v by a timer, which took %.0f us
`, us(w.Call), us(w.Waker), us(w.Woken), us(w.Nap), w.NapFor, us(w.Napped))
}
