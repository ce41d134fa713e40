package admin

// How many connections the admin interface has, and which of them end when there are too many.

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// connections are the open connections of the admin interface.
//
// A connection over maxConnections takes the place of the one that has waited longest for
// a request. If all others are being answered, it is a spare: there are spareConnections
// of them, which serve health probes only. So clients that keep connections open, or send
// nothing, cannot hide from an orchestrator that Ringside is well.
type connections struct {
	mu     sync.Mutex
	open   map[net.Conn]*connection
	closed atomic.Uint64 // connections closed because there were too many
}

// connection is one of them. Its fields are guarded by connections.mu.
type connection struct {
	waits bool      // it is being asked nothing
	since time.Time // when that began
	spare bool      // it serves health probes only
}

// The bounds of connections.
const (
	maxConnections   = 256
	spareConnections = 16
)

// connectionKey is where a request's context has its *connection.
type connectionKey struct{}

// context is http.Server.ConnContext.
func (cs *connections) context(ctx context.Context, c net.Conn) context.Context {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return context.WithValue(ctx, connectionKey{}, cs.add(c))
}

// add returns what is known of c, which may be new.
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

// changed is told of each change of a connection's state, and keeps the bounds.
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

// longestWait returns the connection, not c, that has waited longest for a request; nil
// if all are being answered.
func (cs *connections) longestWait(c net.Conn) (oldest net.Conn) {
	since := time.Time{}
	for o, is := range cs.open {
		if o != c && is.waits && (oldest == nil || is.since.Before(since)) {
			oldest, since = o, is.since
		}
	}
	return oldest
}

// isSpare says whether r came on a connection that serves health probes only.
func (cs *connections) isSpare(r *http.Request) bool {
	is, _ := r.Context().Value(connectionKey{}).(*connection)
	if is == nil {
		return false
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return is.spare
}

// isProbe says whether r asks for the health of Ringside.
func isProbe(r *http.Request) bool { return r.URL.Path == "/healthz" || r.URL.Path == "/readyz" }
