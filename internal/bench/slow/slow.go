//go:build linux

// Package slow stands before a memcached and holds back some of its answers.
//
// It forwards bytes both ways, and tells answers apart: of a get, up to its END; of a
// meta command its line and its value; any other line is one. Each is late with a given
// chance by a given time, counted from when the memcached gave it, and what comes behind it
// on its connection waits for it, but nothing on other connections. So lateness doesn't
// add up: it is as if packets came late, not as if the server stood still.
package slow

// All of it: connections, and the answers on them.

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

// Server is what is before a memcached.
type Server struct {
	To    string        // where the memcached is, host:port
	Share float64       // of the answers, that are held back
	Delay time.Duration // how long
}

// Serve forwards all clients of listener until it is closed.
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
			_, _ = io.Copy(server, client) // it ends when either does, and so does the other way
			server.Close()
		}()
		go func() {
			_ = s.answers(client, server)
			client.Close()
		}()
	}
}

// piece is some of what the server has said, and when it goes on.
type piece struct {
	text []byte
	due  time.Time // zero: at once
}

// answers forwards what the server says.
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

// cut makes pieces of what the server says: as much as has come, up to one that is late.
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

// body says how many bytes belong to a line, its value with a line end, and whether
// that is all of an answer.
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
