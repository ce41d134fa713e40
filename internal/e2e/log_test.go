package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestLogIsNotRead runs ringside with a log that nobody reads any more, such as a full pipe. Clients of healthy pools must
// not wait for it, and SIGTERM must end the process.
func TestLogIsNotRead(t *testing.T) {
	t.Parallel()
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	servers := startMemcacheds(t, 2)
	address := freeAddress(t, ownHost())
	file := filepath.Join(t.TempDir(), "ringside.yaml")
	config := fmt.Sprintf("listen: %s\n%spools:\n  a: {distribution: ketama, servers: [%q]}\n  b: {distribution: ketama, failover: {mode: fail_fast}, servers: [%q]}\nroutes: [{prefix: 'b:', pool: b}, {pool: a}]\n",
		address, poolDefaults(t), listenText(servers[0].address), listenText(servers[1].address))
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	w.SetWriteDeadline(time.Now().Add(time.Second))
	for err == nil {
		_, err = w.Write(make([]byte, 4096))
	}
	cmd := exec.Command(binary, "serve", "-c", file)
	cmd.Stderr = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { cmd.Process.Kill() })
	eventually(t, "it serves", func() bool {
		c, err := dialError(address)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	c := dial(t, address)
	eventually(t, "pool b serves", func() bool { return c.set("b:k", "v") == "STORED" })
	servers[0].Kill()
	eventually(t, "the dead server is noticed, and logged", func() bool {
		if c.set("b:k", "v") != "STORED" {
			t.Error("a set of the other pool fails")
		}
		return strings.Contains(c.question("get k"), "not in use") || strings.Contains(c.question("set k 0 0 1\r\nv"), "SERVER_ERROR")
	})
	for range 100 {
		cmd.Process.Signal(syscall.SIGHUP)
		if got := c.set("b:k", "v"); got != "STORED" {
			t.Fatalf("a set of the other pool: %s", got)
		}
	}
	c.Close()
	cmd.Process.Signal(syscall.SIGTERM)
	if err := <-ended; err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
}
