//go:build linux

package main

// Tests of the commands with real memcached and nutcracker, and with a fake Ringside. The fake is
// this test binary, which forwards and changes replies.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"ringside/internal/bench"
	"ringside/internal/testenv"
)

// TestMain makes the test binary act as the programs that the commands start: the load, the slow
// proxy, and a Ringside with the commands "serve" and "version".
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "load", "slow":
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
	os.Exit(m.Run())
}

// lyingProxy forwards every client to the first server of a Ringside file. It changes one byte of
// the replies on each connection, after the first 2,000 bytes.
func lyingProxy(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	addrs := regexp.MustCompile(`(?:listen:|-) (127\S+)`).FindAllSubmatch(text, -1)
	listener, err := net.Listen("tcp", string(addrs[0][1]))
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
			server, err := net.Dial("tcp", string(addrs[1][1]))
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

// inFull reports whether the long tests run. The commands that measure for a long time are tested
// only then.
func inFull(t *testing.T) bool {
	if !testenv.Full() {
		t.Log("it is run by make full")
	}
	return testenv.Full()
}

func runShort(t *testing.T, ctx context.Context, args ...string) (bench.Report, string, error) {
	t.Helper()
	return measureShort(t, ctx, "run", append([]string{"-rounds", "2", "-tries", "1"}, args...)...)
}

// measureShort runs a command that measures, with a short window.
func measureShort(t *testing.T, ctx context.Context, name string, args ...string) (bench.Report, string, error) {
	t.Helper()
	return reported(t, ctx, append([]string{name, "-q", "-time", "100ms", "-warm", "20ms"}, args...)...)
}

func soakShort(t *testing.T, args ...string) (bench.Report, string, error) {
	t.Helper()
	return reported(t, t.Context(), append([]string{"soak", "-q"}, args...)...)
}

// reported runs a command and returns its report as data and as Markdown.
func reported(t *testing.T, ctx context.Context, args ...string) (bench.Report, string, error) {
	t.Helper()
	dir := t.TempDir()
	failed := command(ctx, append(args, "-json", dir+"/out.json", "-md", dir+"/out.md"))
	noChildren(t)
	var is bench.Report
	text, err := os.ReadFile(dir + "/out.json")
	if err != nil {
		return is, "", failed
	}
	if err := json.Unmarshal(text, &is); err != nil {
		t.Fatal(err)
	}
	markdown, err := os.ReadFile(dir + "/out.md")
	if err != nil {
		t.Fatal(err)
	}
	return is, string(markdown), failed
}

func TestRunMeasuresThePeers(t *testing.T) {
	report, markdown, err := runShort(t, t.Context(), "-scenarios", "ai", "-memory=false")
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Scenarios) != 2 {
		t.Fatalf("%d scenarios", len(report.Scenarios))
	}
	peers := make(map[string]bool)
	for _, m := range report.Scenarios[0].Peers {
		peers[m.Peer] = true
		cost := m.CPU
		if m.Peer == "direct" { // the whole cost of direct is that of the servers
			cost = m.Total
		}
		if len(m.Runs) != 2 || cost.Value.Median <= 0 || cost.Ratio == nil || m.Rate.Value.Median <= 0 || m.P99.Value.Median < m.P50.Value.Median {
			t.Errorf("%+v", m)
		}
	}
	if !peers["nutcracker"] || !peers["memcached"] || peers["ringside"] {
		t.Errorf("peers %v", peers)
	}
	for _, m := range report.Scenarios[1].Peers {
		if m.Peer == "nutcracker" {
			t.Error("nutcracker cannot speak meta")
		}
	}
	for _, want := range []string{"## a: 50 connections", "| nutcracker | nutcracker-", "| ringside |  | left out", "| memcached | memcached 1."} {
		if !strings.Contains(markdown, want) {
			t.Errorf("the report lacks %q:\n%s", want, markdown)
		}
	}
}

func TestRunMeasuresMemory(t *testing.T) {
	if !inFull(t) {
		return
	}
	report, markdown, err := runShort(t, t.Context(), "-scenarios", "", "-haproxy", "")
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Memory) != 4 || !strings.Contains(markdown, "| 5,000 connections, idle |") {
		t.Errorf("%+v\n%s", report.Memory, markdown)
	}
	for _, m := range report.Memory {
		if m.Peer != "nutcracker" || m.Anon <= 0 || m.Peak < m.Anon {
			t.Errorf("%+v", m)
		}
	}
}

func TestRunSaysWhoLies(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	report, markdown, err := runShort(t, t.Context(), "-scenarios", "c", "-memory=false", "-ringside", self)
	if err == nil {
		t.Error("a lying proxy is no error")
	}
	if len(report.Scenarios) != 1 {
		t.Fatalf("%d scenarios, error %v", len(report.Scenarios), err)
	}
	for _, m := range report.Scenarios[0].Peers {
		if lies := m.Peer == "ringside"; lies != (m.Failure != "") || lies == (len(m.Runs) == 2) {
			t.Errorf("%s: %d runs, failure %q", m.Peer, len(m.Runs), m.Failure)
		}
	}
	if !strings.Contains(markdown, "**Failed:** scenario c: ringside: connection") {
		t.Errorf("the report does not say it:\n%s", markdown)
	}
	if strings.HasPrefix(report.Placement, "equal") {
		t.Errorf("a proxy that only knows one server places equally: %s", report.Placement)
	}
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
	if _, _, err := runShort(t, ctx, "-time", "1h", "-scenarios", "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("a stopped run ends with: %v", err)
	}
}

func TestRunNeedsItsPeers(t *testing.T) {
	for _, c := range []struct{ flag, value, says string }{
		{"-nutcracker", "/no/such/program", "nutcracker: "},
		{"-memcached", "/no/such/program", "memcached: "},
		{"-ringside", "/no/such/program", "ringside: "},
		{"-scenarios", "z", "no scenario 'z'"},
		{"-rounds", "0", "-rounds"},
		{"-load-cpus", "x", "-load-cpus"},
		{"-proxy-cpu", "1000", "CPU 1000"},
	} {
		if _, _, err := runShort(t, t.Context(), c.flag, c.value); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s %s: %v", c.flag, c.value, err)
		}
	}
}

func TestCommandLine(t *testing.T) {
	for _, args := range [][]string{{}, {"walk"}, {"load", "-no"}, {"run", "more"}, {"instructions", "-no"}} {
		if err := command(t.Context(), args); !errors.Is(err, errUsage) {
			t.Errorf("%q: %v", args, err)
		}
	}
	if err := command(t.Context(), []string{"help"}); err != nil {
		t.Error(err)
	}
	for _, args := range [][]string{{"load"}, {"load", "-addr", "localhost:1"}, {"load", "-addr", "127.0.0.1:1", "-watch", "x"}, {"outages", "-q", "-time", "1s"}} {
		if err := command(t.Context(), args); err == nil || errors.Is(err, errUsage) {
			t.Errorf("%q: %v", args, err)
		}
	}
}

func TestCurves(t *testing.T) {
	if !inFull(t) {
		return
	}
	report, markdown, err := measureShort(t, t.Context(), "curves", "-rounds", "1", "-tries", "2", "-curves", "down,servers,loops")
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Curves) != 3 { // the curve loops measures only Ringside, and is empty without it
		t.Fatalf("%d curves", len(report.Curves))
	}
	for _, c := range report.Curves {
		for _, row := range c.Rows {
			for _, m := range row.Peers {
				if m.Peer != "nutcracker" || len(m.Runs) == 0 || m.CPU.Value.Median <= 0 {
					t.Errorf("%s, %s: %+v", c.ID, row.Label, m)
				}
			}
		}
	}
	for _, want := range []string{"## Servers down", "| 200 |", "| 100 |", "memcached 1."} {
		if !strings.Contains(markdown, want) {
			t.Errorf("the report lacks %q:\n%s", want, markdown)
		}
	}
	if _, _, err := measureShort(t, t.Context(), "curves", "-curves", "weather"); err == nil {
		t.Error("there is a curve of the weather")
	}
}

func TestWhere(t *testing.T) {
	report, markdown, err := measureShort(t, t.Context(), "where", "-scenarios", "ai")
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Where) != 2 || len(report.Where[0].Peers) != 2 || len(report.Where[1].Peers) != 1 {
		t.Fatalf("%+v", report.Where)
	}
	for _, p := range report.Where[0].Peers {
		if p.CPU <= 0 || p.Rate <= 0 || p.Kernel < 0 || p.Kernel > 1 || p.Loop != nil {
			t.Errorf("%+v", p)
		}
		if counted := !strings.HasPrefix(report.Tracer, "not counted"); counted != (len(p.Calls) > 0) {
			t.Errorf("%s: calls %v, and the tracer is %s", p.Peer, p.Calls, report.Tracer)
		}
	}
	if !strings.Contains(markdown, "## CPU time, a: 50 connections") {
		t.Errorf("the report does not say where:\n%s", markdown)
	}
}

func buildRingside(t *testing.T) string {
	t.Helper()
	ringside := filepath.Join(t.TempDir(), "ringside")
	if out, err := exec.Command("go", "build", "-o", ringside, "ringside/cmd/ringside").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return ringside
}

// TestVariants measures Ringside twice with different settings. The load directly on a server
// (the floor) is measured only if the scenario compares other peers with it.
func TestVariants(t *testing.T) {
	if !inFull(t) {
		return
	}
	ringside := buildRingside(t)
	also := "off=" + ringside + " moderation: off, coalesce_server: off"
	report, markdown, err := runShort(t, t.Context(), "-scenarios", "bi", "-memory=false", "-haproxy", "", "-nofloor", "-ringside", ringside, "-also", also)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range [][]string{{"ringside", "off", "nutcracker", "direct"}, {"ringside", "off", "memcached"}} {
		var peers []string
		for _, m := range report.Scenarios[i].Peers {
			peers = append(peers, m.Peer)
		}
		if !slices.Equal(peers, want) {
			t.Errorf("scenario %s has %q, want %q", report.Scenarios[i].ID, peers, want)
		}
	}
	if !strings.Contains(markdown, "engine: {moderation: off, coalesce_server: off}") {
		t.Errorf("the report does not say the settings:\n%s", markdown)
	}
	for _, wrong := range []string{"off", "=x", "off=", "off=" + ringside + " weather: fine"} {
		if _, _, err := runShort(t, t.Context(), "-scenarios", "b", "-memory=false", "-ringside", ringside, "-also", wrong); err == nil {
			t.Errorf("-also %q is taken", wrong)
		}
	}
}

// TestVisits measures clients that reconnect for each visit, over both kinds of socket, and
// compares all costs with direct.
func TestVisits(t *testing.T) {
	report, markdown, err := runShort(t, t.Context(), "-scenarios", "pe", "-memory=false", "-haproxy", "", "-nofloor", "-ringside", buildRingside(t))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{"e": {"ringside", "nutcracker", "direct"},
		"p": {"ringside", "ringside, unix socket", "nutcracker", "nutcracker, unix socket", "direct"}}
	for _, s := range report.Scenarios {
		var peers []string
		for _, m := range s.Peers {
			peers = append(peers, m.Peer)
			if m.Direct == nil || m.Total.Value.Median <= 0 || (m.Peer == "direct") != (m.CPU.Value.Median == 0) {
				t.Errorf("%s, %+v", s.ID, m)
			}
		}
		if !slices.Equal(peers, want[s.ID]) {
			t.Errorf("scenario %s has %q", s.ID, peers)
		}
	}
	for _, want := range []string{"## In all", "| scenario | ringside | nutcracker | ringside, unix socket | nutcracker, unix socket | direct, µs |", "nutcracker and Ringside: equal"} {
		if !strings.Contains(markdown, want) {
			t.Errorf("the report lacks %q:\n%s", want, markdown)
		}
	}
}

// TestTails measures a server with some slow replies, also with direct.
func TestTails(t *testing.T) {
	if !inFull(t) {
		return
	}
	report, markdown, err := measureShort(t, t.Context(), "tails", "-rounds", "1", "-tries", "1", "-rate", "2000", "-share", "0.2", "-delay", "5ms")
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Tails) != 2 || len(report.Tails[0].Peers) != 4 {
		t.Fatalf("%+v", report.Tails)
	}
	for _, m := range report.Tails[1].Peers {
		late := strings.HasSuffix(m.Peer, ", one slow")
		// A fifth of the replies is delayed by at least 5 ms. A starved peer may have sent none in its time.
		if a := m.Runs[0].Apart; a == nil || late && a.Its.P99 != 0 && a.Its.P99 < 5000 {
			t.Errorf("%s: %+v", m.Peer, a)
		}
	}
	if !strings.Contains(markdown, "## Tails, h: 500 connections, paced at 2000 a second; of the answers of one of three servers 20 % come 5ms late") || !strings.Contains(markdown, "| direct |") {
		t.Errorf("%s", markdown)
	}
	for _, wrong := range [][]string{{"tails", "-share", "2"}, {"tails", "-rate", "0"}, {"slow", "-delay", "-1s"}, {"slow", "-listen", "x"}} {
		if err := command(t.Context(), wrong); err == nil {
			t.Errorf("%q is taken", wrong)
		}
	}
}

func TestWakeups(t *testing.T) {
	if err := command(t.Context(), []string{"wakeups", "-n", "50"}); err != nil {
		t.Error(err)
	}
	for _, wrong := range [][]string{{"-n", "0"}, {"-cpu", "1", "-other", "1"}, {"-cpu", "1000"}} {
		if err := command(t.Context(), append([]string{"wakeups"}, wrong...)); err == nil {
			t.Errorf("%q is taken", wrong)
		}
	}
}

// TestSoak runs a real Ringside with servers that are killed. Only a longer soak can show growth.
func TestSoak(t *testing.T) {
	if !inFull(t) {
		return
	}
	ringside := buildRingside(t)
	testenv.Undisturbed(t, 3, 100*time.Millisecond, func() error {
		report, markdown, err := soakShort(t, "-time", "10s", "-ringside", ringside)
		if report.Soak == nil {
			t.Fatal(err)
		}
		for _, failed := range report.Soak.Failed {
			if !strings.HasPrefix(failed, "growth") {
				t.Error(failed)
			}
		}
		if !strings.Contains(markdown, "## Soak of 10s") {
			t.Errorf("the report does not say it:\n%s", markdown)
		}
		// How many legs, kills and misses there are in ten seconds depends on the machine.
		if s := report.Soak; s.Kills < 2 || len(s.Samples) < 4 || len(s.Growth) == 0 {
			return fmt.Errorf("%+v", s)
		}
		for _, l := range report.Soak.Loads {
			if l.Runs == 0 || l.Checked == 0 || l.Misses == 0 {
				return fmt.Errorf("%+v, with a server killed", l)
			}
		}
		return nil
	})
}

func TestSoakRefuses(t *testing.T) {
	for says, args := range map[string][]string{
		"a soak of 1s shows nothing": {"-time", "1s"},
		"there is nothing to soak":   {},
		"/no/such/program":           {"-ringside", "/no/such/program"},
	} {
		if _, _, err := soakShort(t, args...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", args, err)
		}
	}
}
