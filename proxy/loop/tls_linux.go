package loop

// This file moves the bytes of TLS connections in an epoll loop.

import (
	"io"
	"net"

	"golang.org/x/sys/unix"
)

// Sizes of the buffers that the TLS connections of a loop share.
const (
	shakenRead  = 16 << 10  // most encrypted bytes of one read during the handshake
	sealedRead  = 68 << 10  // most encrypted bytes of one read from a socket
	sealedWrite = 256 << 10 // most plain bytes that are encrypted before the socket is written to
)

// greet begins the TLS handshake of a client that was accepted on the listener l.
func (d *epoll) greet(s *sock, l *listener, t *listenerTLS) {
	s.state = sockShaking
	x := d.handshakes.begin(clientSock{d, s}, l, t)
	s.tls = &sealed{Conn: x.Conn, greeting: x}
	d.shake(s, unix.EPOLLIN)
	d.handshakes.limit()
}

// shake handles an event of a socket during its handshake.
func (d *epoll) shake(s *sock, events uint32) {
	if events&unix.EPOLLOUT != 0 {
		d.flushSealed(s)
	}
	if s.state != sockShaking || events&(unix.EPOLLIN|unix.EPOLLHUP|unix.EPOLLERR) == 0 {
		return
	}
	var n uintptr
	var errno unix.Errno
	buf := d.sealedSpace()[:shakenRead]
	if s.events&unix.EPOLLIN != 0 { // else paused: epoll reports only the end of the connection
		n, _, errno = unix.RawSyscall(unix.SYS_READ, uintptr(s.fd), ptr(&buf[0]), uintptr(len(buf)))
	}
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR:
	case errno != 0 || n == 0:
		// The other end may have sent the rest of the handshake, and even a request, before it has
		// closed the connection. epoll would report the end at each wakeup.
		unix.EpollCtl(d.fd, unix.EPOLL_CTL_DEL, s.fd, nil)
		s.events = 0
		s.tls.over = true
		if x := s.tls.greeting; x != nil {
			d.handshakes.closed(x)
		} else {
			s.tls.End()
		}
	case s.tls.greeting != nil:
		d.handshakes.arrived(s.tls.greeting, buf[:n])
	default:
		s.tls.Feed(buf[:n])
	}
	if s.state == sockShaking && s.tls.Full() {
		d.watch(s, s.events&^unix.EPOLLIN)
	}
}

// flushShaken sends what the handshake of s has written, and reads on if the handshake was Full.
func (d *epoll) flushShaken(s *sock) {
	if d.flushSealed(s); !s.tls.over {
		d.watch(s, s.events|unix.EPOLLIN)
	}
}

func (d *epoll) sealedSpace() []byte {
	if d.sealedIn == nil {
		d.sealedIn = make([]byte, sealedRead)
	}
	return d.sealedIn
}

// CertificateNames returns the names in the verified certificate of the client, or nil.
func (s *sock) CertificateNames() []string {
	if s.tls == nil {
		return nil
	}
	return s.tls.CertificateNames()
}

// clientSock is a client's socket during its handshake.
type clientSock struct {
	*epoll
	s *sock
}

func (c clientSock) Peer() string { return c.s.Peer() }
func (c clientSock) flush()       { c.flushShaken(c.s) }
func (c clientSock) drop()        { c.close(c.s) }

func (c clientSock) refuse(answer string) {
	unix.Write(c.s.fd, []byte(answer)) // an error changes nothing: the client is closed
	c.close(c.s)
}

func (c clientSock) welcome() {
	d, s := c.epoll, c.s
	x := s.tls.greeting
	s.tls.greeting, s.state = nil, sockOpen
	s.link = d.engine.Accepted(x.network, x.address, s)
	d.decrypt(s)
	if s.tls.over && s.state == sockOpen {
		d.rejoin(s)
	}
}

// rejoin adds a socket to the epoll set again, from which the end of its input during the handshake has
// removed it. The loop must know when the socket accepts more bytes.
func (d *epoll) rejoin(s *sock) {
	s.events = unix.EPOLLOUT
	unix.EpollCtl(d.fd, unix.EPOLL_CTL_ADD, s.fd, &unix.EpollEvent{Events: s.events, Fd: int32(s.fd), Pad: s.gen})
}

// readSealed passes the bytes that have arrived on a TLS connection to the engine, like read.
func (d *epoll) readSealed(s *sock) {
	if s.events&unix.EPOLLIN == 0 { // paused: epoll reports only the end of the connection
		d.endSealed(s, sockError(s.fd))
		return
	}
	buf := d.sealedSpace()
	for range d.readsOf(s) {
		if s.filter != nil && s.filter.in.full() {
			return
		}
		n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(s.fd), ptr(&buf[0]), uintptr(len(buf)))
		switch {
		case errno == unix.EAGAIN || errno == unix.EINTR:
			return
		case errno != 0:
			d.endSealed(s, errno)
			return
		case n == 0:
			s.tls.End()
		default:
			s.tls.Feed(buf[:n])
		}
		if d.decrypt(s); n == 0 || int(n) < len(buf) || s.state != sockOpen || s.link.Stalled || s.events&unix.EPOLLIN == 0 || d.engine.Spent() {
			if s.low > 1 && s.state == sockOpen && s.owes() {
				d.expect(s)
			}
			return
		}
	}
}

// decrypt passes all plain bytes of s to the engine, or to a filter.
func (d *epoll) decrypt(s *sock) {
	for s.state == sockOpen {
		b := d.engine.Space(s.link)
		n, err := s.tls.Read(b)
		switch {
		case n > 0 && s.filter != nil:
			s.filter.read(now(), b[:n])
		case n > 0:
			d.engine.Filled(s.link, n)
		case err == nil:
			if len(s.tls.Out()) > 0 { // crypto/tls has answered a change of keys
				d.flushSealed(s)
			}
			if s.filter != nil {
				s.filter.wake()
			}
			return
		case err == io.EOF && s.link.Client():
			d.engine.Closed(s.link, nil) // the client has announced that it sends no more; it may wait for replies
			return
		default:
			if d.flushSealed(s); s.state == sockOpen { // an alert with the reason
				d.endSealed(s, err)
			}
			return
		}
	}
}

// endSealed ends a TLS connection that sends no more. A filter keeps it until the bytes before the end
// have moved on.
func (d *epoll) endSealed(s *sock, err error) {
	if s.filter == nil {
		d.fail(s, err)
		return
	}
	unix.EpollCtl(d.fd, unix.EPOLL_CTL_DEL, s.fd, nil) // epoll would report the end at each wakeup
	s.filter.ended(now(), err)
	s.filter.wake()
}

// writeSealed sends the pending bytes of the engine on a TLS connection. All bytes of a wakeup are
// encrypted together, and leave in one write.
func (d *epoll) writeSealed(s *sock) {
	for d.flushSealed(s) {
		d.iov = s.link.Pending(d.iov[:0])
		if len(d.iov) == 0 {
			s.tls.inside = false
			d.engine.Wrote(s.link, 0, false)
			d.watch(s, s.events&^unix.EPOLLOUT)
			return
		}
		spans := len(d.iov)
		plain := d.iov[0]
		if spans > 1 {
			d.sealedOut = d.sealedOut[:0]
			for _, b := range d.iov {
				if len(d.sealedOut)+len(b) > sealedWrite && len(d.sealedOut) > 0 {
					break
				}
				d.sealedOut = append(d.sealedOut, b...)
			}
			plain = d.sealedOut
		}
		plain = plain[:min(len(plain), sealedWrite)]
		if err := s.tls.write(plain, s.server()); err != nil {
			d.fail(s, err)
			return
		}
		sent := d.flushSealed(s)
		if s.state != sockOpen {
			return
		}
		d.engine.Wrote(s.link, len(plain), !sent)
		if d.await.on && s.server() && s.state == sockOpen {
			d.expect(s)
		}
		if cap(d.sealedOut) > sealedWrite {
			d.sealedOut = nil
		}
	}
	if s.state == sockOpen {
		d.engine.Wrote(s.link, 0, true)
	}
}

// sendSealed encrypts bytes of a filter. It returns how many; 0: the socket has not accepted those before.
func (d *epoll) sendSealed(s *sock, b []byte) (int, error) {
	if s.tls.held > 0 {
		return 0, nil
	}
	b = b[:min(len(b), sealedWrite)]
	s.tls.inside = true
	if err := s.tls.write(b, true); err != nil {
		return 0, err
	}
	if d.flushSealed(s); s.state != sockOpen {
		return 0, net.ErrClosed
	}
	return len(b), nil
}

// flushSealed writes the encrypted bytes of s to its socket. It returns true if it has written all.
// Otherwise it waits until the socket accepts more, or the socket is closed after an error.
func (d *epoll) flushSealed(s *sock) bool {
	for {
		out := s.tls.Out()
		if len(out) == 0 {
			d.holdSealed(s, 0)
			if s.state == sockShaking {
				d.watch(s, s.events&^unix.EPOLLOUT)
			}
			return true
		}
		n, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(s.fd), ptr(&out[0]), uintptr(len(out)))
		switch {
		case errno == unix.EINTR:
			continue
		case errno == unix.EAGAIN:
			n = 0
		case errno != 0:
			d.failSealed(s, errno)
			return false
		}
		s.tls.Sent(int(n))
		if int(n) < len(out) {
			d.holdSealed(s, len(out)-int(n))
			d.watch(s, s.events|unix.EPOLLOUT)
			return false
		}
	}
}

// failSealed ends a connection on which a write has failed.
func (d *epoll) failSealed(s *sock, err error) {
	if s.link != nil {
		d.fail(s, err)
	} else {
		d.handshakes.failed(s.tls.greeting, err)
	}
}

// holdSealed reports to the engine that the driver holds n encrypted bytes of s.
func (d *epoll) holdSealed(s *sock, n int) {
	if s.link != nil && n != s.tls.held {
		d.engine.Handed(s.link, n-s.tls.held)
		s.tls.held = n
	}
}

// closeSealed frees the TLS of a socket that is closed.
func (d *epoll) closeSealed(s *sock) {
	s.tls.forget(&d.handshakes, &d.introductions)
	d.holdSealed(s, 0)
	if s.state == sockShaking {
		s.tls.Cancel()
	}
}

// sayBye tells the other end of a TLS connection that no more bytes follow. Otherwise it could not tell
// the end from a cut connection.
func (d *epoll) sayBye(s *sock) {
	if s.state == sockOpen && s.tls.held == 0 {
		s.tls.Close()
		if out := s.tls.Out(); len(out) > 0 {
			unix.Write(s.fd, out) // an error changes nothing: the socket is closed
		}
	}
}

// serverSock is a server's socket during its handshake.
type serverSock struct {
	*epoll
	s *sock
}

func (c serverSock) flush() { c.flushShaken(c.s) }

// greetServer begins the TLS handshake with a server that is connected.
func (d *epoll) greetServer(s *sock) {
	x, err := d.introductions.begin(serverSock{d, s}, s.link)
	if err != nil {
		d.fail(s, err)
		return
	}
	s.tls, s.state = &sealed{Conn: x.Conn, introduction: x}, sockShaking
}

func (c serverSock) met(err error) {
	d, s := c.epoll, c.s
	if err == nil && s.tls.over {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		d.fail(s, err)
		return
	}
	s.tls.introduction = nil
	if d.up(s); s.state == sockOpen {
		d.decrypt(s) // session tickets
	}
}
