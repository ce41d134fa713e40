package e2e

// A process that may open fewer files than it did.

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The limit of open files is lowered below what clients use already: a server that
// comes back is connected all the same, the admin interface answers, and Ringside says
// what it makes of it. A client for whom there is no descriptor is counted as such.
func TestLimitOfFilesLowered(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "epoll") // the one that keeps a server's descriptors
	clients := make([]*conn, 150)
	for i := range clients {
		clients[i] = dial(t, c.address)
		clients[i].misses("nothing")
	}
	pid := c.cmd.Process.Pid
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
	c.servers[1].kill()
	eventually(t, "the server is down", func() bool {
		return strings.HasPrefix(clients[0].set(c.of(1)[0], "x"), "SERVER_ERROR")
	})
	for range 20 { // they would take the descriptors that are free now, and keep them
		late, err := net.Dial("tcp", c.address)
		if err != nil {
			t.Fatal(err)
		}
		defer late.Close()
	}
	c.servers[1].restart(t)
	eventually(t, "the server is used again", func() bool { return clients[0].set(c.of(1)[0], "x") == "STORED" })
	c.answers(t, "/healthz")
	c.logged(t, fmt.Sprintf(`the limit of open files has changed" open_files=%d clients=\d+`, len(files)))

	lower(100) // all numbers below are in use
	late, err := net.Dial("tcp", c.address)
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	eventually(t, "it is counted", func() bool {
		return c.metric(t, `ringside_client_connections_refused_total{reason="descriptors"}`) > 0
	})
	c.logged(t, `clients could not be accepted: raise the limit of open files`)
	clients[0].store(c.of(0)[0], "x")
	if n := strings.Count(c.out.String(), "Accept error"); n > 0 {
		t.Errorf("%d lines on what the admin interface can't accept", n)
	}
}
