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
	if _, err := (reservedListener{l, r}).Accept(); !errors.Is(err, net.ErrClosed) || l.tries != 3 {
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
