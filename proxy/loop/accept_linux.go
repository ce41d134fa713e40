package loop

// This file accepts clients in an epoll loop, and rejects those for which there is no file
// descriptor.

import (
	"errors"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"ringside/proxy"
)

// serve makes this loop accept clients of the listener l, on the listening socket of engine i.
func (d *epoll) serve(l *listener, i int) {
	ln := l.of(i)
	d.post(func(*proxy.Engine) {
		f, err := ln.(interface{ File() (*os.File, error) }).File()
		if err != nil {
			d.engine.LogLimited(slog.LevelError, l.address, "cannot accept a client", "address", l.address, "error", err)
			return
		}
		defer f.Close()
		fd, err := duplicate(f)
		if err == nil {
			err = unix.SetNonblock(fd, true)
		}
		if l.network != "unix" {
			tune(fd) // a socket inherited from another process may lack these options
		}
		s := &sock{fd: fd, listen: l}
		if err == nil {
			err = d.add(s, unix.EPOLLIN|unix.EPOLLEXCLUSIVE)
		}
		if err != nil {
			d.close(s)
			d.engine.LogLimited(slog.LevelError, l.address, "cannot accept a client", "address", l.address, "error", err)
		}
	})
}

// duplicate returns a new descriptor of f. Calling f.Fd would make the socket blocking for a
// moment, also for another process that shares it.
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
				// Remove the socket from the epoll set explicitly. If another process has a
				// duplicate of it, closing alone would leave it in the set, and this loop would
				// be woken for clients of that process.
				unix.EpollCtl(d.fd, unix.EPOLL_CTL_DEL, s.fd, nil)
				d.close(s)
			}
		}
	})
}

// accept accepts clients that wait at s, and reads their first request at once. Most have sent it,
// because they were connected before they are accepted. Their sockets inherit the options of s.
//
// It accepts only one client at first, and epoll reports whether there are more: an accept call
// that finds no client costs nearly as much as one that does. For a loop that waits for replies
// or sleeps before it looks for events, one client for each wakeup would be too few. So while s
// is ready at consecutive wakeups, the number of accepted clients doubles at every
// second wakeup.
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
		if t := s.listen.tls.Load(); t != nil {
			d.greet(c, s.listen, t)
			continue
		}
		c.link = d.engine.Accepted(s.listen.network, s.listen.address, c)
		if d.read(c); d.engine.Spent() {
			return
		}
	}
}

// acceptOne accepts the next client of a listener. Unlike unix.Accept4 it does not return the
// client's address, which would cost one more call to determine the protocol.
func acceptOne(listener int) (fd int, err error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_ACCEPT4, uintptr(listener), 0, 0, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(n), nil
}

// turnAway rejects the next client with an error because there is no descriptor for it. It uses the
// spare descriptor. Otherwise the client would wait in the kernel for a reply that never arrives.
// It returns EAGAIN if no client waits, and another error if another thread used the freed
// descriptor first.
func (d *epoll) turnAway(s *sock) error {
	if d.spare >= 0 {
		unix.Close(d.spare)
	}
	fd, err := acceptOne(s.fd)
	if err == nil {
		d.engine.Count.Unaccepted++
		if s.listen.tls.Load() == nil {
			unix.Write(fd, []byte(proxy.TooManyConnections))
		}
		unix.Close(fd)
	}
	d.spare, _ = unix.FcntlInt(uintptr(d.wake), unix.F_DUPFD_CLOEXEC, 0)
	return err
}

// refuseAccepts handles a listener that cannot accept, most likely because descriptors ran out.
// It removes the listener from the epoll set for 100 ms, because the loop would spin otherwise.
func (d *epoll) refuseAccepts(s *sock, err error) {
	d.engine.Count.Unaccepted++
	d.engine.Shared.Log.Debug("cannot accept a client", "address", s.listen.address, "error", err)
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
