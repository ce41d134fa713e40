package admin

// File descriptors that are reserved for the admin interface: it is needed most when clients
// have used up all others.

import (
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// reserved is the number of connections that the admin interface can have when the process may
// not open more files.
const reserved = 8

// reserve has open files that hold descriptors. They are closed when a connection needs one.
type reserve struct {
	mu     sync.Mutex
	files  []*os.File
	lent   bool // some were closed for connections, and not all are reopened
	closed bool
}

// fill opens the missing files, as far as descriptors are available.
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

// give closes one file, and reports whether there was one.
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

// reservedListener accepts a connection with a descriptor of the reserve if there is no other.
// If the reserve is empty too, it retries without a log line: net/http would log each attempt,
// and the limit is logged elsewhere.
type reservedListener struct {
	net.Listener
	reserve *reserve
}

const acceptAgain = 100 * time.Millisecond

func (l reservedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if !errors.Is(err, syscall.EMFILE) && !errors.Is(err, syscall.ENFILE) {
			return c, err
		}
		if !l.reserve.give() {
			time.Sleep(acceptAgain)
		}
	}
}
