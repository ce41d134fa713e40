package meta

// This file contains Server, a simple sender of meta commands.

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Server is a Doer that sends commands to one address: that of a Ringside instance or
// of memcached 1.6. It keeps idle connections, and is safe for use by multiple
// goroutines.
type Server struct {
	Address string        // host and port to connect to, as host:port
	Timeout time.Duration // time limit for a connect, and for all replies of one Do; 0 means 1s

	mu   sync.Mutex
	idle []*conn
}

const maxIdle = 64

type conn struct {
	net.Conn
	r *bufio.Reader
}

func (s *Server) timeout() time.Duration {
	if s.Timeout == 0 {
		return time.Second
	}
	return s.Timeout
}

func (s *Server) take() (*conn, error) {
	s.mu.Lock()
	if n := len(s.idle); n > 0 {
		c := s.idle[n-1]
		s.idle = s.idle[:n-1]
		s.mu.Unlock()
		return c, nil
	}
	s.mu.Unlock()
	c, err := net.DialTimeout("tcp", s.Address, s.timeout())
	if err != nil {
		return nil, err
	}
	return &conn{c, bufio.NewReader(c)}, nil
}

// Close closes the idle connections.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.idle {
		c.Close()
	}
	s.idle = nil
	return nil
}

// Do sends all commands at once and returns their replies. After an error it closes the
// connection, because replies have no other relation to commands than their order.
func (s *Server) Do(commands ...Command) ([]Reply, error) {
	for _, cmd := range commands {
		if strings.ContainsFunc(cmd.Name+cmd.Key+strings.Join(cmd.Flags, ""), func(r rune) bool { return r <= ' ' || r == 0x7f }) || cmd.Key == "" {
			return nil, fmt.Errorf("meta: %s %.40q: blanks and control bytes are not possible", cmd.Name, cmd.Key)
		}
	}
	c, err := s.take()
	if err != nil {
		return nil, err
	}
	replies, err := c.do(commands, time.Now().Add(s.timeout()))
	if err != nil {
		c.Close()
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.idle) == maxIdle {
		c.Close()
	} else {
		s.idle = append(s.idle, c)
	}
	return replies, nil
}

func (c *conn) do(commands []Command, deadline time.Time) ([]Reply, error) {
	c.SetDeadline(deadline)
	var out net.Buffers
	for _, cmd := range commands {
		line := cmd.Name + " " + cmd.Key
		if cmd.Name == "ms" {
			line += " " + strconv.Itoa(len(cmd.Value))
		}
		for _, f := range cmd.Flags {
			line += " " + f
		}
		out = append(out, []byte(line+"\r\n"))
		if cmd.Name == "ms" {
			out = append(out, cmd.Value, []byte("\r\n"))
		}
	}
	sent := make(chan error, 1)
	go func() { // write concurrently: replies may fill the socket buffers before all commands are sent
		_, err := out.WriteTo(c.Conn)
		sent <- err
	}()
	replies := make([]Reply, 0, len(commands))
	var err error
	for range commands {
		var r Reply
		if r, err = c.reply(); err != nil {
			c.Close() // closing the connection also ends the goroutine that writes
			break
		}
		replies = append(replies, r)
	}
	if failure := <-sent; err == nil {
		err = failure
	}
	return replies, err
}

func (c *conn) reply() (Reply, error) {
	line, err := c.r.ReadString('\n')
	if err != nil {
		return Reply{}, err
	}
	f := strings.Fields(line)
	if len(f) == 0 {
		return Reply{}, fmt.Errorf("meta: an empty reply")
	}
	r := Reply{Status: f[0], Flags: f[1:]}
	switch f[0] {
	case "HD", "EN", "NF", "NS", "EX":
		return r, nil
	case "VA":
		if len(f) < 2 {
			return r, fmt.Errorf("meta: reply %q", line)
		}
		size, err := strconv.Atoi(f[1])
		if err != nil || size < 0 || size > 1<<30 {
			return r, fmt.Errorf("meta: reply %q", line)
		}
		r.Flags, r.Value = f[2:], make([]byte, size+2)
		if _, err := io.ReadFull(c.r, r.Value); err != nil {
			return r, err
		}
		r.Value = r.Value[:size]
		return r, nil
	}
	// The line is an error. It is unknown whether the server has read the value that
	// followed the command.
	return r, fmt.Errorf("meta: %s", strings.TrimSpace(line))
}
