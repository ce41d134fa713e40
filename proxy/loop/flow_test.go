package loop

// Answers that come slowly, or stop coming, from a server that the test plays.

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

// slowServer answers each key of a read by a value of size bytes, at a rate in
// bytes a second (0: as fast as they are taken). In the middle of value number
// stalls, counted from 1, it says nothing more until the test ends; 0: in none.
type slowServer struct {
	size, rate, stalls int
	end                chan struct{}
	values             map[string][]byte // by key: what is answered, made before so that it begins at once
}

func (m slowServer) start(t *testing.T) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m.end = make(chan struct{})
	t.Cleanup(func() { close(m.end); ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go m.serve(c)
		}
	}()
	return ln.Addr().String()
}

func (m slowServer) serve(c net.Conn) {
	defer c.Close()
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

// valueOf is the answer's part for one key.
func valueOf(key string, size int) string {
	return fmt.Sprintf("VALUE %s 0 %d\r\n%s\r\n", key, size, strings.Repeat(key[len(key)-1:], size))
}

// readOf is a read of n keys, and the answer to that from values of size bytes.
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

// ask connects to a Ringside before a server that the test plays, with hasty
// timeouts, and sends it a read, and then mn, whose answer says that no more comes.
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
			t.Fatal(err) // only a hang: an answer that comes too late is a miss
		}
		if string(first) != "E" || try == 5 {
			return &begun{c, first}
		}
		c.Close() // a server without a processor is a miss
	}
}

// begun is a connection of whose answer the first byte has been read.
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

// comes reads as much as want, or until the answer to mn, and returns an error unless it is
// want.
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

// undisturbed repeats a round in which the server or the proxy, which share this
// process, got no processor for a good part of hasty.Request: then one of them
// may have been silent for longer than a request may take.
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
				rate := min(5_000_000, of.values*of.size/2) // longer than request, whatever the size
				undisturbed(t, func() error {
					return comes(slowServer{size: of.size, rate: rate}.ask(t, o, read), answer)
				})
			})
		}
	})
}

// Twenty reads that are sent at once wait for each other as twenty keys of one
// do: no longer than deadline, but longer than request.
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

// A server stops in the middle of value 7 of 20. A value of up to 64 KiB is held until
// it is whole: that key and those behind it miss. A larger one goes out as it comes, for
// to hold it would cost its size in memory for each client, and the time that it takes.
// So the client has six whole values, and a seventh that the close cuts: its first line
// says how long it would have been.
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

// A client that takes its answer in pieces, with pauses longer than request,
// loses nothing: it is not the server's silence.
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
