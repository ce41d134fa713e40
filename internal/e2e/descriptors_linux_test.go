package e2e

// This file lowers the limit of open files of a running process.

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLimitOfFilesLowered lowers the limit below what clients already use. A server that
// rejoins must still be connected, the admin interface must reply, and Ringside must log
// the change. A client for which there is no descriptor is counted.
func TestLimitOfFilesLowered(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "epoll") // only epoll keeps descriptors in reserve for servers
	clients := make([]*conn, 150)
	for i := range clients {
		clients[i] = dial(t, c.address)
		clients[i].misses("nothing")
	}
	pid := c.Cmd.Process.Pid
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	var limit unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &limit); err != nil {
		t.Fatal(err)
	}
	lower := func(n int) {
		limit.Cur = uint64(n)
		if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &limit, nil); err != nil {
			t.Fatal(err)
		}
	}
	lower(len(files))
	c.servers[1].Kill()
	eventually(t, "the server is down", func() bool {
		return strings.HasPrefix(clients[0].set(c.of(1)[0], "x"), "SERVER_ERROR")
	})
	for range 20 { // these would occupy all free descriptors
		late, err := net.Dial("tcp", c.address)
		if err != nil {
			t.Fatal(err)
		}
		defer late.Close()
	}
	c.servers[1].restart(t)
	eventually(t, "the server is used again", func() bool { return clients[0].set(c.of(1)[0], "x") == "STORED" })
	c.answers(t, "/healthz")
	c.logged(t, fmt.Sprintf(`limit of open files changed" open_files=%d clients=\d+`, len(files)))

	lower(100) // all descriptors below 100 are in use
	late, err := net.Dial("tcp", c.address)
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	eventually(t, "it is counted", func() bool {
		return c.metric(t, `ringside_client_connections_refused_total{reason="descriptors"}`) > 0
	})
	c.logged(t, `clients not accepted: raise the limit of open files`)
	clients[0].store(c.of(0)[0], "x")
	if n := strings.Count(c.Output(), "Accept error"); n > 0 {
		t.Errorf("%d lines on what the admin interface can't accept", n)
	}
}
