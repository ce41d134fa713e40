package instance

// ringside serve --take-over, seen from both sides.

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"ringside/config"
	"ringside/proxy/admin"
)

// takeover is the listening sockets that another Ringside hands over.
type takeover struct {
	conn      net.Conn                  // to the old one
	paths     []*net.UnixListener       // whose files are the old one's to remove until it has handed them over
	listeners map[string][]net.Listener // by network and address, as loop.Driver and listenAdmin call them
}

// adminSocket is what an admin interface's socket is called in a take-over.
func adminSocket(a config.Address) string { return "admin " + a.Network + " " + a.Address }

// takeOver asks the Ringside that serves f's admin interface for its sockets. It
// returns nil if there is none.
func takeOver(ctx context.Context, f *config.File) (*takeover, error) {
	a := f.Admin.Address
	if a.Network == "" {
		return nil, errors.New("a take-over goes by the admin interface of the old Ringside: the configuration has none")
	}
	c := admin.NewClient(a.Network, a.Address)
	defer c.Close()
	socket, err := c.HandOver(ctx)
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("take over from the process at the admin address %s: %w", a.Address, err)
	}
	t, err := take(socket)
	if err == nil && len(t.listeners[adminSocket(a)]) == 0 {
		// Another user who listens at this address could name the socket of another Ringside.
		t.close()
		err = errors.New("the sockets that it names are not of this address")
	}
	if err != nil {
		return nil, fmt.Errorf("take over from the process at the admin address %s: %w", a.Address, err)
	}
	return t, nil
}

// listener gives away one socket; nil if it was not handed over.
func (t *takeover) listener(name string) net.Listener {
	if t == nil || len(t.listeners[name]) == 0 {
		return nil
	}
	l := t.listeners[name][0]
	delete(t.listeners, name)
	return l
}

// close lets go of the sockets that nobody has wanted. Without a word before it,
// the old Ringside goes on as if nothing had been.
func (t *takeover) close() {
	t.conn.Close()
	for _, list := range t.listeners {
		for _, l := range list {
			l.Close()
		}
	}
}

// handOver offers the listening sockets to the process that asks for them.
func (r *Instance) handOver() (socket string, err error) {
	return r.handover.offer(r.listeningSockets, func(done func()) {
		select {
		case r.handed <- done:
		case <-r.ended: // it stops anyway
			done()
		}
	})
}

// listeningSockets returns copies of all listening sockets, with the names by which the
// next process knows them.
func (r *Instance) listeningSockets() (names []string, files []*os.File, err error) {
	names, files, err = r.driver.Sockets()
	if err != nil {
		return nil, nil, err
	}
	r.mu.Lock()
	l, at := r.adminListener, r.adminAt
	r.mu.Unlock()
	f, err := l.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		for _, f := range files {
			f.Close()
		}
		return nil, nil, err
	}
	return append(names, adminSocket(at)), append(files, f), nil
}

// drainClients serves the clients that are there until they have gone, or limits.drain is
// over: new ones are another process's.
func (r *Instance) drainClients(signals <-chan os.Signal) error {
	r.log.Info("handed over: serving the clients that are left", "at_most", r.file.Limits.Drain.String())
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
		return r.Stop(signals, 0) // the listeners are another's by now
	}
}
