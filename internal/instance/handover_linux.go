package instance

// Handing over: the listening sockets of a running Ringside go to the next one,
// through a socket that only the two know.

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
	handWithin  = 10 * time.Second // to come for the sockets, and to be told that they are one's own
	readyWithin = 5 * time.Minute  // to be ready with them
	mostSockets = 250              // the kernel hands over 253 at once
)

// handoverSocket is the socket at which the next process gets the listening sockets. There
// is at most one that waits, however often one is asked for: a local user who may use the
// control API cannot use up descriptors.
type handoverSocket struct {
	mu      sync.Mutex
	waiting *net.UnixListener // nil: none
}

// offer returns the name of a socket by which the process that has started a take-over gets
// the listening ones. open returns them, with their names, when that process has
// connected; connections of other users are closed, and do not end the offer. Nothing
// changes until the process says that it is ready: then handed is called, with a function
// that tells it that the sockets are its own.
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

// acceptTrusted returns the first connection of a process that may take the sockets; nil
// if none comes in time.
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

// handOverTo sends files to c, and closes its own copies when c has them or has gone.
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

// numbers is the descriptors of files. Fd would make the sockets blocking ones, in
// both processes, and a loop that accepts would stand still.
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

// isTrusted reports whether a process of that user may be the other side of a take-over.
// Root trusts only root: what an unprivileged process hands over is that user's choice.
var isTrusted = func(uid uint32) bool { return int(uid) == os.Geteuid() }

// checkPeer returns nil if the process at the other end of c may be the other side of a
// take-over, as the kernel knows it.
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

// socketPrefix begins the name of each socket at which listening sockets are handed over.
const socketPrefix = "@ringside-"

// take gets the listening sockets from the Ringside that has offered them. It connects to
// no other service, whatever socket the other side names.
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

// dialOffer connects to a socket. Connections of other users may fill its queue until the old
// Ringside has refused them, so dialOffer tries again meanwhile.
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

// ready tells the old Ringside to stop accepting, and returns when it has.
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
