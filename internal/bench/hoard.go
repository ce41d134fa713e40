//go:build linux

package bench

// This file has clients that send large requests and do not read the replies, while an ordinary
// load runs.

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	hoarders    = 200       // number of clients
	hoardKeys   = 20        // number of keys that each client requests at once
	hoardValue  = 1_000_000 // size of each value, in bytes
	hoardReturn = 100 * time.Millisecond
	hoardFill   = 30 * time.Second // timeout for writing the values
	hoardTimes  = 20               // the measured time is this many times as long as usual, because few replies may arrive
)

// hoard has the sockets of clients that do not read their replies. If Ringside closes the
// connection of a client, the client reconnects within hoardReturn and sends its request again.
type hoard struct {
	to      unix.SockaddrInet4
	request []byte
	sockets []unix.PollFd
	stop    context.CancelFunc
	ended   sync.WaitGroup
	back    int // number of times that a client has connected again
	err     error
}

// startHoard writes the large values through the proxy at addr. It then starts the clients that
// request the values and do not read them.
func startHoard(ctx context.Context, addr netip.AddrPort) (*hoard, error) {
	if err := fillHoard(ctx, addr.String()); err != nil {
		return nil, fmt.Errorf("write the large values: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	h := &hoard{to: unix.SockaddrInet4{Port: int(addr.Port()), Addr: addr.Addr().As4()}, stop: stop,
		request: []byte("get " + strings.Join(hoardedKeys(), " ") + "\r\n")}
	for range hoarders {
		h.sockets = append(h.sockets, unix.PollFd{Fd: -1})
	}
	h.err = h.ask()
	h.ended.Go(func() {
		for h.err == nil && ctx.Err() == nil {
			h.err = h.watch()
		}
	})
	return h, nil
}

// end closes all clients that do not read their replies.
func (h *hoard) end() error {
	h.stop()
	h.ended.Wait()
	for _, s := range h.sockets {
		if s.Fd >= 0 {
			unix.Close(int(s.Fd))
		}
	}
	return h.err
}

// ask connects the clients that are not connected. It sends the request of each of them.
func (h *hoard) ask() error {
	for i := range h.sockets {
		if h.sockets[i].Fd >= 0 {
			continue
		}
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("a socket: %w", err)
		}
		h.sockets[i] = unix.PollFd{Fd: int32(fd), Events: unix.POLLRDHUP}
		if err := unix.Connect(fd, &h.to); err != nil {
			return fmt.Errorf("connect to port %d: %w", h.to.Port, err)
		}
		if _, err := unix.Write(fd, h.request); err != nil && !errors.Is(err, unix.ECONNRESET) && !errors.Is(err, unix.EPIPE) {
			return fmt.Errorf("ask: %w", err)
		}
	}
	return nil
}

// watch waits for hoardReturn. Clients that were closed in that time then connect again.
func (h *hoard) watch() error {
	time.Sleep(hoardReturn)
	if _, err := unix.Poll(h.sockets, 0); err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("poll: %w", err)
	}
	for i, s := range h.sockets {
		if s.Revents != 0 {
			unix.Close(int(s.Fd))
			h.sockets[i].Fd = -1
			h.back++
		}
	}
	return h.ask()
}

func hoardedKeys() []string {
	var keys []string
	for i := range hoardKeys {
		keys = append(keys, fmt.Sprintf("hoarded%d", i))
	}
	return keys
}

// fillHoard writes the large values through the proxy at addr.
func fillHoard(ctx context.Context, addr string) error {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(hoardFill)); err != nil {
		return err
	}
	value, answers := bytes.Repeat([]byte("h"), hoardValue), bufio.NewReader(c)
	for _, key := range hoardedKeys() {
		if _, err := fmt.Fprintf(c, "set %s 0 0 %d\r\n%s\r\n", key, len(value), value); err != nil {
			return err
		}
		if line, err := answers.ReadString('\n'); err != nil || line != "STORED\r\n" {
			return fmt.Errorf("%s: %q, %w", key, line, err)
		}
	}
	return nil
}
