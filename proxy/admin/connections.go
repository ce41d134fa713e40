package admin

// This file limits the number of connections of the admin interface. It chooses the connection to
// close if there are too many.

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// connections has the open connections of the admin interface.
//
// If there are more than maxConnections, the connection that has waited longest for its next
// request is closed. If all others have a request in progress, the new connection becomes a spare.
// There are at most spareConnections spares, and they serve only health probes. So clients that
// keep connections open, or send nothing, cannot prevent health probes.
type connections struct {
	mu     sync.Mutex
	open   map[net.Conn]*connection
	closed atomic.Uint64 // number of connections that were closed, or served only health probes, because there were too many
}

// connection is the state of one connection. Its fields are guarded by connections.mu.
type connection struct {
	waits bool      // the connection has no request in progress
	since time.Time // time at which the connection began to wait for a request
	spare bool      // true if the connection serves only health probes
}

// Limits of the number of connections of the admin interface.
const (
	maxConnections   = 256
	spareConnections = 16
)

// connectionKey is the key in the context of a request under which the state of its connection is
// stored.
type connectionKey struct{}

// context has the signature of http.Server.ConnContext. It adds the state of the connection c to
// the context of its requests.
func (cs *connections) context(ctx context.Context, c net.Conn) context.Context {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return context.WithValue(ctx, connectionKey{}, cs.add(c))
}

// add returns the state of the connection c. It creates the state if c is new.
func (cs *connections) add(c net.Conn) *connection {
	if cs.open == nil {
		cs.open = map[net.Conn]*connection{}
	}
	is := cs.open[c]
	if is == nil {
		is = &connection{waits: true, since: time.Now()}
		cs.open[c] = is
	}
	return is
}

// changed is called when the state of the connection c changes, and enforces the limits.
func (cs *connections) changed(c net.Conn, state http.ConnState) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	switch state {
	case http.StateNew:
		is := cs.add(c)
		if len(cs.open) <= maxConnections {
			return
		}
		cs.closed.Add(1)
		if oldest := cs.longestWait(c); oldest != nil {
			delete(cs.open, oldest)
			oldest.Close()
			return
		}
		if is.spare = true; len(cs.open) > maxConnections+spareConnections {
			delete(cs.open, c)
			c.Close()
		}
	case http.StateActive:
		if is := cs.open[c]; is != nil {
			is.waits = false
		}
	case http.StateIdle:
		if is := cs.open[c]; is != nil {
			is.waits, is.since = true, time.Now()
		}
	case http.StateClosed, http.StateHijacked:
		delete(cs.open, c)
	}
}

// longestWait returns the connection that has waited longest for its next request, except c. It
// returns nil if all others have a request in progress.
func (cs *connections) longestWait(c net.Conn) (oldest net.Conn) {
	since := time.Time{}
	for o, is := range cs.open {
		if o != c && is.waits && (oldest == nil || is.since.Before(since)) {
			oldest, since = o, is.since
		}
	}
	return oldest
}

// isSpare reports whether r arrived on a connection that serves only health probes.
func (cs *connections) isSpare(r *http.Request) bool {
	is, _ := r.Context().Value(connectionKey{}).(*connection)
	if is == nil {
		return false
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return is.spare
}

// isProbe reports whether r requests /healthz or /readyz.
func isProbe(r *http.Request) bool { return r.URL.Path == "/healthz" || r.URL.Path == "/readyz" }
