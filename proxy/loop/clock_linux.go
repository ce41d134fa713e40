package loop

// The clock of all loops, on Linux: it goes on while the machine sleeps.

import (
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// threadTime is the CPU time of this thread, in nanoseconds.
func threadTime() int64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0
	}
	return t.Nano()
}

// now is the time since the machine was started, in nanoseconds, the time that
// it slept included: a lease that ran out in a suspend has run out. The kernel
// answers without being entered, but the Go runtime offers that only for the
// clocks that stop in a suspend and that people set. A suspend moves these apart, by
// what it took: only then, and when the time of day is set, is the kernel entered, which
// would cost 185 to 300 ns at each wakeup, and these two take 50.
func now() int64 {
	t := time.Now()
	run := int64(t.Sub(started))
	apart := t.UnixNano() - run
	if moved := apart - clock.apart.Load(); moved > apartMost || moved < -apartMost {
		clock.adjust() // first, for another loop that finds apart right takes ahead for right
		clock.apart.Store(apart)
	}
	return run + clock.ahead.Load()
}

var (
	started = time.Now()
	clock   suspends // of all loops, which tell each other the time
)

// apartMost is what may pass between the looks at two clocks without meaning anything,
// in nanoseconds. No suspend is as short.
const apartMost = int64(time.Millisecond)

// suspends is what the runtime's clock lacks.
type suspends struct {
	apart atomic.Int64 // how far the time of day was ahead of the runtime's clock, in the last look
	ahead atomic.Int64 // how far the clock that counts suspends is
}

// adjust finds ahead. Of some looks the largest is nearest, for time passes between the
// two clocks of each; and it never falls, so that the time does not go back.
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

// ptr is the address of what a raw call reads or fills in.
func ptr[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }
