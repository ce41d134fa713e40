package loop

// The clock of all loops, on Linux: it goes on while the machine sleeps.

import (
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
// clock that stops in a suspend; the raw call costs 185 ns where time.Since
// costs 31, once a wakeup.
func now() int64 {
	var t unix.Timespec
	if _, _, errno := unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_BOOTTIME, ptr(&t), 0); errno != 0 {
		panic("clock_gettime(CLOCK_BOOTTIME): " + errno.Error()) // every Linux since 2.6.39 has it
	}
	return t.Nano()
}

// ptr is the address of what a raw call reads or fills in.
func ptr[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }
