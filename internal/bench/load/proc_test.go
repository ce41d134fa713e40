//go:build linux

package load

// The readings, checked on this process and on a child.

import (
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"
)

func TestCPUOfThisProcessGrowsWithWork(t *testing.T) {
	before, err := CPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for sum, i := 0, 0; i < 50_000_000; i++ {
		sum += i ^ sum
	}
	after, err := CPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if after <= before {
		t.Errorf("CPU time went from %v to %v over a busy loop", before, after)
	}
}

func TestCPUOfAnotherProcess(t *testing.T) {
	child := exec.Command("sh", "-c", "while :; do :; done")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	for used := time.Duration(0); used == 0; { // it has not run yet
		var err error
		if used, err = CPU(child.Process.Pid); err != nil {
			t.Error(err)
			break
		}
	}
	if p, err := ReadProcess(child.Process.Pid); err != nil || p.CPU == 0 || p.Memory == 0 {
		t.Errorf("%+v, error %v", p, err)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // it was killed, so Wait returns an error
	if _, err := CPU(child.Process.Pid); err == nil {
		t.Error("an ended process still has a CPU clock")
	}
}

func TestReadProcess(t *testing.T) {
	before, err := ReadProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if before.Memory <= 0 || before.CPU <= 0 {
		t.Errorf("usage of this process = %+v", before)
	}
	file, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.Write(make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	if p, err := before.since(); err != nil || p.Memory <= 0 || p.CPU <= 0 || p.CPU > before.CPU+time.Minute || p.Writes < 1 || p.WriteBytes < 1000 {
		t.Errorf("between two readings: %+v, error %v", p, err)
	}
	if _, err := ReadProcess(1 << 30); err == nil {
		t.Error("a process that cannot be has a usage")
	}
}

func TestDescriptors(t *testing.T) {
	before, err := Descriptors(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if after, err := Descriptors(os.Getpid()); err != nil || after != before+1 {
		t.Errorf("%d descriptors after one more than %d, error %v", after, before, err)
	}
}

func TestCores(t *testing.T) {
	before := Core{Wall: time.Hour, Idle: 9070 * time.Millisecond, Steal: 40 * time.Millisecond}
	later := Core{Wall: time.Hour + time.Second, Idle: 9370 * time.Millisecond, Steal: 140 * time.Millisecond}
	if got := later.Minus(before).Busy(); got != 600*time.Millisecond {
		t.Errorf("busy for %v of a second with 0.3 s idle and 0.1 s stolen", got)
	}
	cores, err := Cores()
	if err != nil || len(cores) == 0 || !slices.IsSortedFunc(cores, func(a, b Core) int { return a.ID - b.ID }) {
		t.Errorf("this machine: %v, %v", cores, err)
	}
	for _, c := range cores {
		if c.Idle <= 0 {
			t.Errorf("CPU %d has never been idle", c.ID)
		}
	}
}
