package client

import (
	"math"
	"strconv"
	"testing"
)

func TestAppendDecimal(t *testing.T) {
	for _, n := range []uint{0, 9, 10, 99, 100, 999, 1000, 1005, 9999, 10050, 999999, 1 << 20, math.MaxUint} {
		if got, want := string(appendDecimal([]byte("x"), n)), "x"+strconv.FormatUint(uint64(n), 10); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
