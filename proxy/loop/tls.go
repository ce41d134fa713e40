package loop

// This file conducts the TLS handshakes of clients, for both drivers. The engine gets to know a client
// when its handshake is complete.

import (
	"container/list"
	"errors"
	"log/slog"
	"runtime"
	"time"

	"ringside/proxy"
	"ringside/proxy/secure"
)

// sealed is the TLS of a connection of either driver.
type sealed struct {
	*secure.Conn
	greeting     *handshake    // the handshake of a client that is not complete; nil: it is complete
	introduction *introduction // the handshake with a server that is not complete; nil: it is complete
	shaking      bool          // in the portable driver: the handshake is not complete
	over         bool          // in an epoll loop: the other end sends no more; the handshake may still be incomplete
	inside       bool          // the bytes sent last may end inside a request
	held         int           // in an epoll loop: number of encrypted bytes that the socket has not accepted, as reported to the engine
}

// write encrypts b, to a server or to a client.
func (t *sealed) write(b []byte, server bool) error {
	if !server {
		return t.Write(b)
	}
	inside := t.inside
	t.inside = true // until there are no more pending bytes
	return t.WriteToServer(b, !inside)
}

// forget ends a handshake that is not complete, because the connection is closed.
func (t *sealed) forget(clients *handshakes, servers *introductions) {
	if t.greeting != nil {
		clients.forget(t.greeting)
	}
	if t.introduction != nil {
		servers.forget(t.introduction)
	}
}

// HandshakesMost is how many incomplete handshakes of clients an engine has at most. If there are more, one
// is given up: see handshakes.limit.
const HandshakesMost = 512

// clientTurns limits how many handshakes with clients compute at the same time in this process, so
// that they leave CPU time to requests.
var clientTurns = secure.NewTurns(max(1, runtime.NumCPU()/2))

// SpeaksTLS is the reply to a client that sends plain text to a listener with TLS.
const SpeaksTLS = "CLIENT_ERROR this port speaks TLS\r\n"

// handshakes are the clients of one engine with an incomplete handshake. Like the engine, only one
// goroutine at a time uses it.
type handshakes struct {
	engine *proxy.Engine
	post   func(f func(e *proxy.Engine))
	in     [handshakePhases]list.List // of *handshake, by phase; the one that has been in the phase for the longest time is first
}

// handshakePhase is what an incomplete handshake waits for.
type handshakePhase int

const (
	silent   handshakePhase = iota // the client has not sent its whole first message
	computes                       // it computes, or waits for its turn
	replied                        // the client has the reply to its first message
	handshakePhases
)

// handshake is one client with an incomplete handshake.
type handshake struct {
	*secure.Conn
	client  greeter
	network string // network of the listener
	address string // address of the listener
	first   []byte // what the client has sent, until it is a whole record
	running bool   // the goroutine of the handshake runs
	phase   handshakePhase
	at      *list.Element // place in handshakes.in[phase]; nil: the handshake has ended
	late    *time.Timer   // fires when the handshake has lasted too long
}

// greeter is a driver's socket of a client during its handshake.
type greeter interface {
	Peer() string
	flush()               // sends what Conn.Out has, as far as the socket accepts it, and reads on after Conn.Full
	welcome()             // passes the client to the engine: its handshake is complete
	drop()                // closes the socket, and calls handshakes.forget
	refuse(answer string) // sends the answer, and closes the socket as drop does
}

// begin begins the handshake of a client. The caller must then call limit.
func (h *handshakes) begin(client greeter, l *listener, t *listenerTLS) *handshake {
	x := &handshake{Conn: t.Conn(), client: client, network: l.network, address: l.address}
	x.at = h.in[silent].PushBack(x)
	x.late = time.AfterFunc(t.within, func() {
		h.post(func(e *proxy.Engine) {
			if x.at != nil {
				e.Count.Handshakes.Late++
				x.client.drop()
			}
		})
	})
	return x
}

// limit gives up a handshake if there are too many. It may be the one that has just begun.
//
// It is a handshake of the phase that has most of them, so that clients that stall in one phase do not
// replace those in the others. In a phase in which clients must send, it is the one that has waited for its client
// for the longest time: a client that is not stalled sends sooner. Of those that wait for their turn, it is the
// last one: if the first ones were given up, none would ever get its turn.
func (h *handshakes) limit() {
	n, most := 0, silent
	for p := range handshakePhases {
		if n += h.in[p].Len(); h.in[p].Len() > h.in[most].Len() {
			most = p
		}
	}
	if n <= HandshakesMost {
		return
	}
	e := h.in[most].Front()
	if most == computes {
		e = h.in[most].Back()
	}
	x := e.Value.(*handshake)
	h.engine.Count.Handshakes.Crowded++
	h.engine.LogLimited(slog.LevelWarn, x.address, "TLS handshakes given up: too many are incomplete, because clients connect and do not continue, or because too many connect at the same time",
		"client", x.client.Peer(), "listener", x.address, "limit", HandshakesMost)
	x.client.drop()
}

// enter moves a handshake to the next phase.
func (h *handshakes) enter(x *handshake, p handshakePhase) {
	if x.at != nil && x.phase < p {
		h.in[x.phase].Remove(x.at)
		x.phase, x.at = p, h.in[p].PushBack(x)
	}
}

// arrived handles bytes from the client. The handshake begins to compute, and to need memory, when the
// client has sent a whole record.
func (h *handshakes) arrived(x *handshake, b []byte) {
	if x.running {
		x.Feed(b)
		return
	}
	x.first = append(x.first, b...)
	switch {
	case secure.Plain(x.first):
		h.engine.Count.PlainRefused++
		h.engine.LogLimited(slog.LevelWarn, x.address, "client rejected: it sends plain text to a port that speaks TLS", "client", x.client.Peer(), "listener", x.address)
		x.client.refuse(SpeaksTLS)
		return
	case !secure.Hello(x.first):
		return
	}
	x.running = true
	h.enter(x, computes)
	x.Feed(x.first)
	x.first = nil
	x.Handshake(clientTurns,
		func() {
			h.post(func(*proxy.Engine) {
				if x.at != nil {
					h.enter(x, replied)
					x.client.flush()
				}
			})
		},
		func(err error) { h.post(func(*proxy.Engine) { h.ended(x, err) }) })
}

// ended ends a handshake that has not been forgotten.
func (h *handshakes) ended(x *handshake, err error) {
	if x.at == nil {
		return
	}
	x.client.flush() // an alert with the reason, or a session ticket
	if x.at == nil {
		return
	}
	if err != nil {
		h.failed(x, err)
		return
	}
	h.forget(x)
	x.Established()
	if h.engine.Count.Handshakes.Done++; x.State().DidResume {
		h.engine.Count.Handshakes.Resumed++
	}
	x.client.welcome()
}

// closed is called when the client sends no more.
func (h *handshakes) closed(x *handshake) {
	if x.running {
		x.End()
	} else {
		h.failed(x, errors.New("the client has disconnected"))
	}
}

func (h *handshakes) failed(x *handshake, err error) {
	h.engine.Count.Handshakes.Failed++
	h.engine.LogLimited(slog.LevelInfo, x.address, "TLS handshake failed", "client", x.client.Peer(), "listener", x.address, "error", secure.Reason(err))
	x.client.drop()
}

// forget removes a handshake. If it still runs, its result is ignored.
func (h *handshakes) forget(x *handshake) {
	if x.at != nil {
		h.in[x.phase].Remove(x.at)
		x.at = nil
		x.late.Stop()
	}
}

// listenerTLS is the TLS of a listener.
type listenerTLS struct {
	*secure.Listener
	within time.Duration // longest duration of a handshake
}
