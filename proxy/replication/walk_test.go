package replication

import (
	"fmt"
	"testing"
	"time"

	"ringside/proxy/link"
	"ringside/proxy/task"
	"ringside/proxy/upstream"
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

// TestWalkRate checks that the time in which a server is listed does not lower the rate at which its keys move.
func TestWalkRate(t *testing.T) {
	e := &Replicator{Tasks: &task.Tasks{Servers: &upstream.Servers{IO: &link.IO{}}}}
	k := walk{e: e, dump: &dump{}, works: true}
	for range 30 { // the listing takes 30 s
		e.Now += int64(time.Second)
		k.rate()
	}
	k.allListed(&dump{}, true, "")
	e.Now += int64(time.Second)
	k.progress.Done += 5000
	k.rate()
	if k.progress.Rate != 5000 {
		t.Errorf("%v keys per second", k.progress.Rate)
	}
	k.dump = &dump{} // the next server is listed
	e.Now += int64(time.Second)
	if k.rate(); k.progress.Rate != 5000 {
		t.Errorf("%v keys per second during a listing", k.progress.Rate)
	}
}
