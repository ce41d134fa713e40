// Package loop moves bytes between sockets and the engine.
//
// There are two drivers. On Linux, epoll loops: each loop is one goroutine
// with its own engine, its own clients and its own server connections, and
// shares nothing with the others on the way of a request. Elsewhere, and on
// Linux by a setting, the portable driver: a reader and a writer goroutine for
// each socket, and one engine behind a mutex. Both serve the same engine and
// must pass the same tests.
//
// Why the epoll loop looks as it does is measured: blocking in epoll_wait by a
// raw system call keeps the thread's processor and saves the scheduler's
// hand-over at each wakeup; there is no timeout on that wait, a timerfd that
// is armed only when something is due takes its place; and a request costs no
// lock, no allocation and a share of one read, one write and one wait.
//
// A wakeup of an epoll loop:
//
//	wait ► Engine.Begin ► accept, read, connected: all that is ready ► what others have posted ► Engine.End ► write, dial, close ► arm the timer
//	                                                                                              ▲         │
//	                                                                                              └─────────┘ until End wants nothing more
//
// What costs most is to be woken and to wake others. Under saturation a loop
// therefore waits for company: until most of the answers that a server owes are
// there, or for a moment; which of them pays, if any, is found out by trying
// (package pace decides, await_linux.go waits).
//
// # What it promises
//
//   - An engine is called by one goroutine at a time, and never within a call of its
//     own: what is posted runs behind the events of a wakeup.
//   - The engine hears how each connection has ended, once, unless it has ended it
//     itself. A client that only sends no more is told before, as an end without an error.
//   - What it wants written is written in its order, or the connection ends.
//   - The clock never goes back, and on Linux counts a suspend: a lease that ran out
//     while the machine slept has run out.
//   - Where descriptors run out new clients are refused, and are told so, and not
//     connections to servers: an epoll loop keeps the descriptors of those that ended for
//     the next ones.
//   - A reload opens what is new before it closes what is old, and an error changes
//     nothing.
//
// A connection to a server passes through these states (sockState; the portable driver
// has a goroutine that dials instead):
//
//	Dial ─► waiting ─ no fault is against it ─► resolving, if it has a name ─► connecting ─► open ─► closed
//	                                                    │                          │ next address
//	                                                    └── no address answers ────┴──────────────► closed
//
// # What it does not do
//
//   - It understands no byte: where a request ends, whom an answer is for and how much is
//     written at once is the engine's.
//   - It has no timeouts for servers but the engine's. As a last resort epoll loops give up
//     a name after ten seconds, and let the kernel give up what a server doesn't
//     acknowledge for half a minute.
//   - It does not try a server again: the engine asks for the next Dial.
//   - It does not balance. A client stays with the loop that has accepted it.
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
	"ringside/proxy/loop/pace"
	"ringside/proxy/table"
)

// Options choose and tune a driver.
type Options struct {
	Driver       string // "epoll", "portable", or "auto": epoll where there is one
	Loops        int    // engines side by side, epoll only; 0: 1
	OrdinaryWait bool   // wait by an ordinary system call (GODEBUG=asyncpreemptoff=1 needs it)
	Tune         link.Tune
	Moderation   pace.Settings             // what a busy epoll loop waits for; the portable driver does without
	Inherited    map[string][]net.Listener // open already, by network and address; Listen takes out those that it needs
	Faults       *fault.Set                // what is wrong with servers on purpose; nil: nothing, ever
}

// Driver runs the engines of a proxy.
type Driver struct {
	opts Options
	name string

	mu     sync.Mutex
	open   map[string]*listener // listening, by network and address
	engine []engineDriver
}

// engineDriver drives one engine.
type engineDriver interface {
	// serve starts accepting from s. Called before run, or at any time after.
	serve(s *listener, i int)
	// forget stops accepting from s and closes this driver's side of it.
	forget(s *listener)
	// post runs f on the engine, behind the events of the next wakeup.
	post(f func(e *proxy.Engine))
	// refault looks at Options.Faults again. Called by post.
	refault()
	// stop ends the driver and closes all its sockets.
	stop()
}

// New starts the engines of p. Nothing is accepted before Listen.
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
		d.opts.Loops = 1 // one engine behind one mutex: more would only wait for it
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
		e.post(func(*proxy.Engine) {}) // it takes up the table before the first client comes
	}
	if o.Faults != nil {
		o.Faults.Watch(d.refault)
	}
	return d, nil
}

// Name is the driver in use: "epoll" or "portable".
func (d *Driver) Name() string { return d.name }

// newEpoll is set where there is epoll.
var newEpoll func(e *proxy.Engine, o Options) (engineDriver, error)

// Listen opens the listeners of t that are not open yet, and gives the unix
// sockets that are open their modes. Nothing else changes until the returned
// commit is called, which starts accepting on the new ones and closes those that
// t does not have. On an error all is as it was.
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
	for _, l := range t.Listeners {
		key := l.Network + " " + l.Address
		want[key] = true
		if s := d.open[key]; s == nil {
			if inherited := d.opts.Inherited[key]; inherited != nil {
				delete(d.opts.Inherited, key)
				s, err = inherit(l, inherited)
			} else {
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
	}
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		for key, s := range d.open {
			if !want[key] {
				d.forget(key, s)
			}
		}
		for _, s := range fresh {
			d.open[s.network+" "+s.address] = s
			for i := range max(len(d.engine), len(s.listeners)) { // another process may have had more loops
				d.engine[i%len(d.engine)].serve(s, i)
			}
		}
	}, nil
}

// Sockets returns copies of the listening sockets, for another process, and what
// Inherited calls each.
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

// Leave stops accepting and leaves the listening sockets to a process that has
// copies of them; clients stay. Nobody is refused: who has connected and was not
// accepted yet waits in the kernel for that process.
func (d *Driver) Leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, s := range d.open {
		for _, l := range s.listeners {
			if u, ok := l.(*net.UnixListener); ok {
				u.SetUnlinkOnClose(false)
			}
		}
		d.forget(key, s)
	}
}

// Addrs returns the addresses that are being listened on, sorted.
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

// Shutdown stops accepting, lets clients have the answers to what they have
// asked, and closes everything: when all is answered, or when ctx ends, which
// is an error.
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

// engineError is the error that ended a connection as the engine knows it, which has
// no errors of sockets.
func engineError(err error) error {
	if errors.Is(err, syscall.ECONNREFUSED) {
		return link.ErrRefused
	}
	return err
}

// warnAmbiguous logs that the host of a server's address has several addresses, if there are any.
func warnAmbiguous(e *proxy.Engine, address, addresses string) {
	if addresses != "" {
		e.LogLimited(slog.LevelWarn, address, "a server name has several addresses: instances may use different ones for the same keys; write each address as a server of its own, or a name for each server",
			"address", address, "addresses", addresses)
	}
}
