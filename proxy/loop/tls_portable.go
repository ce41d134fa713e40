package loop

// This file moves the bytes of TLS connections in the portable driver. The reader and the writer of a
// stream move encrypted bytes; crypto/tls computes under the mutex of the driver.

import (
	"bytes"
	"io"
	"slices"
	"time"
)

// greet begins the TLS handshake of a client that was accepted on the listener l.
func (d *portable) greet(s *stream, l *listener, t *listenerTLS) {
	x := d.handshakes.begin(clientStream{d, s}, l, t)
	s.tls = &sealed{Conn: x.Conn, greeting: x, shaking: true}
	d.start(s)
	d.handshakes.limit()
}

// arrivedSealed handles encrypted bytes that were read, and the error of the read.
func (d *portable) arrivedSealed(s *stream, b []byte, err error) {
	x := s.tls.greeting
	switch {
	case x != nil && len(b) > 0:
		d.handshakes.arrived(x, b)
	case len(b) > 0:
		s.tls.Feed(b)
	}
	if s.tls.shaking && s.tls.Full() {
		s.pause(true)
	}
	switch {
	case err == nil || s.closed:
	case x != nil:
		d.handshakes.closed(x)
	case err == io.EOF || s.tls.shaking:
		s.tls.End()
	default:
		d.endSealed(s, err)
	}
	if !s.closed && !s.tls.shaking {
		d.decrypt(s)
	}
}

// decrypt passes all plain bytes of s to the engine, or to a filter.
func (d *portable) decrypt(s *stream) {
	for !s.closed {
		b := d.engine.Space(s.link)
		n, err := s.tls.Read(b)
		switch {
		case n > 0 && s.filter != nil:
			s.filter.read(now(), b[:n])
		case n > 0:
			d.engine.Filled(s.link, n)
		case err == nil:
			d.flushSealed(s) // crypto/tls may have answered a change of keys
			if s.filter != nil {
				s.filter.wake()
			}
			return
		case err == io.EOF && s.link.Client():
			d.engine.Closed(s.link, nil) // the client has announced that it sends no more; it may wait for replies
			return
		default:
			d.tellAtOnce(s, s.tls.Out()) // an alert with the reason
			d.endSealed(s, err)
			return
		}
	}
}

// endSealed ends a TLS connection that sends no more. A filter keeps it until the bytes before the end
// have moved on.
func (d *portable) endSealed(s *stream, err error) {
	if f := s.filter; f != nil {
		f.ended(now(), err)
		f.wake()
		return
	}
	d.ended(s, err)
}

// writeSealed encrypts the pending bytes of the engine, and passes them to the writer.
func (d *portable) writeSealed(s *stream) {
	if s.busy {
		d.engine.Wrote(s.link, 0, true)
		return
	}
	plain := slices.Concat(s.link.Pending(nil)...)
	plain = plain[:min(len(plain), maxHanded)]
	if len(plain) == 0 {
		s.tls.inside = false
	} else {
		if err := s.tls.write(plain, !s.link.Client()); err != nil {
			d.drop(s)
			d.engine.Closed(s.link, err)
			return
		}
		d.engine.Wrote(s.link, len(plain), true)
	}
	d.flushSealed(s)
}

// flushSealed passes the encrypted bytes of s to the writer, if it is free. Until the writer reports
// back, the engine treats the socket as full.
func (d *portable) flushSealed(s *stream) {
	out := s.tls.Out()
	if s.busy || len(out) == 0 {
		return
	}
	buf := bytes.Clone(out)
	s.tls.Sent(len(out))
	if s.link != nil && !s.tls.shaking {
		d.engine.Wrote(s.link, 0, true)
		d.engine.Handed(s.link, len(buf))
		s.given = len(buf)
	}
	s.handed.Store(int64(len(buf)))
	s.busy = true
	s.out <- buf // never blocks: the writer is free
}

// flushShaken passes what the handshake of s has written to the writer, and reads on if the handshake was
// Full.
func (d *portable) flushShaken(s *stream) {
	s.pause(false)
	d.flushSealed(s)
}

// wroteSealed is called when the writer is free, after an error if err is not nil.
func (d *portable) wroteSealed(s *stream, err error) {
	s.busy = false
	switch {
	case s.tls.greeting != nil && err != nil:
		d.handshakes.failed(s.tls.greeting, err)
	case err != nil && s.filter != nil:
		d.endSealed(s, err)
	case err != nil:
		d.drop(s)
		d.engine.Closed(s.link, err)
	case s.link != nil && !s.tls.shaking:
		d.taken(s)
		d.engine.Wrote(s.link, 0, false)
		if d.write(s); !s.closed {
			d.flushSealed(s) // with a filter, write sends only what is due
		}
	default:
		d.flushSealed(s)
	}
}

// sendSealed encrypts bytes of a filter, and passes them to the writer. It returns how many; 0: the writer
// is busy.
func (d *portable) sendSealed(s *stream, b []byte) (int, error) {
	if s.busy {
		return 0, nil
	}
	b = b[:min(len(b), maxHanded)]
	s.tls.inside = true
	if err := s.tls.write(b, true); err != nil {
		return 0, err
	}
	d.flushSealed(s)
	return len(b), nil
}

// tellAtOnce writes a few bytes before the stream is closed, if the kernel accepts them at once.
func (d *portable) tellAtOnce(s *stream, b []byte) {
	if !s.busy && len(b) > 0 {
		s.conn.SetWriteDeadline(time.Now().Add(time.Millisecond))
		s.conn.Write(b) // an error changes nothing: the stream is closed
	}
}

// sayBye tells the other end of a TLS connection that no more bytes follow.
func (d *portable) sayBye(s *stream) {
	if !s.tls.shaking {
		s.tls.Close()
		d.tellAtOnce(s, s.tls.Out())
	}
}

// CertificateNames returns the names in the verified certificate of the client, or nil.
func (s *stream) CertificateNames() []string {
	if s.tls == nil {
		return nil
	}
	return s.tls.CertificateNames()
}

// clientStream is a client's stream during its handshake.
type clientStream struct {
	*portable
	s *stream
}

func (c clientStream) Peer() string { return c.s.Peer() }
func (c clientStream) flush()       { c.flushShaken(c.s) }

func (c clientStream) drop() {
	c.tellAtOnce(c.s, c.s.tls.Out()) // an alert with the reason
	c.portable.drop(c.s)
}

func (c clientStream) refuse(answer string) {
	c.tellAtOnce(c.s, []byte(answer))
	c.portable.drop(c.s)
}

func (c clientStream) welcome() {
	d, s := c.portable, c.s
	x := s.tls.greeting
	s.tls.greeting, s.tls.shaking = nil, false
	s.link = d.engine.Accepted(x.network, x.address, s)
	if s.busy {
		d.engine.Wrote(s.link, 0, true)
	}
	d.decrypt(s)
}

// serverStream is a server's stream during its handshake.
type serverStream struct {
	*portable
	s *stream
}

func (c serverStream) flush() { c.flushShaken(c.s) }

// greetServer begins the TLS handshake with a server that is connected.
func (d *portable) greetServer(s *stream) {
	x, err := d.introductions.begin(serverStream{d, s}, s.link)
	if err != nil {
		d.drop(s)
		d.engine.Closed(s.link, err)
		return
	}
	s.tls = &sealed{Conn: x.Conn, introduction: x, shaking: true}
	d.start(s)
}

func (c serverStream) met(err error) {
	d, s := c.portable, c.s
	if err != nil {
		d.tellAtOnce(s, s.tls.Out()) // an alert with the reason
		d.drop(s)
		d.engine.Closed(s.link, engineError(err))
		return
	}
	s.tls.introduction, s.tls.shaking = nil, false
	if d.up(s); s.closed {
		return
	}
	if s.busy {
		d.engine.Wrote(s.link, 0, true)
	}
	d.decrypt(s)
}
