package loop

// Both drivers with clients and servers that connect and disconnect at any moment.

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"ringside/internal/testenv"
	"ringside/proxy"
	"ringside/proxy/table"
)

// fake is a server that knows get, set, delete and version. It breaks its connection on average
// once in breaks commands; 0: never.
type fake struct {
	net.Listener
	breaks int
	items  sync.Map
	open   sync.WaitGroup
}

func newFake(t *testing.T, breaks int) *fake {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{Listener: l, breaks: breaks}
	f.open.Go(f.accept)
	return f
}

// accept serves each connection until the listener is closed.
func (f *fake) accept() {
	for {
		c, err := f.Accept()
		if err != nil {
			return
		}
		f.open.Go(func() {
			defer c.Close()
			f.serve(c)
		})
	}
}

func (f *fake) serve(c net.Conn) {
	r, w := bufio.NewReader(c), bufio.NewWriter(c)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		word := strings.Fields(line)
		switch word[0] {
		case "version":
			fmt.Fprint(w, "VERSION 1.6.18\r\n")
		case "get":
			for _, key := range word[1:] {
				if v, ok := f.items.Load(key); ok {
					fmt.Fprintf(w, "VALUE %s 0 %d\r\n%s\r\n", key, len(v.([]byte)), v)
				}
			}
			fmt.Fprint(w, "END\r\n")
		case "set":
			n := 0
			fmt.Sscan(word[4], &n)
			body := make([]byte, n+2)
			if _, err := io.ReadFull(r, body); err != nil {
				return
			}
			f.items.Store(word[1], body[:n])
			fmt.Fprint(w, "STORED\r\n")
		case "delete": // the late delete after a set that timed out
			f.items.Delete(word[1])
			fmt.Fprint(w, "DELETED\r\n")
		}
		if f.breaks > 0 && rand.IntN(f.breaks) == 0 {
			if rand.IntN(2) == 0 {
				c.(*net.TCPConn).SetLinger(0)
			}
			w.Flush()
			return
		}
		if r.Buffered() == 0 && w.Flush() != nil {
			return
		}
	}
}

// TestStorm checks that a client never gets the value of another key, whatever breaks. At the end
// no goroutine and no descriptor may be left.
func TestStorm(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		servers := []*fake{newFake(t, 500), newFake(t, 500), newFake(t, 0)}
		var names []string
		for _, f := range servers {
			names = append(names, f.Addr().String())
		}
		goroutines, files := runtime.NumGoroutine(), descriptors(t)
		tables := []*table.Table{tableOf(names...), tableOf(names[1:]...)}
		p := proxy.NewProxy(tables[0], "test", slog.New(slog.DiscardHandler))
		d, err := New(p, o)
		if err != nil {
			t.Fatal(err)
		}
		commit, err := d.Listen(tables[0])
		if err != nil {
			t.Fatal(err)
		}
		commit()
		addr := d.Addrs()[0].String()
		var clients sync.WaitGroup
		for i := range 6 {
			clients.Add(1)
			go func() {
				defer clients.Done()
				lives := 2
				if testenv.Full() {
					lives = 6
				}
				for life := range lives {
					if err := live(addr, rand.New(rand.NewPCG(uint64(i), uint64(life)))); err != nil {
						t.Errorf("client %d, life %d: %v", i, life, err)
					}
					p.SetTable(tables[rand.IntN(2)])
				}
			}()
		}
		clients.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), testenv.Hang)
		defer cancel()
		if err := d.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		for end := time.Now().Add(testenv.Hang); runtime.NumGoroutine() > goroutines || descriptors(t) > files; {
			if time.Now().After(end) {
				all := make([]byte, 1<<20)
				t.Fatalf("%d goroutines, were %d; %d descriptors, were %d\n%s", runtime.NumGoroutine(), goroutines, descriptors(t), files, all[:runtime.Stack(all, true)])
			}
			time.Sleep(10 * time.Millisecond)
		}
		for _, f := range servers {
			f.Close()
			f.open.Wait()
		}
	})
}

// descriptors counts the open file descriptors of the process. It returns 0 on systems other than
// Linux.
func descriptors(t *testing.T) int {
	if runtime.GOOS != "linux" {
		return 0
	}
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func stormValue(key string, size int) []byte {
	return bytes.Repeat([]byte(key+"|"), size/(len(key)+1)+1)
}

// live is the life of one client: some pipelines, and a random way to end. It returns an error for
// a wrong reply.
func live(addr string, d *rand.Rand) error {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(testenv.Hang))
	r := bufio.NewReaderSize(c, 1<<10)
	for range 1 + d.IntN(12) {
		var text bytes.Buffer
		var asked [][]string
		for range 1 + d.IntN(40) {
			key := strings.Repeat("k", 1+d.IntN(30))
			switch d.IntN(4) {
			case 0:
				size := []int{10, 1000, 20_000, 70_000, 200_000}[d.IntN(5)]
				v := stormValue(key, size)
				fmt.Fprintf(&text, "set %s 0 0 %d\r\n%s\r\n", key, len(v), v)
				asked = append(asked, nil)
			case 1:
				keys := []string{key, key + "k", key + "kk"}
				fmt.Fprintf(&text, "get %s\r\n", strings.Join(keys, " "))
				asked = append(asked, keys)
			default:
				fmt.Fprintf(&text, "get %s\r\n", key)
				asked = append(asked, []string{key})
			}
		}
		sent := make(chan struct{})
		go func() {
			c.Write(text.Bytes())
			close(sent)
		}()
		end := d.IntN(40)
		for i, keys := range asked {
			if end == 0 && i > len(asked)/2 {
				c.(*net.TCPConn).SetLinger(0)
				c.Close()
				<-sent
				return nil
			}
			if gone, err := answered(r, keys); gone || err != nil {
				c.Close()
				<-sent
				return err
			}
		}
		<-sent
	}
	return nil
}

// answered reads the reply to a get of keys, or to a set if keys is nil. gone is true if the
// connection ended, which may happen in the middle of a value.
func answered(r *bufio.Reader, keys []string) (gone bool, err error) {
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return true, nil
		}
		line = strings.TrimRight(line, "\r\n")
		var key string
		var n int
		switch {
		case strings.HasPrefix(line, "SERVER_ERROR "), keys == nil && line == "STORED", keys != nil && line == "END":
			return false, nil
		case keys == nil:
			return false, fmt.Errorf("set: %.80q", line)
		}
		if _, err := fmt.Sscanf(line, "VALUE %s 0 %d", &key, &n); err != nil {
			return false, fmt.Errorf("get %q: %.80q", keys, line)
		}
		body := make([]byte, n+2)
		if _, err := io.ReadFull(r, body); err != nil {
			return true, nil
		}
		asked := false
		for _, k := range keys {
			asked = asked || k == key
		}
		if !asked || !bytes.Equal(body[:n], stormValue(key, n)[:n]) {
			return false, fmt.Errorf("get %q: the value of %s is %.80q", keys, key, body)
		}
	}
}

// TestHalfClosed checks that a client that closes its sending side at once gets all its replies,
// even if it sent more requests than may be in flight.
func TestHalfClosed(t *testing.T) {
	f := newFake(t, 0)
	defer f.open.Wait()
	defer f.Close()
	each(t, func(t *testing.T, o Options) {
		c, err := net.Dial("tcp", start(t, o, tableOf(f.Addr().String())))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(testenv.Hang))
		const n = 30_000
		go func() {
			io.WriteString(c, strings.Repeat("get a\r\n", n))
			c.(*net.TCPConn).CloseWrite()
		}()
		got, err := io.ReadAll(c)
		if want := strings.Repeat("END\r\n", n); err != nil || string(got) != want {
			t.Errorf("got %d bytes (%v), want %d", len(got), err, len(want))
		}
	})
}
