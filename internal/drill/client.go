package drill

// This file implements a client of the text protocol that verifies all replies.

import (
	"bufio"
	"crypto/tls"
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
	Address
	conn net.Conn
	r    *bufio.Reader
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
		conn, err := net.DialTimeout(c.Network, c.Address.Address, patience)
		if err != nil {
			time.Sleep(100 * time.Millisecond) // no process listens at the address; the wait avoids a busy loop
			return err
		}
		if c.TLS != nil {
			conn = tls.Client(conn, c.TLS)
		}
		c.conn, c.r = conn, bufio.NewReaderSize(conn, 64<<10)
		if err := c.logIn(); err != nil {
			return err
		}
	}
	c.conn.SetDeadline(time.Now().Add(patience))
	_, err := io.WriteString(c.conn, request+"\r\n")
	return c.failed(err)
}

// logIn begins a connection with the login of the address, if it has one.
func (c *client) logIn() error {
	if c.User == "" {
		return nil
	}
	answer, err := c.ask(fmt.Sprintf("set ringside-drill 0 0 %d\r\n%s %s", len(c.User)+1+len(c.Password), c.User, c.Password))
	if err == nil && answer != "STORED" {
		c.close()
		err = fmt.Errorf("login of user %s: %s", c.User, answer)
	}
	return err
}

// admitted reads a key, and returns an error if the instance does not accept the client at all.
func (c *client) admitted(key string) error {
	_, _, err := c.get(key)
	for _, why := range []struct{ text, hint string }{
		{"this port speaks TLS", ": name its CA with --to-ca, or its configuration with -c"},
		{"unauthenticated", ": use --to-login"},
		{"certificate required", ": use --to-cert and --to-key"},
		{"login of user", ""},
		{"CLIENT_ERROR", ""},
		{"tls: ", ""},
		{"x509: ", ""},
	} {
		if err != nil && strings.Contains(err.Error(), why.text) {
			return fmt.Errorf("%s rejects the clients of the drill: %w%s", c.Address.Address, err, why.hint)
		}
	}
	return nil
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
	return fmt.Errorf("connection to %s: %w", c.Address.Address, err)
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
