package loop

// Replies that arrive slowly, or stop, from a server that the test plays.

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"ringside/internal/testenv"
)

// slowServer replies to each key of a read with a value of size bytes, at rate bytes a second (0:
// as fast as possible). In the middle of value number stalls, counted from 1, it stops sending
// until the test ends (0: never).
type slowServer struct {
	size, rate, stalls int
	end                chan struct{}
	values             map[string][]byte // by key: the part of the reply, built in advance so that it starts at once
}

func (m slowServer) start(t *testing.T) (addr string) {
	t.Helper()
	m.end = make(chan struct{})
	t.Cleanup(func() { close(m.end) })
	return testenv.Serve(t, "127.0.0.1", m.serve)
}

func (m slowServer) serve(c net.Conn) {
	r := bufio.NewReader(c)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		words := strings.Fields(line)
		if words[0] == "version" {
			io.WriteString(c, "VERSION 1.6.18\r\n")
			continue
		}
		for i, key := range words[1:] {
			value := m.values[key]
			if i+1 == m.stalls {
				m.pour(c, value[:len(value)/2])
				<-m.end
				return
			}
			m.pour(c, value)
		}
		m.pour(c, []byte("END\r\n"))
	}
}

// pour writes b at the server's rate.
func (m slowServer) pour(c net.Conn, b []byte) {
	if m.rate == 0 {
		c.Write(b)
		return
	}
	const tick = 10 * time.Millisecond
	piece := int(int64(m.rate) * int64(tick) / int64(time.Second))
	for began := time.Now(); len(b) > 0; b = b[min(piece, len(b)):] {
		if _, err := c.Write(b[:min(piece, len(b))]); err != nil {
			return
		}
		began = began.Add(tick)
		time.Sleep(time.Until(began))
	}
}

// valueOf returns the part of a reply for one key.
func valueOf(key string, size int) string {
	return fmt.Sprintf("VALUE %s 0 %d\r\n%s\r\n", key, size, strings.Repeat(key[len(key)-1:], size))
}

// readOf returns a read of n keys, and the reply to it with values of size bytes.
func readOf(n, size int) (read, answer string) {
	var r, a strings.Builder
	r.WriteString("get")
	for i := range n {
		key := fmt.Sprintf("key%c", 'a'+i)
		r.WriteString(" " + key)
		a.WriteString(valueOf(key, size))
	}
	return r.String() + "\r\n", a.String() + "END\r\n"
}

// ask starts a server that m simulates, and a Ringside instance with the short timeouts `hasty`. It
// connects to the instance, and sends the read and then mn, whose reply marks the end of the
// replies.
func (m slowServer) ask(t *testing.T, o Options, read string) net.Conn {
	t.Helper()
	m.values = map[string][]byte{}
	for _, key := range strings.Fields(read) {
		m.values[key] = []byte(valueOf(key, m.size))
	}
	tab := tableOf(m.start(t))
	tab.Pools[0].Timeouts = hasty
	address := start(t, o, tab)
	for try := 0; ; try++ {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(testenv.Hang))
		io.WriteString(c, read+"mn\r\n")
		first := make([]byte, 1)
		if _, err := io.ReadFull(c, first); err != nil {
			t.Fatal(err) // only if the proxy hangs: a late reply counts as a miss
		}
		if string(first) != "E" || try == 5 {
			return &begun{c, first}
		}
		c.Close() // a server that got no CPU time causes a miss
	}
}

// begun is a connection with the first byte of its reply already read.
type begun struct {
	net.Conn
	first []byte
}

func (b *begun) Read(p []byte) (int, error) {
	if len(b.first) > 0 {
		n := copy(p, b.first)
		b.first = b.first[n:]
		return n, nil
	}
	return b.Conn.Read(p)
}

// comes reads up to len(want) bytes, or up to the reply to mn. It returns an error if they differ
// from want.
func comes(c io.Reader, want string) error {
	got := make([]byte, 0, len(want))
	for len(got) < len(want) && !bytes.HasSuffix(got, []byte("\r\nMN\r\n")) {
		n, err := c.Read(got[len(got):len(want)])
		got = got[:len(got)+n]
		if err != nil {
			return fmt.Errorf("got %d bytes of %d: %w", len(got), len(want), err)
		}
	}
	if string(got) != want {
		return fmt.Errorf("got %d bytes of %d; the last are %.40q", len(got), len(want), got[max(0, len(got)-40):])
	}
	return nil
}

// undisturbed repeats a round in which this process got no CPU time for a good part of
// hasty.Request. The server and the proxy share the process, so one of them may then have been
// silent for longer than a request may take.
func undisturbed(t *testing.T, round func() error) {
	t.Helper()
	testenv.Undisturbed(t, 6, hasty.Request/4, round)
}

func TestAnswersThatComeSlowlyAreWhole(t *testing.T) {
	eachAtOnce(t, func(t *testing.T, o Options) {
		for _, of := range []struct{ values, size int }{{20, 500_000}, {1, 4_000_000}, {20, 50_000}} {
			t.Run(fmt.Sprint(of.values*of.size, " bytes"), func(t *testing.T) {
				t.Parallel()
				read, answer := readOf(of.values, of.size)
				rate := min(5_000_000, of.values*of.size/2) // the reply takes longer than the request timeout, whatever its size
				undisturbed(t, func() error {
					return comes(slowServer{size: of.size, rate: rate}.ask(t, o, read), answer)
				})
			})
		}
	})
}

// TestAnswersBehindOneThatComesSlowly sends several reads at once. Like the keys of one read, they
// wait for each other: up to the deadline, but longer than the request timeout.
func TestAnswersBehindOneThatComesSlowly(t *testing.T) {
	eachAtOnce(t, func(t *testing.T, o Options) {
		reads, answers := "", ""
		for i := range 3 {
			key := fmt.Sprintf("key%c", 'a'+i)
			reads += "get " + key + "\r\n"
			answers += valueOf(key, 500_000) + "END\r\n"
		}
		undisturbed(t, func() error {
			return comes(slowServer{size: 500_000, rate: 900_000}.ask(t, o, reads), answers)
		})
	})
}

// TestServerThatStallsInTheMiddleOfAValue: a server stops in the middle of value 7 of 20.
//
// A value of up to 64 KiB is buffered until it is complete, so that key and those after it miss. A
// larger value is forwarded while it arrives, because buffering it would cost its size in memory
// for each client, and time. So the client gets six whole values, and a seventh that is cut when
// Ringside closes the connection. Its first line contains the full length, so the client detects
// the cut.
func TestServerThatStallsInTheMiddleOfAValue(t *testing.T) {
	eachAtOnce(t, func(t *testing.T, o Options) {
		for _, size := range []int{1000, 60_000} {
			read, _ := readOf(20, size)
			_, six := readOf(6, size)
			undisturbed(t, func() error {
				return comes(slowServer{size: size, stalls: 7}.ask(t, o, read), six)
			})
		}
		const size = 500_000
		read, answer := readOf(20, size)
		one := (len(answer) - len("END\r\n")) / 20
		undisturbed(t, func() error {
			c := slowServer{size: size, stalls: 7}.ask(t, o, read)
			if err := comes(c, answer[:6*one]); err != nil {
				return err
			}
			cut, err := io.ReadAll(c)
			if seventh := answer[6*one : 7*one]; err != nil || len(cut) != one/2 || !strings.HasPrefix(seventh, string(cut)) {
				return fmt.Errorf("%d bytes follow the sixth value (%w), want the half of the seventh that the server has sent, and the end", len(cut), errors.Join(err))
			}
			if head, part, whole := strings.Cut(string(cut), "\r\n"); !whole || head != fmt.Sprintf("VALUE keyg 0 %d", size) || len(part) >= size {
				return fmt.Errorf("the seventh begins with %.40q and has %d bytes: it could pass for a value", head, len(part))
			}
			return nil
		})
	})
}

// TestClientThatReadsSlowly checks that a client loses nothing if it reads its reply in pieces,
// with pauses longer than the request timeout. The pauses must not count as silence of the server.
func TestClientThatReadsSlowly(t *testing.T) {
	eachAtOnce(t, func(t *testing.T, o Options) {
		read, answer := readOf(20, 500_000)
		undisturbed(t, func() error {
			c := slowServer{size: 500_000}.ask(t, o, read)
			for at := 0; at < len(answer); at += 4_000_000 {
				time.Sleep(hasty.Request + 200*time.Millisecond)
				if err := comes(c, answer[at:min(at+4_000_000, len(answer))]); err != nil {
					return err
				}
			}
			return comes(c, "MN\r\n")
		})
	})
}
