package secure

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"testing"

	"ringside/internal/testenv"
	"ringside/proxy/table"
)

// move moves the encrypted bytes of one end to the other, at most step at a time, and calls arrived
// after each step.
func move(from, to *Conn, step int, arrived func()) {
	for {
		out := from.Out()
		if len(out) == 0 {
			return
		}
		part := bytes.Clone(out[:min(step, len(out))])
		from.Sent(len(part))
		to.Feed(part)
		if arrived != nil {
			arrived()
		}
	}
}

// handshake completes the handshakes of both ends of a connection, and establishes it.
func handshake(t *testing.T, server, client *Conn) {
	t.Helper()
	complete(t, server, client)
	server.Established()
	client.Established()
}

func complete(t *testing.T, server, client *Conn) {
	t.Helper()
	moved, ended := make(chan bool, 100), make(chan error, 2)
	for _, c := range []*Conn{server, client} {
		c.Handshake(NewTurns(1), func() { moved <- true }, func(err error) { ended <- err })
	}
	for left := 2; left > 0; {
		select {
		case <-moved:
		case err := <-ended:
			if left--; err != nil {
				t.Fatal(err)
			}
		}
		move(client, server, 1, nil)
		move(server, client, 1, nil)
	}
}

// connected returns both ends of a connection after the handshake.
func connected(t *testing.T, version uint16) (server, client *Conn) {
	t.Helper()
	ca := testenv.NewCA(t, "ca")
	pair := ca.Named(t, "127.0.0.1")
	l, err := NewListener(&table.ListenerTLS{Cert: pair.CertPEM, Key: pair.KeyPEM}, &Tickets{})
	if err != nil {
		t.Fatal(err)
	}
	config := ca.Client()
	config.MinVersion, config.MaxVersion = version, version
	config.DynamicRecordSizingDisabled = true
	server, client = l.Conn(), Client(config)
	handshake(t, server, client)
	if n, err := client.Read(make([]byte, 1)); n != 0 || err != nil { // reads a session ticket
		t.Fatal(n, err)
	}
	return server, client
}

// readAll reads what c has until it has no more.
func readAll(t *testing.T, c *Conn, most int) (all []byte, err error) {
	t.Helper()
	buf := make([]byte, most)
	for {
		n, err := c.Read(buf)
		if n == 0 {
			return all, err
		}
		all = append(all, buf[:n]...)
	}
}

func eachVersion(t *testing.T, f func(t *testing.T, version uint16)) {
	for _, v := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		t.Run(tls.VersionName(v), func(t *testing.T) { f(t, v) })
	}
}

// TestPartialRecords checks what crypto/tls does not document: after a Read error whose method Temporary
// returns true, a connection can be used again, and loses nothing. Records of one byte to 16 KiB arrive in
// pieces of one byte and more.
func TestPartialRecords(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		server, client := connected(t, version)
		for _, c := range []struct{ size, writes, step, buffer int }{{1, 300, 1, 16}, {900, 50, 1, 4096}, {16 << 10, 2, 7, 4096}, {64 << 10, 1, 1000, 7}, {200, 10, 1 << 20, 68 << 10}} {
			for _, ends := range [][2]*Conn{{client, server}, {server, client}} {
				var want, got []byte
				for i := range c.writes {
					b := bytes.Repeat([]byte{byte(i)}, c.size)
					want = append(want, b...)
					if err := ends[0].Write(b); err != nil {
						t.Fatal(err)
					}
				}
				move(ends[0], ends[1], c.step, func() {
					b, err := readAll(t, ends[1], c.buffer)
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, b...)
				})
				if !bytes.Equal(got, want) {
					t.Errorf("%+v: %d bytes have arrived, want the %d that were sent", c, len(got), len(want))
				}
			}
		}
	})
}

// TestFeedBeforeEstablished checks that bytes that arrive after the last bytes of the handshake, before
// the driver knows its end, are copied: the driver uses one buffer for all connections.
func TestFeedBeforeEstablished(t *testing.T) {
	ca := testenv.NewCA(t, "ca")
	pair := ca.Named(t, "127.0.0.1")
	l, err := NewListener(&table.ListenerTLS{Cert: pair.CertPEM, Key: pair.KeyPEM}, &Tickets{})
	if err != nil {
		t.Fatal(err)
	}
	server, client := l.Conn(), Client(ca.Client())
	complete(t, server, client)
	client.Established()
	client.Write([]byte("get a\r\n"))
	b := bytes.Clone(client.Out())
	server.Feed(b)
	clear(b)
	server.Established()
	if got, err := readAll(t, server, 100); string(got) != "get a\r\n" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestEnd checks that only close_notify is an end without an error, wherever the connection was cut.
func TestEnd(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		for _, cut := range []int{-1, 0, 1, 3, 5, 20} { // number of bytes of the last record that arrive; -1: all, and close_notify
			server, client := connected(t, version)
			client.Write([]byte("set a 0 0 1\r\n1\r\n"))
			move(client, server, 1<<20, nil)
			client.Write([]byte("set b 0 0 1\r\n"))
			want, end := "set a 0 0 1\r\n1\r\n", io.ErrUnexpectedEOF
			if cut < 0 {
				client.Close()
				move(client, server, 1<<20, nil)
				want, end = want+"set b 0 0 1\r\n", io.EOF
			} else {
				server.Feed(client.Out()[:cut])
			}
			server.End()
			got, err := readAll(t, server, 1<<10)
			if string(got) != want || err != end {
				t.Errorf("cut at %d: %q and %v, want %q and %v", cut, got, err, want, end)
			}
		}
	})
}

// TestOneWrite checks that a value of 64 KiB leaves in records of 16 KiB, also at the start of a
// connection.
func TestOneWrite(t *testing.T) {
	server, _ := connected(t, tls.VersionTLS13)
	server.Write(make([]byte, 64<<10))
	out, records := server.Out(), 0
	for len(out) > 0 {
		records++
		out = out[recordHeader+int(out[3])<<8+int(out[4]):]
	}
	if records != 4 {
		t.Errorf("64 KiB leave in %d records, want 4", records)
	}
}

// TestGarbage checks that damaged records end the connection with an error and an alert.
func TestGarbage(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		server, client := connected(t, version)
		client.Write([]byte("get a\r\n"))
		b := bytes.Clone(client.Out())
		b[len(b)-1] ^= 1
		server.Feed(b)
		if got, err := readAll(t, server, 100); err == nil || len(got) > 0 {
			t.Errorf("a damaged record gives %q and %v", got, err)
		}
		if len(server.Out()) == 0 {
			t.Error("no alert")
		}
	})
}

// TestCancelledHandshake checks that a handshake can be given up, and fails if the other end leaves.
func TestCancelledHandshake(t *testing.T) {
	for name, end := range map[string]func(*Conn){"cancel": (*Conn).Cancel, "end": (*Conn).End} {
		ca := testenv.NewCA(t, "ca")
		c, done := Client(ca.Client()), make(chan error, 1)
		c.Handshake(NewTurns(1), func() {}, func(err error) { done <- err })
		end(c)
		if err := <-done; err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestFull checks that a handshake that waits for its turn says when it has enough bytes, and when it
// needs more. The first message of the client is long.
func TestFull(t *testing.T) {
	ca := testenv.NewCA(t, "ca")
	pair := ca.Named(t, "127.0.0.1")
	l, err := NewListener(&table.ListenerTLS{Cert: pair.CertPEM, Key: pair.KeyPEM}, &Tickets{})
	if err != nil {
		t.Fatal(err)
	}
	config := ca.Client()
	for range 3 * enoughIn / 256 {
		config.NextProtos = append(config.NextProtos, string(make([]byte, 255)))
	}
	server, client := l.Conn(), Client(config)
	turns, wrote, sent := NewTurns(1), make(chan bool, 100), make(chan bool, 100)
	turns <- struct{}{}
	server.Handshake(turns, func() { sent <- true }, func(error) {})
	client.Handshake(NewTurns(1), func() { wrote <- true }, func(error) {})
	<-wrote
	hello := client.Out()
	server.Feed(hello[:enoughIn-1])
	if server.Full() {
		t.Error("it is full too early")
	}
	server.Feed(hello[enoughIn-1 : enoughIn])
	if !server.Full() {
		t.Error("it is not full")
	}
	<-turns
	<-sent // it has read all bytes, and has nothing to send
	if server.Full() {
		t.Error("it is still full")
	}
	server.Cancel()
	client.Cancel()
}

// TestTickets checks that sessions are resumed after the certificate has changed, and in a process that
// has inherited the key.
func TestTickets(t *testing.T) {
	ca := testenv.NewCA(t, "ca")
	config := ca.Client()
	config.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	resumes := func(tickets *Tickets) bool {
		pair := ca.Named(t, "127.0.0.1")
		l, err := NewListener(&table.ListenerTLS{Cert: pair.CertPEM, Key: pair.KeyPEM}, tickets)
		if err != nil {
			t.Fatal(err)
		}
		server, client := l.Conn(), Client(config)
		handshake(t, server, client)
		if _, err := client.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		return server.State().DidResume
	}
	first, second := &Tickets{}, &Tickets{}
	if resumes(first) || !resumes(first) {
		t.Error("the second connection does not resume the session of the first one")
	}
	second.Inherit(first.Text())
	if !resumes(second) {
		t.Error("a session is not resumed in a process that has inherited the key")
	}
	if resumes(&Tickets{}) {
		t.Error("a session is resumed without its key")
	}
}

// TestHello checks how the first bytes of a connection are told apart.
func TestHello(t *testing.T) {
	c := Client(&tls.Config{InsecureSkipVerify: true})
	sent := make(chan bool, 1)
	c.Handshake(NewTurns(1), func() { sent <- true }, func(error) {})
	<-sent
	hello := c.Out()
	for n := range hello {
		if Plain(hello[:n]) || Hello(hello[:n]) {
			t.Fatalf("the first %d of %d bytes are plain, or a whole record", n, len(hello))
		}
	}
	if !Hello(hello) {
		t.Error("a whole record is not recognized")
	}
	for _, text := range []string{"get a\r\n", "\x80\x0a"} {
		if !Plain([]byte(text)) {
			t.Errorf("%q is not plain", text)
		}
	}
	c.Cancel()
}

func TestReason(t *testing.T) {
	if err := Reason(fmt.Errorf("x: %w", tls.RecordHeaderError{})); !errors.Is(err, ErrNoTLS) {
		t.Error(err)
	}
}

// TestAllocations checks that the requests and replies of a connection need no memory of their own. What
// remains is the reader that crypto/tls makes for each read.
func TestAllocations(t *testing.T) {
	server, client := connected(t, tls.VersionTLS13)
	request, buf := []byte("get a\r\n"), make([]byte, 100)
	wire := make([]byte, 0, 1000)
	n := testing.AllocsPerRun(1000, func() {
		client.Write(request)
		wire = append(wire[:0], client.Out()...)
		client.Sent(len(wire))
		server.Feed(wire)
		for {
			if n, err := server.Read(buf); n == 0 || err != nil {
				break
			}
		}
	})
	t.Logf("%v allocations", n)
	if n > 4 {
		t.Errorf("a request of a TLS client costs %v allocations", n)
	}
}
