package loop

// This file tests bad certificates of clients and of servers, and servers that cut a reply.

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ringside/internal/testenv"
	"ringside/proxy/table"
)

// badCertificates returns certificates that the holder of ca must reject. otherUse is a use that they must not
// have alone.
func badCertificates(t *testing.T, ca *testenv.CA, otherUse x509.ExtKeyUsage) map[string]tls.Certificate {
	t.Helper()
	now := time.Now()
	issued := func(by *testenv.CA, change func(*x509.Certificate)) tls.Certificate {
		c := &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
		change(c)
		return by.Issue(t, c).Certificate(t)
	}
	as := func(*x509.Certificate) {}
	noCA := ca.Sub(t, "no authority", false)
	chained := issued(noCA, as)
	chained.Certificate = append(chained.Certificate, (&testenv.Pair{CertPEM: noCA.PEM}).DER(t))
	wrongKey := issued(ca, as)
	wrongKey.PrivateKey = issued(ca, as).PrivateKey
	return map[string]tls.Certificate{
		"another CA":           issued(testenv.NewCA(t, "ca"), as),
		"signed by itself":     issued(new(testenv.CA), as),
		"expired":              issued(ca, func(c *x509.Certificate) { c.NotBefore, c.NotAfter = now.Add(-2*time.Hour), now.Add(-time.Hour) }),
		"not valid yet":        issued(ca, func(c *x509.Certificate) { c.NotBefore, c.NotAfter = now.Add(time.Hour), now.Add(2*time.Hour) }),
		"for another use":      issued(ca, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{otherUse} }),
		"CA between is absent": issued(ca.Sub(t, "between", true), as),
		"signed by no CA":      chained,
		"key of another":       wrongKey,
	}
}

// TestClientCertificates checks which certificates of clients are accepted: a good one, and none of the bad ones.
func TestClientCertificates(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		clients := testenv.NewCA(t, "clients")
		s := startSecured(t, o, func(l *table.ListenerTLS) { l.ClientCA = clients.PEM })
		all := badCertificates(t, clients, x509.ExtKeyUsageServerAuth)
		all["none"], all["good"] = tls.Certificate{}, clients.Named(t, "app").Certificate(t)
		for name, certificate := range all {
			for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
				config := s.ca.Client()
				config.MinVersion, config.MaxVersion = version, version
				config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certificate, nil }
				c, err := tls.Dial("tcp", s.at, config)
				if err == nil {
					c.SetDeadline(time.Now().Add(testenv.Hang))
					io.WriteString(c, "mn\r\n")
					_, err = bufio.NewReader(c).ReadString('\n')
					c.Close()
				}
				if (err == nil) != (name == "good") {
					t.Errorf("%s, certificate: %s: %v", tls.VersionName(version), name, err)
				}
			}
		}
	})
}

// answering starts a TLS server with a certificate. It answers the first line of a connection that is not version,
// and then closes the connection without close_notify. lines has all lines that it has received.
func answering(t *testing.T, certificate tls.Certificate, answer string) (at string, lines chan string) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}})
	if err != nil {
		t.Fatal(err)
	}
	lines = make(chan string, 100)
	testenv.ServeOn(t, l, func(c net.Conn) {
		defer c.(*tls.Conn).NetConn().Close()
		for r := bufio.NewReader(c); ; {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			lines <- line
			if line != "version\r\n" {
				io.WriteString(c, answer)
				return
			}
			io.WriteString(c, "VERSION 1.6.18\r\n")
		}
	})
	return l.Addr().String(), lines
}

// startAnswering starts a Ringside with TLS servers at these addresses. The server of a key is its length modulo
// their number.
func startAnswering(t *testing.T, o Options, ca *testenv.CA, servers []string) (at string) {
	t.Helper()
	tab := tableOf(servers...)
	tab.Pools[0].TLS = table.Secure(table.ServerTLS{CA: string(ca.PEM)})
	return start(t, o, tab)
}

// TestServerCertificates checks which certificates of servers are accepted: a good one, and none of the bad ones.
// A server with a bad one receives no request.
func TestServerCertificates(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		ca := testenv.NewCA(t, "ca")
		all := badCertificates(t, ca, x509.ExtKeyUsageClientAuth)
		all["good"], all["another name"] = ca.Named(t, "127.0.0.1").Certificate(t), ca.Named(t, "127.0.0.2").Certificate(t)
		var names, servers []string
		var lines []chan string
		for name, certificate := range all {
			at, received := answering(t, certificate, "STORED\r\n")
			names, servers, lines = append(names, name), append(servers, at), append(lines, received)
		}
		c, err := testenv.Dial(startAnswering(t, o, ca, servers))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		r := bufio.NewReader(c)
		for i, name := range names {
			fmt.Fprintf(c, "set %s 0 0 1\r\n1\r\n", strings.Repeat("k", len(names)+i))
			got, err := r.ReadString('\n')
			if good := name == "good"; err != nil || (got == "STORED\r\n") != good || len(lines[i]) > 0 != good {
				t.Errorf("certificate: %s: %q, %v, and the server has received %d lines", name, got, err, len(lines[i]))
			}
		}
	})
}

// TestServerCutsReply checks that a client gets no complete value of a server of which a part has not arrived when
// the server closes the connection without close_notify. Large values are passed on while they arrive.
func TestServerCutsReply(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		ca := testenv.NewCA(t, "ca")
		certificate := ca.Named(t, "127.0.0.1").Certificate(t)
		var answers, servers, whole []string
		for _, size := range []int{100, 1 << 20} {
			for _, cut := range []int{size + 10, size/2 + 20, 7, 6, 0} { // this many bytes are missing; the last 7 follow the value
				key, value := strings.Repeat("k", 10+len(servers)), strings.Repeat("v", size)
				all := fmt.Sprintf("VALUE %s 0 %d\r\n%s\r\nEND\r\n", key, size, value)
				at, _ := answering(t, certificate, all[:len(all)-cut])
				answers, servers, whole = append(answers, all[:len(all)-cut]), append(servers, at), append(whole, all)
			}
		}
		at := startAnswering(t, o, ca, servers)
		for i, answer := range answers {
			c, err := testenv.Dial(at)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			fmt.Fprintf(c, "get %s\r\nquit\r\n", strings.Repeat("k", 10+i))
			got, _ := io.ReadAll(c)
			if (string(got) == whole[i]) != (answer == whole[i]) {
				t.Errorf("%d of %d bytes of a reply arrive: the client gets %.40q, and %d bytes in all", len(answer), len(whole[i]), got, len(got))
			}
		}
	})
}

// TestServerHandshakesTakeTurns checks that the connections to a server make one handshake at a time, and that the
// later ones resume the session of the first.
func TestServerHandshakesTakeTurns(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		const connections = 4
		ca := testenv.NewCA(t, "ca")
		config := &tls.Config{Certificates: []tls.Certificate{ca.Named(t, "127.0.0.1").Certificate(t)}}
		var running, together, resumed, done atomic.Int32
		tab := tableOf(testenv.Serve(t, "127.0.0.1", func(raw net.Conn) {
			first := make([]byte, 1)
			if _, err := io.ReadFull(raw, first); err != nil { // the client has begun its handshake
				return
			}
			if running.Add(1) > 1 {
				together.Add(1)
			}
			c := tls.Server(again{raw, &first}, config)
			time.Sleep(10 * time.Millisecond) // time for other handshakes to begin
			running.Add(-1)
			r := bufio.NewReader(c)
			for line, err := r.ReadString('\n'); err == nil; line, err = r.ReadString('\n') {
				if line == "version\r\n" {
					if done.Add(1); c.ConnectionState().DidResume {
						resumed.Add(1)
					}
					io.WriteString(c, "VERSION 1.6.18\r\n")
				} else {
					io.WriteString(c, "END\r\n")
				}
			}
		}))
		tab.Pools[0].TLS, tab.Pools[0].Connections = table.Secure(table.ServerTLS{CA: string(ca.PEM)}), connections
		at := start(t, o, tab)
		testenv.Eventually(t, "all connections are made", func() bool {
			c, err := testenv.Dial(at)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			says(t, c, "get a\r\n", "END\r\n")
			return done.Load() >= connections
		})
		if together.Load() > 0 || resumed.Load() < done.Load()-1 {
			t.Errorf("%d handshakes at the same time as others; %d of %d have resumed a session", together.Load(), resumed.Load(), done.Load())
		}
	})
}

// again is a connection of which the first bytes are read again.
type again struct {
	net.Conn
	first *[]byte
}

func (c again) Read(b []byte) (int, error) {
	if n := copy(b, *c.first); n > 0 {
		*c.first = (*c.first)[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}
