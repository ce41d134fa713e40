//go:build linux

package load

// This file has the TLS of connections. Handshakes run in goroutines, everything else in the loop.

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"

	"crypto/x509"

	"golang.org/x/sys/unix"

	"ringside/proxy/secure"
)

// secret is the TLS of one connection.
type secret struct {
	*secure.Conn
	ready bool // the handshake is complete

	mu   sync.Mutex
	done bool  // the handshake has ended
	err  error // why it has failed
}

// secrecy is the TLS of a load.
type secrecy struct {
	config *tls.Config
	turns  secure.Turns
	buf    []byte // encrypted bytes that were read; all connections share it
	event  int    // eventfd: handshakes have something to send, or have ended

	mu    sync.Mutex
	moved []int // indexes of the connections of these handshakes
}

// newSecrecy prepares TLS, with the CAs in a PEM file. The address of the target must be a name of its
// certificate.
func newSecrecy(ca, host string) (*secrecy, error) {
	text, err := os.ReadFile(ca)
	if err != nil {
		return nil, fmt.Errorf("CAs of the target: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("CAs of the target: %s has no certificate", ca)
	}
	event, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	// The loop does not give up its processor while it sleeps, so the handshakes need others.
	runtime.GOMAXPROCS(4)
	return &secrecy{config: &tls.Config{RootCAs: roots, ServerName: host, DynamicRecordSizingDisabled: true},
		turns: secure.NewTurns(1), buf: make([]byte, readBuffer), event: event}, nil
}

// start begins the handshake of the connection c.
func (s *secrecy) start(c *conn) {
	x, id := &secret{Conn: secure.Client(s.config)}, c.id
	c.secret = x
	x.Handshake(s.turns, func() { s.wake(id) }, func(err error) {
		x.mu.Lock()
		x.done, x.err = true, err
		x.mu.Unlock()
		s.wake(id)
	})
}

// wake tells the loop that the handshake of a connection has something to send, or has ended.
func (s *secrecy) wake(id int) {
	s.mu.Lock()
	s.moved = append(s.moved, id)
	s.mu.Unlock()
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = unix.Write(s.event, one[:]) // it fails only if the loop is about to be woken anyway
}

// handshakes continues the handshakes that have called wake.
func (l *loop) handshakes() error {
	var count [8]byte
	_, _ = unix.Read(l.tls.event, count[:]) // nothing to read: an earlier call has seen the same handshakes
	l.tls.mu.Lock()
	moved := l.tls.moved
	l.tls.moved = nil
	l.tls.mu.Unlock()
	for _, id := range moved {
		c := &l.conns[id]
		if c.fd < 0 || c.secret.ready {
			continue
		}
		c.secret.mu.Lock()
		done, err := c.secret.done, c.secret.err
		c.secret.mu.Unlock()
		if err != nil {
			return fmt.Errorf("connection %d: handshake: %w", id+1, secure.Reason(err))
		}
		if done {
			c.secret.Established()
			c.secret.ready = true
		}
		err = l.flush(c)
		if err == nil && done {
			err = l.readSecret(l.clientOf(c), c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// flushSecret encrypts c.out, and sends encrypted bytes until the socket accepts no more.
func (c *conn) flushSecret() error {
	if c.secret.ready && len(c.out) > 0 {
		if err := c.secret.Write(c.out); err != nil {
			return fmt.Errorf("encrypt: %w", err)
		}
		c.out = c.out[:0]
	}
	n, err := c.write(c.secret.Out())
	c.secret.Sent(n)
	return err
}

// decrypt passes bytes that were read from the connection c to its TLS, and checks the replies in them.
func (l *loop) decrypt(k *client, c *conn, b []byte) error {
	c.secret.Feed(b)
	if !c.secret.ready {
		return nil
	}
	return l.readSecret(k, c)
}

func (l *loop) readSecret(k *client, c *conn) error {
	for {
		kept := copy(l.buf, c.part)
		n, err := c.secret.Read(l.buf[kept:])
		switch {
		case errors.Is(err, io.EOF):
			return fmt.Errorf("the other side closed with %d replies due", c.check.size)
		case err != nil:
			return fmt.Errorf("decrypt: %w", err)
		case n == 0:
			return nil
		}
		if err := l.receive(k, c, l.buf[:kept+n]); err != nil {
			return err
		}
	}
}
