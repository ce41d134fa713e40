package loop

// The clock of the engines.

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestClock checks that the clock is the kernel's CLOCK_BOOTTIME, so all loops share it, and that
// it includes suspends. A suspend shows as a changed difference between the wall clock and the
// monotonic clock.
func TestClock(t *testing.T) {
	boot := func() int64 {
		var b unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &b); err != nil {
			t.Fatal(err)
		}
		return b.Nano()
	}
	check := func(when string) {
		t.Helper()
		low := boot() - int64(time.Millisecond) // time between the reads of the two clocks
		got := now()
		if high := boot(); got < low || got > high {
			t.Errorf("%s: %d, the kernel says %d to %d", when, got, low, high)
		}
	}
	check("at first")
	const slept = int64(time.Hour)
	clock.apart.Add(-slept)
	clock.ahead.Add(-slept)
	check("after a suspend")
	before := now()
	clock.apart.Add(slept)
	if after := now(); after < before {
		t.Errorf("the time of day was set, and the clock went back by %d", before-after)
	}
	check("after the time of day was set")
	if n := testing.AllocsPerRun(100, func() { now() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
