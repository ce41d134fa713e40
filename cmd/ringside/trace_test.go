package main

import (
	"bytes"
	"testing"

	"ringside/proxy/live/trace"
)

// TestPrintEvent holds how an event is printed.
func TestPrintEvent(t *testing.T) {
	var b bytes.Buffer
	printEvent(&b, &trace.Row{Key: []byte("lock:a"), Letter: "U", Times: 1, Command: "delete", Outcome: "ok", Micros: 190, Server: "s1", Client: 3})
	printEvent(&b, &trace.Row{Key: []byte("a\x1b"), Letter: "M", Times: 2, Command: "get", Outcome: "miss", Why: "evicted", Cause: "X", Micros: 1900, Server: "s1", Client: 3})
	want := "00:00:00.000  U    a                        delete lock:a ok               190 µs  s1           0 B  c3\n" +
		`00:00:00.000  MX2  a\x1b                    get miss, evicted              1.9 ms  s1           0 B  c3` + "\n"
	if b.String() != want {
		t.Errorf("printed:\n%swant:\n%s", b.String(), want)
	}
}
