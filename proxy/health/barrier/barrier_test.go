package barrier

import (
	"testing"
	"time"
)

const (
	ping = time.Second
	list = 7 // the server list of the processes in these tests
)

func stood() bool    { return true }
func notStood() bool { return false }

// TestStages moves one process through all stages, and checks the condition of each
// step.
func TestStages(t *testing.T) {
	b := New(2)
	b.Begin(1, list, 0)
	if !b.Open() || b.Stage(1) != Done {
		t.Fatalf("the first arrangement is in stage %v", b.Stage(1))
	}
	b.Begin(2, list, 0)
	b.Settled = false
	now := int64(1)
	for i, c := range []struct {
		after  time.Duration
		agreed bool
		stood  func() bool
		moves  bool
		stage  Stage
	}{
		{0, true, stood, false, Waiting}, // starts the time measurement
		{17 * ping, true, stood, false, Waiting},
		{2 * ping, false, stood, false, Waiting},
		{0, true, notStood, true, Pausing},
		{0, true, notStood, false, Pausing},
		{0, true, stood, true, Decided},
		{0, true, notStood, false, Decided},
		{0, true, stood, true, Done},
		{0, true, notStood, false, Done},
	} {
		now += int64(c.after)
		if moves := b.Step(list, now, c.agreed, c.stood, ping); moves != c.moves || b.Stage(2) != c.stage {
			t.Fatalf("step %d: moves %v, then stage %v; want %v, %v", i, moves, b.Stage(2), c.moves, c.stage)
		}
	}
	if b.Settled {
		t.Error("settled before the last number has stood")
	}
	b.Step(list, now, true, stood, ping)
	if !b.Settled || !b.Open() {
		t.Error("not settled after the last number has stood")
	}
}

// TestPausedProcessesWaitAgain checks that another list during a pause moves the
// stage back to Waiting.
func TestPausedProcessesWaitAgain(t *testing.T) {
	b := New(1)
	b.Begin(1, list, 0)
	b.Begin(2, list, 0)
	b.Step(list, 1, true, stood, ping)
	b.Step(list, 1+int64(20*ping), true, stood, ping)
	if b.Stage(2) != Pausing || b.Open() {
		t.Fatalf("stage %v", b.Stage(2))
	}
	if before := b.N; !b.Step(list, 2+int64(20*ping), false, stood, ping) || b.Stage(2) != Waiting || b.N <= before {
		t.Errorf("stage %v with number %d after %d", b.Stage(2), b.N, before)
	}
}

// TestRead checks that a higher number of the own list is adopted, and one of another
// list is only remembered.
func TestRead(t *testing.T) {
	b := New(1)
	b.Begin(1, list, 0)
	if b.Read(6, list+1, false, 5) || b.N != 0 {
		t.Errorf("took number %d of another list", b.N)
	}
	if !b.Read(7, list, true, 6) || b.N != 7 || b.Since != 6 {
		t.Errorf("has number %d since %d", b.N, b.Since)
	}
	if b.Read(6, list, true, 7) {
		t.Error("went back")
	}
	b.Begin(3, list, 8)
	if b.N <= 7 || Of(b.N) != Waiting {
		t.Errorf("another arrangement begins with number %d", b.N)
	}
}

// TestLearn checks in which stage a process begins that was started while keys move, and has learned their former servers.
func TestLearn(t *testing.T) {
	for _, c := range []struct {
		reached uint32 // at another process
		n       uint32 // in the record of a peer
		same    bool   // the peer has the same server list
		want    uint32
	}{
		{1, 0, true, 1},  // no peer has begun
		{5, 4, false, 5}, // no peer has the list
		{5, 4, true, 5},  // an old record, of an earlier handover to the same list
		{5, 6, true, 6},
		{5, 8, true, 8},
		{8, 7, true, 8},   // the record is older
		{8, 9, false, 8},  // a peer has a third list
		{5, 9, true, 9},   // the handover has begun again
		{5, 9, false, 13}, // a peer has a third list
	} {
		b := New(2)
		b.Begin(1, list, 0)
		other := uint64(list)
		if !c.same {
			other++
		}
		b.Read(c.n, other, c.same, 1)
		if b.Learn(c.reached, list, 2); b.N != c.want || b.Settled {
			t.Errorf("%+v: the number is %d, settled: %v", c, b.N, b.Settled)
		}
	}
	for n, want := range []uint32{4, 1, 1, 1, 4, 5, 5, 5, 8} {
		b := New(1)
		if b.N = uint32(n); b.Reached() != want {
			t.Errorf("handover number %d: %d is reached", n, b.Reached())
		}
	}
}
