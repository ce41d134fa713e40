package loop

// Errors while descriptors are opened: none of them may stay open.

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"ringside/proxy"
	"ringside/proxy/link"
)

// TestStartWithoutDescriptors raises the descriptor limit by one until a loop starts. It runs in a
// separate process because the limit applies to the whole process.
func TestStartWithoutDescriptors(t *testing.T) {
	const alone = "RINGSIDE_TEST_DESCRIPTORS"
	if os.Getenv(alone) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestStartWithoutDescriptors$", "-test.v")
		cmd.Env = append(os.Environ(), alone+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	var usual unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &usual); err != nil {
		t.Fatal(err)
	}
	descriptors(t)           // opens the descriptors that the runtime needs
	free, err := unix.Dup(0) // the lowest free number; the numbers above it are free or are used by this test
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(free)
	for more := range uint64(20) {
		before := descriptors(t)
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(free) + more, Max: usual.Max}); err != nil {
			t.Fatal(err)
		}
		p := proxy.NewProxy(tableOf("127.0.0.1:1"), "test", slog.New(slog.DiscardHandler))
		d, err := startEpoll(p.NewEngine(link.DefaultTune), Options{})
		if limit := unix.Setrlimit(unix.RLIMIT_NOFILE, &usual); limit != nil {
			t.Fatal(limit)
		}
		if err == nil {
			d.stop()
		} else if !errors.Is(err, unix.EMFILE) {
			t.Errorf("with %d descriptors: %v", more, err)
		}
		if after := descriptors(t); after != before {
			t.Errorf("with %d descriptors, %v: %d are open afterwards, before %d", more, err, after, before)
		}
		if err == nil {
			return
		}
	}
	t.Error("the loop never starts")
}

// unpollable is a listener whose descriptor epoll rejects.
type unpollable struct {
	net.Listener
	path string
}

func (u unpollable) File() (*os.File, error) { return os.Open(u.path) }

// TestServeWhatCannotBePolled passes a loop a listener that epoll rejects, and checks that no
// descriptor stays open.
func TestServeWhatCannotBePolled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p := proxy.NewProxy(tableOf("127.0.0.1:1"), "test", slog.New(slog.DiscardHandler))
	d, err := startEpoll(p.NewEngine(link.DefaultTune), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.stop()
	before := descriptors(t)
	for range 10 {
		d.serve(&listener{network: "tcp", address: "here", listeners: []net.Listener{unpollable{path: path}}}, 0)
	}
	served := make(chan struct{})
	d.post(func(*proxy.Engine) { close(served) })
	<-served
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors are open afterwards, before %d", after, before)
	}
}

// someServer makes a link a server connection.
type someServer struct{ link.Dialer }

// TestDescriptorsOfServersStay checks that the loop keeps the descriptors of closed server
// connections, and not those of clients.
func TestDescriptorsOfServersStay(t *testing.T) {
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	d := &epoll{fd: -1, timer: -1, wake: wake, spare: -1, await: awaiting{fd: -1}}
	defer d.closeOwn()
	for _, c := range []struct {
		link link.Link
		kept int
	}{{link.Link{Dialer: someServer{}}, 1}, {link.Link{}, 1}, {link.Link{Dialer: someServer{}}, 2}} {
		ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		d.release(&sock{fd: ends[0], link: &c.link})
		if len(d.kept) != c.kept {
			t.Errorf("%d descriptors are kept, want %d", len(d.kept), c.kept)
		}
		if n, err := unix.Read(ends[1], make([]byte, 1)); n != 0 || err != nil {
			t.Errorf("the other end reads %d, %v: the socket is open", n, err)
		}
		unix.Close(ends[1])
	}
}
