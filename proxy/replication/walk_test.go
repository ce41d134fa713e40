package replication

import (
	"fmt"
	"testing"
)

// TestWalkPause checks that a server whose listings have the same keys again and again is listed less and less
// often.
func TestWalkPause(t *testing.T) {
	k, got := walk{}, []int64{}
	for _, again := range []int{0, 3, 3, 3, 1, 0, 1, 1} {
		k.again = again
		got = append(got, k.pause()/walkPause)
	}
	if want := []int64{0, 0, 1, 2, 4, 0, 0, 1}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("pauses are %v, want %v", got, want)
	}
	k, got = walk{failed: 1}, nil
	for range 7 {
		got = append(got, k.pause()/walkPause)
	}
	if want := []int64{1, 2, 4, 8, 16, 16, 16}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("pauses after failures are %v, want %v", got, want)
	}
	k.again, k.failed, k.passes = 1, 0, 1<<20
	if got := k.pause(); got != walkPause<<walkDoubles {
		t.Errorf("the longest pause is %d ns", got)
	}
}
