package instance

// Tests of which process serves after a take-over in which one of them is slow, stops
// or ends.

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"ringside/config"
	"ringside/internal/cli"
	"ringside/proxy/admin"
)

// oneSocket returns a function that opens a listening socket to hand over.
func oneSocket(t *testing.T) func() ([]string, []*os.File, error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return func() ([]string, []*os.File, error) {
		f, err := l.(*net.TCPListener).File()
		return []string{"tcp here"}, []*os.File{f}, err
	}
}

// older is the old process of a take-over.
type older struct {
	t      *testing.T
	socket handoverSocket
	open   func() ([]string, []*os.File, error)
	left   chan struct{} // receives a value each time a process has taken over
}

func newOlder(t *testing.T) *older {
	return &older{t: t, open: oneSocket(t), left: make(chan struct{}, 10)}
}

func (o *older) offer() (string, error) {
	return o.socket.offer(o.open, func(done func()) { o.left <- struct{}{}; done() })
}

// take returns a new process that has received the sockets.
func (o *older) take() *takeover {
	o.t.Helper()
	var name string
	eventually(o.t, "an offer", func() (ok bool) { // the last one may not have ended yet
		var err error
		name, err = o.offer()
		return err == nil
	})
	n, err := take(name)
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(n.close)
	return n
}

// serves checks that the old process has not stopped, and that a next process can take
// over from it.
func (o *older) serves() {
	o.t.Helper()
	if err := o.take().ready(nil, nil); err != nil {
		o.t.Errorf("a next take-over: %v", err)
	}
	<-o.left
	if len(o.left) > 0 {
		o.t.Error("it has also left before")
	}
}

// shorten makes the old process wait for "taken" only for a short time.
func shorten(t *testing.T) {
	before := takenWithin
	takenWithin = 50 * time.Millisecond
	t.Cleanup(func() { takenWithin = before })
}

// TestTakeOverConfirmsOne checks that only one process gets the sockets at a time, and
// that nobody gets them after a take-over.
func TestTakeOverConfirmsOne(t *testing.T) {
	o := newOlder(t)
	name, err := o.offer()
	if err != nil {
		t.Fatal(err)
	}
	second, err := dialOffer(name) // both have connected before one of them is accepted, or just after
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	first := &takeover{conn: second, listeners: map[string][]net.Listener{}}
	if err := first.receive(second); err != nil {
		t.Fatal(err)
	}
	defer first.close()
	if _, err := o.offer(); !errors.Is(err, errBusy) {
		t.Errorf("a second offer: %v", err)
	}
	if _, err := take(name); err == nil {
		t.Error("a second process has got the sockets")
	}
	if err := first.ready(nil, nil); err != nil {
		t.Fatal(err)
	}
	<-o.left
	if _, err := o.offer(); !errors.Is(err, errHanded) {
		t.Errorf("an offer afterwards: %v", err)
	}
}

// TestTakeOverNewFails checks that the old process does not leave if the new one ends,
// gives up or hangs.
func TestTakeOverNewFails(t *testing.T) {
	for name, fails := range map[string]func(t *testing.T, n *takeover, c *net.UnixConn){
		"it ends before it is ready": func(t *testing.T, n *takeover, c *net.UnixConn) { c.Close() },
		"it ends when it is ready": func(t *testing.T, n *takeover, c *net.UnixConn) {
			c.Write([]byte("ready\n"))
			c.Close()
		},
		"it ends before it has taken over": func(t *testing.T, n *takeover, c *net.UnixConn) {
			c.Write([]byte("ready\n"))
			c.Read(make([]byte, 6))
			c.Close()
		},
		"a signal ends it": func(t *testing.T, n *takeover, c *net.UnixConn) {
			signals := make(chan os.Signal, 2)
			signals <- syscall.SIGHUP
			signals <- syscall.SIGTERM
			quiet, _ := net.Pipe()
			if err := (&takeover{conn: discard{quiet}}).ready(signals, nil); err == nil || !strings.Contains(err.Error(), "terminated") {
				t.Errorf("it says %v", err)
			}
			c.Close()
		},
		"it hangs when it is ready": func(t *testing.T, n *takeover, c *net.UnixConn) {
			c.Write([]byte("ready\n"))
			line := make([]byte, 100)
			k, _ := c.Read(line)
			if string(line[:k]) != "yours\n" {
				t.Errorf("it is told %q", line[:k])
			}
			k, _ = c.Read(line)
			if !strings.HasPrefix(string(line[:k]), "no ") {
				t.Errorf("then it is told %q", line[:k])
			}
			if _, err := c.Write([]byte("taken\n")); err == nil {
				t.Error("it can still take over")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			shorten(t)
			o := newOlder(t)
			n := o.take()
			fails(t, n, n.conn.(*net.UnixConn))
			o.serves()
		})
	}
}

// discard is a connection that accepts all writes and never has anything to read.
type discard struct{ net.Conn }

func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) SetDeadline(time.Time) error { return nil }

// TestTakeOverIsDecidedOnce lets the new process say "taken" at about the time at which
// the old one gives up. Both must come to the same decision.
func TestTakeOverIsDecidedOnce(t *testing.T) {
	before := takenWithin
	takenWithin = time.Millisecond
	t.Cleanup(func() { takenWithin = before })
	both := map[bool]int{}
	for i := range 200 {
		o := newOlder(t)
		n := o.take()
		n.conn.Write([]byte("ready\n"))
		if k, _ := n.conn.Read(make([]byte, 6)); k != 6 {
			t.Fatal("no answer")
		}
		time.Sleep(time.Duration(i) * 10 * time.Microsecond)
		_, err := n.conn.Write([]byte("taken\n"))
		line := make([]byte, 100)
		k, _ := n.conn.Read(line)
		if yes := err == nil; yes != (string(line[:k]) == "done\n") || yes != (len(o.left) == 1) {
			t.Fatalf("sent: %v; the old one says %q and has left %d times", err, line[:k], len(o.left))
		}
		both[err == nil]++
		n.close()
	}
	t.Log(both)
}

// TestTakeOverOldFails checks that the new process serves if the old one ends, and ends
// if the old one says that it continues. As long as the old one says nothing, the new
// one waits.
func TestTakeOverOldFails(t *testing.T) {
	pair := func(t *testing.T) (n *takeover, old *net.UnixConn) {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socketPrefix + "test-" + filepath.Base(t.TempDir()) + fmt.Sprint(time.Now().UnixNano()), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		c, err := net.DialUnix("unix", nil, l.Addr().(*net.UnixAddr))
		if err != nil {
			t.Fatal(err)
		}
		if old, err = l.AcceptUnix(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { old.Close(); c.Close() })
		return &takeover{conn: c}, old
	}
	for _, c := range []struct {
		name  string
		old   func(c *net.UnixConn)
		fails string
	}{
		{"it has ended", func(c *net.UnixConn) { c.Close() }, ""},
		{"it ends after ready", func(c *net.UnixConn) { c.Read(make([]byte, 6)); c.Close() }, ""},
		{"it ends after yours", func(c *net.UnixConn) { c.Read(make([]byte, 6)); c.Write([]byte("yours\n")); c.Close() }, ""},
		{"it continues", func(c *net.UnixConn) { c.Write([]byte("no because\n")); c.Close() }, "it continues to serve: because"},
		{"it gives up", func(c *net.UnixConn) {
			c.CloseRead()
			c.Write([]byte("yours\n"))
			time.Sleep(5 * time.Millisecond)
			c.Write([]byte("no because\n"))
			c.Close()
		}, "it continues to serve: because"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, old := pair(t)
			go c.old(old)
			if err := n.ready(nil, nil); fmt.Sprint(err) != map[bool]string{true: "<nil>", false: c.fails}[c.fails == ""] {
				t.Errorf("it says %v", err)
			}
		})
	}
	t.Run("it is slow", func(t *testing.T) {
		before := lateAfter
		lateAfter = time.Millisecond
		t.Cleanup(func() { lateAfter = before })
		n, old := pair(t)
		late, end := make(chan struct{}), make(chan error)
		go func() { end <- n.ready(nil, func() { close(late) }) }()
		<-late
		select {
		case err := <-end:
			t.Fatalf("it does not wait: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
		old.Write([]byte("yours\n"))
		if err := <-end; err != nil {
			t.Error(err)
		}
		if n.close(); !isOpen(old) {
			t.Error("the old one can't see that it runs")
		}
		if n.conn.Close(); isOpen(old) {
			t.Error("the old one can't see that it has ended")
		}
	})
}

// offering returns a served instance with unix sockets, and a process that has received
// its sockets.
func offering(t *testing.T, linger string) (s *served, n *takeover, listener, control string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "rs") // t.TempDir is too long for a unix socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	listener, control = filepath.Join(dir, "l"), filepath.Join(dir, "a")
	file := func(admin string) string {
		return fmt.Sprintf("listen: 'unix:%s'\n%slimits: {drain: 10s, linger: %s}\npools: {main: {distribution: ketama, servers: ['127.0.0.1:1']}}\n", listener, admin, linger)
	}
	s = serveFile(t, filepath.Join(dir, "ringside.yaml"), file(fmt.Sprintf("admin: 'unix:%s'\n", control)))
	f, err := config.Load(s.path, config.Environment())
	if err != nil {
		t.Fatal(err)
	}
	if n, err = takeOver(context.Background(), f, new(cli.Login), nil, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.close)
	return s, n, listener, control
}

// TestTakeOverInheritsLists takes over from an instance with a source that has left out a server and has a held
// answer. The new process continues the list, and does not need an answer. Then a list that max_move rejects
// does not come into force because of a take-over.
func TestTakeOverInheritsLists(t *testing.T) {
	from := startSource(t, nil, "127.0.0.1:9 name=a", "127.0.0.2:9 name=b", "127.0.0.3:9 name=c", "127.0.0.4:9 name=d")
	dir, err := os.MkdirTemp("", "rs") // t.TempDir is too long for a unix socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	text := fmt.Sprintf("listen: 'unix:%s/l'\nadmin: 'unix:%s/a'\nlimits: {drain: 10s}\n", dir, dir) + strings.SplitAfterN(fmt.Sprintf(discovering, "1h"), "\n", 3)[2]
	path := filepath.Join(dir, "ringside.yaml")
	s := serveFile(t, path, text)
	next := func() *served {
		t.Helper()
		f, err := config.Load(path, config.Environment())
		if err != nil {
			t.Fatal(err)
		}
		var n *takeover
		eventually(t, "it can be taken over", func() bool { // the take-over before may not be complete
			n, err = takeOver(t.Context(), f, new(cli.Login), nil, nil)
			return err == nil
		})
		t.Cleanup(n.close)
		return serveAfter(t, path, text, n)
	}
	state := func() string { return s.sources.States()[0].State }
	from.set(s, nil, "127.0.0.1:9 name=a", "127.0.0.33:9 name=c", "127.0.0.4:9 name=d")
	eventually(t, "b is left out", func() bool { return s.locate("c@main:0") == "127.0.0.33:9" })
	from.set(s, nil, "127.0.0.1:9 name=a")
	eventually(t, "the answer is held", func() bool { return state() == "held" })
	before := s.sources.Save()[0].List
	s = next()
	eventually(t, "the answer is still held", func() bool { return state() == "held" })
	after := s.sources.Save()[0].List
	if s.names() != "a b c d" || len(after.Gone) != 3 || len(after.Held) != 1 {
		t.Errorf("servers %s: %+v", s.names(), after)
	}
	for name, d := range after.Gone {
		if !d.Since.Equal(before.Gone[name].Since) || d.Allowed != (name == "b") {
			t.Errorf("%s: %+v, before %+v", name, d, before.Gone[name])
		}
	}
	if s.locate("c@main:0") != "127.0.0.33:9" {
		t.Error(s.locate("c@main:0"))
	}
	from.set(nil, errors.New("no such host"))
	s = next()
	eventually(t, "the source fails", func() bool { return state() == "failing" })
	if err := s.ready(); err != nil || s.names() != "a b c d" {
		t.Error(err, s.names())
	}
	from.set(nil, nil, "127.0.0.1:9 name=a", "127.0.0.2:9 name=b", "127.0.0.3:9 name=c", "127.0.0.4:9 name=d", "127.0.0.5:9 name=e")
	s = next()
	eventually(t, "max_move holds the list", func() bool { return state() == "held" })
	if s.names() != "a b c d" || s.locate("c@main:0") != "127.0.0.3:9" {
		t.Error(s.names(), s.locate("c@main:0"))
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// TestTakeOverFromStopping stops the old instance while a new one has its sockets. The
// new one takes over at once or later, and the files of the unix sockets stay. If the
// new one has given up, the old one removes the files.
func TestTakeOverFromStopping(t *testing.T) {
	for _, linger := range []string{"off", "300ms"} {
		for _, c := range []struct {
			name  string
			new   func(n *takeover, s *served) error
			stays bool
		}{
			{"ready before it has stopped", func(n *takeover, s *served) error { return n.ready(nil, nil) }, true},
			{"ready after it has stopped", func(n *takeover, s *served) error {
				eventually(t, "it has stopped", func() bool { return strings.Contains(s.journal.String(), "msg=stopped") })
				return n.ready(nil, nil)
			}, true},
			{"given up", func(n *takeover, s *served) error {
				n.close()
				return nil
			}, linger == "off"}, // if it stops at the same time, a file may stay; the next start removes it
		} {
			t.Run(linger+", "+c.name, func(t *testing.T) {
				s, n, listener, control := offering(t, linger)
				s.signals <- syscall.SIGTERM
				eventually(t, "it stops", func() bool { return s.stopping.Load() })
				if err := c.new(n, s); err != nil {
					t.Error(err)
				}
				eventually(t, "it has stopped", func() bool { return strings.Contains(s.journal.String(), "msg=stopped") })
				if c.stays && (!exists(listener) || !exists(control)) {
					t.Errorf("listener: %t, admin: %t: a file was removed", exists(listener), exists(control))
				}
				if linger != "off" && !c.stays && (exists(listener) || exists(control)) {
					t.Errorf("listener: %t, admin: %t: a file was left", exists(listener), exists(control))
				}
			})
		}
	}
}

// TestTakeOverWithOtherList starts take-overs with other servers than those of the running process. In a pool whose
// instances change servers together, such a process would not know the list in force.
func TestTakeOverWithOtherList(t *testing.T) {
	dir, err := os.MkdirTemp("", "rs") // t.TempDir is too long for a unix socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	text := func(mode, servers string) string {
		return fmt.Sprintf("listen: 'unix:%s/l'\nadmin: 'unix:%s/a'\npools: {main: {distribution: ketama-points, servers: [%s], failover: {mode: rehash}, resize: {mode: %s}}}\n", dir, dir, servers, mode)
	}
	path := filepath.Join(dir, "ringside.yaml")
	for _, mode := range []string{"warm", "plain"} {
		t.Run(mode, func(t *testing.T) {
			serveFile(t, path, text(mode, "'127.0.0.1:1', '127.0.0.2:1'"))
			for servers, want := range map[string]bool{"'127.0.0.1:1', '127.0.0.2:1'": true, "'127.0.0.1:1', '127.0.0.3:1'": mode == "plain"} {
				f, err := config.ParseWith("new.yaml", []byte(text(mode, servers)), config.Environment())
				if err != nil {
					t.Fatal(err)
				}
				n, err := takeOver(t.Context(), f, new(cli.Login), nil, nil)
				if other := (errList{}); (err == nil) != want || !want && !errors.As(err, &other) {
					t.Errorf("servers %s: %v", servers, err)
				}
				if n != nil {
					n.close()
				}
			}
		})
	}
}

// TestAdminOnStaleSocket starts instances whose admin interface is on a unix socket. They
// replace the file of a process that has crashed, but not that of a process that listens,
// and remove only their own file.
func TestAdminOnStaleSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "rs") // t.TempDir is too long for a unix socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	control := filepath.Join(dir, "a")
	crashed, err := net.ListenUnix("unix", &net.UnixAddr{Name: control, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	crashed.SetUnlinkOnClose(false)
	crashed.Close()
	text := fmt.Sprintf("listen: '127.0.0.1:0'\nadmin: 'unix:%s'\npools: {main: {distribution: ketama, servers: ['127.0.0.1:1']}}\n", control)
	t.Run("started", func(t *testing.T) { // the instance stops at the end
		s := serveFile(t, filepath.Join(t.TempDir(), "ringside.yaml"), text)
		c := admin.NewClient("unix", control)
		defer c.Close()
		if _, err := c.HandOver(context.Background()); err != nil {
			t.Error(err)
		}
		if _, err := start(s.started, fileWatch{}, "", s.log, nil, nil); err == nil || !strings.Contains(err.Error(), "another process listens there") {
			t.Errorf("a second instance at the same address: %v", err)
		}
		os.Remove(control) // an operator removes the file, and another process listens on the path
		other, err := net.Listen("unix", control)
		if err != nil {
			t.Fatal(err)
		}
		other.(*net.UnixListener).SetUnlinkOnClose(false)
		t.Cleanup(func() { other.Close() })
	})
	if !exists(control) {
		t.Error("the instance has removed the file of another process")
	}
}

// TestTakeOverWaitsForStopping starts a take-over from an instance that has closed its
// listening sockets and serves its last clients. The new process waits until the old one
// has ended, and then starts as usual. A signal ends the wait.
func TestTakeOverWaitsForStopping(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ringside.yaml")
	begin := func() (f *config.File, requests chan struct{}, end func()) {
		t.Helper()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		requests = make(chan struct{}, 1000)
		old := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			requests <- struct{}{}
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintf(w, "{\"error\": %q}", admin.ErrStopping)
		})}
		go old.Serve(l)
		t.Cleanup(func() { old.Close() })
		text := fmt.Sprintf("listen: '127.0.0.1:0'\nadmin: '%s'\npools: {main: {distribution: ketama, servers: ['127.0.0.1:1']}}\n", l.Addr())
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if f, err = config.Load(path, config.Environment()); err != nil {
			t.Fatal(err)
		}
		return f, requests, func() { old.Close() }
	}
	f, requests, end := begin()
	go func() {
		<-requests
		<-requests
		end()
	}()
	said := 0
	if n, err := takeOver(context.Background(), f, new(cli.Login), nil, func() { said++ }); n != nil || err != nil || said != 1 {
		t.Errorf("after the old process has ended: %v, %v; said %d times that it waits", n, err, said)
	}
	f, _, _ = begin()
	signals := make(chan os.Signal, 2)
	_, err := takeOver(context.Background(), f, new(cli.Login), signals, func() { signals <- syscall.SIGHUP; signals <- syscall.SIGTERM })
	if err == nil || !strings.Contains(err.Error(), "terminated") || !strings.Contains(err.Error(), "stopping") {
		t.Errorf("after a signal: %v", err)
	}
}

// TestStopEndsOffer checks that a process that asks a stopping instance gets an error.
func TestStopEndsOffer(t *testing.T) {
	o := newOlder(t)
	name, err := o.offer()
	if err != nil {
		t.Fatal(err)
	}
	if o.socket.end() {
		t.Error("somebody has the sockets")
	}
	if _, err := take(name); !errors.Is(err, errClosed) {
		t.Errorf("after the end of the offer: %v", err)
	}
	if _, err := o.offer(); !errors.Is(err, admin.ErrStopping) {
		t.Errorf("an offer: %v", err)
	}
}

// TestTakeOverOfUnconfirmed checks that no process can take over from a new process until
// the old one has stopped accepting.
func TestTakeOverOfUnconfirmed(t *testing.T) {
	s, n, _, _ := offering(t, "off")
	refuses := func(when string, r *Instance) {
		t.Helper()
		if _, err := r.offerSockets(); !errors.Is(err, errWaiting) {
			t.Errorf("an offer %s: %v", when, err)
		}
	}
	begin := func(f *config.File, n *takeover) *Instance {
		t.Helper()
		r, err := start(f, fileWatch{path: s.path}, "", s.log, nil, n)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.End)
		return r
	}
	r := begin(s.started, n)
	refuses("before it is ready", r)
	if err := r.confirm(nil); err != nil {
		t.Fatal(err)
	}
	eventually(t, "an offer", func() bool { _, err := r.offerSockets(); return err == nil })

	old, conn := net.Pipe() // an old process that is slow after it has confirmed
	path := filepath.Join(t.TempDir(), "ringside.yaml")
	if err := os.WriteFile(path, []byte(sharing("main", "fail_fast", "'127.0.0.1:1'")), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := config.Load(path, config.Environment())
	if err != nil {
		t.Fatal(err)
	}
	r = begin(f, &takeover{conn: conn})
	go func() {
		old.Read(make([]byte, 100))
		old.Write([]byte("yours\n"))
		old.Read(make([]byte, 100))
	}()
	if err := r.confirm(nil); err != nil {
		t.Fatal(err)
	}
	refuses("before the old process has stopped accepting", r)
	old.Write([]byte("done\n"))
	eventually(t, "an offer", func() bool { _, err := r.offerSockets(); return err == nil })
}

// TestTakeOverWithoutAdmin removes the admin interface by a reload while a new process
// has the sockets.
func TestTakeOverWithoutAdmin(t *testing.T) {
	s, n, listener, control := offering(t, "off")
	text, err := os.ReadFile(s.path)
	if err != nil {
		t.Fatal(err)
	}
	s.write(strings.Replace(string(text), fmt.Sprintf("admin: 'unix:%s'\n", control), "", 1))
	s.signals <- syscall.SIGHUP
	eventually(t, "a reload", func() bool { return strings.Contains(s.journal.String(), "new configuration in force") })
	if _, _, err := s.listeningSockets(); err == nil || !strings.Contains(err.Error(), "has removed its admin interface") {
		t.Errorf("a next take-over: %v", err)
	}
	if err := n.ready(nil, nil); err != nil {
		t.Error(err)
	}
	eventually(t, "it has stopped", func() bool { return strings.Contains(s.journal.String(), "msg=stopped") })
	if !exists(listener) {
		t.Error("the file of the listener was removed")
	}
}
