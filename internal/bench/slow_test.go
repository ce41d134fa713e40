//go:build linux

package bench

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// TestAnswersAreWhole checks that delayed replies arrive complete and in order.
func TestAnswersAreWhole(t *testing.T) {
	said := "VALUE a 0 5\r\nEND\r\n\r\nVALUE b 7 0\r\n\r\nEND\r\nSTORED\r\nVA 3 kx f1\r\nHD\r\r\nEN\r\nHD\r\nMN\r\nSERVER_ERROR out\r\n"
	for _, share := range []float64{0, 0.5, 1} {
		var got strings.Builder
		err := Server{Share: share, Delay: time.Microsecond}.answers(&got, strings.NewReader(said))
		if err != io.EOF || got.String() != said {
			t.Errorf("share %v: %v, %q", share, err, got.String())
		}
	}
	for text, want := range map[string]int{"VALUE a 0 5 77\r\n": 7, "VA 3 f0\r\n": 5, "VA 0\r\n": 2, "END\r\n": 0, "VALUE\r\n": 0} {
		if n, _, err := body([]byte(text)); n != want || err != nil {
			t.Errorf("%q: %d, %v", text, n, err)
		}
	}
	if _, _, err := body([]byte("VALUE a 0 x\r\n")); err == nil {
		t.Error("a length that is none is taken")
	}
}

// TestConnectionsWaitAlone checks that a delay on one connection does not delay the others.
func TestConnectionsWaitAlone(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() {
		for {
			c, err := server.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for lines := bufio.NewScanner(c); lines.Scan(); {
					_, _ = io.WriteString(c, "END\r\n")
				}
			}()
		}
	}()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	const delay = 100 * time.Millisecond
	go func() { ended <- Server{To: server.Addr().String(), Share: 1, Delay: delay}.Serve(listener) }()
	began := time.Now()
	answers := make(chan error)
	for range 20 {
		go func() {
			c, err := net.Dial("tcp", listener.Addr().String())
			if err == nil {
				defer c.Close()
				if _, err = io.WriteString(c, "get a\r\n"); err == nil {
					_, err = bufio.NewReader(c).ReadString('\n')
				}
			}
			answers <- err
		}()
	}
	for range 20 {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	if took := time.Since(began); took < delay {
		t.Errorf("nothing was held back: %v", took)
	}
	listener.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
