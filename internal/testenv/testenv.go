// Package testenv tells tests which tier to run, and how busy the machine is.
//
// Tests run in three tiers. `make check` runs go test -short and finishes in
// seconds. `make test` is what CI runs. `make full` sets RINGSIDE_FULL and runs
// everything: all simulation seeds, both drivers for every end-to-end test, all
// client languages.
package testenv

// This file contains the tiers of tests. It also repeats tests that a busy machine has disturbed.

import (
	"os"
	"testing"
	"time"
)

// Full reports whether the environment variable RINGSIDE_FULL is set, as `make full` does. In
// that case, tests run everything. A test that always runs everything does not call Full.
func Full() bool { return os.Getenv("RINGSIDE_FULL") != "" }

// OnlyFull skips a test unless the full tier of tests runs (`make full`). why says what makes the
// test slow, or which faster test covers most of it.
func OnlyFull(t testing.TB, why string) {
	t.Helper()
	if !Full() {
		t.Skip("only make full runs it: " + why)
	}
}

// Hang is the time limit for a wait for a condition. It is far longer than any such wait on a
// busy machine, so it only detects hangs.
const Hang = 2 * time.Minute

// Starvation measures how late a goroutine of this process wakes up. Another process, such as the
// tested proxy, is delayed by about the same time.
type Starvation struct {
	stop chan struct{}
	late chan time.Duration
}

// MeasureStarvation starts to measure. The caller must call Stop.
func MeasureStarvation() *Starvation {
	s := &Starvation{stop: make(chan struct{}), late: make(chan time.Duration)}
	go func() {
		const nap = 10 * time.Millisecond
		var late time.Duration
		for {
			before := time.Now()
			select {
			case <-s.stop:
				s.late <- late
				return
			case <-time.After(nap):
				late = max(late, time.Since(before)-nap)
			}
		}
	}()
	return s
}

// Stop ends the measurement and returns the longest delay of a wake-up.
func (s *Starvation) Stop() time.Duration {
	close(s.stop)
	return <-s.late
}

// Undisturbed runs the function round for a test that must use the real clock. It measures
// whether the machine disturbs the round: then some wake-up is later than tolerance. If an
// undisturbed round returns an error, the test fails. A disturbed round with an error is
// repeated, up to rounds in total. If all rounds were disturbed and returned errors, Undisturbed
// logs "undecided" with the last error. The test then does not fail, because the machine may have
// caused the error. The summary of `make test` lists such tests.
func Undisturbed(t testing.TB, rounds int, tolerance time.Duration, round func() error) {
	t.Helper()
	var err error
	for n := 1; n <= rounds; n++ {
		s := MeasureStarvation()
		err = round()
		late := s.Stop()
		switch {
		case err == nil:
			return
		case late <= tolerance:
			t.Fatal(err)
		}
		t.Logf("round %d of %d: a goroutine woke %v late (%v are tolerated), so its error does not count: %v", n, rounds, late, tolerance, err)
	}
	t.Logf("undecided: all %d rounds were disturbed; the last error: %v", rounds, err)
}
