package loop

// This file conducts the TLS handshakes with servers, for both drivers. The engine gets to know that a
// server is connected when the handshake is complete.

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"ringside/proxy"
	"ringside/proxy/link"
	"ringside/proxy/secure"
)

// serverTurns limits how many handshakes with servers compute at the same time in this process. Handshakes
// of clients do not delay them.
var serverTurns = secure.NewTurns(max(1, runtime.NumCPU()/2))

// introductions are the handshakes of one engine with servers. At most one with each server runs;
// the others wait for it. So a server that has restarted is not flooded, and the later ones resume the
// session of the first. Like the engine, only one goroutine at a time uses it.
type introductions struct {
	post    func(f func(e *proxy.Engine))
	opts    *Options
	servers secure.Servers
	open    map[string][]*introduction // by address; the first runs
	failed  map[string]bool            // addresses with which the last handshake has failed
}

// introduction is a handshake with one server that is not complete.
type introduction struct {
	*secure.Conn
	server introduced
	to     string
	open   bool
}

// introduced is a driver's socket of a server during its handshake.
type introduced interface {
	flush()        // sends what Conn.Out has, as far as the socket accepts it, and reads on after Conn.Full
	met(err error) // passes the server to the engine, or closes the socket after an error
}

// retryWithin is how long a handshake waits at most after one with the same server that has failed. The
// time is random, so that many instances do not begin together.
const retryWithin = 50 * time.Millisecond

// begin begins the handshake with the server of l.
func (h *introductions) begin(server introduced, l *link.Link) (*introduction, error) {
	network, address := l.Server().Target()
	c, err := h.servers.Conn(l.Server().Security(), secure.Verified(address, h.opts.locate(network, address)))
	if err != nil {
		return nil, err
	}
	x := &introduction{Conn: c, server: server, to: address, open: true}
	if h.open == nil {
		h.open, h.failed = map[string][]*introduction{}, map[string]bool{}
	}
	h.open[address] = append(h.open[address], x)
	if len(h.open[address]) == 1 {
		h.run(x)
	}
	return x, nil
}

// run starts the handshake x.
func (h *introductions) run(x *introduction) {
	start := func() {
		x.Handshake(serverTurns,
			func() { h.then(x, x.server.flush) },
			func(err error) { h.then(x, func() { h.ended(x, err) }) })
	}
	if h.failed[x.to] {
		time.AfterFunc(rand.N(retryWithin), func() { h.then(x, start) })
		return
	}
	start()
}

// then runs f on the loop, if the handshake x has not been forgotten until then.
func (h *introductions) then(x *introduction, f func()) {
	h.post(func(*proxy.Engine) {
		if x.open {
			f()
		}
	})
}

// ended ends the handshake x.
func (h *introductions) ended(x *introduction, err error) {
	x.server.flush() // the last message, or an alert with the reason
	if !x.open {
		return
	}
	if err != nil {
		h.failed[x.to] = true
		x.server.met(fmt.Errorf("TLS handshake: %w", secure.Reason(err)))
		return
	}
	delete(h.failed, x.to)
	h.forget(x)
	x.Established()
	x.server.met(nil)
}

// forget removes a handshake, and starts the next one with the server. If x still runs, its result is
// ignored.
func (h *introductions) forget(x *introduction) {
	if !x.open {
		return
	}
	x.open = false
	i := slices.Index(h.open[x.to], x)
	list := slices.Delete(h.open[x.to], i, i+1)
	if h.open[x.to] = list; len(list) == 0 {
		delete(h.open, x.to)
	} else if i == 0 {
		h.run(list[0])
	}
}
