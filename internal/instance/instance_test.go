package instance

// Tests of the settings of the Go runtime.

import (
	"runtime/debug"
	"testing"

	"ringside/config"
)

func TestLimitMemory(t *testing.T) {
	was := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(was) })
	limit := func(memory int64) int64 {
		f := &config.File{}
		f.Limits.Memory = memory
		limitMemory(f)
		return debug.SetMemoryLimit(-1)
	}
	t.Setenv("GOMEMLIMIT", "")
	if got, want := limit(256<<20), int64(352<<20); got != want {
		t.Errorf("256 MiB: the runtime may take %d, want %d", got, want)
	}
	t.Setenv("GOMEMLIMIT", "1GiB")
	if got, want := limit(64<<20), int64(352<<20); got != want {
		t.Errorf("an operator's limit is overruled: %d, want %d", got, want)
	}
}
