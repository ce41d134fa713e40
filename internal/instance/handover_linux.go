package instance

// Handing over: the listening sockets of a running Ringside go to the next one,
// through a socket that only the two know.

import (
	"bufio"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	handWithin  = 10 * time.Second // to come for the sockets, and to be told that they are one's own
	readyWithin = 5 * time.Minute  // to be ready with them
	mostSockets = 250              // the kernel hands over 253 at once
)

// offer makes a socket by which the process that has started a take-over gets the
// listening ones, and returns its name. Nothing changes until that process says
// that it is ready: then handed is called, with what tells it that they are its
// own.
func offer(names []string, files []*os.File, handed func(done func())) (socket string, err error) {
	closeAll := func() {
		for _, f := range files {
			f.Close()
		}
	}
	if len(files) > mostSockets {
		closeAll()
		return "", fmt.Errorf("%d listening sockets are too many to be handed over: %d at most", len(files), mostSockets)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: "@ringside-" + rand.Text(), Net: "unix"})
	if err != nil {
		closeAll()
		return "", err
	}
	l.SetDeadline(time.Now().Add(handWithin))
	go func() {
		defer closeAll()
		c, err := l.AcceptUnix()
		l.Close()
		if err != nil {
			return
		}
		defer c.Close()
		text, err := json.Marshal(names)
		if err != nil || !mayTake(c) {
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
	}()
	return l.Addr().String(), nil
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

// mayTake says that the other end is a process of the same user, or of root.
func mayTake(c *net.UnixConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	allowed := false
	err = raw.Control(func(fd uintptr) {
		who, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		allowed = err == nil && (who.Uid == 0 || int(who.Uid) == os.Geteuid())
	})
	return err == nil && allowed
}

// take gets the listening sockets from the Ringside that has offered them.
func take(socket string) (*takeover, error) {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return nil, err
	}
	t := &takeover{conn: c, listeners: map[string][]net.Listener{}}
	if err := t.receive(c); err != nil {
		t.close()
		return nil, err
	}
	return t, nil
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
