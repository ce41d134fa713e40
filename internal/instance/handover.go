package instance

// This file implements ringside serve --take-over for both the old and the new process.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"ringside/config"
	"ringside/internal/cli"
	"ringside/proxy/admin"
)

// takeover contains the listening sockets that this process has received from another
// instance.
type takeover struct {
	conn      net.Conn                  // connection to the old process, which has sent the sockets
	taken     bool                      // whether this process has taken over; then conn stays open until the old process has stopped accepting
	tickets   string                    // key of the session tickets of the old process; valid when over is closed
	over      chan struct{}             // created by ready; closed when the old process has stopped accepting or has ended
	paths     []*net.UnixListener       // listeners on unix sockets; until the take-over is complete, only the old process may remove their files
	listeners map[string][]net.Listener // the received listeners, by the names that loop.Driver and listenAdmin use for them
	sources   []admin.SavedSource       // the lists of the old process's sources
}

// adminSocket returns the name that the socket of the admin interface has in a take-over.
func adminSocket(a config.Address) string { return "admin " + a.Network + " " + a.Address }

// errClosed means that the old process does not offer its sockets any more, or has closed
// the connection without sending them.
var errClosed = errors.New("it has closed the connection: another process takes over from it, or it is stopping")

// takeOver requests the listening sockets of the instance at the admin address in f. It
// returns nil if there is no such instance. If that instance is stopping and has closed
// its listening sockets, takeOver calls stopping once and waits until the instance has
// ended. A signal other than SIGHUP ends that wait with an error. login is how to log in there.
func takeOver(ctx context.Context, f *config.File, login *cli.Login, signals <-chan os.Signal, stopping func()) (*takeover, error) {
	a := f.Admin.Address
	if a.Network == "" {
		return nil, errors.New("a take-over needs the admin interface of the old instance: the configuration has none")
	}
	c, err := login.Client(a.Network, a.Address, f)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	again := time.NewTicker(stoppingEvery)
	defer again.Stop()
	ended, waits := 0, false
	for {
		t, err := takeFrom(ctx, c, a, f)
		if err == nil {
			return t, nil
		}
		var status *admin.StatusError
		var other errList
		switch answered := errors.As(err, &status); {
		case errors.As(err, &other):
			return nil, takeOverError(f, err)
		case answered && status.Status == http.StatusServiceUnavailable:
			if !waits {
				waits = true
				stopping()
			}
		case ended < 3 && (errors.Is(err, errClosed) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)):
			ended++ // try again, because the next error says why the connection was closed; if the old process has crashed, this one starts
		case answered || !waits: // a refusal, or an error although the old process is not stopping
			return nil, takeOverError(f, err)
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil, takeOverError(f, err)
		case s := <-signals:
			if s != syscall.SIGHUP {
				return nil, takeOverError(f, fmt.Errorf("%w; this process received the signal %q before it had ended", err, s))
			}
		}
	}
}

// stoppingEvery is how often a new process checks whether an old process that is stopping
// has ended.
const stoppingEvery = 100 * time.Millisecond

// errList means that the servers of a pool differ from those of the running process, and that instances must change
// them together (package proxy/health/resize). The new process would not know the list in force: if no other
// instance did, all servers would be flushed.
type errList struct{ pool string }

func (e errList) Error() string {
	return "the servers of pool " + e.pool + " are not those of that process: load them there with 'ringside reload', and take over when 'ringside server list' shows no change"
}

// compareLists returns an error if the file f has another list of servers than the running process, for a pool whose
// instances change their servers together. lists has the hashes of the lists of that process. Lists from
// sources are not compared, because the new process continues those of the old one.
func compareLists(f *config.File, lists map[string]uint32) error {
	t, err := f.Build()
	if err != nil {
		return err
	}
	for _, p := range t.Pools {
		_, list := p.Prints()
		if was := lists[p.Name]; list != 0 && was != 0 && list != was && p.From == nil {
			return errList{p.Name}
		}
	}
	return nil
}

// takeFrom tries once to take over from the instance with the admin interface at a, with the file f. c is
// a client of that interface.
func takeFrom(ctx context.Context, c *admin.Client, a config.Address, f *config.File) (*takeover, error) {
	answer, err := c.HandOver(ctx)
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := compareLists(f, answer.Lists); err != nil {
		return nil, err
	}
	t, err := take(answer.Socket)
	if err != nil {
		return nil, err
	}
	t.sources = answer.Sources
	if len(t.listeners[adminSocket(a)]) == 0 {
		// Without this check, another user with a process at this address could name the
		// socket of another instance.
		t.close()
		return nil, errors.New("the sockets that it names are not of this address")
	}
	return t, nil
}

func takeOverError(f *config.File, err error) error {
	return fmt.Errorf("take over from the process at the admin address %s: %w", f.Admin.Address.Address, err)
}

// listener returns the received listening socket with this name and removes it from t. It
// returns nil if there is none.
func (t *takeover) listener(name string) net.Listener {
	if t == nil || len(t.listeners[name]) == 0 {
		return nil
	}
	l := t.listeners[name][0]
	delete(t.listeners, name)
	return l
}

// close closes the received sockets that are not in use. If this process has not taken
// over, close also closes the connection to the old process, which then continues to
// serve.
func (t *takeover) close() {
	if !t.taken {
		t.conn.Close()
	}
	for _, list := range t.listeners {
		for _, l := range list {
			l.Close()
		}
	}
}

// errWaiting means that no process can take over yet, because this process itself is
// still taking over. Otherwise, this process could end before the old process has noticed
// the take-over. The old process would then continue, and two processes would serve.
var errWaiting = errors.New("it is still taking over from another process")

// errChanging means that the servers of a pool are changing (package proxy/health/resize). A new process would
// not know the list in force: if no other instance did, all servers would be flushed.
type errChanging struct{ pool string }

func (e errChanging) Error() string {
	return "the servers of pool " + e.pool + " are changing, and a new process would not know the present ones: try again when 'ringside server list' shows no change"
}

// offerSockets offers the listening sockets to the process that has requested them. It
// returns the name of the socket on which that process receives them, and the lists of the sources.
func (r *Instance) offerSockets() (a admin.HandOver, err error) {
	if r.waiting.Load() {
		return a, errWaiting
	}
	is, err := r.proxy.Snapshot()
	if err != nil {
		return a, err
	}
	for pool, of := range is.Resizes {
		if of.Changing() {
			return a, errChanging{pool}
		}
	}
	a.Sources, a.Lists = r.sources.Save(), map[string]uint32{}
	for _, p := range r.proxy.Table().Pools {
		_, a.Lists[p.Name] = p.Prints()
	}
	a.Socket, err = r.handover.offer(r.listeningSockets, func(done func()) {
		select {
		case r.handed <- done:
		case <-r.closed: // the instance is stopping and does not accept clients any more
			done()
		}
	})
	return a, err
}

// confirm completes the take-over with which this process started: see takeover.ready.
// Another process can take over from this one only after the old process has stopped
// accepting.
func (r *Instance) confirm(signals <-chan os.Signal) error {
	err := r.taken.ready(signals, func() {
		r.log.Warn("the old process does not reply; both processes accept clients until it does", "admin", r.file.Admin.Address.Address)
	})
	if err == nil {
		go func() {
			<-r.taken.over
			r.driver.Tickets.Inherit(r.taken.tickets)
			r.waiting.Store(false)
		}()
	}
	return err
}

// leave stops accepting clients, because another process has the listening sockets. It
// does not remove the files of unix sockets, because they belong to that process. It must
// be called at most once.
func (r *Instance) leave() {
	r.driver.Leave()
	r.mu.Lock()
	if l, ok := r.adminListener.(*net.UnixListener); ok {
		l.SetUnlinkOnClose(false)
	}
	r.mu.Unlock()
	close(r.closed)
}

// listeningSockets returns copies of all listening sockets, with the names by which the
// next process finds them.
func (r *Instance) listeningSockets() (names []string, files []*os.File, err error) {
	names, files, err = r.driver.Sockets()
	if err != nil {
		return nil, nil, err
	}
	r.mu.Lock()
	l, at := r.adminListener, r.adminAt
	r.mu.Unlock()
	var f *os.File
	if l == nil {
		err = errors.New("a reload has removed its admin interface")
	} else {
		f, err = l.(interface{ File() (*os.File, error) }).File()
	}
	if err != nil {
		for _, f := range files {
			f.Close()
		}
		return nil, nil, err
	}
	return append(names, adminSocket(at)), append(files, f), nil
}

// drainClients serves the remaining clients until they disconnect, for at most
// limits.drain. New clients connect to the process that has taken over.
func (r *Instance) drainClients(signals <-chan os.Signal) error {
	r.log.Info("take-over complete: serving the remaining clients until they disconnect", "at_most", r.file.Limits.Drain.String())
	end := time.NewTimer(r.file.Limits.Drain)
	defer end.Stop()
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case s := <-signals:
			if s == syscall.SIGHUP {
				continue
			}
		case <-look.C:
			if s, err := r.proxy.Snapshot(); err != nil || s.Clients > 0 {
				continue
			}
		case <-end.C:
		}
		return r.Stop(signals, 0) // no time for new clients, because the listeners belong to the other process
	}
}
