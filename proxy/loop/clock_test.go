package loop

// The clock that the engines are told.

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// TestClock: it is one for all loops, never goes back, and on Linux it is the
// clock that counts a suspend, as /proc/uptime does.
func TestClock(t *testing.T) {
	before := now()
	if after := now(); after < before {
		t.Errorf("%d after %d", after, before)
	}
	if runtime.GOOS != "linux" {
		return
	}
	uptime := func() float64 {
		b, err := os.ReadFile("/proc/uptime")
		if err != nil {
			t.Fatal(err)
		}
		s, err := strconv.ParseFloat(strings.Fields(string(b))[0], 64)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	low := uptime()
	got := float64(now()) / 1e9
	if high := uptime() + 0.02; got < low-0.02 || got > high { // it has hundredths
		t.Errorf("%.2f s, the machine says %.2f to %.2f", got, low, high)
	}
	if n := testing.AllocsPerRun(100, func() { now() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
