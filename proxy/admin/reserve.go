package admin

// This part reserves file descriptors for the admin interface. It is needed most when clients have
// used up all other descriptors.

import (
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// reserved is the number of connections of the admin interface that are possible when the process
// may not open more files.
const reserved = 8

// reserve has open files, which only hold file descriptors. When a connection gets no descriptor,
// one of the files is closed.
type reserve struct {
	mu     sync.Mutex
	files  []*os.File
	lent   bool // a file was closed for a connection, and not all files are open again
	closed bool
}

// fill opens the files that are missing in the reserve. It stops if no descriptors are left.
func (r *reserve) fill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for !r.closed && len(r.files) < reserved {
		f, err := os.Open(os.DevNull)
		if err != nil {
			return
		}
		r.files = append(r.files, f)
	}
	r.lent = false
}

// give closes one file of the reserve. It returns false if the reserve has no file.
func (r *reserve) give() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lent = true
	last := len(r.files) - 1
	if last < 0 {
		return false
	}
	r.files[last].Close()
	r.files = r.files[:last]
	return true
}

func (r *reserve) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.files {
		f.Close()
	}
	r.files, r.closed = nil, true
}

func (r *reserve) inUse() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lent
}

// reservedListener accepts a connection even if no file descriptor is left: it then closes a file
// of the reserve. If the reserve is empty, it closes a connection that waits for its client, and
// tries again without a log line. net/http would log each attempt.
type reservedListener struct {
	net.Listener
	reserve *reserve
	all     *connections
}

// These are the times after which the listener tries again to accept a connection.
const (
	acceptAgain = 100 * time.Millisecond
	closedTime  = 2 * time.Millisecond // after a connection was closed, until its descriptor is free
)

func (l reservedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if !errors.Is(err, syscall.EMFILE) && !errors.Is(err, syscall.ENFILE) {
			return c, err
		}
		switch {
		case l.reserve.give():
		case l.all.closeOne():
			time.Sleep(closedTime)
		default:
			time.Sleep(acceptAgain)
		}
	}
}
