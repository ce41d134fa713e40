package loop

// This file opens connections to servers, and sets the options of all sockets.

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"ringside/proxy"
	"ringside/proxy/link"
	"ringside/proxy/table"
)

func (d *epoll) dial(l *link.Link) {
	s := &sock{fd: -1, link: l, state: sockWaiting}
	l.Sock = s
	d.faults.dial(epollPort{d, s})
}

// lookUp finds the addresses of the server of s and connects to the first that works. It looks up a
// host name for each dial, in a separate goroutine.
func (d *epoll) lookUp(s *sock) {
	s.state = sockConnecting
	network, address := s.link.Server().Target()
	address = d.opts.locate(network, address)
	if network == "unix" {
		s.addrs = []unix.Sockaddr{&unix.SockaddrUnix{Name: address}}
		d.connect(s, nil)
		return
	}
	if ap, err := netip.ParseAddrPort(address); err == nil {
		s.addrs = []unix.Sockaddr{sockaddr(ap)}
		d.connect(s, nil)
		return
	}
	s.state = sockResolving
	go func() {
		addrs, ambiguous, err := resolve(address)
		d.post(func(e *proxy.Engine) {
			warnAmbiguous(e, address, ambiguous)
			if s.state != sockResolving { // the engine has closed the link
				return
			}
			s.addrs, s.state = addrs, sockConnecting
			d.connect(s, err)
		})
	}()
}

// resolve returns the addresses of a server. If a host name has several addresses of one
// family, which may be different servers, ambiguous lists them.
func resolve(address string) (addrs []unix.Sockaddr, ambiguous string, err error) {
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return nil, "", err
	}
	port, err := strconv.ParseUint(service, 10, 16)
	if err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	for _, ip := range ips {
		addrs = append(addrs, sockaddr(netip.AddrPortFrom(ip.Unmap(), uint16(port))))
	}
	return addrs, table.AmbiguousAddresses(ips), err
}

func sockaddr(ap netip.AddrPort) unix.Sockaddr {
	if ap.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(ap.Port()), Addr: ap.Addr().As4()}
	}
	sa := &unix.SockaddrInet6{Port: int(ap.Port()), Addr: ap.Addr().As16()}
	if zone := ap.Addr().Zone(); zone != "" {
		if i, err := net.InterfaceByName(zone); err == nil {
			sa.ZoneId = uint32(i.Index)
		}
	}
	return sa
}

// localAddress returns this machine's address of a client's connection, or "".
func localAddress(l *link.Link) string {
	s, ok := l.Sock.(*sock)
	if !ok || s.fd < 0 {
		return ""
	}
	at, _ := unix.Getsockname(s.fd)
	return addressOf(at)
}

// addressOf returns the address and the port of an IP socket. For other sockets it returns "".
func addressOf(sa unix.Sockaddr) string {
	switch at := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(at.Addr), uint16(at.Port)).String()
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(at.Addr).Unmap(), uint16(at.Port)).String()
	}
	return ""
}

// connect tries the next address of s. err is the error of the previous attempt.
func (d *epoll) connect(s *sock, err error) {
	for len(s.addrs) > 0 {
		sa := s.addrs[0]
		s.addrs = s.addrs[1:]
		var done bool
		if done, err = d.connectTo(s, sa); err == nil {
			if done {
				d.opened(s)
			}
			return
		}
	}
	if err == nil {
		err = errors.New("the name has no address")
	}
	d.opts.refused(s.link)
	d.fail(s, err)
}

// connectTo starts connecting to one address. done is true if the connection is already
// established.
func (d *epoll) connectTo(s *sock, sa unix.Sockaddr) (done bool, err error) {
	family := unix.AF_INET
	switch sa.(type) {
	case *unix.SockaddrInet6:
		family = unix.AF_INET6
	case *unix.SockaddrUnix:
		family = unix.AF_UNIX
	}
	if n := len(d.kept); n > 0 {
		unix.Close(d.kept[n-1])
		d.kept = d.kept[:n-1]
	}
	if s.fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0); err != nil {
		s.fd = -1
		return false, err
	}
	if family != unix.AF_UNIX {
		tune(s.fd)
		unix.SetsockoptInt(s.fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, userTimeout)
	}
	err = unix.Connect(s.fd, sa)
	if done = err == nil; done || err == unix.EINPROGRESS {
		if err = d.add(s, unix.EPOLLIN|unix.EPOLLOUT); err == nil {
			return done, nil
		}
	}
	d.release(s)
	s.fd = -1
	return false, err
}

// release closes the socket of s. If s is a server connection, the loop keeps the descriptor for
// the next one. Otherwise a client could use the last descriptor while the server is down, and
// Ringside could not reconnect when the server returns. So a loop holds as many descriptors as it
// had server connections at once.
func (d *epoll) release(s *sock) {
	if s.link != nil && !s.link.Client() && unix.Dup3(d.wake, s.fd, unix.O_CLOEXEC) == nil {
		d.kept = append(d.kept, s.fd)
		return
	}
	unix.Close(s.fd)
}

// connected handles the end of a connection attempt.
func (d *epoll) connected(s *sock) {
	if err := sockError(s.fd); err != nil {
		d.socks[s.fd] = nil
		d.release(s)
		s.fd = -1
		d.connect(s, err)
		return
	}
	d.opened(s)
}

func (d *epoll) opened(s *sock) {
	d.watch(s, unix.EPOLLIN)
	if s.link.Server().Security().On() {
		d.greetServer(s)
		return
	}
	d.up(s)
}

// up tells the engine that the connection to a server is ready.
func (d *epoll) up(s *sock) {
	s.state = sockOpen
	if d.faults.opened(epollPort{d, s}) {
		d.engine.Up(s.link)
	}
}

// userTimeout limits, in milliseconds, how long the kernel retries to deliver a request after a
// partition. It is a last resort, because the engine has its own timeouts.
const userTimeout = 30_000

// tune sets the options of every TCP socket.
func tune(fd int) {
	unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
}

// sockError returns and clears the pending error of a socket. It returns nil if there is none.
func sockError(fd int) error {
	n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return err
	}
	if n != 0 {
		return unix.Errno(n)
	}
	return nil
}

func reusePort(fd uintptr) error {
	return unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
}

// fineTimers reduces the timer slack of this thread to 1 us, so that short sleeps end on time.
func fineTimers() { unix.Prctl(unix.PR_SET_TIMERSLACK, 1000, 0, 0, 0) }
