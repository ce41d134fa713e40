package replication_test

import (
	"strings"
	"testing"
	"time"

	"ringside/proxy/stats"
	"ringside/proxy/wire"
)

// TestMissedBehindTheFlush checks that a write is remembered that a server misses
// right after it was flushed, although its ledger was not used between the two. The
// same must hold for a write that started before the flush.
func TestMissedBehindTheFlush(t *testing.T) {
	for _, begun := range []string{"RETURN", "WARM"} {
		tr := newTroupe(t, "pool main servers=s1,s2\nroute - main copies=2 ack=one repair=0\n")
		later := func() {
			end := tr.Now + int64(5*time.Second)
			tr.pass("later", func() bool { return tr.Now >= end })
		}
		tr.notice()
		tr.SetPhase("s2", "OUT")
		later()
		tr.SetPhase("s2", begun)
		tr.servers["s2"].items["1.1"] = copyItem{value: "older"} // stored by another instance; this one replaces it now
		tr.servers["s2"].mute = "set"
		if got := tr.client("set 1.1 0 0 1\r\nx"); got != "STORED\r\n" {
			t.Fatalf("%s: got %q", begun, got)
		}
		tr.SetPhase("s2", "WARM")
		tr.servers["s2"].mute = ""
		tr.hangUp("s2")
		later()
		tr.SetPhase("s2", "IN")
		tr.SetPhase("s1", "SUSPECT")
		if got := tr.client("get 1.1"); strings.Contains(got, "older") {
			t.Errorf("%s: got %q", begun, got)
		}
	}
}

// TestMarksAreCounted checks that tombstones are counted by their result and by their
// purpose.
func TestMarksAreCounted(t *testing.T) {
	tr := newTroupe(t, "pool main servers=s1,s2\nroute - main copies=2 repair=0\n")
	marks := &tr.Engine.Count.Marks
	for _, c := range []struct {
		request string
		event   stats.TombstoneEvent
		by      stats.TombstoneUser
		want    uint64
	}{
		{"set 1.1 0 0 1\r\nx", stats.TombstoneMade, stats.TombstoneOfOther, 0},
		{"delete 1.1", stats.TombstoneMade, stats.TombstoneOfDelete, 2},
		{"add 1.1 0 0 1\r\nx", stats.TombstoneMade, stats.TombstoneOfAdd, 2},
		{"add 1.1 0 0 1\r\nx", stats.TombstoneMade, stats.TombstoneOfAdd, 2},
		{"add 1.1 0 0 1\r\nx", stats.TombstoneDisturbed, stats.TombstoneOfAdd, 0},
		{"mg 1.1 v", stats.TombstoneMet, stats.TombstoneOfOther, 0},
	} {
		tr.client(c.request)
		if got := marks[c.event][c.by]; got != c.want {
			t.Errorf("%q: %d marks %v by %v, want %d", c.request, got, c.event, c.by, c.want)
		}
	}
	for _, srv := range tr.servers {
		srv.items["1.1"] = copyItem{flags: wire.TombstoneFlags}
	}
	tr.client("mg 1.1 v")
	if marks[stats.TombstoneMet][stats.TombstoneOfOther] == 0 {
		t.Error("marks were met, and not counted")
	}
	if got, want := tr.Engine.Count.DeleteRounds, [stats.MaxDeleteRounds]uint64{1}; got != want {
		t.Errorf("deletes by rounds: %v, want %v", got, want)
	}
}

// TestLateDeleteBehindTheFlush makes a late delete remove a key right after the server
// was flushed, before the flush is noticed. The miss of that key must not be believed,
// even when all other misses are.
func TestLateDeleteBehindTheFlush(t *testing.T) {
	tr := newTroupe(t, "pool main servers=s1,s2\nroute - main copies=2 repair=0\n")
	later := func(d time.Duration) {
		end := tr.Now + int64(d)
		tr.pass("later", func() bool { return tr.Now >= end })
	}
	tr.notice()
	tr.servers["s1"].items["1.2"] = copyItem{value: "x"}
	tr.SetPhase("s2", "OUT")
	later(5 * time.Second)
	tr.SetPhase("s2", "WARM")
	tr.Wakeup(func() { tr.Engine.LateDeleted(tr.Engine.ByAddress["tcp s2"], []byte("1.2")) })
	tr.SetPhase("s2", "IN")
	later(2 * time.Minute)
	if got := tr.client("get 1.2"); !strings.HasPrefix(got, "VALUE 1.2 0 1\r\nx") {
		t.Errorf("got %q", got)
	}
}
