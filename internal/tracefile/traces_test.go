package tracefile

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"ringside/config"
	"ringside/proxy"
	"ringside/proxy/live"
	"ringside/proxy/table"
)

// TestRotation checks that the files of a trace have at most (keep + 1) × most bytes.
// Lines are not split, and only the oldest file is lost.
func TestRotation(t *testing.T) {
	for keep := range 4 {
		path := filepath.Join(t.TempDir(), "keys.trace")
		const most = 1000
		f, err := openFile(path, most, keep)
		if err != nil {
			t.Fatal(err)
		}
		for n := range 100 {
			var lines [][]byte
			for i := range 5 {
				lines = append(lines, fmt.Appendf(nil, "%03d %s\n", 5*n+i, strings.Repeat("x", n)))
			}
			if err := f.write(lines); err != nil {
				t.Fatal(err)
			}
		}
		f.close()
		files, _ := filepath.Glob(path + "*")
		if len(files) != keep+1 {
			t.Errorf("%d files, want %d", len(files), keep+1)
		}
		next := 499
		for i := range keep + 1 {
			name := path
			if i > 0 {
				name = fmt.Sprint(path, ".", i)
			}
			b, err := os.ReadFile(name)
			if err != nil || len(b) > most {
				t.Fatalf("%d bytes in %s, %v", len(b), name, err)
			}
			lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
			for j := len(lines) - 1; j >= 0; j-- {
				if !strings.HasPrefix(lines[j], fmt.Sprintf("%03d x", next)) {
					t.Fatalf("in %s is %q, want line %d", name, lines[j], next)
				}
				next--
			}
		}
		if is, _ := os.Stat(path); is.Mode().Perm() != 0o600 {
			t.Errorf("it is made with %v", is.Mode())
		}
	}
}

// A file that was moved is created again. An existing file is not overwritten, and
// keeps its mode.
func TestMovedAway(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.trace")
	if err := os.WriteFile(path, []byte("before\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := openFile(path, 1<<20, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	write := func(line string) {
		t.Helper()
		if err := f.write([][]byte{[]byte(line + "\n")}); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	if is, _ := os.Stat(path); is.Mode().Perm() != 0o644 {
		t.Errorf("its permissions are %v now", is.Mode())
	}
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	write("two")
	os.Remove(path)
	write("three")
	for name, want := range map[string]string{path + ".old": "before\none\n", path: "three\n"} {
		if b, err := os.ReadFile(name); string(b) != want {
			t.Errorf("%s has %q, %v; want %q", name, b, err, want)
		}
	}
}

// settings returns a trace that writes to path.
func settings(path string) []config.Trace {
	return []config.Trace{{Keys: []string{"home:*", "page:?"}, File: path, Max: 1 << 20, Keep: 1}}
}

// A file that cannot be opened is reported with what to do, and changes nothing.
func TestCannotOpen(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	traces := New(live.NewTracer(proxy.NewProxy(&table.Table{}, "", slog.New(slog.DiscardHandler))), slog.New(slog.DiscardHandler))
	link := filepath.Join(dir, "link")
	if err := os.Symlink(filepath.Join(dir, "target"), link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(dir, "none", "a.trace"), dir, pipe, "/dev/null", link} {
		if _, err := traces.Open(append(settings(filepath.Join(dir, "good.trace")), settings(path)...)); err == nil ||
			!strings.Contains(err.Error(), "cannot write the trace of home:* page:?: ") || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if len(traces.list) > 0 {
		t.Error("something is written")
	}
}

// A full disk ends a trace with one line in the log, and the next reload starts it
// again. Unchanged traces continue, and traces that are no longer configured end.
func TestFullDiskAndReload(t *testing.T) {
	var said bytes.Buffer
	path := filepath.Join(t.TempDir(), "keys.trace")
	traces := New(live.NewTracer(proxy.NewProxy(&table.Table{}, "", slog.New(slog.DiscardHandler))), slog.New(slog.NewTextHandler(&said, nil)))
	load := func(list []config.Trace) {
		t.Helper()
		take, err := traces.Open(list)
		if err != nil {
			t.Fatal(err)
		}
		take(true)
	}
	load(settings(path))
	first := traces.list[0]
	load(settings(path))
	if traces.list[0] != first {
		t.Error("what is unchanged has begun again")
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	first.to.f.Close()
	first.to.f = full
	if first.put(&live.Traced{Rows: []live.Row{{Key: []byte("home:a"), Letter: "H", Times: 1}}}, &traces.log) {
		t.Error("it goes on though its disk is full")
	}
	if is := said.String(); strings.Count(is, "trace stopped") != 1 || !strings.Contains(is, "no space left") || !strings.Contains(is, path) {
		t.Errorf("it is said:\n%s", is)
	}
	load(settings(path))
	if traces.list[0] == first {
		t.Error("a trace that has failed does not begin again")
	}
	load(nil)
	if len(traces.list) > 0 {
		t.Error("it goes on though nobody wants it")
	}
	if n := strings.Count(said.String(), "trace started"); n != 2 {
		t.Errorf("%d times is said that it begins:\n%s", n, said.String())
	}
}

// Each key is on one line, whatever bytes it has.
func TestLines(t *testing.T) {
	lines := Lines(&live.Traced{Dropped: 3, Rows: []live.Row{
		{T: 1e12, Key: []byte("home:a b\n\x00\u202e<b>"), Letter: "M", Cause: "X", Times: 1}, {T: 1e12 + 5, Key: []byte("home:c"), Letter: "H", Times: 4}, {T: 1e12 + 6, Key: []byte("lock:home:c"), Letter: "L", Times: 1},
	}})
	want := []string{`2001-09-09T01:46:40.000Z home:a\x20b\x0a\x00\xe2\x80\xae<b> MX` + "\n", "2001-09-09T01:46:40.005Z home:c H4 L\n", " -- 3 events dropped\n"}
	if len(lines) != len(want) {
		t.Fatalf("%d lines: %q", len(lines), lines)
	}
	for i, line := range lines {
		if !strings.HasSuffix(string(line), want[i]) {
			t.Errorf("line %d is %q, want %q", i, line, want[i])
		}
	}
}
