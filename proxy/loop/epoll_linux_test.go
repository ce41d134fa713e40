package loop

// Tests of errors that only the epoll driver can have.

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ringside/internal/testenv"
	"ringside/proxy"
	"ringside/proxy/client"
	"ringside/proxy/link"
)

// TestStaleWake checks that the loop reads a write to the eventfd even if it has no posted
// function. If the loop was already awake, it may have run a function before the goroutine that
// posted it wrote.
func TestStaleWake(t *testing.T) {
	p := proxy.NewProxy(tableOf("127.0.0.1:1"), "test", slog.New(slog.NewTextHandler(io.Discard, nil)))
	d, err := startEpoll(p.NewEngine(link.DefaultTune), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.stop()
	unix.Write(d.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	for end := time.Now().Add(testenv.Hang); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if n, _ := unix.Poll([]unix.PollFd{{Fd: int32(d.wake), Events: unix.POLLIN}}, 0); n == 0 {
			return
		}
	}
	t.Fatal("the eventfd stays readable: the loop spins")
}

// aClient waits until the loop of d has a client. It calls look on the loop and returns its result.
func aClient[V any](t *testing.T, d *epoll, look func(e *proxy.Engine, s *sock) V) V {
	t.Helper()
	for end := time.Now().Add(testenv.Hang); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		found := make(chan V, 1)
		d.post(func(e *proxy.Engine) {
			defer close(found)
			for _, s := range d.socks {
				if s != nil && s.link != nil && s.link.Client() {
					found <- look(e, s)
					return
				}
			}
		})
		if v, ok := <-found; ok {
			return v
		}
	}
	t.Fatal("the loop has no client")
	panic("unreachable")
}

// epollOf starts a driver for a table with that server and returns it and its only loop. The driver
// runs until the test ends.
func epollOf(t *testing.T, server string) (*Driver, *epoll) {
	t.Helper()
	tab := tableOf(server)
	run, err := New(proxy.NewProxy(tab, "test", slog.New(slog.DiscardHandler)), Options{Driver: "epoll", Tune: link.DefaultTune})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(run.close)
	commit, err := run.Listen(tab)
	if err != nil {
		t.Fatal(err)
	}
	commit()
	return run, run.engine[0].(*epoll)
}

// TestClientOfAListener checks that the sockets of clients have the options of every socket. It
// also checks that a client that has closed its sending side and waits for a reply does not keep
// the loop awake.
func TestClientOfAListener(t *testing.T) {
	asked := make(chan struct{})
	server := testenv.Serve(t, "127.0.0.1", func(c net.Conn) { // it never replies to a get
		for r := bufio.NewScanner(c); r.Scan(); {
			if strings.HasPrefix(r.Text(), "get") {
				close(asked)
			} else {
				fmt.Fprint(c, "VERSION 1.6.18\r\n")
			}
		}
	})
	run, d := epollOf(t, server)
	c, err := net.Dial("tcp", run.Addrs()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	options := aClient(t, d, func(_ *proxy.Engine, s *sock) [2]int {
		prompt, _ := unix.GetsockoptInt(s.fd, unix.IPPROTO_TCP, unix.TCP_NODELAY)
		kept, _ := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE)
		return [2]int{prompt, kept}
	})
	if options != [2]int{1, 1} {
		t.Errorf("TCP_NODELAY and SO_KEEPALIVE of a client are %d, want both", options)
	}
	fmt.Fprint(c, "get a\r\n")
	<-asked
	c.(*net.TCPConn).CloseWrite()
	for aClient(t, d, func(_ *proxy.Engine, s *sock) bool { return s.events&unix.EPOLLIN != 0 }) {
		time.Sleep(time.Millisecond)
	}
	wakeups := func() uint64 {
		return aClient(t, d, func(e *proxy.Engine, _ *sock) uint64 { return e.Count.Wakeups })
	}
	before, began := wakeups(), time.Now()
	time.Sleep(50 * time.Millisecond)
	n, slept := wakeups()-before, time.Since(began) // a busy machine sleeps longer, and timers cause more wakeups
	if n > 20+uint64(slept/(10*time.Millisecond)) {
		t.Errorf("%d wakeups in %v while nothing happens: the loop spins", n, slept)
	}
}

// TestAccept checks that a wakeup accepts one client and reads its request, and that it accepts
// more clients if the listener was ready at consecutive wakeups.
func TestAccept(t *testing.T) {
	run, d := epollOf(t, "127.0.0.1:1")
	const clients = 70
	conns := make([]net.Conn, clients)
	took := make(chan []uint64)
	d.post(func(e *proxy.Engine) { // the loop accepts no clients while this function runs
		defer close(took)
		var listener *sock
		for _, s := range d.socks {
			if s != nil && s.listen != nil {
				listener = s
			}
		}
		for i := range conns {
			c, err := net.Dial("tcp", run.Addrs()[0].String())
			if err != nil {
				t.Error(err)
				return
			}
			conns[i] = c
			fmt.Fprint(c, "mn\r\n")
		}
		var n []uint64
		d.round++
		for before := e.Count; e.Count.Accepted < clients; before = e.Count {
			d.round++
			d.accept(listener)
			if got := e.Count.Reads - before.Reads; got != e.Count.Accepted-before.Accepted {
				t.Errorf("%d clients taken, %d read", e.Count.Accepted-before.Accepted, got)
			}
			n = append(n, e.Count.Accepted-before.Accepted)
		}
		d.round++ // a wakeup without a client
		d.round++
		d.accept(listener)
		if listener.inRow != 1 {
			t.Errorf("behind a wakeup in which nobody came it is as if %d had been in a row", listener.inRow)
		}
		took <- n
	})
	if got := fmt.Sprint(<-took); got != "[1 1 2 2 4 4 8 8 16 16 8]" {
		t.Errorf("wakeups took %s clients", got)
	}
	for _, c := range conns {
		if c == nil {
			continue
		}
		defer c.Close()
		if answer, err := bufio.NewReader(c).ReadString('\n'); answer != "MN\r\n" {
			t.Errorf("a client that asked before it was accepted got %q, %v", answer, err)
		}
	}
}

// TestHungUp checks that a socket whose other end sends no more is recognized before its bytes are read.
func TestHungUp(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	if _, err := unix.Write(fds[1], []byte("get a\r\n")); err != nil || hungUp(fds[0]) {
		t.Fatalf("a socket with bytes counts as closed, or %v", err)
	}
	if err := unix.Shutdown(fds[1], unix.SHUT_WR); err != nil || !hungUp(fds[0]) {
		t.Errorf("a socket whose other end sends no more does not count as closed, or %v", err)
	}
}

// TestLargeSetsOfManyClients checks how many bytes the loop reads from clients with large sets before it sends the requests of
// others, and in one wakeup.
func TestLargeSetsOfManyClients(t *testing.T) {
	run, d := epollOf(t, "127.0.0.1:1")
	const clients, each = acceptsPerEvent, 2_000_000
	event, sent := client.RoundBytes+link.ClientRead, make(chan struct{}, clients)
	blocked, goOn, failed := make(chan struct{}), make(chan struct{}), make(chan string, 1)
	d.post(func(e *proxy.Engine) {
		defer close(failed)
		close(blocked)
		<-goOn
		var listener *sock
		for _, s := range d.socks {
			if s != nil && s.listen != nil {
				listener = s
			}
		}
		for accepted := 0; accepted < clients; { // most events find all of the clients
			before := e.Count.ClientIn
			listener.round, listener.inRow = d.round-1, inRowMost
			d.accept(listener)
			if n := e.Count.ClientIn - before; n > uint64(event) {
				failed <- fmt.Sprintf("%d bytes are read when clients are accepted, want at most %d", n, event)
				return
			}
			d.nextRound()
			accepted = len(e.Sessions)
		}
		before := e.Count.ClientIn
		for _, s := range slices.Clone(d.socks) {
			if s != nil && s.link != nil && s.link.Client() {
				d.read(s)
			}
		}
		if n := e.Count.ClientIn - before; n > clients*link.ScratchSize {
			failed <- fmt.Sprintf("%d bytes of %d clients are read in one wakeup, want at most %d", n, clients, clients*link.ScratchSize)
		}
	})
	<-blocked
	for range clients {
		c, err := net.Dial("tcp", run.Addrs()[0].String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		go func() {
			sent <- struct{}{}
			fmt.Fprintf(c, "set k 0 0 %d\r\n%s", each, strings.Repeat("v", each/2))
		}()
	}
	for range clients {
		<-sent
	}
	close(goOn)
	if text := <-failed; text != "" {
		t.Error(text)
	}
}

// TestPostedRounds checks that functions that are posted do not run when the limit of a round is reached. Those at the end of the
// handshakes of TLS clients pass requests to the engine.
func TestPostedRounds(t *testing.T) {
	run, d := epollOf(t, "127.0.0.1:1")
	const clients = 40
	for range clients {
		c, err := net.Dial("tcp", run.Addrs()[0].String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	testenv.Eventually(t, "all clients are accepted", func() bool {
		n := make(chan int)
		d.post(func(e *proxy.Engine) { n <- len(e.Sessions) })
		return <-n == clients
	})
	spent, request := make(chan int), append([]byte("set k 0 0 1000000\r\n"), make([]byte, 2*client.RoundBytes/clients)...)
	d.post(func(e *proxy.Engine) { // the functions that it posts run in the same wakeup
		n, last := 0, 0
		for s := range e.Sessions {
			d.post(func(e *proxy.Engine) {
				if e.Spent() {
					n++
				}
				e.Bytes(&s.Link, request)
				if last++; last == clients {
					spent <- n
				}
			})
		}
	})
	if n := <-spent; n > 0 {
		t.Errorf("%d functions run although the round is over", n)
	}
}
