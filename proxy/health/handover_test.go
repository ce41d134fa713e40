package health

import (
	"testing"

	"ringside/proxy/health/barrier"
)

// TestResumeWaits checks that a keeper which a reload has recreated with new settings
// waits as long as any other. It does not know yet whether a proxy has another list.
func TestResumeWaits(t *testing.T) {
	members := []Server{{Name: "s1", Address: "tcp s1"}, {Name: "s2", Address: "tcp s2"}}
	v := NewView(len(members))
	before := New("main", members, Settings{}, 1)
	tell := func(k *Keeper, arrangement uint64, now int64) {
		v.Handover.Arrange(arrangement, 0)
		v.Tell(k, now)
		k.Tick(now)
		v.Publish(k, true)
	}
	tell(before, 7, 1000*sec)
	tell(before, 8, 1001*sec)
	k := New("main", members, Settings{AfterFailures: 2}, 1)
	k.Resume(v)
	for now := 1002 * sec; now < 1010*sec; now += sec {
		tell(k, 8, now)
		if got := v.Handover.Status().Stage(8); got != barrier.Waiting {
			t.Fatalf("after %d s it is in stage %d", (now-1001*sec)/sec, got)
		}
	}
	tell(k, 8, 1012*sec)
	if got := v.Handover.Status().Stage(8); got != barrier.Pausing {
		t.Errorf("at last it is in stage %d", got)
	}
}
