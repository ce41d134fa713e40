package loop

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"ringside/internal/testenv"
	"ringside/proxy"
	"ringside/proxy/table"
)

// secured is a Ringside that listens with TLS.
type secured struct {
	ca    *testenv.CA
	d     *Driver
	p     *proxy.Proxy
	table func() *table.Table
	at    string
	log   testenv.Output
}

// startSecured starts a driver with a listener that uses TLS.
func startSecured(t *testing.T, o Options, change func(*table.ListenerTLS)) *secured {
	t.Helper()
	s := &secured{ca: testenv.NewCA(t, "ca")}
	backend := memcached(t)
	pair := s.ca.Named(t, "127.0.0.1")
	s.table = func() *table.Table {
		b := tableOf(backend)
		b.Listeners[0].TLS = &table.ListenerTLS{Cert: pair.CertPEM, Key: pair.KeyPEM, Handshake: testenv.Hang}
		if change != nil {
			change(b.Listeners[0].TLS)
		}
		return b
	}
	s.p, s.d = startLogged(t, o, s.table(), io.MultiWriter(t.Output(), &s.log))
	s.at = s.d.Addrs()[0].String()
	return s
}

func (s *secured) dial(t *testing.T, config *tls.Config) *tls.Conn {
	t.Helper()
	c, err := tls.Dial("tcp", s.at, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(testenv.Hang))
	return c
}

// says sends text and checks the reply.
func says(t *testing.T, c net.Conn, text, want string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want))
	if n, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("reply to %.40q is %.60q (%v), want %.60q", text, got[:n], err, want)
	}
}

// snapshot returns the sum of the counters of all loops.
func (s *secured) snapshot(t *testing.T) (is handshaken) {
	t.Helper()
	testenv.Eventually(t, "the loops reply", func() bool {
		all, err := s.p.Snapshot()
		if err == nil {
			is = handshaken{all.Handshakes.Done, all.Handshakes.Resumed, all.Handshakes.Failed, all.Handshakes.Late, all.Handshakes.Crowded, all.PlainRefused, all.TLSRefused}
		}
		return err == nil
	})
	return is
}

// handshaken are the counters of TLS clients.
type handshaken struct{ done, resumed, failed, late, crowded, plain, tls uint64 }

func TestTLSClient(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		s := startSecured(t, o, nil)
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			config := s.ca.Client()
			config.MinVersion, config.MaxVersion = version, version
			c := s.dial(t, config)
			for _, size := range []int{1, 100, 16 << 10, 64<<10 + 1, 3 << 20} {
				value := strings.Repeat("x", size)
				says(t, c, fmt.Sprintf("set a 0 0 %d\r\n%s\r\n", size, value), "STORED\r\n")
				says(t, c, "get a\r\n", fmt.Sprintf("VALUE a 0 %d\r\n%s\r\nEND\r\n", size, value))
			}
			says(t, c, strings.Repeat("mn\r\n", 10_000), strings.Repeat("MN\r\n", 10_000))
			// A client that has announced the end of its requests gets its replies, and the same announcement.
			if _, err := io.WriteString(c, "get a b\r\n"); err != nil {
				t.Fatal(err)
			}
			c.CloseWrite()
			all, err := io.ReadAll(c)
			if err != nil || !bytes.HasSuffix(all, []byte("END\r\n")) {
				t.Errorf("%d bytes of a reply, and %v", len(all), err)
			}
		}
	})
}

// pieces is a connection that passes on n bytes at a time.
type pieces struct {
	net.Conn
	n int
}

func (p pieces) Write(b []byte) (int, error) {
	for i := 0; i < len(b); i += p.n {
		if n, err := p.Conn.Write(b[i:min(i+p.n, len(b))]); err != nil {
			return i + n, err
		}
	}
	return len(b), nil
}

// TestTLSPieces checks clients whose records, also those of the handshake, arrive in pieces.
func TestTLSPieces(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		s := startSecured(t, o, nil)
		for _, n := range []int{1, 100} {
			raw, err := net.Dial("tcp", s.at)
			if err != nil {
				t.Fatal(err)
			}
			defer raw.Close()
			c := tls.Client(pieces{raw, n}, s.ca.Client())
			says(t, c, "set a 0 0 2000\r\n"+strings.Repeat("y", 2000)+"\r\n", "STORED\r\n")
			says(t, c, "get a\r\n", "VALUE a 0 2000\r\n"+strings.Repeat("y", 2000)+"\r\nEND\r\n")
		}
	})
}

// TestPlainClientOnTLS checks that a client of the other kind is told, or closed.
func TestPlainClientOnTLS(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		s := startSecured(t, o, nil)
		for _, text := range []string{"get a\r\n", "\x80\x0a" + strings.Repeat("\x00", 22), "g"} {
			c, err := net.Dial("tcp", s.at)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := io.WriteString(c, text); err != nil {
				t.Fatal(err)
			}
			if all, err := io.ReadAll(c); string(all) != SpeaksTLS || err != nil {
				t.Errorf("%q gets %q and %v", text, all, err)
			}
		}
		if is := s.snapshot(t); is.plain != 3 {
			t.Errorf("counted %+v, want 3 plain clients", is)
		}
		// The reverse: TLS on a plain listener, after a reload has removed TLS.
		plain := s.table()
		plain.Listeners[0].TLS = nil
		commit, err := s.d.Listen(plain)
		if err != nil {
			t.Fatal(err)
		}
		s.p.SetTable(plain)
		commit()
		if c, err := tls.Dial("tcp", s.at, s.ca.Client()); err == nil {
			c.Close()
			t.Error("a handshake succeeds without TLS")
		}
		if is := s.snapshot(t); is.tls != 1 {
			t.Errorf("counted %+v, want 1 TLS client on a plain listener", is)
		}
	})
}

// TestStalledHandshakes checks that clients that stall in the handshake are bounded, end in time, and do
// not disturb others.
func TestStalledHandshakes(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		s := startSecured(t, o, nil)
		served := s.dial(t, s.ca.Client())
		says(t, served, "set a 0 0 1\r\n1\r\n", "STORED\r\n")
		hello := helloOf(t, s.ca)
		stalled := 5000
		if !testenv.Full() || o.Moderation.Above > 0 {
			stalled = 1000
		}
		open := make([]net.Conn, 0, stalled)
		defer func() {
			for _, c := range open {
				c.Close()
			}
		}()
		for i := range stalled {
			c, err := net.Dial("tcp", s.at)
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, c)
			c.Write(hello[:[]int{0, 1, len(hello) / 2, len(hello)}[i%4]]) // Ringside may have closed it already
			if i%500 == 499 {
				says(t, served, "get a\r\n", "VALUE a 0 1\r\n1\r\nEND\r\n")
				c := s.dial(t, s.ca.Client())
				says(t, c, "get a\r\n", "VALUE a 0 1\r\n1\r\nEND\r\n")
				c.Close()
			}
		}
		if is := s.snapshot(t); is.crowded < uint64(stalled-HandshakesMost-100) {
			t.Errorf("counted %+v, want about %d crowded out", is, stalled-HandshakesMost)
		}
	})
}

// TestHandshakesGivenUp checks whose handshake ends if too many are incomplete: that of a client of the
// kind that stalls most. The log names the limit.
func TestHandshakesGivenUp(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		s := startSecured(t, o, nil)
		hello := helloOf(t, s.ca)
		var open []net.Conn
		defer func() {
			for _, c := range open {
				c.Close()
			}
		}()
		flood := func(first []byte) {
			t.Helper()
			before := s.snapshot(t).crowded
			testenv.Eventually(t, "other clients are given up", func() bool {
				for range HandshakesMost / 4 {
					c, err := net.Dial("tcp", s.at)
					if err != nil {
						t.Fatal(err)
					}
					open = append(open, c)
					c.Write(first)                // Ringside may have closed it already
					if len(first) == len(hello) { // on a busy machine, many would otherwise wait in the phase before
						c.SetReadDeadline(time.Now().Add(testenv.Hang))
						c.Read(make([]byte, 1))
					}
				}
				return s.snapshot(t).crowded > before+HandshakesMost
			})
		}
		begin := func(writes int) (release func()) {
			t.Helper()
			raw, err := net.Dial("tcp", s.at)
			if err != nil {
				t.Fatal(err)
			}
			raw.SetDeadline(time.Now().Add(testenv.Hang))
			held := &holding{Conn: raw, writes: writes, holds: make(chan bool), release: make(chan bool)}
			c, ended := tls.Client(held, s.ca.Client()), make(chan error, 1)
			t.Cleanup(func() { c.Close() })
			go func() { ended <- c.Handshake() }()
			<-held.holds
			return func() {
				t.Helper()
				close(held.release)
				if err := <-ended; err != nil {
					t.Errorf("a client that had sent %d times is given up: %v", writes, err)
					return
				}
				says(t, c, "mn\r\n", "MN\r\n")
			}
		}
		release := begin(1) // it has the reply to its first message
		flood(nil)
		flood(hello[:len(hello)/2])
		release()
		for _, c := range open {
			c.Close()
		}
		left := len(open)
		open = nil
		testenv.Eventually(t, "the clients have left", func() bool {
			is := s.snapshot(t)
			return is.failed+is.crowded == uint64(left)
		})
		release = begin(0)
		flood(hello)
		release()
		if text := s.log.String(); !strings.Contains(text, "TLS handshakes given up") || !strings.Contains(text, "limit=512") {
			t.Errorf("the log is\n%s", text)
		}
	})
}

// holding is a connection that holds back what is written after a number of writes.
type holding struct {
	net.Conn
	writes  int
	holds   chan bool // closed when a write is held back
	release chan bool // closed when it may continue
}

func (h *holding) Write(b []byte) (int, error) {
	if h.writes--; h.writes == -1 {
		close(h.holds)
		<-h.release
	}
	return h.Conn.Write(b)
}

// TestHandshakeIsBounded checks that little is read from clients whose handshakes wait for a turn to compute.
// A client that sends a long first message is served later.
func TestHandshakeIsBounded(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		s := startSecured(t, o, nil)
		for range cap(clientTurns) {
			clientTurns <- struct{}{}
		}
		release := sync.OnceFunc(func() {
			for range cap(clientTurns) {
				<-clientTurns
			}
		})
		defer release()
		flood, err := net.Dial("tcp", s.at)
		if err != nil {
			t.Fatal(err)
		}
		defer flood.Close()
		flood.Write(helloOf(t, s.ca))
		for sent, junk := 0, make([]byte, 1<<20); err == nil; sent += len(junk) {
			if sent > 32<<20 { // the kernel holds less
				t.Fatal("there is no bound")
			}
			flood.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
			_, err = flood.Write(junk)
		}
		raw, err := net.Dial("tcp", s.at)
		if err != nil {
			t.Fatal(err)
		}
		defer raw.Close()
		config := s.ca.Client()
		for range 200 {
			config.NextProtos = append(config.NextProtos, strings.Repeat("p", 255))
		}
		greeted, ended := make(chan bool, 10), make(chan error, 1)
		long := tls.Client(telling{raw, greeted}, config)
		raw.SetDeadline(time.Now().Add(testenv.Hang))
		go func() { ended <- long.Handshake() }()
		<-greeted
		for range 10 { // the loop reads as much as it wants
			s.snapshot(t)
		}
		release()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		says(t, long, "set a 0 0 100000\r\n"+strings.Repeat("v", 100_000)+"\r\n", "STORED\r\n")
		testenv.Eventually(t, "the other client is closed", func() bool { return s.snapshot(t).failed == 1 })
	})
}

// telling is a connection that tells about each write.
type telling struct {
	net.Conn
	wrote chan bool
}

func (c telling) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	select {
	case c.wrote <- true:
	default:
	}
	return n, err
}

// helloOf returns the first bytes of a TLS client.
func helloOf(t *testing.T, ca *testenv.CA) []byte {
	t.Helper()
	near, far := net.Pipe()
	go tls.Client(far, ca.Client()).Handshake()
	b := make([]byte, 16<<10)
	n, err := near.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	near.Close()
	return b[:n]
}

func TestHandshakeEnds(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		s := startSecured(t, o, func(l *table.ListenerTLS) { l.Handshake = 100 * time.Millisecond })
		hello := helloOf(t, s.ca)
		for _, n := range []int{0, 1, len(hello)} {
			c, err := net.Dial("tcp", s.at)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			c.Write(hello[:n])
			c.SetDeadline(time.Now().Add(testenv.Hang))
			if _, err := io.Copy(io.Discard, c); err != nil && !strings.Contains(err.Error(), "reset") {
				t.Errorf("%d bytes of a handshake: %v", n, err)
			}
		}
		if is := s.snapshot(t); is.late != 3 {
			t.Errorf("counted %+v, want 3 late handshakes", is)
		}
		for _, n := range []int{0, 1, len(hello)} { // clients that leave
			c, err := net.Dial("tcp", s.at)
			if err != nil {
				t.Fatal(err)
			}
			c.Write(hello[:n])
			c.Close()
		}
		testenv.Eventually(t, "three clients have left", func() bool { is := s.snapshot(t); return is.failed+is.late == 6 })
	})
}

// TestTruncation checks that a connection that is cut without close_notify yields no value that is not
// complete, and that a cut request is not run.
func TestTruncation(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		s := startSecured(t, o, nil)
		raw, err := net.Dial("tcp", s.at)
		if err != nil {
			t.Fatal(err)
		}
		c := tls.Client(raw, s.ca.Client())
		says(t, c, "set a 0 0 3\r\nold\r\n", "STORED\r\n")
		io.WriteString(c, "set a 0 0 3\r\nnew")
		raw.(*net.TCPConn).CloseWrite()
		if all, _ := io.ReadAll(c); len(all) > 0 {
			t.Errorf("a cut request is answered %q", all)
		}
		raw.Close()
		says(t, s.dial(t, s.ca.Client()), "get a\r\n", "VALUE a 0 3\r\nold\r\nEND\r\n")
	})
}

// TestCertificateChanges checks that connected clients stay while the certificate changes, that new ones
// get the new one, and that sessions are resumed.
func TestCertificateChanges(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		s := startSecured(t, o, nil)
		config := s.ca.Client()
		config.ClientSessionCache = tls.NewLRUClientSessionCache(1)
		first := s.dial(t, config)
		for range 10 {
			pair := s.ca.Named(t, "127.0.0.1")
			next := s.table()
			next.Listeners[0].TLS.Cert, next.Listeners[0].TLS.Key = pair.CertPEM, pair.KeyPEM
			commit, err := s.d.Listen(next)
			if err != nil {
				t.Fatal(err)
			}
			s.p.SetTable(next)
			commit()
			says(t, first, "mn\r\n", "MN\r\n")
			fresh := s.dial(t, s.ca.Client())
			if got, want := fresh.ConnectionState().PeerCertificates[0].Raw, pair.Certificate(t).Certificate[0]; !bytes.Equal(got, want) {
				t.Error("a new client gets an old certificate")
			}
			again := s.dial(t, config)
			says(t, again, "mn\r\n", "MN\r\n")
			if !again.ConnectionState().DidResume {
				t.Error("a session is not resumed")
			}
		}
		bad := s.table()
		bad.Listeners[0].TLS.Cert = nil
		if _, err := s.d.Listen(bad); err == nil {
			t.Error("a listener without a certificate")
		}
		says(t, s.dial(t, s.ca.Client()), "mn\r\n", "MN\r\n")
	})
}

// TestTLSClientLeaves checks that a client that leaves in whatever way is gone at once.
func TestTLSClientLeaves(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		s := startSecured(t, o, nil)
		for name, leave := range map[string]func(c *tls.Conn){
			"close":  func(c *tls.Conn) { c.Close() },
			"notify": func(c *tls.Conn) { c.CloseWrite() },
			"cut":    func(c *tls.Conn) { c.NetConn().Close() },
			"reset":  func(c *tls.Conn) { c.NetConn().(*net.TCPConn).SetLinger(0); c.NetConn().Close() },
			"quit":   func(c *tls.Conn) { io.WriteString(c, "quit\r\n") },
		} {
			for _, said := range []bool{false, true} {
				c := s.dial(t, s.ca.Client())
				if said {
					says(t, c, "mn\r\n", "MN\r\n")
				}
				began := time.Now()
				leave(c)
				testenv.Eventually(t, name+": no client is left", func() bool {
					all, err := s.p.Snapshot()
					return err == nil && all.Clients == 0
				})
				t.Log(name, said, time.Since(began))
			}
		}
	})
}
