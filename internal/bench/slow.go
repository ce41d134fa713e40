//go:build linux

package bench

// This file implements ringbench slow: a forwarder in front of one memcached server that delays
// some of its replies.
//
// The forwarder passes on bytes in both directions, and detects the replies. A reply to get ends
// with END, a meta reply is a line with its value, and any other line is a reply. Each reply but MN
// is delayed with a given probability. The delay is a given time from the arrival of the reply at
// the forwarder. Later replies on the same connection wait until the delayed reply is sent, and
// other connections do not wait. So delays do not add up. Network packets that arrive late have the
// same effect. A server that stalls has a different effect: it delays the replies on all its
// connections.

// This file accepts clients of the forwarder, detects replies of the memcached, and delays some of
// them.

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"time"
)

// Server describes the memcached server, and how its replies are delayed.
type Server struct {
	To    string        // address of the memcached, host:port
	Share float64       // share of the replies that are delayed, 0 to 1
	Delay time.Duration // how long each of the delayed replies is delayed
}

// Serve forwards all clients of listener to the memcached until the listener is closed.
func (s Server) Serve(listener net.Listener) error {
	for {
		client, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		server, err := net.Dial("tcp", s.To)
		if err != nil {
			client.Close()
			return err
		}
		go func() {
			_, _ = io.Copy(server, client) // the copy ends when the client or the server closes; the copy in the other direction ends, too
			server.Close()
		}()
		go func() {
			_ = s.answers(client, server)
			client.Close()
		}()
	}
}

// piece is a part of the server's output, with the time at which to forward it.
type piece struct {
	text []byte
	due  time.Time // when to forward the piece; zero: at once
}

// answers forwards the server's output to the client, with the delays.
func (s Server) answers(client io.Writer, server io.Reader) error {
	pieces := make(chan piece, 1000)
	ended := make(chan error, 1)
	go func() {
		defer close(pieces)
		ended <- s.cut(server, pieces)
	}()
	var failed error
	for p := range pieces {
		if !p.due.IsZero() {
			time.Sleep(time.Until(p.due))
		}
		if failed == nil {
			_, failed = client.Write(p.text)
		}
	}
	return cmp.Or(failed, <-ended)
}

// cut splits the server's output into pieces. A piece has all bytes that have arrived, up to a
// reply that is delayed. The delayed reply begins the next piece.
func (s Server) cut(server io.Reader, pieces chan<- piece) error {
	in := bufio.NewReaderSize(server, 64<<10)
	var now piece
	for begins := true; ; {
		if in.Buffered() == 0 && len(now.text) > 0 {
			pieces <- now
			now = piece{}
		}
		line, err := in.ReadSlice('\n')
		if err != nil {
			return err
		}
		if begins && !bytes.HasPrefix(line, []byte("MN")) && rand.Float64() < s.Share {
			if len(now.text) > 0 {
				pieces <- now
			}
			now = piece{due: time.Now().Add(s.Delay)}
		}
		size, whole, err := body(line)
		if err != nil {
			return err
		}
		begins = whole
		at := len(now.text) + len(line)
		now.text = append(append(now.text, line...), make([]byte, size)...)
		if _, err := io.ReadFull(in, now.text[at:]); err != nil {
			return err
		}
	}
}

// body reads the first line of a reply. size is the number of bytes of the value after that line,
// including the line end. whole is true if the reply ends after the line and the value.
func body(line []byte) (size int, whole bool, err error) {
	words := bytes.Fields(line)
	at := 0
	switch {
	case len(words) >= 4 && string(words[0]) == "VALUE":
		at = 3
	case len(words) >= 2 && string(words[0]) == "VA":
		at, whole = 1, true
	default:
		return 0, true, nil
	}
	n, err := strconv.Atoi(string(words[at]))
	if err != nil || n < 0 {
		return 0, false, fmt.Errorf("an answer without a length: %q", line)
	}
	return n + len("\r\n"), whole, nil
}
