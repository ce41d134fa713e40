package loop

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"ringside/internal/testenv"
	"ringside/proxy/link"
	"ringside/proxy/table"
)

// awaits starts a proxy for the given servers that waits for replies whenever some are due. The
// returned dial connects a client to it.
func awaits(t *testing.T, request time.Duration, servers ...string) (dial func() (net.Conn, *bufio.Reader)) {
	tab := tableOf(servers...)
	tab.Pools[0].Timeouts = table.Timeouts{Connect: patient.Connect, Request: request, Deadline: request}
	addr := start(t, Options{Driver: "epoll", Tune: link.DefaultTune, Moderation: Settings{Above: 1, Pace: Answers}}, tab)
	return func() (net.Conn, *bufio.Reader) {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(testenv.Hang))
		return c, bufio.NewReader(c)
	}
}

// scripted starts a server that replies to the first request of a connection and then calls f for
// the connection.
func scripted(t *testing.T, f func(c net.Conn, r *bufio.Reader)) string {
	t.Helper()
	return testenv.Serve(t, "127.0.0.1", func(c net.Conn) {
		r := bufio.NewReader(c)
		r.ReadString('\n')
		fmt.Fprint(c, "VERSION 1.6.18\r\n")
		f(c, r)
	})
}

func expect(t *testing.T, r *bufio.Reader, want string) {
	t.Helper()
	got, err := r.ReadString('\n')
	if err != nil || strings.TrimRight(got, "\r\n") != want {
		t.Fatalf("got %.200q (%v), want %.200q", got, err, want)
	}
}

// TestAwaitSilentServer checks that a server that owes a reply and does not send it does not delay
// the clients of other servers.
func TestAwaitSilentServer(t *testing.T) {
	silent := scripted(t, func(_ net.Conn, r *bufio.Reader) {
		for { // until the proxy disconnects
			if _, err := r.ReadString('\n'); err != nil {
				return
			}
		}
	})
	dial := awaits(t, time.Minute, silent, memcached(t)) // keys of even length are on the silent server
	stuck, _ := dial()
	stuck.(*net.TCPConn).SetLinger(0) // close with a reset, so that Shutdown does not wait for its reply
	other, r := dial()
	fmt.Fprint(other, "set a 0 0 1\r\nA\r\n")
	expect(t, r, "STORED")
	fmt.Fprint(stuck, "get bb\r\n")
	for range 500 {
		fmt.Fprint(other, "get a\r\n")
		for _, line := range []string{"VALUE a 0 1", "A", "END"} {
			expect(t, r, line)
		}
	}
}

// TestAwaitWrongSizes checks that replies arrive even if they are much smaller than those before,
// or arrive long before the others that are due.
func TestAwaitWrongSizes(t *testing.T) {
	more := make(chan bool)
	dial := awaits(t, time.Minute, scripted(t, func(c net.Conn, r *bufio.Reader) {
		for {
			line, err := r.ReadString('\n')
			switch word := strings.Fields(line); {
			case err != nil:
				return
			case word[1] == "large":
				fmt.Fprintf(c, "VALUE large 0 30000\r\n%s\r\nEND\r\n", strings.Repeat("x", 30000))
			case word[1] == "later":
				<-more
				fallthrough
			default:
				fmt.Fprint(c, "END\r\n")
			}
		}
	}))
	c, r := dial()
	for range 300 {
		fmt.Fprint(c, "get large\r\n")
		for _, line := range []string{"VALUE large 0 30000", strings.Repeat("x", 30000), "END"} {
			expect(t, r, line)
		}
	}
	for range 20 {
		fmt.Fprint(c, "get miss\r\n")
		expect(t, r, "END")
		fmt.Fprint(c, "get miss\r\nget later\r\nget miss\r\n")
		expect(t, r, "END")
		more <- true
		expect(t, r, "END")
		expect(t, r, "END")
	}
}
