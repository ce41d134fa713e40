package admin

// Descriptors that the admin interface has for itself: it is wanted most when
// clients have used up all others.

import (
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// reserved is how many connections the admin interface can have when the process may
// open no more files.
const reserved = 8

// reserve is files that stand for descriptors, to be given up for connections.
type reserve struct {
	mu     sync.Mutex
	files  []*os.File
	lent   bool // some were given up, and are not all back
	closed bool
}

// fill opens what is missing, as far as there are descriptors.
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

// give closes one, and reports whether there was one.
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

// reservedListener accepts with a descriptor of the reserve when there is no other.
// When that has none either it tries again, without a word: net/http would log each
// time, and the bound that is reached is logged anyway.
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
