package e2e

// This file repeats rounds of tests that must use the real clock.

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ringside/internal/testenv"
)

// rounds runs a test with short timeouts, because it covers what happens when they
// expire. On a busy machine a healthy server may exceed them, and the test may fail
// without reason. So a failed round is repeated if a goroutine woke up more than
// tolerance late, up to three rounds in all: see testenv.Undisturbed. A failure reported
// after certain counts in every round.
func rounds(t *testing.T, tolerance time.Duration, play func(t testing.TB)) {
	t.Helper()
	testenv.Undisturbed(t, 3, tolerance, func() error {
		r := &round{TB: t}
		done := make(chan struct{})
		go func() { // a separate goroutine, because FailNow ends it
			defer close(done)
			defer r.cleanUp()
			play(r)
		}()
		<-done
		return r.end(t)
	})
}

// round is the testing.TB of one round. It collects failures instead of reporting them.
type round struct {
	testing.TB
	mu        sync.Mutex // guards the fields below
	failures  []string
	failed    bool
	certain   bool
	cleanings []func()
}

// certain marks the failure that follows as one that no delay can cause.
func certain(t testing.TB) {
	if r, ok := t.(*round); ok {
		r.mu.Lock()
		r.certain = true
		r.mu.Unlock()
	}
}

// end returns the failures of the round, or reports them to t if they are certain.
func (r *round) end(t *testing.T) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch text := strings.Join(r.failures, "\n"); {
	case !r.failed:
		return nil
	case r.certain:
		t.Error(text)
		return nil
	default:
		return errors.New(text)
	}
}

func (r *round) fail(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
	if text != "" {
		r.failures = append(r.failures, strings.TrimSuffix(text, "\n"))
	}
}

func (r *round) Error(args ...any)                 { r.fail(fmt.Sprintln(args...)) }
func (r *round) Errorf(format string, args ...any) { r.fail(fmt.Sprintf(format, args...)) }
func (r *round) Fatal(args ...any)                 { r.fail(fmt.Sprintln(args...)); runtime.Goexit() }
func (r *round) Fatalf(format string, args ...any) {
	r.fail(fmt.Sprintf(format, args...))
	runtime.Goexit()
}
func (r *round) Fail()    { r.fail("") }
func (r *round) FailNow() { r.fail(""); runtime.Goexit() }

func (r *round) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

// Cleanup registers a function to run when the round ends.
func (r *round) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanings = append(r.cleanings, f)
}

// cleanUp runs the registered functions, the last one first, even if some of them end the
// goroutine.
func (r *round) cleanUp() {
	r.mu.Lock()
	all := slices.Clone(r.cleanings)
	r.mu.Unlock()
	for _, f := range all {
		defer f()
	}
}

// TestRounds checks that the failures of a round are collected, that its cleanups run,
// and that a disturbed round is repeated.
func TestRounds(t *testing.T) {
	r := &round{TB: t}
	var cleaned []int
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer r.cleanUp()
		r.Cleanup(func() { cleaned = append(cleaned, 1) })
		r.Cleanup(func() { cleaned = append(cleaned, 2); r.FailNow() })
		r.Errorf("first %d", 1)
		r.Fatal("second", 2)
		t.Error("Fatal did not end the round")
	}()
	<-done
	if want := []int{2, 1}; !slices.Equal(cleaned, want) {
		t.Errorf("cleaned up in the order %v, want %v", cleaned, want)
	}
	if err := r.end(t); err == nil || err.Error() != "first 1\nsecond 2" {
		t.Errorf("the round ended with %v", err)
	}
	n := 0
	rounds(t, -1, func(t testing.TB) { // every round counts as disturbed
		if n++; n < 3 {
			t.Fatal("a disturbed round")
		}
	})
	if n != 3 {
		t.Errorf("%d rounds, want 3", n)
	}
}
