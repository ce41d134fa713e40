package drill

// This file implements a client of the text protocol that verifies all replies.

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// client has one connection to the instance. It connects when it sends its first request, and again
// after an error.
type client struct {
	network, address string
	conn             net.Conn
	r                *bufio.Reader
}

var errStuck = fmt.Errorf("no answer within %v", patience)

func (c *client) close() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

func (c *client) send(request string) error {
	if c.conn == nil {
		conn, err := net.DialTimeout(c.network, c.address, patience)
		if err != nil {
			time.Sleep(100 * time.Millisecond) // no process listens at the address; the wait avoids a busy loop
			return err
		}
		c.conn, c.r = conn, bufio.NewReaderSize(conn, 64<<10)
	}
	c.conn.SetDeadline(time.Now().Add(patience))
	_, err := io.WriteString(c.conn, request+"\r\n")
	return c.failed(err)
}

// failed closes the connection if err is not nil. After an error, the state of the connection is
// unknown.
func (c *client) failed(err error) error {
	if err == nil {
		return nil
	}
	c.close()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errStuck
	}
	return fmt.Errorf("connection to %s: %w", c.address, err)
}

func (c *client) line() (string, error) {
	line, err := c.r.ReadString('\n')
	if err != nil {
		return "", c.failed(err)
	}
	text, ok := strings.CutSuffix(line, "\r\n")
	if !ok {
		return "", c.failed(fmt.Errorf("a line without its end: %.60q", line))
	}
	return text, nil
}

// ask sends a request with a one-line reply.
func (c *client) ask(request string) (string, error) {
	if err := c.send(request); err != nil {
		return "", err
	}
	return c.line()
}

// get reads one key. If the reply is an error line of the server, get returns it as an error.
func (c *client) get(key string) (value string, found bool, err error) {
	if err := c.send("get " + key); err != nil {
		return "", false, err
	}
	for {
		line, err := c.line()
		if err != nil {
			return "", false, err
		}
		if line == "END" {
			return value, found, nil
		}
		f := strings.Fields(line)
		if len(f) != 4 || f[0] != "VALUE" || f[1] != key || f[2] != "0" || found {
			if !strings.HasPrefix(line, "SERVER_ERROR ") {
				c.close()
			}
			return "", false, errors.New(line)
		}
		n, err := strconv.Atoi(f[3])
		if err != nil || n < 0 || n > 1<<20 {
			return "", false, c.failed(fmt.Errorf("a value of %.20q bytes", f[3]))
		}
		b := make([]byte, n+2)
		if _, err := io.ReadFull(c.r, b); err != nil {
			return "", false, c.failed(err)
		}
		if string(b[n:]) != "\r\n" {
			return "", false, c.failed(fmt.Errorf("a value that does not end where it should"))
		}
		value, found = string(b[:n]), true
	}
}
