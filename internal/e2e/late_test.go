package e2e

// This file tests sets that time out on a stopped server and are executed when it
// resumes. Their values must not stay.

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
)

const hasty = "timeouts: {request: 1s, deadline: 1s}"

// late is a ringside in front of one stopped memcached, and the keys that were set
// through it during the stop.
type late struct {
	*ringside
	server *memcached
	direct *conn // connection to the server itself
	keys   []string
}

// startLate stops a server that holds old values. It then sets new values of the given
// size, all of which time out.
func startLate(t testing.TB, driver, more string, keys, size int) *late {
	t.Helper()
	l := &late{server: startMemcached(t), keys: names("late", keys)}
	l.direct = dial(t, l.server.address)
	for _, key := range l.keys {
		l.direct.store(key, "old")
	}
	l.ringside = startRingside(t, driver, front([]*memcached{l.server}, hasty)+more)
	client := dial(t, l.address)
	eventually(t, "ringside is connected", func() bool {
		found, _ := client.get(l.keys[0])
		return found[l.keys[0]] == "old"
	})
	l.server.pause(t)
	value := strings.Repeat("v", size)
	done := make(chan string, 1)
	writer := dial(t, l.address)
	go func() {
		var b strings.Builder
		for _, key := range l.keys {
			fmt.Fprintf(&b, "set %s 0 0 %d\r\n%s\r\n", key, size, value)
		}
		writer.Write([]byte(b.String())) // a failed write shows as a missing reply below
		done <- ""
	}()
	for range l.keys {
		if line := writer.line(); !strings.HasPrefix(line, "SERVER_ERROR ") {
			t.Fatalf("a set on a stopped server: %s", line)
		}
	}
	<-done
	return l
}

// settles resumes the server and waits until all late replies have been received.
func (l *late) settles(t testing.TB) {
	t.Helper()
	l.server.resume(t)
	client := dial(t, l.address)
	eventually(t, "the late answers are in", func() bool { return client.stats("servers")["server:1:zombies"] == "0" })
}

// ran returns how many of the sets the server has executed.
func (l *late) ran() (n int) {
	fmt.Sscan(l.direct.stats("")["cmd_set"], &n)
	return n - len(l.keys)
}

// gone checks on the server that no key has the late value.
func (l *late) gone(t testing.TB) {
	t.Helper()
	if err := l.undone(); err != nil {
		t.Error(err)
	}
}

// undone returns an error unless every set that the server executed was deleted. If a set
// never reached the server, its key still has the old value.
func (l *late) undone() error {
	kept := 0
	for _, key := range l.keys {
		found, _ := l.direct.get(key)
		value, hit := found[key]
		if hit && value != "old" {
			return fmt.Errorf("%s has the late value, %s", key, brief(value))
		}
		if hit {
			kept++
		}
	}
	if ran := l.ran(); ran+kept != len(l.keys) {
		return fmt.Errorf("%d of %d sets ran, and %d keys have their old value", ran, len(l.keys), kept)
	}
	return nil
}

func TestLateSets(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ keys, size int }{{1, 4}, {1, 50_000}, {50, 1000}, {50, 50_000}} {
		t.Run(fmt.Sprintf("%dx%d", c.keys, c.size), func(t *testing.T) {
			eachDriver(t, func(t *testing.T, driver string) {
				l := startLate(t, driver, "", c.keys, c.size)
				if got := l.stat(t, "undone"); got == "0" {
					t.Error("no late delete was sent")
				}
				l.settles(t)
				l.gone(t)
				if l.ran() == 0 {
					t.Error("no set ran late")
				}
				if got := l.stat(t, "undo_lost"); got != "0" {
					t.Errorf("%s late deletes were lost", got)
				}
				client := dial(t, l.address)
				eventually(t, "ringside serves on", func() bool { return client.set(l.keys[0], "new") == "STORED" })
				eventually(t, "the new value is read", func() bool { // a slow reply counts as a miss
					found, _ := client.get(l.keys[0])
					return found[l.keys[0]] == "new"
				})
			})
		})
	}
}

func (l *late) stat(t testing.TB, name string) string {
	t.Helper()
	return dial(t, l.address).stats("servers")["server:1:"+name]
}

// TestLateSetsFillTheWindow sends more than all buffers on the path hold. Sets that the
// server received are undone. The others are never received, or undone too.
func TestLateSetsFillTheWindow(t *testing.T) {
	bothDrivers(t, func(t *testing.T, driver string) {
		l := startLate(t, driver, "", 300, 100_000)
		l.settles(t)
		l.gone(t)
		if ran := l.ran(); ran == 0 || ran == len(l.keys) {
			t.Errorf("%d of %d sets ran: the window was not full", ran, len(l.keys))
		}
	})
}

// TestLateSetsAndReload checks that a reload which removes the server does not drop the
// late delete.
func TestLateSetsAndReload(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		l := startLate(t, driver, "", 30, 1000)
		other := startMemcached(t)
		l.reload(t, front([]*memcached{other}, hasty))
		client := dial(t, l.address)
		eventually(t, "the reload is in force", func() bool {
			return client.stats("servers")["server:1:address"] == other.address
		})
		l.server.resume(t)
		eventually(t, "the sets that ran are deleted", func() bool { return l.ran() > 0 && l.undone() == nil })
	})
}

// TestLateSetsAndStop checks that a shutdown waits for the late delete, as for other
// requests in flight.
func TestLateSetsAndStop(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		l := startLate(t, driver, "limits: {drain: 1h}\n", 30, 1000)
		l.signal(t, syscall.SIGTERM)
		l.refuses(t)
		if !l.Running() {
			t.Fatal("ringside ended with a late delete on its way")
		}
		l.server.resume(t)
		if status := l.wait(t); status != 0 {
			t.Errorf("exit status %d", status)
		}
		l.gone(t)
	})
}

func TestLateSetsAndStopGivesUp(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		l := startLate(t, driver, "limits: {drain: 100ms}\n", 1, 4)
		l.signal(t, syscall.SIGTERM)
		if status := l.wait(t); status != 0 {
			t.Errorf("exit status %d", status)
		}
	})
}
