package loop

// How an epoll loop accepts clients, and turns away those that it has no
// descriptor for.

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"ringside/proxy"
)

// serve adopts the descriptor of l for this engine. It runs on the loop.
func (d *epoll) serve(l *listener, i int) {
	ln := l.of(i)
	d.post(func(*proxy.Engine) {
		f, err := ln.(interface{ File() (*os.File, error) }).File()
		if err != nil {
			d.engine.Shared.Log.Error("cannot accept", "address", l.address, "error", err)
			return
		}
		defer f.Close()
		fd, err := duplicate(f)
		if err == nil {
			err = unix.SetNonblock(fd, true)
		}
		if l.network != "unix" {
			tune(fd) // of another process that did not
		}
		s := &sock{fd: fd, listen: l}
		if err == nil {
			err = d.add(s, unix.EPOLLIN|unix.EPOLLEXCLUSIVE)
		}
		if err != nil {
			d.close(s)
			d.engine.Shared.Log.Error("cannot accept", "address", l.address, "error", err)
		}
	})
}

// duplicate is another descriptor of f. Asking f for its own would make the
// socket a blocking one for a moment, also for another process that has it.
func duplicate(f *os.File) (fd int, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	if e := raw.Control(func(is uintptr) { fd, err = unix.FcntlInt(is, unix.F_DUPFD_CLOEXEC, 0) }); e != nil {
		return -1, e
	}
	return fd, err
}

func (d *epoll) forget(l *listener) {
	d.post(func(*proxy.Engine) {
		for _, s := range d.socks {
			if s != nil && s.listen == l {
				// Closing alone would leave it in the set while another process
				// has a copy of the socket, and this loop would be woken for
				// clients instead of that process.
				unix.EpollCtl(d.fd, unix.EPOLL_CTL_DEL, s.fd, nil)
				d.close(s)
			}
		}
	})
}

// accept takes clients that wait at s, and what they have asked for: most have, for they
// were connected before they are accepted. Their sockets have the options of s. A call
// that finds nobody costs nearly as much as one that does, so it takes one, and epoll says
// whether there are more. For a loop that waits for answers or sleeps before it looks
// that would be too few, so where s is ready at wakeup after wakeup it takes twice as
// many at every second one.
func (d *epoll) accept(s *sock) {
	if s.round+1 != d.round {
		s.inRow = 0
	}
	s.round = d.round
	most := min(1<<(s.inRow/2), acceptsPerEvent)
	s.inRow = min(s.inRow+1, inRowMost)
	for range most {
		fd, err := acceptOne(s.fd)
		if err == unix.EMFILE || err == unix.ENFILE {
			if err = d.turnAway(s); err == nil {
				continue
			}
		}
		if err != nil {
			if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.ECONNABORTED) {
				d.refuseAccepts(s, err)
			}
			return
		}
		c := &sock{fd: fd}
		if err := d.add(c, unix.EPOLLIN); err != nil {
			unix.Close(fd)
			return
		}
		c.link = d.engine.Accepted(s.listen.network, s.listen.address, c)
		d.read(c)
	}
}

// acceptOne is the next client of a listener. It does not ask who that is, which
// unix.Accept4 does, with a call more to tell the protocol.
func acceptOne(listener int) (fd int, err error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_ACCEPT4, uintptr(listener), 0, 0, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(n), nil
}

// turnAway lets the next client know that there is no descriptor for it, with the
// one that is kept for that: else it would wait in the kernel for an answer that
// never comes. The error is EAGAIN when nobody waits, and another one when another thread
// was faster to take the descriptor.
func (d *epoll) turnAway(s *sock) error {
	if d.spare >= 0 {
		unix.Close(d.spare)
	}
	fd, err := acceptOne(s.fd)
	if err == nil {
		d.engine.Count.Unaccepted++
		unix.Write(fd, []byte(proxy.TooManyConnections))
		unix.Close(fd)
	}
	d.spare, _ = unix.FcntlInt(uintptr(d.wake), unix.F_DUPFD_CLOEXEC, 0)
	return err
}

// refuseAccepts handles a listener that cannot accept, most likely for want
// of descriptors: the loop would spin on it, so it rests for a moment.
func (d *epoll) refuseAccepts(s *sock, err error) {
	d.engine.Count.Unaccepted++
	d.engine.Shared.Log.Debug("cannot accept", "address", s.listen.address, "error", err)
	l := s.listen
	events := s.events
	unix.EpollCtl(d.fd, unix.EPOLL_CTL_DEL, s.fd, nil)
	time.AfterFunc(100*time.Millisecond, func() {
		d.post(func(*proxy.Engine) {
			if s.state != sockClosed && d.socks[s.fd] == s && s.listen == l {
				unix.EpollCtl(d.fd, unix.EPOLL_CTL_ADD, s.fd, &unix.EpollEvent{Events: events, Fd: int32(s.fd), Pad: s.gen})
			}
		})
	})
}
