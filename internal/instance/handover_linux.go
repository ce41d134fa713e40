package instance

// This file passes the listening sockets of a running instance to the next one, over a
// Unix socket with a random name that only these two processes know.
//
// The old process sends copies of the sockets. Then the processes agree who serves:
//
//	new: ready   it accepts clients. The old one still does, too.
//	old: yours   it stops accepting if the new one confirms this.
//	new: taken   the decision: from here on the new one serves, whatever happens.
//	old: done    it has stopped accepting.
//
// Or the old process sends "no" with the reason, closes the connection and continues.
// Until "taken" has been sent, each side may give up, and the old process serves. The
// kernel decides whether it has been sent: a process that no longer waits for it shuts
// down its receiving side, after which nothing can be sent to it, and then reads what
// had been sent before. So both processes come to the same decision, however slow one
// of them is. If one of them ends, the connection ends, and the other one serves. There
// is one exception: a new process that ends just after the old one has seen it alive.
//
// The new process waits without a time limit for "yours", because it serves clients in
// the meantime. The old one, which a next take-over may need, waits a limited time.

import (
	"bufio"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ringside/proxy/admin"
)

const (
	handWithin  = 10 * time.Second // to connect for the sockets
	readyWithin = 5 * time.Minute  // until the new process is ready
	mostSockets = 250              // the kernel passes at most 253 at once
)

// Tests shorten these.
var (
	takenWithin = 10 * time.Second // how long the old process waits for "taken"
	lateAfter   = 10 * time.Second // when the new process logs that the old one is slow
)

// The reasons why no process can take over.
var (
	errBusy   = errors.New("another process is taking over from it")
	errHanded = errors.New("another process has taken over from it")
)

// handoverSocket is the socket on which the next process receives the listening
// sockets. At most one is open, however often it is requested. So a local user who may
// use the control API can't exhaust descriptors. At most one process has the listening
// sockets at a time.
type handoverSocket struct {
	mu      sync.Mutex
	waiting *net.UnixListener // nil: no offer is open
	given   bool              // a process has the sockets, or is about to
	over    error             // why there is no further offer; nil: there may be
}

// end ends all offers because the process stops. It reports whether another process
// has the sockets and may still use them.
func (h *handoverSocket) end() (given bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over == nil {
		h.over = admin.ErrStopping
	}
	if h.waiting != nil {
		h.waiting.Close()
	}
	return h.given
}

// give reserves the sockets for the process that has connected. It returns false if there is no
// further offer.
func (h *handoverSocket) give() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting, h.given = nil, h.over == nil
	return h.given
}

// gave ends what give began. taken means that the sockets now belong to that process.
func (h *handoverSocket) gave(taken bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.given = taken; taken {
		h.over = errHanded
	}
}

// offer returns the name of a socket on which the process that started a take-over
// receives the listening sockets. open is called when that process has connected, and
// returns the sockets with their names. Connections of other users are closed and do
// not end the offer. Nothing changes until the process has taken over. Then handed is
// called, once, with a function that tells the process that this one has stopped
// accepting.
func (h *handoverSocket) offer(open func() (names []string, files []*os.File, err error), handed func(done func())) (socket string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.over != nil:
		return "", h.over
	case h.given:
		return "", errBusy
	case h.waiting != nil:
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
		if c == nil {
			h.mu.Lock()
			h.waiting = nil
			h.mu.Unlock()
			l.Close()
			return
		}
		defer c.Close()
		given := h.give()
		l.Close()
		if !given {
			return
		}
		taken := false
		names, files, err := open()
		if err == nil {
			taken, err = handOverTo(c, names, files)
		}
		h.gave(taken)
		if !taken {
			c.SetDeadline(time.Now().Add(handWithin))
			fmt.Fprintf(c, "no %v\n", err)
			return
		}
		over := make(chan struct{})
		handed(func() {
			c.SetDeadline(time.Now().Add(handWithin))
			c.Write([]byte("done\n"))
			close(over)
		})
		<-over
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
// disconnected. It reports whether the process at the other end has taken over.
func handOverTo(c *net.UnixConn, names []string, files []*os.File) (taken bool, err error) {
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	if len(files) > mostSockets {
		return false, fmt.Errorf("it has %d listening sockets, and at most %d can be handed over", len(files), mostSockets)
	}
	text, err := json.Marshal(names)
	if err != nil {
		return false, err
	}
	fds, err := numbers(files)
	if err != nil {
		return false, err
	}
	c.SetDeadline(time.Now().Add(readyWithin))
	if _, _, err := c.WriteMsgUnix(append(text, '\n'), syscall.UnixRights(fds...), nil); err != nil {
		return false, err
	}
	in := bufio.NewReader(c)
	if said, err := in.ReadString('\n'); err != nil || said != "ready\n" {
		return false, fmt.Errorf("the new process was not ready within %s", readyWithin)
	}
	c.SetDeadline(time.Now().Add(takenWithin))
	if _, err := c.Write([]byte("yours\n")); err != nil {
		return false, err
	}
	said, err := in.ReadString('\n')
	if err != nil { // after CloseRead it can't be sent any more, but it may have been before
		c.CloseRead()
		c.SetDeadline(time.Now().Add(takenWithin))
		said, _ = in.ReadString('\n')
	}
	switch {
	case said != "taken\n":
		return false, fmt.Errorf("the new process did not confirm within %s", takenWithin)
	case !isOpen(c):
		return false, errors.New("the new process has ended")
	}
	return true, nil
}

// isOpen reports whether the process at the other end of c still has the connection,
// provided that it has sent nothing that was not read.
func isOpen(c *net.UnixConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	open := false
	err = raw.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd)}} // POLLHUP is always reported
		_, err := unix.Poll(p, 0)
		open = err == nil && p[0].Revents == 0
	})
	return err == nil && open
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
	if errors.Is(err, syscall.ECONNREFUSED) { // the offer has just ended
		return nil, fmt.Errorf("%w: %w", errClosed, err)
	}
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
	switch {
	case err == nil && n == 0, errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF):
		return errClosed
	case err != nil:
		return err
	case isRefusal(string(text[:n])):
		return refusal(string(text[:n]))
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

func isRefusal(said string) bool { return strings.HasPrefix(said, "no ") }

func refusal(said string) error {
	return fmt.Errorf("it continues to serve: %s", strings.TrimSpace(strings.TrimPrefix(said, "no ")))
}

// ready takes over from the old instance: see the top of this file. It returns nil if
// the new process is the one that serves, and an error if it must end because the old
// one continues. A signal other than SIGHUP makes it give up. late is called once if
// the old process does not answer for a while.
func (t *takeover) ready(signals <-chan os.Signal, late func()) error {
	t.over = make(chan struct{})
	t.conn.SetDeadline(time.Time{})
	in := bufio.NewReader(t.conn)
	said := make(chan string, 1)
	go func() {
		line, _ := in.ReadString('\n') // "": the old process has ended
		said <- line
	}()
	t.conn.Write([]byte("ready\n")) // an error is ignored: if the old process has ended, the goroutine above reads ""
	slow := time.NewTimer(lateAfter)
	defer slow.Stop()
	for {
		select {
		case line := <-said:
			return t.decide(in, line)
		case <-slow.C:
			late()
		case s := <-signals:
			if s != syscall.SIGHUP {
				return fmt.Errorf("it continues to serve: this process received the signal %q first", s)
			}
		}
	}
}

// decide handles the answer to "ready".
func (t *takeover) decide(in *bufio.Reader, line string) error {
	if line == "yours\n" {
		if _, err := t.conn.Write([]byte("taken\n")); err == nil {
			t.taken = true
			go func() { // the connection stays open, so that the old process sees that this one runs
				in.ReadString('\n')
				close(t.over)
				t.conn.Close()
			}()
			line = "taken"
		} else {
			line, _ = in.ReadString('\n')
		}
	}
	if isRefusal(line) {
		return refusal(line)
	}
	if !t.taken {
		close(t.over)
	}
	for _, l := range t.paths { // the old process leaves the files, or has ended
		l.SetUnlinkOnClose(true)
	}
	return nil
}
