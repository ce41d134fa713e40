package remote

import (
	"bytes"
	"testing"
	"time"

	"ringside/proxy/live"
)

// TestPrintEvent checks the format of an event.
func TestPrintEvent(t *testing.T) {
	var b bytes.Buffer
	printEvent(&b, &live.Row{Key: []byte("lock:a"), Letter: "U", Times: 1, Command: "delete", Outcome: "ok", Micros: 190, Server: "s1", Client: 3})
	printEvent(&b, &live.Row{Key: []byte("a\x1b"), Letter: "M", Times: 2, Command: "get", Outcome: "miss", Why: "evicted", Cause: "X", Micros: 1900, Server: "s1", Client: 3})
	want := "00:00:00.000  U    a                        delete lock:a ok               190 µs  s1           0 B  c3\n" +
		`00:00:00.000  MX2  a\x1b                    get miss, evicted              1.9 ms  s1           0 B  c3` + "\n"
	if b.String() != want {
		t.Errorf("printed:\n%swant:\n%s", b.String(), want)
	}
}

// TestTraceSum checks that the summary of a second and the last line use the singular for
// one event and one key.
func TestTraceSum(t *testing.T) {
	var b bytes.Buffer
	tr := newTracing(&b, false, false)
	tr.stories.Add(&live.Traced{Rows: []live.Row{{Key: []byte("a"), Letter: "M", Times: 1}}})
	if got, want := tr.summary(time.Unix(0, 0)), "-- 00:00:00  1 event/s, 1 key, 0 dropped"; got != want {
		t.Errorf("a second is summed up as %q, want %q", got, want)
	}
	if err := tr.end(); err != nil || b.String() != "-- 1 event, 1 key, 0 dropped\n" {
		t.Errorf("the last line is %q, %v", b.String(), err)
	}
}
