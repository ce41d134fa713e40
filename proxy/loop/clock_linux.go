package loop

// This file implements the clock of all loops on Linux. The clock includes the time that the
// machine was suspended.

import (
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// threadTime returns the CPU time of this thread, in nanoseconds.
func threadTime() int64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0
	}
	return t.Nano()
}

// now returns the time since the machine was booted, in nanoseconds, including suspends. So a lease
// can expire during a suspend.
//
// The Go runtime reads the monotonic clock and the wall clock without a system call, but the
// monotonic clock stops in a suspend. A suspend therefore changes the difference between the two.
// now asks the kernel only if that difference has changed, after a suspend or when the wall clock
// was set. Asking the kernel at each wakeup would cost 185 to 300 ns; the two clocks cost 50 ns.
func now() int64 {
	t := time.Now()
	run := int64(t.Sub(started))
	apart := t.UnixNano() - run
	if moved := apart - clock.apart.Load(); moved > apartMost || moved < -apartMost {
		clock.adjust() // done before apart is stored: another loop that finds apart unchanged uses ahead
		clock.apart.Store(apart)
	}
	return run + clock.ahead.Load()
}

var (
	started = time.Now()
	clock   suspends // shared by all loops, which exchange times
)

// apartMost is how much the difference of the two clocks may change without a suspend, in
// nanoseconds, because they are not read at the same instant. A suspend takes longer.
const apartMost = int64(time.Millisecond)

// suspends is the correction of the runtime's monotonic clock, which stops while the machine is
// suspended.
type suspends struct {
	apart atomic.Int64 // last seen difference between the wall clock and the runtime's clock, in nanoseconds
	ahead atomic.Int64 // difference between CLOCK_BOOTTIME and the runtime's clock, in nanoseconds
}

// adjust updates ahead. It reads the two clocks several times and uses the largest difference,
// because time passes between the two reads of each pair. ahead never decreases, so the time never
// runs backwards.
func (s *suspends) adjust() {
	for range 5 {
		var t unix.Timespec
		if _, _, errno := unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_BOOTTIME, ptr(&t), 0); errno != 0 {
			panic("clock_gettime(CLOCK_BOOTTIME): " + errno.Error()) // every Linux since 2.6.39 has it
		}
		found := t.Nano() - int64(time.Since(started))
		for old := s.ahead.Load(); found > old && !s.ahead.CompareAndSwap(old, found); old = s.ahead.Load() {
		}
	}
}

// ptr returns the address of a variable that a raw call reads or writes.
func ptr[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }
