package replication_test

// Tests of the limits for copying keys from one replica to another.

import (
	"fmt"
	"testing"
	"time"

	"ringside/proxy/conversation"
	"ringside/proxy/replication"
)

// TestRoomForReads checks that copies for the ledger leave room for copies for reads.
// They must continue as soon as there is room again, not only at the next Tend.
func TestRoomForReads(t *testing.T) {
	const keys, most = 100, 32
	tr := newTroupe(t, "pool main servers=s1,s2 connections=2\nroute - main copies=2 ack=one repair=1000000 through\n")
	tr.notice()
	tr.SetPhase("s2", "SUSPECT")
	for i := range keys {
		tr.client(fmt.Sprintf("set %d.1 0 0 1\r\nx", i))
	}
	tr.servers["s1"].mute = "mg" // so no copy ends
	tr.SetPhase("s2", "IN")
	tr.pass("copied", func() bool { return tr.Engine.Copying > 0 })
	if tr.Engine.Copying != most {
		t.Errorf("the ledger has %d copies at work, want %d", tr.Engine.Copying, most)
	}
	tr.servers["s1"].items["new.2"] = copyItem{value: "y"}
	if tr.client("get new.2"); tr.Engine.Copying != most+1 {
		t.Errorf("%d copies at work behind a read that has found that replicas differ, want %d", tr.Engine.Copying, most+1)
	}
	tr.servers["s1"].mute = ""
	tr.play()
	if took := tr.pass("copied", func() bool { return len(tr.servers["s2"].items) == keys+1 }); took > 100*time.Millisecond {
		t.Errorf("all was copied %v behind the first", took)
	}
}

// TestTheLedgerLooksAtSome checks how many keys one wakeup checks if they can't be
// copied yet: as many as may be copied at once. The next wakeup must check others.
func TestTheLedgerLooksAtSome(t *testing.T) {
	s := conversation.New(t)
	s.Line("pool main servers=s1,s2")
	s.Line("route - main copies=2 through")
	s.Begin()
	s.SetPhase("s1", "SUSPECT")
	m := &s.Engine.Ledgers["main"].Members[1]
	first := ""
	s.Wakeup(func() {
		for i := range 200 {
			m.Lost(&s.Engine.Replicator, replication.DirtyKey{Hash: uint64(i), Key: fmt.Appendf(nil, "%d.1", i), Through: true}, false)
		}
		s.Engine.Replicator.Tend()
		first = string(m.Lists[replication.ToCopy].Front().Value.(*replication.DirtyKey).Key)
	})
	if first != "64.1" {
		t.Errorf("the next is %s, want 64.1", first)
	}
}
