package loop

// Reloads of a running proxy.

import (
	"context"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"ringside/internal/testenv"
	"ringside/proxy"
	"ringside/proxy/table"
)

// TestSwapWakes checks that idle loops adopt the first table and the next one, and connect to the
// servers for which these require connections.
func TestSwapWakes(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		o.Loops = 2
		wanted := func() (*table.Table, *net.TCPListener) {
			server, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { server.Close() })
			tab := tableOf(server.Addr().String())
			tab.Pools[0].Preconnect = true
			return tab, server.(*net.TCPListener)
		}
		first, before := wanted()
		p := proxy.NewProxy(first, "test", slog.New(slog.NewTextHandler(t.Output(), nil)))
		d, err := New(p, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Shutdown(context.Background()) })
		all := func(what string, server *net.TCPListener) {
			t.Helper()
			server.SetDeadline(time.Now().Add(testenv.Hang))
			for i := range p.Engines() {
				c, err := server.Accept()
				if err != nil {
					t.Fatalf("%d of %d loops have taken up the %s table: %v", i, len(p.Engines()), what, err)
				}
				t.Cleanup(func() { c.Close() })
			}
		}
		all("first", before)
		next, after := wanted()
		p.SetTable(next)
		all("next", after)
	})
}

// TestListenSetsModes changes the permission bits of an open unix socket, resets them to the
// default, and tries a change that fails. The failed change must not change anything.
func TestListenSetsModes(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		dir, err := os.MkdirTemp("", "ringside") // the path of a socket must be short
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		path, second, third := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "c")
		tab := func(modes map[string]uint32) *table.Table {
			t := tableOf("127.0.0.1:1")
			routes := t.Listeners[0].Routes
			t.Listeners = nil
			for _, path := range []string{path, second, third} {
				if mode, ok := modes[path]; ok {
					t.Listeners = append(t.Listeners, table.Listener{Network: "unix", Address: path, Mode: mode, Routes: routes})
				}
			}
			return t
		}
		first := tab(map[string]uint32{path: 0, second: 0o600})
		d, err := New(proxy.NewProxy(first, "test", slog.New(slog.DiscardHandler)), o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Shutdown(context.Background()) })
		listen := func(modes map[string]uint32) error {
			commit, err := d.Listen(tab(modes))
			if err == nil {
				commit()
			}
			return err
		}
		has := func(path string, want fs.FileMode) {
			t.Helper()
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if got := info.Mode().Perm(); got != want {
				t.Errorf("%s has mode %#o, want %#o", filepath.Base(path), got, want)
			}
		}
		if err := listen(map[string]uint32{path: 0, second: 0o600}); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		usual := info.Mode().Perm() // as set by the umask
		for _, mode := range []fs.FileMode{0o600, 0o666, 0, 0o660} {
			if err := listen(map[string]uint32{path: uint32(mode), second: 0o600}); err != nil {
				t.Fatal(err)
			}
			if mode == 0 {
				mode = usual
			}
			has(path, mode)
			has(second, 0o600)
		}

		if err := os.Remove(second); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(second, nil, 0o640); err != nil { // not the socket of this process
			t.Fatal(err)
		}
		if err := listen(map[string]uint32{path: 0o606, second: 0o666, third: 0o600}); err == nil {
			t.Error("no error for the mode of a socket that is not there any more")
		}
		has(path, 0o660)
		has(second, 0o640)
		if _, err := os.Stat(third); err == nil {
			t.Error("a listener of a table that was refused stays open")
		}
		if err := listen(map[string]uint32{path: 0o606, second: 0o600}); err != nil {
			t.Errorf("what does not change is not looked at: %v", err)
		}
		has(path, 0o606)
	})
}

// TestListenAgain removes the file of an open unix socket. The next reload creates it again, with the
// mode of the new table. The clients of the socket stay connected, and a failed reload changes nothing.
func TestListenAgain(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		dir, err := os.MkdirTemp("", "ringside") // the path of a socket must be short
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		path := filepath.Join(dir, "a")
		tab := func(mode uint32, more ...table.Listener) *table.Table {
			t := tableOf("127.0.0.1:1")
			t.Listeners = append([]table.Listener{{Network: "unix", Address: path, Mode: mode, Routes: t.Listeners[0].Routes}}, more...)
			return t
		}
		d, err := New(proxy.NewProxy(tab(0), "test", slog.New(slog.DiscardHandler)), o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			d.Shutdown(context.Background())
			if _, err := os.Stat(path); err == nil {
				t.Error("the file stays after the end")
			}
		})
		listen := func(t *table.Table) error {
			commit, err := d.Listen(t)
			if err == nil {
				commit()
			}
			return err
		}
		if err := listen(tab(0)); err != nil {
			t.Fatal(err)
		}
		serves := func(c net.Conn) {
			t.Helper()
			c.SetDeadline(time.Now().Add(testenv.Hang))
			if _, err := io.WriteString(c, "mn\r\n"); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(c, make([]byte, len("MN\r\n"))); err != nil {
				t.Fatal(err)
			}
		}
		connect := func() net.Conn {
			t.Helper()
			c, err := net.Dial("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			serves(c)
			return c
		}
		clients := []net.Conn{connect()}
		for _, mode := range []uint32{0, 0o600, 0o600, 0o666} { // a default, a new one, an unchanged one, a changed one
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if err := listen(tab(mode, table.Listener{Network: "unix", Address: filepath.Join(dir, "none", "b")})); err == nil {
				t.Fatal("no error for a directory that does not exist")
			}
			if _, err := os.Stat(path); err == nil {
				t.Error("a reload that failed has left a file")
			}
			if err := listen(tab(mode)); err != nil {
				t.Fatal(err)
			}
			if info, err := os.Stat(path); err != nil || mode != 0 && info.Mode().Perm() != fs.FileMode(mode) {
				t.Errorf("mode %#o: %v, %v", mode, info, err)
			}
			clients = append(clients, connect())
			for _, c := range clients {
				serves(c)
			}
		}
	})
}

// TestListenAgainAfterTakeOver gives a process a unix socket whose file was removed. The process creates
// the file again, and does not fail.
func TestListenAgainAfterTakeOver(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		dir, err := os.MkdirTemp("", "ringside") // the path of a socket must be short
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		path := filepath.Join(dir, "a")
		old, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		o.Inherited = map[string][]net.Listener{"unix " + path: {old}}
		tab := tableOf("127.0.0.1:1")
		tab.Listeners[0].Network, tab.Listeners[0].Address = "unix", path
		d, err := New(proxy.NewProxy(tab, "test", slog.New(slog.DiscardHandler)), o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Shutdown(context.Background()) })
		commit, err := d.Listen(tab)
		if err != nil {
			t.Fatal(err)
		}
		commit()
		old.Close() // as after a take-over, where unused sockets are closed
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(testenv.Hang))
		if _, err := io.WriteString(c, "mn\r\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, len("MN\r\n"))); err != nil {
			t.Fatal(err)
		}
	})
}

// TestListenOnUnixSockets checks which socket files a listener replaces and removes: those of
// processes that have ended, and its own.
func TestListenOnUnixSockets(t *testing.T) {
	dir, err := os.MkdirTemp("", "ringside") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	socket := func(backlog int) (fd int) {
		t.Helper()
		fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
		if err == nil {
			err = syscall.Bind(fd, &syscall.SockaddrUnix{Name: path})
		}
		if err == nil && backlog > 0 {
			err = syscall.Listen(fd, backlog)
		}
		if err != nil {
			t.Fatal(err)
		}
		return fd
	}
	on := func() (*listener, error) { return listen(table.Listener{Network: "unix", Address: path}, 1) }
	remains := func(when string) {
		t.Helper()
		if l, err := on(); err == nil {
			l.close()
			t.Errorf("%s: its socket was replaced", when)
		}
		if _, err := os.Stat(path); err != nil {
			t.Fatalf("%s: its socket was removed", when)
		}
	}
	live := socket(1)
	for { // fill the queue
		c, err := net.Dial("unix", path)
		if err != nil {
			break
		}
		defer c.Close()
	}
	remains("a process with a full queue")
	syscall.Close(live) // the file stays, as after a crash
	first, err := on()
	if err != nil {
		t.Fatalf("the socket of a process that has ended: %v", err)
	}
	remains("a listening process")

	os.Remove(path) // an operator removes the file, and another process listens on the path
	second, err := on()
	if err != nil {
		t.Fatal(err)
	}
	first.close()
	remains("the end of the first process")
	second.close()
	if _, err := os.Stat(path); err == nil {
		t.Error("the end of the second process leaves its file")
	}
}

// TestPostedBehindATable checks that a function posted after a new table runs with that table, even
// if the loop was awake.
func TestPostedBehindATable(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		tables := []*table.Table{tableOf("127.0.0.1:1"), tableOf("127.0.0.1:1")}
		p := proxy.NewProxy(tables[0], "test", slog.New(slog.DiscardHandler))
		d, err := New(p, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Shutdown(context.Background()) })
		e, end := p.Engines()[0], make(chan struct{})
		defer close(end)
		go func() { // keeps the loop awake
			for {
				ran := make(chan struct{})
				e.Post(func(*proxy.Engine) { close(ran) })
				select {
				case <-end:
					return
				case <-ran:
				}
			}
		}()
		for i := range 300 {
			next, is := tables[i%2], make(chan *table.Limits)
			p.SetTable(next)
			e.Post(func(e *proxy.Engine) { is <- e.Limits })
			if <-is != &next.Limits {
				t.Fatalf("the table of before is in force, behind swap %d", i)
			}
		}
	})
}
