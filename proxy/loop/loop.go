// Package loop is the event loop: it moves bytes between sockets and the engine of the proxy.
//
// There are two drivers, which serve the same engine and pass the same tests:
//
//   - On Linux, epoll loops. Each loop is one goroutine with its own engine, clients and server
//     connections. The loops share nothing while they serve a request.
//   - On other systems, and on Linux if configured, the portable driver: a reader and a writer
//     goroutine for each socket, and one engine protected by a mutex.
//
// The design of the epoll loop rests on measurements. A raw epoll_wait system call keeps the
// scheduler's P while it blocks, which saves the scheduler's hand-over at each wakeup. That wait
// has no timeout: a timerfd, armed only if a deadline is pending, ends it instead. A request costs
// no lock, no allocation, and only a share of one read, one write and one wait.
//
// A wakeup of an epoll loop:
//
//	wait ► Engine.Begin ► accept, read, connected: all ready events ► posted functions ► Engine.End ► write, dial, close ► arm the timer
//	                                                                                          ▲               │
//	                                                                                          └───────────────┘ until End returns no effects
//
// The largest costs are being woken and waking others. A saturated loop therefore waits before it
// looks for events: until most of the replies that a server owes have arrived, or for a short
// sleep. The loop measures which wait pays off, if any: pace.go decides, await_linux.go waits.
//
// # Guarantees
//
//   - Only one goroutine at a time calls an engine, and never from within a call of that engine.
//     Posted functions run after the events of a wakeup.
//   - The engine is notified once of the end of each connection, unless the engine ended it. If a
//     client only closes its sending side, the engine is notified of that earlier, as an end
//     without an error.
//   - The driver writes the engine's bytes in order, or the connection ends.
//   - The clock never runs backwards. On Linux it includes the time that the machine was suspended,
//     so a lease can expire during a suspend.
//   - If file descriptors run out, new clients are rejected, not connections to servers. An epoll
//     loop sends these clients an error, and it reuses the descriptors of ended server connections
//     for the next ones.
//   - A reload opens the new listeners before it closes the old ones, and a failed reload changes
//     nothing. It creates the files of unix sockets that were removed.
//
// A connection to a server passes through these states (sockState). The portable driver dials in a
// goroutine instead.
//
//	Dial ─► waiting ─ no fault prevents it ─► resolving, if it has a name ─► connecting ─► open ─► closed
//	                                                     │                       │ next address
//	                                                     └─── no address works ──┴───────────────► closed
//
// # Non-goals
//
//   - The package does not parse bytes. The engine decides where a request ends, which client gets
//     a reply, and how much to write at once.
//   - It has no timeouts for servers, because the engine has them. As a last resort, epoll loops
//     limit a DNS lookup to ten seconds, and the kernel drops a connection whose data the server
//     does not acknowledge for 30 s.
//   - It does not reconnect to a server. The engine requests the next Dial.
//   - It does not balance clients. A client stays with the loop that accepted it.
package loop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"ringside/proxy"
	"ringside/proxy/fault"
	"ringside/proxy/link"
	"ringside/proxy/secure"
	"ringside/proxy/table"
)

// Options choose and tune a driver.
type Options struct {
	Driver       string // "epoll", "portable", or "auto" (also ""): epoll if the system has it, else portable
	Loops        int    // number of epoll loops, each with its own engine; 0: 1. The portable driver has one engine
	OrdinaryWait bool   // wait with an ordinary system call, not a raw one (GODEBUG=asyncpreemptoff=1 needs it)
	Tune         link.Tune
	Moderation   Settings                  // how a busy epoll loop waits for events; the portable driver ignores it
	Inherited    map[string][]net.Listener // listeners that are already open, by network and address; Listen removes those that it uses
	Faults       *fault.Set                // faults injected into connections to servers; nil: none

	Locate  func(address string) string // returns where to connect to the TCP server with this address in the table; nil: there
	Refused func(address string)        // called when no connection to the server with this address in the table can be made, from many goroutines; nil: not called
}

// locate returns where to connect to a server.
func (o *Options) locate(network, address string) string {
	if o.Locate == nil || network == "unix" {
		return address
	}
	return o.Locate(address)
}

// refused reports that no connection to the server of l can be made.
func (o *Options) refused(l *link.Link) {
	if o.Refused != nil {
		if network, address := l.Server().Target(); network != "unix" {
			o.Refused(address)
		}
	}
}

// errMoved ends the connections to a server that has another address now.
var errMoved = errors.New("the server has another address now")

// Redial closes the connections to the servers with these addresses in the table, because the servers
// are elsewhere now (Options.Locate). Their requests in flight fail, as after a reset of the connection.
// The engines then connect again.
func (d *Driver) Redial(addresses map[string]bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.engine {
		e.post(func(*proxy.Engine) { e.redial(addresses) })
	}
}

// Driver runs the engines of a proxy.
type Driver struct {
	opts Options
	name string

	Tickets secure.Tickets // keys of the session tickets of TLS clients

	mu     sync.Mutex
	open   map[string]*listener // open listeners, by network and address
	engine []engineDriver
}

// engineDriver drives one engine.
type engineDriver interface {
	// serve starts accepting clients from s with the listening socket of engine i. It may be called
	// at any time.
	serve(s *listener, i int)
	// forget stops accepting from s and closes this driver's descriptor of its listening
	// socket.
	forget(s *listener)
	// post runs f with the engine, after the events of the next wakeup.
	post(f func(e *proxy.Engine))
	// refault applies the current Options.Faults. It is called by a posted function.
	refault()
	// redial closes the connections to servers with these addresses. It is called by a posted
	// function.
	redial(addresses map[string]bool)
	// stop ends the driver and closes all its sockets.
	stop()
}

// New starts the engines of p. They accept clients only after Listen.
func New(p *proxy.Proxy, o Options) (*Driver, error) {
	if o.Loops < 1 {
		o.Loops = 1
	}
	p.PID = os.Getpid()
	d := &Driver{opts: o, name: "epoll", open: map[string]*listener{}}
	start := newEpoll
	switch {
	case !slices.Contains([]string{"epoll", "portable", "auto", ""}, o.Driver):
		return nil, fmt.Errorf("engine.driver: %q is not auto, epoll or portable", o.Driver)
	case o.Driver == "epoll" && start == nil:
		return nil, fmt.Errorf("engine.driver: epoll is not available on %s; use portable or auto", runtime.GOOS)
	case o.Driver == "portable" || start == nil:
		start, d.name = newPortable, "portable"
		d.opts.Loops = 1 // one engine, protected by one mutex: more engines would only wait for that mutex
	}
	for range d.opts.Loops {
		e := p.NewEngine(o.Tune)
		e.Clock = now
		run, err := start(e, d.opts)
		if err != nil {
			d.close()
			return nil, err
		}
		e.Post = run.post
		d.engine = append(d.engine, run)
	}
	for _, e := range d.engine {
		e.post(func(*proxy.Engine) {}) // the engine adopts the table before the first client connects
	}
	if o.Faults != nil {
		o.Faults.Watch(d.refault)
	}
	return d, nil
}

// Name returns the driver in use: "epoll" or "portable".
func (d *Driver) Name() string { return d.name }

// newEpoll starts an epoll loop. It is nil if the system has no epoll.
var newEpoll func(e *proxy.Engine, o Options) (engineDriver, error)

// Listen opens the listeners of t that are not open yet, and sets the modes of open unix sockets. It
// opens a unix socket again if its file was removed. Nothing else changes until the caller calls the
// returned commit. commit starts accepting on the new listeners and closes those that they replace, or
// that t does not have. An error undoes all changes.
func (d *Driver) Listen(t *table.Table) (commit func(), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var fresh []*listener
	var undo []func()
	defer func() {
		if err != nil {
			for _, f := range undo {
				f()
			}
		}
	}()
	want := map[string]bool{}
	var secured []func() // put the new TLS settings of listeners in force
	for _, l := range t.Listeners {
		key := l.Network + " " + l.Address
		want[key] = true
		s := d.open[key]
		security, err := d.secured(l)
		if err != nil {
			return nil, err
		}
		if gone := Gone(l.Network, l.Address); s == nil || gone {
			inherited := d.opts.Inherited[key]
			delete(d.opts.Inherited, key)
			if inherited != nil && !gone {
				s, err = inherit(l, inherited)
			} else {
				keepFiles(inherited)
				(&listener{listeners: inherited}).close()
				s, err = listen(l, len(d.engine))
			}
			if err != nil {
				return nil, err
			}
			fresh = append(fresh, s)
			undo = append(undo, s.close)
		} else if before := s.mode; before != l.Mode {
			if err = s.chmod(l.Mode); err != nil {
				return nil, err
			}
			undo = append(undo, func() { s.chmod(before) })
		}
		secured = append(secured, func() { s.tls.Store(security) })
	}
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, f := range secured {
			f()
		}
		for key, s := range d.open {
			if !want[key] {
				d.forget(key, s)
			}
		}
		for _, s := range fresh {
			key := s.network + " " + s.address
			if old := d.open[key]; old != nil {
				d.forget(key, old)
			}
			d.open[key] = s
			for i := range max(len(d.engine), len(s.listeners)) { // inherited sockets may be more than the engines, because the other process may have had more loops
				d.engine[i%len(d.engine)].serve(s, i)
			}
		}
	}, nil
}

// secured returns the TLS of a listener; nil: it has none.
func (d *Driver) secured(l table.Listener) (*listenerTLS, error) {
	if l.TLS == nil {
		return nil, nil
	}
	s, err := secure.NewListener(l.TLS, &d.Tickets)
	if err != nil {
		return nil, fmt.Errorf("TLS of the listener %s: %w", l.Address, err)
	}
	return &listenerTLS{s, l.TLS.Handshake}, nil
}

// Sockets returns duplicates of the listening sockets, for another process, and for each the key
// that Options.Inherited uses.
func (d *Driver) Sockets() (names []string, files []*os.File, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, s := range d.open {
		for _, l := range s.listeners {
			f, err := l.(interface{ File() (*os.File, error) }).File()
			if err != nil {
				for _, f := range files {
					f.Close()
				}
				return nil, nil, err
			}
			names, files = append(names, key), append(files, f)
		}
	}
	return names, files, nil
}

// Leave stops accepting and closes the listening sockets, of which another process has duplicates.
// Connected clients stay. No client is rejected: a connection that was not accepted yet waits in
// the kernel until that process accepts it.
func (d *Driver) Leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, s := range d.open {
		keepFiles(s.listeners)
		d.forget(key, s)
	}
}

// Addrs returns the addresses of the open listeners, sorted.
func (d *Driver) Addrs() []net.Addr {
	d.mu.Lock()
	defer d.mu.Unlock()
	var a []net.Addr
	for _, s := range d.open {
		a = append(a, s.listeners[0].Addr())
	}
	slices.SortFunc(a, func(a, b net.Addr) int { return slices.Compare([]byte(a.String()), []byte(b.String())) })
	return a
}

// Shutdown stops accepting, waits until clients have the replies to their requests, and then closes
// everything. If ctx ends first, it closes everything and returns an error.
func (d *Driver) Shutdown(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, s := range d.open {
		d.forget(key, s)
	}
	defer d.close()
	for _, e := range d.engine {
		e.post(func(e *proxy.Engine) { e.Drain() })
	}
	for {
		busy := make(chan bool, len(d.engine))
		for _, e := range d.engine {
			e.post(func(e *proxy.Engine) { busy <- !e.Idle() })
		}
		wait := false
		for range d.engine {
			select {
			case b := <-busy:
				wait = wait || b
			case <-ctx.Done():
				return errUnfinished
			}
		}
		if !wait {
			return nil
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return errUnfinished
		}
	}
}

var errUnfinished = errors.New("not all requests were answered in time")

func (d *Driver) forget(key string, s *listener) {
	for _, e := range d.engine {
		e.forget(s)
	}
	s.close()
	delete(d.open, key)
}

func (d *Driver) close() {
	for _, e := range d.engine {
		e.stop()
	}
}

// engineError converts the error that ended a connection to an error that the engine knows. The
// engine does not know socket errors.
func engineError(err error) error {
	if errors.Is(err, syscall.ECONNREFUSED) {
		return link.ErrRefused
	}
	return err
}

// warnAmbiguous logs that the host name of a server has several addresses. addresses is empty if it
// has only one.
func warnAmbiguous(e *proxy.Engine, address, addresses string) {
	if addresses != "" {
		e.LogLimited(slog.LevelWarn, address, "a server name has several addresses: instances may use different ones for the same keys; write each address as a server of its own, or a name for each server",
			"address", address, "addresses", addresses)
	}
}
