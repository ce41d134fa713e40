package e2e

// This file is a client that sends raw protocol text.

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"
)

// conn is one connection. All its methods fail the test on an error.
type conn struct {
	t testing.TB
	net.Conn
	r *bufio.Reader
}

func dial(t testing.TB, address string) *conn {
	t.Helper()
	c, err := dialError(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &conn{t, c, bufio.NewReaderSize(c, 64<<10)}
}

func (c *conn) send(text string) {
	c.t.Helper()
	c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, text); err != nil {
		c.t.Fatalf("send %s: %v", brief(text), err)
	}
}

// line reads one line and removes its line ending.
func (c *conn) line() string {
	c.t.Helper()
	c.SetReadDeadline(time.Now().Add(patience))
	line, err := c.r.ReadString('\n')
	if err != nil {
		c.t.Fatalf("read a line: got %q, %v", line, err)
	}
	return strings.TrimSuffix(line, "\r\n")
}

// expect reads exactly the bytes of want.
func (c *conn) expect(want string) {
	c.t.Helper()
	got := make([]byte, len(want))
	c.SetReadDeadline(time.Now().Add(patience))
	n, err := io.ReadFull(c.r, got)
	if err != nil || string(got) != want {
		rest := make([]byte, c.r.Buffered())
		io.ReadFull(c.r, rest)
		c.t.Fatalf("got %s, want %s (%v)", brief(string(got[:n])+string(rest)), brief(want), err)
	}
}

// ask sends a command and expects a one-line reply.
func (c *conn) ask(command, want string) {
	c.t.Helper()
	c.send(command + "\r\n")
	c.expect(want + "\r\n")
}

// question sends a command and returns its one-line reply.
func (c *conn) question(command string) string {
	c.t.Helper()
	c.send(command + "\r\n")
	return c.line()
}

// set stores a value and returns the reply.
func (c *conn) set(key, value string) string {
	c.t.Helper()
	return c.question(fmt.Sprintf("set %s 0 0 %d\r\n%s", key, len(value), value))
}

// store stores a value and fails the test if that fails. It retries requests that timed
// out at the server, because a busy machine may give the server no CPU for that long.
func (c *conn) store(key, value string) {
	c.t.Helper()
	end := time.Now().Add(patience)
	answer := c.set(key, value)
	for strings.Contains(answer, "answer within") && time.Now().Before(end) {
		answer = c.set(key, value)
	}
	if answer != "STORED" {
		c.t.Fatalf("set %s: %s", key, answer)
	}
}

// get reads keys in one command. It returns the values found and the line that ended the
// reply.
func (c *conn) get(keys ...string) (map[string]string, string) {
	c.t.Helper()
	c.send("get " + strings.Join(keys, " ") + "\r\n")
	return c.values()
}

// values reads the reply to a get.
func (c *conn) values() (map[string]string, string) {
	c.t.Helper()
	found := map[string]string{}
	for {
		line := c.line()
		var key string
		var flags, size int
		if n, _ := fmt.Sscanf(line, "VALUE %s %d %d", &key, &flags, &size); n != 3 {
			return found, line
		}
		value := make([]byte, size+2)
		if _, err := io.ReadFull(c.r, value); err != nil {
			c.t.Fatalf("value of %s: %v", key, err)
		}
		if string(value[size:]) != "\r\n" {
			c.t.Fatalf("value of %s of %d bytes does not end there", key, size)
		}
		if _, twice := found[key]; twice {
			c.t.Fatalf("%s came twice", key)
		}
		found[key] = string(value[:size])
	}
}

// holds checks that key has the value want.
func (c *conn) holds(key, want string) {
	c.t.Helper()
	found, end := c.get(key)
	if got, hit := found[key]; !hit || got != want || end != "END" {
		c.t.Fatalf("get %s: %s and %s, want %s", key, brief(got), end, brief(want))
	}
}

// misses checks that key has no value.
func (c *conn) misses(key string) {
	c.t.Helper()
	if found, end := c.get(key); len(found) != 0 || end != "END" {
		c.t.Fatalf("get %s: %v and %s, want a miss", key, found, end)
	}
}

// stats sends a stats command and returns the statistics by name.
func (c *conn) stats(what string) map[string]string {
	c.t.Helper()
	c.send(strings.TrimSpace("stats "+what) + "\r\n")
	all := map[string]string{}
	for {
		line := c.line()
		if line == "END" {
			return all
		}
		name, value, ok := strings.Cut(strings.TrimPrefix(line, "STAT "), " ")
		if !strings.HasPrefix(line, "STAT ") || !ok && value != "" {
			c.t.Fatalf("stats %s: not a statistic: %q", what, line)
		}
		all[name] = value
	}
}

// closed waits until the other side closes the connection, and returns what was received
// before that.
func (c *conn) closed() string {
	c.t.Helper()
	c.SetReadDeadline(time.Now().Add(patience))
	rest, err := io.ReadAll(c.r)
	if err != nil && !errors.Is(err, syscall.ECONNRESET) {
		c.t.Fatalf("waiting for the connection to be closed: %v after %s", err, brief(string(rest)))
	}
	return string(rest)
}

// brief quotes text for a message and truncates it.
func brief(s string) string {
	if len(s) > 200 {
		return fmt.Sprintf("%q… (%d bytes)", s[:200], len(s))
	}
	return fmt.Sprintf("%q", s)
}
