package loop

// This file connects the filters of fault injection with the epoll driver.

import (
	"slices"

	"golang.org/x/sys/unix"

	"ringside/proxy/link"
)

// epollPort is a server connection of the epoll driver.
type epollPort struct {
	*epoll
	s *sock
}

func (p epollPort) link() *link.Link { return p.s.link }
func (p epollPort) filter() **filter { return &p.s.filter }
func (p epollPort) held() *bool      { return &p.s.held }
func (p epollPort) connect()         { p.lookUp(p.s) }
func (p epollPort) busy() bool       { return false }

func (p epollPort) send(b []byte) (int, error) {
	if p.s.tls != nil {
		return p.sendSealed(p.s, b)
	}
	n, err := unix.Write(p.s.fd, b)
	if err == unix.EAGAIN || err == unix.EINTR {
		return 0, nil
	}
	return max(n, 0), err
}

func (p epollPort) end(err error) {
	if err == unix.ECONNRESET {
		unix.SetsockoptLinger(p.s.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	}
	p.fail(p.s, err)
}

func (p epollPort) want(read, write bool) {
	events := uint32(0)
	if read {
		events |= unix.EPOLLIN
	}
	if write || p.s.tls != nil && p.s.tls.held > 0 {
		events |= unix.EPOLLOUT
	}
	p.watch(p.s, events)
}

func (d *epoll) redial(addresses map[string]bool) {
	for _, s := range slices.Clone(d.socks) {
		if s == nil || !s.server() || s.state != sockOpen && s.state != sockConnecting {
			continue
		}
		if _, address := s.link.Server().Target(); addresses[address] {
			d.fail(s, errMoved)
		}
	}
}

func (d *epoll) refault() {
	d.faults.review(func(yield func(port, bool) bool) {
		for _, s := range slices.Clone(d.socks) {
			if s != nil && s.server() && s.state == sockOpen && !yield(epollPort{d, s}, s.events&unix.EPOLLOUT != 0) {
				return
			}
		}
	})
}

// readFiltered reads for the filter of s. It removes an ended connection from the epoll set,
// because epoll would report the end at each wakeup.
func (d *epoll) readFiltered(s *sock) {
	f := s.filter
	defer f.wake()
	if s.events&unix.EPOLLIN == 0 { // paused: epoll reports only the end of the connection
		unix.EpollCtl(d.fd, unix.EPOLL_CTL_DEL, s.fd, nil)
		f.ended(now(), sockError(s.fd))
		return
	}
	var buf [16 << 10]byte
	for range readsPerEvent {
		if f.in.full() {
			return
		}
		n, err := unix.Read(s.fd, buf[:])
		switch {
		case err == unix.EAGAIN || err == unix.EINTR:
			return
		case n <= 0:
			unix.EpollCtl(d.fd, unix.EPOLL_CTL_DEL, s.fd, nil)
			f.ended(now(), err)
			return
		}
		f.read(now(), buf[:n])
	}
}
