package admin

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
)

// fullListener belongs to a process that may not open more files while its reserve has more
// than left files.
type fullListener struct {
	net.Listener
	reserve *reserve
	left    int
	tries   int
}

func (l *fullListener) Accept() (net.Conn, error) {
	l.tries++
	if len(l.reserve.files) > l.left {
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return nil, net.ErrClosed
}

// A connection without a free descriptor gets one of the reserve. The reserve is full again
// after the connection is closed.
func TestReserve(t *testing.T) {
	r := &reserve{}
	r.fill()
	if len(r.files) != reserved || r.inUse() {
		t.Fatalf("%d files, in use: %v", len(r.files), r.inUse())
	}
	l := &fullListener{reserve: r, left: reserved - 2}
	if _, err := (reservedListener{l, r, &connections{}}).Accept(); !errors.Is(err, net.ErrClosed) || l.tries != 3 {
		t.Errorf("%v after %d tries", err, l.tries)
	}
	if len(r.files) != reserved-2 || !r.inUse() {
		t.Errorf("%d files, in use: %v", len(r.files), r.inUse())
	}
	r.fill()
	if len(r.files) != reserved || r.inUse() {
		t.Errorf("filled up: %d files, in use: %v", len(r.files), r.inUse())
	}
	r.close()
	r.fill()
	if len(r.files) != 0 {
		t.Errorf("closed, and %d files are open", len(r.files))
	}
}

// crowdedListener belongs to a process that may not open more files while more than left connections
// are open.
type crowdedListener struct {
	net.Listener
	all  *connections
	left int
}

func (l *crowdedListener) Accept() (net.Conn, error) {
	l.all.mu.Lock()
	defer l.all.mu.Unlock()
	if len(l.all.open) > l.left {
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return nil, net.ErrClosed
}

// Without a descriptor and without a reserve, the connections are closed that have waited longest for
// their client, of the host that has most.
func TestReserveIsEmpty(t *testing.T) {
	cs := &connections{}
	add := func(host string, handled bool) *connection {
		a, b := net.Pipe()
		t.Cleanup(func() { b.Close() })
		c := &connection{Conn: a, all: cs, host: host}
		cs.add(c)
		c.handled = handled
		return c
	}
	other, busy, first, second, third := add("b", false), add("a", true), add("a", false), add("a", false), add("a", false)
	l := &crowdedListener{all: cs, left: 3}
	if _, err := (reservedListener{l, &reserve{}, cs}).Accept(); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	if cs.open[first] || cs.open[second] || !cs.open[third] || !cs.open[other] || !cs.open[busy] || cs.closed.Load() != 2 {
		t.Errorf("other %v, busy %v, first %v, second %v, third %v, %d closed", cs.open[other], cs.open[busy], cs.open[first], cs.open[second], cs.open[third], cs.closed.Load())
	}
}
