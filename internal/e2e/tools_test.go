package e2e

// This file tests tools of operators: those of libmemcached, and memcached-tool.

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// tool runs a program to its end and returns its output.
func tool(t testing.TB, program string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, need(t, program), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
	return string(out)
}

var capableLine = regexp.MustCompile(`(?m)^((?:ascii|binary) .*?) +\[(\w+)\]$`)

// TestMemccapable runs the protocol test of libmemcached: all 27 tests of the text
// protocol and all 27 of the binary one.
func TestMemccapable(t *testing.T) {
	one := func(t *testing.T, address, protocol string) {
		i := strings.LastIndexByte(address, ':')
		out := tool(t, "memccapable", "-h", address[:i], "-p", address[i+1:], protocol)
		results := capableLine.FindAllStringSubmatch(out, -1)
		for _, result := range results {
			if result[2] != "pass" {
				t.Errorf("%s: %s", result[1], result[2])
			}
		}
		if len(results) != 27 || !strings.Contains(out, "All tests passed") {
			t.Errorf("%d results, want 27:\n%s", len(results), out)
		}
	}
	run := func(t *testing.T, address string) {
		one(t, address, "-a")
		one(t, address, "-b")
	}
	t.Run("memcached", func(t *testing.T) {
		t.Parallel()
		run(t, startMemcached(t).address)
	})
	eachDriver(t, func(t *testing.T, driver string) {
		run(t, startRingside(t, driver, front(startMemcacheds(t, 3))).address)
	})
}

func TestLibmemcachedTools(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		r := startRingside(t, driver, front(startMemcacheds(t, 3)))
		servers := "--servers=" + r.address

		file := filepath.Join(t.TempDir(), "greeting")
		if err := os.WriteFile(file, []byte("hello, world"), 0o644); err != nil {
			t.Fatal(err)
		}
		tool(t, "memcping", servers)
		tool(t, "memccp", servers, file)
		if got := strings.TrimSpace(tool(t, "memccat", servers, "greeting")); got != "hello, world" {
			t.Errorf("memccat printed %q", got)
		}
		tool(t, "memcexist", servers, "greeting")
		tool(t, "memctouch", servers, "--expire=100", "greeting")
		tool(t, "memcrm", servers, "greeting")
		dial(t, r.address).misses("greeting")
		tool(t, "memccp", servers, file)
		tool(t, "memcflush", servers)
		dial(t, r.address).misses("greeting")

		out := tool(t, "memcstat", servers)
		for _, want := range []string{"pid", "uptime", "curr_items", "cmd_get", "get_hits", "bytes", "version", "limit_maxbytes"} {
			if !regexp.MustCompile(`(?m)^\s*` + want + `: \S+$`).MatchString(out) {
				t.Errorf("memcstat shows no %s:\n%s", want, out)
			}
		}
	})
}

func TestMemcachedTool(t *testing.T) {
	const script = "/usr/share/memcached/scripts/memcached-tool"
	eachDriver(t, func(t *testing.T, driver string) {
		c := startCluster(t, driver)
		show := func(mode string) string { return tool(t, "perl", script, c.address, mode) }
		number := func(out, name string) string {
			t.Helper()
			found := regexp.MustCompile(`(?m)^\s*` + name + `\s+(\S+)\s*$`).FindStringSubmatch(out)
			if found == nil {
				t.Fatalf("no %s in:\n%s", name, out)
			}
			return found[1]
		}
		if got := number(show("stats"), "curr_items"); got != "300" {
			t.Errorf("memcached-tool stats: %s items, want 300", got)
		}
		if got := number(show("settings"), "cas_enabled"); got != "yes" {
			t.Errorf("memcached-tool settings: cas_enabled %s", got)
		}
		// One size class with 300 items. Columns: class, item size, age, pages, count,
		// full…
		out := show("display")
		if !regexp.MustCompile(`(?m)^\s+\d+\s+\d+B\s+\d+s\s+\d+\s+300\s`).MatchString(out) {
			t.Errorf("memcached-tool display has no class with 300 items:\n%s", out)
		}
	})
}
