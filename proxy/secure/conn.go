package secure

// This file defines Conn: a TLS connection whose encrypted bytes the caller moves.

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// Conn is one TLS connection. Until Established is called, the methods Feed, End, Out, Sent and Cancel
// may be used. After it, only one goroutine at a time may use the Conn.
type Conn struct {
	tls  *tls.Conn
	pipe pipe
}

// Server returns the Conn of a client that has connected.
func Server(config *tls.Config) *Conn {
	c := newConn()
	c.tls = tls.Server(&c.pipe, config)
	return c
}

// Client returns the Conn of a connection to a server.
func Client(config *tls.Config) *Conn {
	c := newConn()
	c.tls = tls.Client(&c.pipe, config)
	return c
}

func newConn() *Conn {
	c := &Conn{}
	c.pipe.more.L = &c.pipe.mu
	c.pipe.waits = true
	return c
}

// Handshake starts the handshake. It computes only when it has one of the turns. From another
// goroutine, it calls send whenever there are bytes to be sent (Out), or Full has become false, and done
// once, at the end.
func (c *Conn) Handshake(turns Turns, send func(), done func(error)) {
	c.pipe.turns, c.pipe.send = turns, send
	go func() {
		turns <- struct{}{}
		err := c.tls.HandshakeContext(context.Background())
		<-turns
		done(err)
	}()
}

// Established ends the handshake, after it has called done without an error. Until then, Feed copies
// its argument.
func (c *Conn) Established() {
	c.pipe.mu.Lock()
	defer c.pipe.mu.Unlock()
	c.pipe.waits = false
}

// Turns limits how many handshakes compute at the same time.
type Turns chan struct{}

// NewTurns lets n handshakes compute at the same time.
func NewTurns(n int) Turns { return make(Turns, n) }

// Cancel ends a handshake, which then calls done with an error.
func (c *Conn) Cancel() { c.pipe.end(net.ErrClosed) }

// Feed adds encrypted bytes that have arrived from the other end. After Established the Conn does
// not copy b: the caller must call Read until it returns no bytes before it changes b.
func (c *Conn) Feed(b []byte) { c.pipe.feed(b) }

// Full reports whether the handshake has enough bytes that it has not read. The caller must not Feed more
// until the handshake calls send or done.
func (c *Conn) Full() bool {
	c.pipe.mu.Lock()
	defer c.pipe.mu.Unlock()
	return c.pipe.full
}

// End records that the other end sends no more bytes.
func (c *Conn) End() { c.pipe.end(io.EOF) }

// Read returns plain bytes. If there are none it returns 0 and no error. It returns io.EOF if the other
// end has announced that it sends no more.
func (c *Conn) Read(b []byte) (n int, err error) {
	n, err = c.tls.Read(b)
	switch {
	case n > 0: // an error is permanent, and the next call returns it
		return n, nil
	case err == error(errEmpty):
		return 0, nil
	case err == io.EOF && c.pipe.cut:
		return 0, io.ErrUnexpectedEOF
	}
	return 0, err
}

// Write encrypts b. The result is in Out.
func (c *Conn) Write(b []byte) error {
	_, err := c.tls.Write(b)
	return err
}

// WriteToServer encrypts b for a memcached server. begins is false if the bytes before b ended inside a
// request.
//
// memcached 1.6.18 may stop in the middle of a record: it reads exactly the rest of a value, waits until
// the socket has more bytes, and does not know that OpenSSL holds the rest of the record. It does not stop
// in a record that fits its buffer, which is empty if a request begins. Otherwise the last byte gets a
// record of its own: the socket has that byte until the record before it is read completely.
func (c *Conn) WriteToServer(b []byte, begins bool) error {
	if n := len(b) - 1; n > 0 && !(begins && len(b) <= largestRecord) {
		if err := c.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return c.Write(b)
}

// largestRecord is the most plain bytes of a TLS record, and the size of memcached's buffer.
const largestRecord = 16 << 10

// Out returns the encrypted bytes that must be sent. They are valid until the next call of another
// method. Afterwards other connections may use their memory. During the handshake the result is a copy.
func (c *Conn) Out() []byte { return c.pipe.pending() }

// Sent removes the first n bytes of Out.
func (c *Conn) Sent(n int) { c.pipe.sent(n) }

// Close adds to Out that no more bytes follow.
func (c *Conn) Close() { c.tls.CloseWrite() }

// State describes the connection: the certificates of the other end, the version, and whether it has
// resumed a session.
func (c *Conn) State() tls.ConnectionState { return c.tls.ConnectionState() }

// CertificateNames returns the names in the certificate of the client: see CertificateNames.
func (c *Conn) CertificateNames() []string {
	is := c.State()
	return CertificateNames(&is)
}

// CertificateNames returns the names in the verified certificate of the client: its URIs, DNS names, and
// mail addresses, and its common name if it has none of these. It returns nil if there is no verified
// certificate.
func CertificateNames(is *tls.ConnectionState) []string {
	if len(is.VerifiedChains) == 0 {
		return nil
	}
	c := is.PeerCertificates[0]
	names := []string{}
	for _, u := range c.URIs {
		names = append(names, u.String())
	}
	names = append(append(names, c.DNSNames...), c.EmailAddresses...)
	if len(names) == 0 && c.Subject.CommonName != "" {
		names = append(names, c.Subject.CommonName)
	}
	return names
}

// emptyError is the error of a Read while nothing has arrived.
type emptyError struct{}

func (emptyError) Error() string   { return "nothing has arrived" }
func (emptyError) Timeout() bool   { return false }
func (emptyError) Temporary() bool { return true } // crypto/tls then keeps its state, and can be called again

var errEmpty net.Error = emptyError{}

// pipe is the net.Conn in memory that crypto/tls uses as its connection.
type pipe struct {
	mu    sync.Mutex // needed during the handshake only
	more  sync.Cond  // signals that in or ended has changed
	in    []byte     // encrypted bytes that have arrived and that crypto/tls has not read
	out   []byte     // encrypted bytes to be sent
	large *[]byte    // the element of largeOuts whose buffer is out; nil: out belongs to the connection
	start int        // number of bytes of out that were sent
	ended error      // why no more bytes arrive; nil: more may arrive
	cut   bool       // crypto/tls has read to the end
	waits bool       // the handshake runs: Read waits for bytes
	full  bool       // the handshake has not read in completely since in had enoughIn bytes
	turns Turns
	send  func()
}

// enoughIn is how many bytes may wait for the handshake. Both ends of an ordinary handshake send less.
const enoughIn = 16 << 10

func (p *pipe) feed(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waits || len(p.in) > 0 {
		p.in = append(p.in, b...)
		p.full = p.waits && len(p.in) >= enoughIn
		p.more.Signal()
		return
	}
	p.in = b[:len(b):len(b)]
}

func (p *pipe) end(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended == nil || why != io.EOF {
		p.ended = why
	}
	p.more.Signal()
}

func (p *pipe) pending() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waits { // the handshake may append to out at any time
		return append([]byte(nil), p.out[p.start:]...)
	}
	return p.out[p.start:]
}

const (
	keepOut  = 4 << 10   // capacity above which the buffer of encrypted bytes is not kept for the next ones of the connection
	largeOut = 264 << 10 // capacity of the buffers that all connections share
)

// largeOuts are buffers for encrypted bytes. A connection has one only until its bytes are sent.
var largeOuts = sync.Pool{New: func() any { b := make([]byte, 0, largeOut); return &b }}

func (p *pipe) sent(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.start += n; p.start < len(p.out) {
		return
	}
	if p.start = 0; cap(p.out) > keepOut {
		if cap(p.out) == largeOut {
			*p.large = p.out[:0]
			largeOuts.Put(p.large)
		}
		p.out, p.large = nil, nil
	} else {
		p.out = p.out[:0]
	}
}

// Read implements net.Conn. During the handshake it waits until bytes arrive, and gives up its turn
// meanwhile.
func (p *pipe) Read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waits && len(p.in) == 0 && p.ended == nil {
		send := p.full || p.start < len(p.out)
		p.full = false
		p.mu.Unlock()
		<-p.turns
		if send {
			p.send()
		}
		p.mu.Lock()
		for len(p.in) == 0 && p.ended == nil {
			p.more.Wait()
		}
		p.mu.Unlock()
		p.turns <- struct{}{}
		p.mu.Lock()
	}
	switch {
	case p.ended == net.ErrClosed:
		return 0, p.ended
	case len(p.in) > 0:
		n := copy(b, p.in)
		if p.in = p.in[n:]; len(p.in) == 0 {
			p.in = nil
		}
		return n, nil
	case p.ended != nil:
		p.cut = true
		return 0, p.ended
	}
	return 0, errEmpty
}

// Write implements net.Conn. It only collects the bytes.
func (p *pipe) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.out) == 0 && len(b) > keepOut && p.large == nil {
		p.large = largeOuts.Get().(*[]byte)
		p.out = *p.large
	}
	p.out = append(p.out, b...)
	return len(b), nil
}

func (*pipe) Close() error                     { return nil }
func (*pipe) LocalAddr() net.Addr              { return nowhere{} }
func (*pipe) RemoteAddr() net.Addr             { return nowhere{} }
func (*pipe) SetDeadline(time.Time) error      { return nil }
func (*pipe) SetReadDeadline(time.Time) error  { return nil }
func (*pipe) SetWriteDeadline(time.Time) error { return nil }

// nowhere is the address of both ends of a pipe.
type nowhere struct{}

func (nowhere) Network() string { return "memory" }
func (nowhere) String() string  { return "memory" }

// Plain reports whether b, the first bytes of a connection, can't be the beginning of a TLS handshake.
func Plain(b []byte) bool { return len(b) > 0 && b[0] != handshakeRecord }

// Hello reports whether b, the first bytes of a connection, contains the whole first record. b must
// not be Plain.
func Hello(b []byte) bool {
	return len(b) >= recordHeader && len(b) >= recordHeader+(int(b[3])<<8|int(b[4]))
}

const (
	handshakeRecord = 0x16 // type of a record with handshake messages
	recordHeader    = 5    // length of the header of a record
)

// ErrNoTLS is the error of a handshake if the other end does not speak TLS.
var ErrNoTLS = errors.New("it does not speak TLS")

// Reason returns the error of a handshake in words for the log.
func Reason(err error) error {
	var header tls.RecordHeaderError
	switch {
	case errors.As(err, &header):
		return ErrNoTLS
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the other end has closed the connection")
	}
	return err
}
