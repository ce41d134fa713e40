package main

import (
	"bufio"
	"bytes"
	"testing"

	"ringside/proxy/live"
)

// TestStories tells what happened to two keys in one line each.
func TestStories(t *testing.T) {
	var b bytes.Buffer
	out := traceOutput{w: bufio.NewWriter(&b), stories: map[string]*story{}}
	for _, one := range [][2]string{{"home:top", "M"}, {"lock:home:top", "L"}, {"\xff\x1b", "H"}, {"lock:home:top", "l"}, {"lock:home:top", "l"}, {"home:top", "W"}, {"home:top", "H"}, {"home:top", "H"}, {"home:top", "W"}, {"home:top", "W"}} {
		out.note(&live.TraceRow{Key: []byte(one[0]), Letter: one[1], Times: 1})
	}
	out.note(&live.TraceRow{Key: []byte("home:top"), Letter: "H", Times: 87})
	out.tell()
	out.line(&live.TraceRow{T: 0, Key: []byte("lock:a"), Letter: "U", Times: 1, Command: "delete", Outcome: "ok", Micros: 190, Server: "s1", Client: 3})
	out.w.Flush()
	want := "home:top M L l2 W H2 W W H87\n" + `\xff\x1b H` + "\n" +
		"00:00:00.000  U    a                        delete lock:a ok               190 µs  s1           0 B  c3\n"
	if b.String() != want {
		t.Errorf("told:\n%swant:\n%s", b.String(), want)
	}
}
