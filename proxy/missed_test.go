package proxy

import (
	"strings"
	"testing"
	"time"
)

// TestMissedBehindTheFlush: a write that a server misses right after it was flushed is
// remembered, though nothing was done with its ledger between the two; also one that was
// begun before the flush.
func TestMissedBehindTheFlush(t *testing.T) {
	for _, begun := range []string{"RETURN", "WARM"} {
		tr := newTroupe(t, "pool main servers=s1,s2\nroute - main copies=2 ack=one repair=0\n")
		later := func() {
			end := tr.now + int64(5*time.Second)
			tr.pass("later", func() bool { return tr.now >= end })
		}
		tr.notice()
		tr.becomes("s2", "OUT")
		later()
		tr.becomes("s2", begun)
		tr.servers["s2"].items["1.1"] = copyItem{value: "older"} // another Ringside's, which this one now replaces
		tr.servers["s2"].mute = "set"
		if got := tr.client("set 1.1 0 0 1\r\nx"); got != "STORED\r\n" {
			t.Fatalf("%s: got %q", begun, got)
		}
		tr.becomes("s2", "WARM")
		tr.servers["s2"].mute = ""
		tr.hangUp("s2")
		later()
		tr.becomes("s2", "IN")
		tr.becomes("s1", "SUSPECT")
		if got := tr.client("get 1.1"); strings.Contains(got, "older") {
			t.Errorf("%s: got %q", begun, got)
		}
	}
}
