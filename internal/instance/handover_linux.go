package instance

// This file passes the listening sockets of a running instance to the next one, over a
// Unix socket with a random name that only these two processes know.

import (
	"bufio"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	handWithin  = 10 * time.Second // to connect for the sockets, and to receive the confirmation
	readyWithin = 5 * time.Minute  // until the new process is ready
	mostSockets = 250              // the kernel passes at most 253 at once
)

// handoverSocket is the socket on which the next process receives the listening
// sockets. At most one is open, however often it is requested. So a local user who may
// use the control API can't exhaust descriptors.
type handoverSocket struct {
	mu      sync.Mutex
	waiting *net.UnixListener // nil: no offer is open
}

// offer returns the name of a socket on which the process that started a take-over
// receives the listening sockets. open is called when that process has connected, and
// returns the sockets with their names. Connections of other users are closed and do
// not end the offer. Nothing changes until the process reports that it is ready. Then
// handed is called, with a function that confirms that the process owns the sockets.
func (h *handoverSocket) offer(open func() (names []string, files []*os.File, err error), handed func(done func())) (socket string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waiting != nil {
		h.waiting.SetDeadline(time.Now().Add(handWithin))
		return h.waiting.Addr().String(), nil
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socketPrefix + rand.Text(), Net: "unix"})
	if err != nil {
		return "", err
	}
	l.SetDeadline(time.Now().Add(handWithin))
	h.waiting = l
	go func() {
		c := acceptTrusted(l)
		h.mu.Lock()
		h.waiting = nil
		h.mu.Unlock()
		l.Close()
		if c == nil {
			return
		}
		defer c.Close()
		if names, files, err := open(); err == nil {
			handOverTo(c, names, files, handed)
		}
	}()
	return l.Addr().String(), nil
}

// acceptTrusted returns the first connection from a process that may receive the
// sockets, or nil if there is none in time.
func acceptTrusted(l *net.UnixListener) *net.UnixConn {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return nil
		}
		if checkPeer(c) == nil {
			return c
		}
		c.Close()
	}
}

// handOverTo sends files to c. It closes its copies after c has received them or has
// disconnected.
func handOverTo(c *net.UnixConn, names []string, files []*os.File, handed func(done func())) {
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	if len(files) > mostSockets {
		return
	}
	text, err := json.Marshal(names)
	if err != nil {
		return
	}
	fds, err := numbers(files)
	if err != nil {
		return
	}
	c.SetDeadline(time.Now().Add(readyWithin))
	if _, _, err := c.WriteMsgUnix(append(text, '\n'), syscall.UnixRights(fds...), nil); err != nil {
		return
	}
	if said, _ := bufio.NewReader(c).ReadString('\n'); said == "ready\n" {
		over := make(chan struct{})
		handed(func() {
			c.Write([]byte("done\n"))
			close(over)
		})
		<-over
	}
}

// numbers returns the descriptors of files. It does not use Fd, because Fd would make
// the sockets blocking in both processes, and an accepting loop would hang.
func numbers(files []*os.File) (fds []int, err error) {
	for _, f := range files {
		raw, err := f.SyscallConn()
		if err == nil {
			err = raw.Control(func(fd uintptr) { fds = append(fds, int(fd)) })
		}
		if err != nil {
			return nil, err
		}
	}
	return fds, nil
}

// isTrusted reports whether a process of this user may take part in a take-over. Root
// trusts only root, because an unprivileged user could hand over any sockets.
var isTrusted = func(uid uint32) bool { return int(uid) == os.Geteuid() }

// checkPeer returns nil if the process at the other end of c may take part in a
// take-over. It asks the kernel for the user of that process.
func checkPeer(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	failed := raw.Control(func(fd uintptr) {
		var peer *unix.Ucred
		if peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil && !isTrusted(peer.Uid) {
			err = fmt.Errorf("process %d is of user %d, not of user %d: both must be of the same user", peer.Pid, peer.Uid, os.Geteuid())
		}
	})
	return cmp.Or(failed, err)
}

// socketPrefix is the prefix of the names of hand-over sockets.
const socketPrefix = "@ringside-"

// take receives the listening sockets from the instance that offers them. It never
// connects to another service, whatever socket the other side names.
func take(socket string) (*takeover, error) {
	if !strings.HasPrefix(socket, socketPrefix) {
		return nil, fmt.Errorf("it names the socket %.100q, which is not a Ringside's", socket)
	}
	c, err := dialOffer(socket)
	if err != nil {
		return nil, err
	}
	if err := checkPeer(c); err != nil {
		c.Close()
		return nil, err
	}
	t := &takeover{conn: c, listeners: map[string][]net.Listener{}}
	if err := t.receive(c); err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

// dialOffer connects to a socket. Connections of other users may fill its queue until
// the old instance has closed them, so dialOffer retries.
func dialOffer(socket string) (*net.UnixConn, error) {
	for end := time.Now().Add(handWithin); ; time.Sleep(time.Millisecond) {
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
		if !errors.Is(err, syscall.EAGAIN) || time.Now().After(end) {
			return c, err
		}
	}
}

func (t *takeover) receive(c *net.UnixConn) error {
	c.SetDeadline(time.Now().Add(handWithin))
	text, oob := make([]byte, 64<<10), make([]byte, unix.CmsgSpace(mostSockets*4))
	n, got, flags, _, err := c.ReadMsgUnix(text, oob)
	if err != nil {
		return err
	}
	var fds []int
	messages, err := unix.ParseSocketControlMessage(oob[:got])
	if err == nil && len(messages) == 1 {
		fds, err = unix.ParseUnixRights(&messages[0])
	}
	var names []string
	if err == nil {
		err = json.Unmarshal(text[:n], &names)
	}
	if err == nil && (len(names) != len(fds) || flags&unix.MSG_CTRUNC != 0) {
		err = errors.New("not all sockets have arrived")
	}
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "handed over")
		l, failed := net.FileListener(f)
		f.Close()
		switch {
		case failed != nil:
			err = failed
		case err != nil:
			l.Close()
		default:
			if u, ok := l.(*net.UnixListener); ok {
				t.paths = append(t.paths, u)
			}
			t.listeners[names[i]] = append(t.listeners[names[i]], l)
		}
	}
	return err
}

// ready tells the old instance to stop accepting, and waits until it has.
func (t *takeover) ready() error {
	t.conn.SetDeadline(time.Now().Add(handWithin))
	if _, err := t.conn.Write([]byte("ready\n")); err != nil {
		return err
	}
	_, err := bufio.NewReader(t.conn).ReadString('\n')
	for _, l := range t.paths {
		l.SetUnlinkOnClose(err == nil)
	}
	return err
}
