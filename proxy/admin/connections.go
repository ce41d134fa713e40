package admin

// This file limits the number of connections of the admin interface. It chooses the connection to
// close if there are too many.

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// connections has the open connections of the admin interface.
//
// If there are more than maxConnections, or no file descriptors are left, one that waits for its client is closed: of the host with the
// most connections, the one that has waited longest. A connection waits for its client unless a
// handler computes the reply to a request. A new connection of a host closes none of a host with
// fewer connections. If it can close none, it becomes a spare. There are at most spareConnections
// spares, and they serve only health probes. If there are too many, one is closed in the same way.
// So one host cannot keep others away: not if it keeps connections open, connects very often,
// sends half a request, or does not read a reply. It can delay its own probes, but a connection with a
// health probe is closed after all others. With TLS, Read sees only encrypted
// bytes. During a handshake the request is not known, so the probes of a host that floods are not protected with TLS.
type connections struct {
	mu     sync.Mutex
	open   map[*connection]bool
	closed atomic.Uint64 // number of connections that were closed, or served only health probes, because there were too many
}

// connection is one connection. The fields from handled on are guarded by all.mu.
type connection struct {
	net.Conn
	all    *connections
	host   string // address of the client without its port; all clients of a unix socket have the same
	secret bool   // the connection uses TLS, so Read does not see its requests

	handled bool      // a handler computes the reply to a request
	blocked int       // number of reads of a body and writes in progress
	since   time.Time // time at which the connection began to wait for its client
	spare   bool      // true if the connection serves only health probes
	read    bool      // bytes of the client's present request were read
	probe   bool      // the present request is a health probe
}

// Limits of the number of connections of the admin interface.
const (
	maxConnections   = 256
	spareConnections = 16

	// MostConnections is how many connections the admin interface holds at most.
	MostConnections = maxConnections + spareConnections
)

// maxWrite is the largest number of bytes that are written at once. A client that reads a long
// reply slowly is not taken for one that does not read.
const maxWrite = 64 << 10

// readGrace is how long a spare is kept at least if nothing was read from it: the bytes of a health probe may have arrived.
const readGrace = time.Millisecond

// limitedListener accepts connections that are limited by all.
type limitedListener struct {
	net.Listener
	all *connections
}

func (l limitedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	host, _, _ := net.SplitHostPort(c.RemoteAddr().String()) // an address of a unix socket has no port
	return &connection{Conn: c, all: l.all, host: host}, nil
}

// waits reports whether the connection waits for its client.
func (c *connection) waits() bool { return !c.handled || c.blocked > 0 }

// setHandled records whether a handler computes the reply to a request.
func (c *connection) setHandled(handled bool) {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	c.handled, c.since = handled, time.Now()
	c.read, c.probe = c.read && handled, c.probe && handled
}

// block is called with 1 before, and with -1 after a call that may block until the client sends or
// reads something.
func (c *connection) block(change int) {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	c.blocked, c.since = c.blocked+change, time.Now()
}

func (c *connection) Read(b []byte) (n int, err error) {
	if n, err = c.Conn.Read(b); !c.secret {
		c.note(b[:n])
	}
	return n, err
}

// note records that the client has sent b.
func (c *connection) note(b []byte) {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	if !c.read && len(b) > 1 { // net/http reads a single byte while it waits for the end of a handler
		c.read, c.probe = true, beginsProbe(b)
	}
}

// beginsProbe reports whether b begins a request for /healthz or /readyz.
func beginsProbe(b []byte) bool {
	_, path, _ := bytes.Cut(b[:min(len(b), len("HEAD /healthz"))], []byte(" "))
	return bytes.HasPrefix(path, []byte("/healthz")) || bytes.HasPrefix(path, []byte("/readyz"))
}

func (c *connection) Write(b []byte) (n int, err error) {
	for {
		c.block(1)
		m, err := c.Conn.Write(b[n:min(len(b), n+maxWrite)])
		c.block(-1)
		if n += m; err != nil || n == len(b) {
			return n, err
		}
	}
}

// CloseWrite is called by net/http if it has replied without reading the whole request. Without it,
// the client could lose the reply.
func (c *connection) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// awaitedBody is the body of a request. Its connection waits for the client while it is read.
type awaitedBody struct {
	io.ReadCloser
	connection *connection
}

func (b awaitedBody) Read(p []byte) (int, error) {
	b.connection.block(1)
	defer b.connection.block(-1)
	return b.ReadCloser.Read(p)
}

// connectionKey is the key in the context of a request under which its connection is stored.
type connectionKey struct{}

// withConnection has the signature of http.Server.ConnContext. It adds the connection c to the
// context of its requests.
func withConnection(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, beneath(c))
}

// handle calls the handler h for r, and says whether the connection of r serves only health probes.
// When h has returned, the connection waits for its client: net/http sends the reply, and reads
// what h has not read of the body.
func handle(r *http.Request, h func(r *http.Request, spare bool)) {
	c, _ := r.Context().Value(connectionKey{}).(*connection)
	if c == nil { // r did not arrive on a connection
		h(r, false)
		return
	}
	c.setHandled(true)
	defer c.setHandled(false)
	with := *r
	with.Body = awaitedBody{r.Body, c}
	h(&with, c.isSpare())
}

// changed is called when the state of the connection c changes, and enforces the limits.
func (cs *connections) changed(c *connection, state http.ConnState) {
	switch state {
	case http.StateNew:
		cs.add(c)
	case http.StateIdle:
		c.setHandled(false)
	case http.StateClosed, http.StateHijacked:
		cs.mu.Lock()
		defer cs.mu.Unlock()
		delete(cs.open, c)
	}
}

// add adds the new connection c. If there are too many connections, it closes one or makes c a
// spare.
func (cs *connections) add(c *connection) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if len(cs.open) >= maxConnections { // otherwise the goroutine that accepts could run long enough to close connections whose requests were not read
		cs.mu.Unlock()
		runtime.Gosched()
		cs.mu.Lock()
	}
	if cs.open == nil {
		cs.open = map[*connection]bool{}
	}
	cs.open[c], c.since = true, time.Now()
	if len(cs.open) <= maxConnections {
		return
	}
	cs.closed.Add(1)
	last := cs.victim(c)
	if last == nil {
		if c.spare = true; len(cs.open) <= maxConnections+spareConnections {
			return
		}
		for last = cs.victim(c); last != nil && !last.read && time.Since(last.since) < readGrace; last = cs.victim(c) {
			cs.mu.Unlock()
			time.Sleep(readGrace)
			cs.mu.Lock()
			if len(cs.open) <= maxConnections+spareConnections {
				return
			}
		}
		if last == nil {
			last = c
		}
	}
	delete(cs.open, last)
	last.Close()
}

// victim returns the connection that the new connection c closes: one that waits for its client, of a
// host with at least as many connections as the host of c. If c is a spare, it is another spare. It
// returns nil if there is none.
func (cs *connections) victim(c *connection) (last *connection) {
	open := map[string]int{}
	for o := range cs.open {
		open[o.host]++
	}
	for o := range cs.open {
		if o == c || o.spare != c.spare || !o.waits() || open[o.host] < open[c.host] {
			continue
		}
		if last == nil || cmp.Or(cmp.Compare(open[last.host], open[o.host]), cmp.Compare(o.rank(), last.rank()), o.since.Compare(last.since)) < 0 {
			last = o
		}
	}
	return last
}

// rank orders the connections of one host: the lowest is closed first.
func (c *connection) rank() (n int) {
	if c.probe {
		n = 2
	}
	if c.spare && !c.read {
		n++
	}
	return n
}

// closeOne closes a connection as for a new one of an unknown host. It returns false if all open connections
// wait for handlers.
func (cs *connections) closeOne() bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	last := cs.victim(&connection{})
	if last == nil {
		return false
	}
	cs.closed.Add(1)
	delete(cs.open, last)
	last.Close()
	return true
}

// isSpare reports whether c serves only health probes.
func (c *connection) isSpare() bool {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	return c.spare
}

// isProbe reports whether r requests /healthz or /readyz.
func isProbe(r *http.Request) bool { return r.URL.Path == "/healthz" || r.URL.Path == "/readyz" }
