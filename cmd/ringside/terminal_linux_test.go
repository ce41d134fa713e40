package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// openTerminal opens a terminal. seen closes it and returns everything that was written
// to it.
func openTerminal(t *testing.T) (f *os.File, seen func() string) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { screen.Close() })
	if err := unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	f, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	all := make(chan string)
	go func() {
		b, _ := io.ReadAll(screen) // ends with an error once the terminal is closed
		all <- string(b)
	}()
	return f, func() string { f.Close(); return <-all }
}

// TestColours checks that terminals get colours unless NO_COLOR is set, and files never
// do.
func TestColours(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.yaml")
	if err := os.WriteFile(path, []byte(goodFile+"admin: :9151\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	const red, green, yellow, end = "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[0m"
	for _, c := range []struct {
		noColor, term, args string
		want                []string // empty: no colours
	}{
		{"", "xterm", "check " + path, []string{green + path + " is correct" + end, yellow + "warning:" + end + " " + path + ":8:8: "}},
		{"", "xterm", "check " + path + ".none", []string{red + "ringside: cannot read the configuration: "}},
		{"", "xterm", "check --json " + path, nil},
		{"1", "xterm", "check " + path, nil},
		{"", "dumb", "check " + path, nil},
	} {
		t.Setenv("NO_COLOR", c.noColor)
		t.Setenv("TERM", c.term)
		f, seen := openTerminal(t)
		run(strings.Fields(c.args), nil, f, f)
		got := seen()
		if len(c.want) == 0 && strings.Contains(got, "\x1b") {
			t.Errorf("%s with NO_COLOR=%s and TERM=%s prints %q", c.args, c.noColor, c.term, got)
		}
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s prints %q, without %q", c.args, got, want)
			}
		}
	}
	file, err := os.Create(path + ".out")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "xterm")
	run([]string{"check", path}, nil, file, file)
	if b, err := os.ReadFile(path + ".out"); err != nil || !strings.Contains(string(b), " is correct\n") || strings.Contains(string(b), "\x1b") {
		t.Errorf("a file gets %q, %v", b, err)
	}
}
