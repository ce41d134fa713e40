package loop

// Listening sockets.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"

	"ringside/proxy/table"
)

// listener is one address that is listened on.
type listener struct {
	network, address string
	listeners        []net.Listener // one for each engine that has its own
	mode             uint32         // of a unix socket: its permission bits; 0: those of file
	file             fs.FileInfo    // of a unix socket: what was made
}

// listen opens one listening address for n engines. With more than one, each
// engine gets its own socket and the kernel spreads the clients over them.
func listen(l table.Listener, n int) (*listener, error) {
	s := &listener{network: l.Network, address: l.Address}
	if l.Network == "unix" {
		if err := removeStale(l.Address); err != nil {
			return nil, err
		}
		n = 1 // the kernel does not spread unix sockets; the engines share one
	}
	lc := net.ListenConfig{}
	lc.SetMultipathTCP(false) // costs CPU at each segment, and memcached clients do not speak it
	if l.Network != "unix" {
		lc.Control = prepare(false)
	}
	address := l.Address
	for i := range n {
		ln, err := lc.Listen(context.Background(), l.Network, address)
		if err == nil && i == 0 && n > 1 {
			// The first takes the address for itself: another process that has it
			// already, a second Ringside for one, would else share the clients
			// without a word. From here on those of this process may share it.
			var raw syscall.RawConn
			lc.Control = prepare(true)
			if raw, err = ln.(syscall.Conn).SyscallConn(); err == nil {
				err = lc.Control("", "", raw)
			}
		}
		if err != nil {
			if ln != nil {
				ln.Close()
			}
			s.close()
			return nil, fmt.Errorf("cannot listen on %s: %w", l.Address, err)
		}
		s.listeners = append(s.listeners, ln)
		address = ln.Addr().String() // port 0: the same port for all
	}
	return s.noteFile(l.Mode)
}

// inherit takes up the sockets of another process for l.
func inherit(l table.Listener, open []net.Listener) (*listener, error) {
	s := &listener{network: l.Network, address: l.Address, listeners: open}
	return s.noteFile(l.Mode)
}

// noteFile remembers which file a unix socket is, and gives it its mode. On an error s is
// closed.
func (s *listener) noteFile(mode uint32) (*listener, error) {
	if s.network != "unix" {
		return s, nil
	}
	var err error
	if s.file, err = os.Lstat(s.address); err == nil && mode != 0 {
		err = s.chmod(mode)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// prepare sets, before a socket listens, what its clients' sockets inherit, which is two
// calls less for each client. With share other sockets that do the same may listen there.
func prepare(share bool) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) (err error) {
		e := c.Control(func(fd uintptr) {
			tune(int(fd))
			if share {
				err = reusePort(fd)
			}
		})
		return cmp.Or(e, err)
	}
}

// chmod sets the permission bits of a unix socket; 0 are those it was made with.
func (s *listener) chmod(mode uint32) error {
	there, err := os.Lstat(s.address)
	if err == nil && !os.SameFile(there, s.file) {
		err = errors.New("another file is there")
	}
	if err == nil {
		err = os.Chmod(s.address, cmp.Or(fs.FileMode(mode), s.file.Mode().Perm()))
	}
	if err != nil {
		return fmt.Errorf("cannot set the mode of %s: %w", s.address, err)
	}
	s.mode = mode
	return nil
}

// removeStale removes the socket file that a killed process left behind. One
// that still answers is somebody's, and an error.
func removeStale(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("cannot listen on unix:%s: %w", path, err)
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("cannot listen on unix:%s: a file that is no socket is there; move it away", path)
	}
	if c, err := net.Dial("unix", path); err == nil {
		c.Close()
		return fmt.Errorf("cannot listen on unix:%s: another process listens there", path)
	}
	return os.Remove(path)
}

// of returns the socket for engine i.
func (s *listener) of(i int) net.Listener { return s.listeners[i%len(s.listeners)] }

func (s *listener) close() {
	for _, l := range s.listeners {
		l.Close()
	}
}
