package loop

// The clock that the engines are told.

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestClock: it is the kernel's, so one for all loops, and it counts a suspend.
func TestClock(t *testing.T) {
	boot := func() int64 {
		var b unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &b); err != nil {
			t.Fatal(err)
		}
		return b.Nano()
	}
	low := boot()
	got := now()
	if high := boot(); got < low || got > high {
		t.Errorf("%d, the kernel says %d to %d", got, low, high)
	}
	if n := testing.AllocsPerRun(100, func() { now() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
