//go:build linux

package main

// Tests of the commands with real memcached and nutcracker, and with a fake Ringside. The fake is
// this test binary, which forwards and changes replies.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"ringside/internal/testenv"
)

// TestMain makes the test binary act as the programs that the commands start: the load, and a
// Ringside with the commands "serve" and "version".
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "load":
			main()
			return
		case "version":
			fmt.Println("liar 1.0")
			return
		case "serve":
			fmt.Fprintln(os.Stderr, lyingProxy(os.Args[3]))
			os.Exit(1)
		}
	}
	code := m.Run()
	testenv.Clean()
	os.Exit(code)
}

// lyingProxy forwards every client to the first server of a Ringside file. It changes one byte of
// the replies on each connection, after the first 2,000 bytes.
func lyingProxy(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	addrs := regexp.MustCompile(`127[.\d]+:\d+`).FindAllString(string(text), 3) // where it listens, its admin interface, its first server
	listener, err := net.Listen("tcp", addrs[0])
	if err != nil {
		return err
	}
	for {
		client, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer client.Close()
			server, err := net.Dial("tcp", addrs[2])
			if err != nil {
				return
			}
			defer server.Close()
			go io.Copy(server, client)
			if _, err := io.CopyN(client, server, 2000); err != nil {
				return
			}
			var b [1]byte
			if _, err := io.ReadFull(server, b[:]); err != nil {
				return
			}
			client.Write([]byte{b[0] ^ 1})
			io.Copy(client, server)
		}()
	}
}

// children returns the name and command line of each running child process of this process.
func children() (found []string, err error) {
	all, err := filepath.Glob("/proc/[0-9]*/status")
	for _, path := range all {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended since
		}
		if bytes.Contains(text, fmt.Appendf(nil, "\nPPid:\t%d\n", os.Getpid())) {
			name, _, _ := strings.Cut(string(text), "\n")
			line, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline")) // empty for a process that has ended
			found = append(found, name+" "+strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found, err
}

// noChildren fails the test if a child process still runs.
func noChildren(t *testing.T) {
	t.Helper()
	if left, err := children(); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

// measured runs a command with a real Ringside, and returns the text that the command printed into a page.
func measured(t *testing.T, ctx context.Context, page string, args ...string) (string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(file, []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	failed := command(ctx, slices.Concat(args[:1], []string{"-q", "-ringside", testenv.Binary(t), "-pages", file}, args[1:]))
	noChildren(t)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text), failed
}

const runPage = "<!-- run: head -->\n<!-- end -->\n<!-- run: ratios -->\n<!-- end -->\n<!-- run: values -->\n<!-- end -->\n"

// shortly are flags of a run that has one short round.
func shortly(args ...string) []string {
	return append([]string{"run", "-rounds", "1", "-tries", "1", "-time", "100ms", "-warm", "20ms"}, args...)
}

// wants fails the test if the text lacks one of the given pieces.
func wants(t *testing.T, text string, pieces ...string) {
	t.Helper()
	for _, piece := range pieces {
		if !strings.Contains(text, piece) {
			t.Errorf("the report lacks %q:\n%s", piece, text)
		}
	}
}

func TestRun(t *testing.T) {
	page, err := measured(t, t.Context(), runPage, shortly("-scenarios", "ejs", "-also", "off="+testenv.Binary(t)+" engine: {moderation: off}")...)
	if err != nil {
		t.Fatal(err)
	}
	wants(t, page, "`ringbench run -rounds=1 -scenarios=ejs ", "memcached 1.", "of 11 runs",
		"| e, 50 connections, multi-get of 20 | ", "| j, 50 connections, two copies of each key at Ringside | ",
		"| e | ringside | ", "| e | off | ", "| e | nutcracker | ", "| e | direct | 0.00 | ", "| s | nutcracker | ")
	if strings.Contains(page, "failed") || strings.Contains(page, "| j | direct |") {
		t.Errorf("%s", page)
	}
}

// TestRunCountsCalls tests that the report has system calls if perf can count them, and otherwise
// says why it has none.
func TestRunCountsCalls(t *testing.T) {
	page, err := measured(t, t.Context(), runPage+"<!-- run: calls -->\n<!-- end -->\n", shortly("-scenarios", "a", "-calls")...)
	if err != nil {
		wants(t, err.Error(), "perf")
		wants(t, page, "**Failed:** scenario a: ringside: the load that perf stat starts: ")
		return
	}
	wants(t, page, "read ", "epoll_wait ", "| a | nutcracker | ")
}

func TestRunSaysWhoLies(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	page, err := measured(t, t.Context(), runPage, shortly("-scenarios", "c", "-also", "liar="+self)...)
	if err == nil {
		t.Error("a lying proxy is no error")
	}
	wants(t, page, "**Failed:** scenario c: liar: connection", "| c | liar | failed | ", "| c | ringside | ")
}

// TestRunEndsItsChildrenWhenStopped stops the command while a load runs.
func TestRunEndsItsChildrenWhenStopped(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for ctx.Err() == nil {
			all, err := children()
			if err != nil || slices.ContainsFunc(all, func(c string) bool { return strings.Contains(c, " load -watch ") }) {
				cancel()
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	if _, err := measured(t, ctx, runPage, shortly("-time", "1h", "-scenarios", "a")...); !errors.Is(err, context.Canceled) {
		t.Errorf("a stopped run ends with: %v", err)
	}
}

func TestRunNeedsItsPeers(t *testing.T) {
	for _, c := range []struct{ flag, value, says string }{
		{"-nutcracker", "/no/such/program", "nutcracker: "},
		{"-memcached", "/no/such/program", "direct: "},
		{"-ringside", "/no/such/program", "ringside: "},
		{"-also", "x=/no/such/program", "x: "},
		{"-scenarios", "z", "no scenario 'z'"},
		{"-rounds", "0", "-rounds"},
		{"-proxy-cpus", "1000", "CPU 1000"},
		{"-pages", "/no/such/page", "/no/such/page"},
	} {
		if _, err := measured(t, t.Context(), runPage, shortly("-scenarios", "b", c.flag, c.value)...); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s %s: %v", c.flag, c.value, err)
		}
	}
}

func TestCommandLine(t *testing.T) {
	for _, args := range [][]string{{}, {"walk"}, {"load", "-no"}, {"run", "more"}, {"instructions", "-no"}, {"load", "-watch", "x"},
		{"run", "-load-cpus", "x"}, {"run", "-also", "off"}, {"run", "-also", "direct=x"}} {
		if err := command(t.Context(), args); !errors.Is(err, errUsage) {
			t.Errorf("%q: %v", args, err)
		}
	}
	if err := command(t.Context(), []string{"help"}); err != nil {
		t.Error(err)
	}
	for _, args := range [][]string{{"load"}, {"load", "-addr", "localhost:1"}, {"outages", "-q", "-time", "1s"}, {"soak", "-q", "-time", "1s"}, {"instructions", "-against", "/no/such/file"}} {
		if err := command(t.Context(), args); err == nil || errors.Is(err, errUsage) {
			t.Errorf("%q: %v", args, err)
		}
	}
}

func TestOutages(t *testing.T) {
	if !testenv.Full() {
		t.Log("it is run by make full")
		return
	}
	page, err := measured(t, t.Context(), "<!-- outages: outages -->\n<!-- end -->\n", "outages", "-time", "2s")
	if err != nil {
		t.Fatal(err)
	}
	wants(t, page, "| SIGKILL | ringside | ", "| SIGSTOP | nutcracker | ", "| black hole | nutcracker | ")
}

// TestSoak runs a real Ringside with servers that are killed. Only a longer soak can show growth.
func TestSoak(t *testing.T) {
	if !testenv.Full() {
		t.Log("it is run by make full")
		return
	}
	testenv.Undisturbed(t, 3, 100*time.Millisecond, func() error {
		page, err := measured(t, t.Context(), "<!-- soak: head -->\n<!-- end -->\n<!-- soak: soak -->\n<!-- end -->\n<!-- soak: growth -->\n<!-- end -->\n", "soak", "-time", "10s")
		if err != nil && !strings.Contains(err.Error(), "growth") {
			t.Error(err)
		}
		// How many legs and misses there are in ten seconds depends on the machine.
		for _, want := range []string{"| steady | 1 | ", "| crowd | ", "| goroutines | "} {
			if !strings.Contains(page, want) {
				return fmt.Errorf("%q is missing in %s", want, page)
			}
		}
		return nil
	})
}
