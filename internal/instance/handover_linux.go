package instance

// This file passes the listening sockets of a running (old) process to the next (new)
// one, over a unix socket with a random name that only these two processes know.
//
// The old process sends copies of the sockets. Then the two processes exchange messages
// to agree which of them serves:
//
//	new: ready   The new process accepts clients. The old process still accepts clients too.
//	old: yours   The old process will stop accepting if the new process confirms.
//	new: taken   This is the decision: from here on the new process serves, whatever happens.
//	old: done    The old process has stopped accepting. If it has TLS clients, the key of their
//	             session tickets follows, so that they resume their sessions with the new process.
//
// In place of "yours", the old process may send "no" with a reason. It then closes the
// connection and continues to serve.
//
// Until the new process has sent "taken", each of them may give up, and the old process
// serves. The kernel decides whether "taken" was sent in time. When the old process stops
// waiting, it shuts down the receiving side of its connection. After that, nothing can be
// sent to it. It then reads what was sent before. Both processes therefore come to the same
// decision, however slow one of them is. If one of them ends, the connection ends, and the
// other one serves. There is one exception: the new process ends just after the old process
// has seen that it still runs.
//
// The new process waits for "yours" without a time limit, because it serves clients in the
// meantime. The old process waits for a limited time only, because another process may have
// to take over from it later.

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
	"ringside/proxy/secure"
)

const (
	handWithin  = 10 * time.Second // time limit for the new process to connect and to receive the sockets
	readyWithin = 5 * time.Minute  // how long the old process waits for "ready" from the new one
	mostSockets = 250              // maximum number of sockets; the kernel passes at most 253 at once
)

// These time limits are variables so that tests can shorten them.
var (
	takenWithin = 10 * time.Second // how long the old process waits for "taken" from the new one
	lateAfter   = 10 * time.Second // time after which the new process logs that the old one does not reply
)

// These errors are reasons why no process can take over from this one.
var (
	errBusy   = errors.New("another process is taking over from it")
	errHanded = errors.New("another process has taken over from it")
)

// handoverSocket is the socket on which the next process receives the listening sockets.
// At most one such socket is open, however often it is requested. A local user who may
// use the control API therefore cannot use up the descriptors. At most one process at a
// time has copies of the listening sockets.
type handoverSocket struct {
	tickets *secure.Tickets // keys of the session tickets; does not change

	mu      sync.Mutex
	waiting *net.UnixListener // the socket while the next process may connect to it; nil: no process is expected
	given   bool              // another process has the listening sockets, or is receiving them
	over    error             // why no process can take over any more; nil: one can
}

// end refuses all later take-overs, because this process is stopping. It reports whether
// another process has the listening sockets and may still use them.
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

// give reserves the listening sockets for the process that has connected. It returns
// false if no process can take over any more.
func (h *handoverSocket) give() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting, h.given = nil, h.over == nil
	return h.given
}

// gave records the result of a take-over that give began. taken means that the listening
// sockets now belong to the other process.
func (h *handoverSocket) gave(taken bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.given = taken; taken {
		h.over = errHanded
	}
}

// offer returns the name of a socket on which the next process receives the listening
// sockets. When that process has connected, offer calls open, which returns the listening
// sockets with their names. Connections of other users are closed, and the socket stays
// open. After the next process has taken over, offer calls handed once, with a function.
// That function informs the next process that this one has stopped accepting. Without a
// take-over, nothing changes.
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
			c.Write([]byte(strings.TrimSpace("done "+h.tickets.Text()) + "\n"))
			close(over)
		})
		<-over
	}()
	return l.Addr().String(), nil
}

// acceptTrusted returns the first connection from a process that may receive the
// listening sockets. It returns nil if there is none before the deadline of l.
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

// handOverTo sends the listening sockets in files to the process at the other end of c,
// and waits until that process has taken over. It closes the files before it returns.
// taken reports whether that process has taken over.
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
	if err != nil { // "taken" may have arrived just before CloseRead; after CloseRead it cannot arrive any more
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

// isOpen reports whether the process at the other end of c still has the connection open.
// The result is only right if all data from that process has been read.
func isOpen(c *net.UnixConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	open := false
	err = raw.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd)}} // no events are requested, because poll always reports POLLHUP
		_, err := unix.Poll(p, 0)
		open = err == nil && p[0].Revents == 0
	})
	return err == nil && open
}

// numbers returns the descriptors of files. It does not call the method Fd, which would
// make the sockets blocking in both processes. A loop that accepts clients would then
// hang.
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

// isTrusted reports whether a process of the user uid may take part in a take-over: only
// the user of this process. For root this is important, because another user could hand
// over any sockets.
var isTrusted = func(uid uint32) bool { return int(uid) == os.Geteuid() }

// checkPeer returns nil if the process at the other end of c may take part in a
// take-over. The kernel says to which user that process belongs.
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

// socketPrefix is the beginning of the name of each socket on which a process receives
// listening sockets.
const socketPrefix = "@ringside-"

// take receives the listening sockets from the instance that offers them on a socket. It
// connects only to sockets of Ringside, whatever name the admin interface has returned.
func take(socket string) (*takeover, error) {
	if !strings.HasPrefix(socket, socketPrefix) {
		return nil, fmt.Errorf("it names the socket %.100q, which is not of a Ringside instance", socket)
	}
	c, err := dialOffer(socket)
	if errors.Is(err, syscall.ECONNREFUSED) { // no process listens on the socket any more: the offer has ended
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

// dialOffer connects to the socket of a take-over. Connections of other users may fill
// the queue of that socket until the old instance closes them. dialOffer therefore
// retries for some time.
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

// ready tells the old instance that this process is ready, and waits for the decision who
// serves. It returns nil if this process serves. It returns an error if this process must
// end because the old one continues, or after a signal other than SIGHUP. If the old
// process does not reply for a while, ready calls late once. The comment at the top of
// the file describes the messages.
func (t *takeover) ready(signals <-chan os.Signal, late func()) error {
	t.over = make(chan struct{})
	t.conn.SetDeadline(time.Time{})
	in := bufio.NewReader(t.conn)
	said := make(chan string, 1)
	go func() {
		line, _ := in.ReadString('\n') // the line is empty if the old process has ended
		said <- line
	}()
	t.conn.Write([]byte("ready\n")) // an error is ignored: if the old process has ended, the goroutine above reads an empty line
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

// decide handles line, the old process's reply to the message "ready".
func (t *takeover) decide(in *bufio.Reader, line string) error {
	if line == "yours\n" {
		if _, err := t.conn.Write([]byte("taken\n")); err == nil {
			t.taken = true
			go func() { // keep the connection open, so that the old process sees that this process runs
				line, _ := in.ReadString('\n')
				t.tickets = strings.TrimSpace(strings.TrimPrefix(line, "done"))
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
	for _, l := range t.paths { // this process must remove the files of unix sockets at its end, because the old process does not
		l.SetUnlinkOnClose(true)
	}
	return nil
}
