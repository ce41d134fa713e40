package instance

// Tests of what a supervisor and a load balancer see of a start, a reload and a stop.

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"ringside/internal/testenv"
)

// listenAsSupervisor acts as systemd for the process. next returns the next message.
func listenAsSupervisor(t *testing.T) (next func() string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return func() string {
		t.Helper()
		c.SetReadDeadline(time.Now().Add(testenv.Hang))
		b := make([]byte, 4096)
		n, err := c.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
}

func TestSupervisorIsTold(t *testing.T) {
	next := listenAsSupervisor(t)
	t.Cleanup(func() { // after the end of Serve
		wants(t, next(), "STOPPING=1\n", "STATUS=stopping: requests in flight get replies, for at most 10s")
	})
	s := serveFile(t, filepath.Join(t.TempDir(), "ringside.yaml"), fmt.Sprintf(reloadable, "", "", ""))
	wants(t, next(), "READY=1\n", "STATUS=serving 2 servers in 1 pool on "+s.Address()+"; generation 1")

	s.write(fmt.Sprintf(reloadable, "", `, weight: 3}, {address: "127.0.0.3:9", name: c`, ""))
	s.reloads(0)
	wants(t, next(), "RELOADING=1\n", "MONOTONIC_USEC=")
	wants(t, next(), "READY=1\n", "STATUS=serving 3 servers in 1 pool on ", "generation 2")

	s.write("nothing")
	s.reloads(78)
	wants(t, next(), "RELOADING=1\n")
	wants(t, next(), "READY=1\n", "generation 2; the last reload was rejected: "+s.path+":1:1: ")
}

// TestLinger checks the time between SIGTERM and the end of limits.linger: /readyz
// reports that the instance is stopping, and new clients are still served.
func TestLinger(t *testing.T) {
	s := serveFile(t, filepath.Join(t.TempDir(), "ringside.yaml"), fmt.Sprintf(reloadable, "", "", "limits: {linger: 1m}\n"))
	if code, out, errs := typed("health", "--admin", s.admin); code != 0 || out != "ready\n" {
		t.Errorf("ringside health before: %d %q %q", code, out, errs)
	}
	s.signals <- syscall.SIGTERM
	eventually(t, "ringside health says that it stops", func() bool {
		code, _, errs := typed("health", "--admin", s.admin)
		return code == 1 && errs == "ringside: not ready: stopping\n"
	})
	if code, out, errs := typed("health", "--alive", "--admin", s.admin); code != 0 || out != "ok\n" {
		t.Errorf("ringside health --alive: %d %q %q", code, out, errs)
	}
	c, err := net.Dial("tcp", s.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(testenv.Hang))
	fmt.Fprint(c, "mn\r\n")
	b := make([]byte, 64)
	if n, err := c.Read(b); err != nil || !strings.HasPrefix(string(b[:n]), "MN") {
		t.Errorf("a client that comes late gets %q, %v", b[:n], err)
	}
	time.Sleep(oneStop) // signals within this time count as one
	s.hurried = true    // by the signal that ends the test
}
