package loop

// This file opens and closes listening sockets.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync/atomic"
	"syscall"

	"ringside/proxy/table"
)

// listener is one address on which the proxy listens.
type listener struct {
	network, address string
	listeners        []net.Listener // one for each engine, or one that the engines share
	mode             uint32         // permission bits of a unix socket; 0: those with which the file was created
	file             fs.FileInfo    // the file of a unix socket, as created
	tls              atomic.Pointer[listenerTLS]
}

// listen opens one listening address for n engines. If n is greater than 1, each engine gets its
// own socket and the kernel spreads the clients over them.
func listen(l table.Listener, n int) (*listener, error) {
	s := &listener{network: l.Network, address: l.Address}
	if l.Network == "unix" {
		if err := RemoveStale(l.Address); err != nil {
			return nil, fmt.Errorf("cannot listen on unix:%s: %w", l.Address, err)
		}
		n = 1 // the kernel does not spread the clients of unix sockets; the engines share one
	}
	lc := net.ListenConfig{}
	lc.SetMultipathTCP(false) // Multipath TCP costs CPU for each segment, and memcached clients do not use it
	if l.Network != "unix" {
		lc.Control = prepare(false)
	}
	address := l.Address
	for i := range n {
		ln, err := lc.Listen(context.Background(), l.Network, address)
		if err == nil && i == 0 && n > 1 {
			// The first socket binds the address exclusively. Otherwise another process on the same
			// address, for example a second Ringside, would silently share the clients. After that,
			// the other sockets of this process may share it.
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
		address = ln.Addr().String() // if the configured port is 0, the first socket has a port, which the other sockets use, too
	}
	return s.noteFile(l.Mode)
}

// inherit uses sockets that another process opened for l.
func inherit(l table.Listener, open []net.Listener) (*listener, error) {
	s := &listener{network: l.Network, address: l.Address, listeners: open}
	return s.noteFile(l.Mode)
}

// noteFile records the file of a unix socket and sets its mode. On an error it closes s.
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

// prepare sets socket options before the socket listens. The sockets of clients inherit them, which
// saves two calls for each client. With share, other sockets with the same option may listen on the
// address.
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

// chmod sets the permission bits of a unix socket. With 0 it restores those with which the file was
// created.
func (s *listener) chmod(mode uint32) error {
	there, err := os.Lstat(s.address)
	if err == nil && !os.SameFile(there, s.file) {
		err = errors.New("another file is there; move it away")
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

// RemoveStale removes a socket file that a killed process left, so that this process can listen on
// that path. It returns an error if a process listens on it, or may do so. Only a refused connection
// shows that no process does: a busy process has a full queue, and the file of another user may not
// allow a connection.
func RemoveStale(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return errors.New("a file that is not a socket is there; move it away")
	}
	c, err := net.Dial("unix", path)
	switch {
	case err == nil:
		c.Close()
		return errors.New("another process listens there")
	case errors.Is(err, fs.ErrNotExist): // the process that listened there has just ended
		return nil
	case !errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("another process may listen there: %w", err)
	}
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Gone reports whether the file of a unix socket was removed, so that no client can connect to it.
func Gone(network, address string) bool {
	if network != "unix" {
		return false
	}
	_, err := os.Lstat(address)
	return errors.Is(err, fs.ErrNotExist)
}

// of returns the listening socket for engine i.
func (s *listener) of(i int) net.Listener { return s.listeners[i%len(s.listeners)] }

func (s *listener) close() {
	for _, l := range s.listeners {
		KeepForeignFile(l, s.file)
		l.Close()
	}
}

// keepFiles makes Close of these listeners leave the files of unix sockets.
func keepFiles(list []net.Listener) {
	for _, l := range list {
		if u, ok := l.(*net.UnixListener); ok {
			u.SetUnlinkOnClose(false)
		}
	}
}

// KeepForeignFile makes Close of the listener l leave the file of its unix socket, if another
// process has replaced that file by its own. file is the file as l created it; nil: it is unknown.
func KeepForeignFile(l net.Listener, file fs.FileInfo) {
	u, ok := l.(*net.UnixListener)
	if !ok || file == nil {
		return
	}
	if there, err := os.Lstat(u.Addr().String()); err == nil && !os.SameFile(there, file) {
		u.SetUnlinkOnClose(false)
	}
}
