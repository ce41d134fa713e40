package instance

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// trustOnly makes isTrusted return true only while trust is true.
func trustOnly(t *testing.T) (trust *atomic.Bool) {
	t.Helper()
	before := isTrusted
	t.Cleanup(func() { isTrusted = before })
	trust = &atomic.Bool{}
	isTrusted = func(uint32) bool { return trust.Load() }
	return trust
}

// TestHandoverRefusesIntruders checks that a process of another user that connects first
// gets nothing, does not end the offer, and costs no descriptors.
func TestHandoverRefusesIntruders(t *testing.T) {
	trust := trustOnly(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var opened atomic.Int64
	open := func() ([]string, []*os.File, error) {
		opened.Add(1)
		f, err := l.(*net.TCPListener).File()
		return []string{"tcp here"}, []*os.File{f}, err
	}
	handed := make(chan struct{})
	var h handoverSocket
	offer := func() string {
		t.Helper()
		name, err := h.offer(open, func(done func()) { close(handed); done() })
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	name := offer()
	for range 100 { // like a local user who repeats the request
		if again := offer(); again != name {
			t.Fatalf("a second socket %s beside %s", again, name)
		}
		c, err := net.Dial("unix", name)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(make([]byte, 1)); n > 0 || err == nil {
			t.Errorf("an intruder gets %d bytes, %v", n, err)
		}
		c.Close()
	}
	if n := opened.Load(); n > 0 {
		t.Errorf("the sockets were opened %d times for intruders", n)
	}
	trust.Store(true)
	taken, err := take(name)
	if err != nil {
		t.Fatal(err)
	}
	defer taken.close()
	if err := taken.ready(nil, func() {}); err != nil || len(taken.listeners["tcp here"]) != 1 {
		t.Errorf("%v; listeners %v", err, taken.listeners)
	}
	<-handed
}

// TestTakeRefusesStranger checks that the new process does not accept sockets from a
// process of another user, whatever it listens on.
func TestTakeRefusesStranger(t *testing.T) {
	trustOnly(t)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socketPrefix + "test-" + t.Name(), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := take(l.Addr().String()); err == nil || !strings.Contains(err.Error(), "both must be of the same user") {
		t.Errorf("it takes sockets from a stranger: %v", err)
	}
}

// TestTakeWaitsInFullQueue checks that a queue filled by another user's connections
// delays a take-over, but does not make it fail.
func TestTakeWaitsInFullQueue(t *testing.T) {
	name := socketPrefix + "test-" + t.Name()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	raw, err := l.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) { unix.Listen(int(fd), 1) }); err != nil {
		t.Fatal(err)
	}
	for {
		c, err := net.Dial("unix", name)
		if errors.Is(err, syscall.EAGAIN) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	go func() {
		time.Sleep(20 * time.Millisecond) // so that dialOffer most likely finds the queue full
		for {
			if c, err := l.Accept(); err != nil {
				return
			} else {
				defer c.Close()
			}
		}
	}()
	c, err := dialOffer(name)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// TestTakeRefusesOtherSockets checks that the new process does not connect to a service
// that is not a Ringside instance, even if it belongs to the same user.
func TestTakeRefusesOtherSockets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "service")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := take(path); err == nil || !strings.Contains(err.Error(), "which is not of a Ringside instance") {
		t.Errorf("it connects to any socket: %v", err)
	}
}
