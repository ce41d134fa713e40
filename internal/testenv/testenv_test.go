package testenv

import (
	"errors"
	"testing"
	"time"
)

// failures is a testing.TB that only counts calls of Fatal.
type failures struct {
	testing.TB
	n int
}

func (f *failures) Helper()             {}
func (f *failures) Logf(string, ...any) {}
func (f *failures) Fatal(...any)        { f.n++ }

func TestUndisturbed(t *testing.T) {
	wrong := errors.New("wrong")
	for _, c := range []struct {
		name      string
		tolerance time.Duration
		err       error
		failures  int
	}{
		{"success", time.Hour, nil, 0},
		{"failure on a quiet machine", time.Hour, wrong, 1},
		{"failure on a disturbed machine", -1, wrong, 0}, // every wake-up is later than a negative tolerance allows
	} {
		rounds, f := 0, &failures{TB: t}
		Undisturbed(f, 3, c.tolerance, func() error { rounds++; return c.err })
		if f.n > 0 != (c.failures > 0) {
			t.Errorf("%s: %d failures in %d rounds, want %d", c.name, f.n, rounds, c.failures)
		}
		if disturbed := c.tolerance < 0; disturbed && rounds != 3 {
			t.Errorf("%s: %d rounds, want 3", c.name, rounds)
		}
	}
}
