package wire

// The parser against a real memcached, byte for byte.

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ringside/proxy/wire/wiretest"
)

// testLimits are the limits of a memcached with its default -I 1m.
var testLimits = Limits{Value: 1 << 20}

// patience is how long a server may take before the test fails. It is testenv.Hang, whose package imports this one.
const patience = 2 * time.Minute

// startMemcached starts a memcached for this test. It chooses its own port and
// writes it to a file.
func startMemcached(t *testing.T) (addr string) {
	t.Helper()
	said := filepath.Join(t.TempDir(), "port")
	args := []string{"-l", "127.0.0.1", "-p", "-1", "-U", "0", "-m", "64", "-t", "1"}
	if os.Geteuid() == 0 {
		args = append(args, "-u", "root")
	}
	cmd := exec.Command("memcached", args...)
	cmd.Env = append(os.Environ(), "MEMCACHED_PORT_FILENAME="+said)
	if err := cmd.Start(); err != nil {
		t.Fatalf("memcached must be installed for this test: %v", err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		text, _ := os.ReadFile(said)
		if _, port, ok := strings.Cut(string(text), "TCP INET: "); ok {
			return "127.0.0.1:" + strings.TrimSpace(port)
		}
	}
	t.Fatal("memcached does not say which port it has")
	return ""
}

func dial(t *testing.T, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(patience))
	return c.(*net.TCPConn)
}

// server is a connection of the model proxy.
type server struct {
	t    *testing.T
	conn net.Conn
	buf  []byte
}

// ask forwards a request and returns the bytes of the reply and its last kind.
func (s *server) ask(op Op, d Dialect, request []byte) (answer []byte, last Kind) {
	s.t.Helper()
	s.conn.SetDeadline(time.Now().Add(patience))
	if _, err := s.conn.Write(request); err != nil {
		s.t.Fatal(err)
	}
	for {
		var r Reply
		n, err := NextReply(op, d, s.buf, &r)
		switch err {
		case nil:
			answer = append(answer, s.buf[:n]...)
			s.buf = s.buf[n:]
			if r.Last {
				return answer, r.Kind
			}
		case ErrShort:
			chunk := make([]byte, 64<<10)
			n, err := s.conn.Read(chunk)
			if err != nil {
				s.t.Fatalf("request %.80q: %d bytes of an answer, then %v", request, len(s.buf), err)
			}
			s.buf = append(s.buf, chunk[:n]...)
		default:
			s.t.Fatalf("request %.80q: %v: %.80q", request, err, s.buf)
		}
	}
}

// ending is the state of the connection at the end of a stream.
type ending int

const (
	open ending = iota
	incomplete
	closed
)

// proxy is a minimal proxy that uses only this package. It forwards valid requests,
// answers Bad ones and hides the replies that quiet hides.
func proxy(t *testing.T, s *server, data []byte) (out []byte, end ending) {
	t.Helper()
	for len(data) > 0 {
		var r Request
		n, err := testLimits.Next(data, &r)
		if err != nil {
			return out, incomplete
		}
		skip := int64(n) + r.Swallow
		switch {
		case r.Op == Bad || r.Op == Shutdown:
			out = append(out, r.Answer...)
		case r.Op == Quit:
			return out, closed
		case r.Flags&TooLarge != 0:
			if r.Dialect == Meta || r.Op == Set {
				kill := fmt.Appendf(nil, "md %s", r.Key.Of(data))
				if r.Flags&Base64 != 0 {
					kill = append(kill, " b"...)
				}
				s.ask(Delete, Meta, append(kill, "\r\n"...))
			}
			out = append(out, r.Answer...)
		default:
			raw := append(append([]byte(nil), data[:r.Drop.Start]...), data[r.Drop.End:n]...)
			if r.Drop.Len() == 0 {
				raw = data[:n]
			}
			if r.Flags&Rewrite != 0 {
				raw = AppendPlain(nil, data, &r, nil)
			}
			answer, kind := s.ask(r.Op, r.Dialect, raw)
			if !Hidden(r.Op, r.Dialect, r.Flags, kind) {
				out = append(out, answer...)
			}
		}
		if r.Flags&CloseAfter != 0 {
			return out, closed
		}
		if skip > int64(len(data)) {
			return out, incomplete
		}
		data = data[skip:]
	}
	return out, open
}

// plain returns memcached's reply to the unchanged stream. If end is closed,
// memcached must close the connection; otherwise the client closes its side first.
func plain(t *testing.T, addr, data string, end ending) []byte {
	t.Helper()
	c := dial(t, addr)
	defer c.Close()
	go func() {
		io.WriteString(c, data) // fails if memcached closes first
		if end != closed {
			c.CloseWrite()
		}
	}()
	var out bytes.Buffer
	if _, err := io.Copy(&out, c); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Errorf("memcached was expected to close: %v", err)
	}
	return out.Bytes()
}

// TestMemcached sends each stream through the minimal proxy to a memcached. It
// compares the reply with that of the release which the stream's mark selects: the
// same memcached without a proxy, or the recorded replies of 1.6.45.
func TestMemcached(t *testing.T) {
	streams, err := wiretest.Streams()
	if err != nil {
		t.Fatal(err)
	}
	recorded, err := wiretest.Recorded()
	if err != nil {
		t.Fatal(err)
	}
	bare, proxied := startMemcached(t), startMemcached(t)
	for _, stream := range streams {
		s := &server{t: t, conn: dial(t, proxied)}
		s.ask(FlushAll, Text, []byte("flush_all\r\n"))
		admin := &server{t: t, conn: dial(t, bare)}
		admin.ask(FlushAll, Text, []byte("flush_all\r\n"))
		admin.conn.Close()

		answer, end := proxy(t, s, []byte(stream.Probed()))
		s.conn.Close()
		got := wiretest.Said{Answer: wiretest.Normal(answer), Closed: end == closed}
		var want wiretest.Said
		switch stream.Mark {
		case wiretest.New:
			want = recorded[stream.Source]
		case wiretest.Own:
			want = stream.Want
		default:
			want = wiretest.Said{Answer: wiretest.Normal(plain(t, bare, stream.Probed(), end)), Closed: end == closed}
		}
		if got != want {
			t.Errorf("%s\n   sent %.200q\n    got %.300q, closed: %v\nwant %.300q, closed: %v",
				stream.Name, stream.Data, got.Answer, got.Closed, want.Answer, want.Closed)
		}
	}
	t.Logf("%d streams", len(streams))
}
