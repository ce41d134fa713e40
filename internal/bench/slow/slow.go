//go:build linux

// Package slow stands before a memcached and holds back some of its answers.
//
// It forwards bytes both ways, and tells answers apart: of a get, up to its END; of a
// meta command its line and its value; any other line is one. Each is held back with a
// given chance for a given time, and with it what comes behind it on its connection, but
// nothing on other connections: as behind a server whose threads wait now and then, not
// behind one that stands still.
package slow

// All of it: connections, and the answers on them.

import (
	"bufio"
	"bytes"
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

// answers forwards what the server says.
func (s Server) answers(client io.Writer, server io.Reader) error {
	in, out := bufio.NewReaderSize(server, 64<<10), bufio.NewWriterSize(client, 64<<10)
	begins := true
	for {
		if in.Buffered() == 0 {
			if err := out.Flush(); err != nil {
				return err
			}
		}
		line, err := in.ReadSlice('\n')
		if err != nil {
			return err
		}
		if begins && !bytes.HasPrefix(line, []byte("MN")) && rand.Float64() < s.Share {
			held := bytes.Clone(line)
			if err := out.Flush(); err != nil {
				return err
			}
			time.Sleep(s.Delay)
			line = held
		}
		size, whole, err := body(line)
		if err != nil {
			return err
		}
		begins = whole
		if _, err := out.Write(line); err != nil {
			return err
		}
		if _, err := io.CopyN(out, in, int64(size)); err != nil {
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
