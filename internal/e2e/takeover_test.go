package e2e

// This file tests serve --take-over: a new instance replaces a running one under load.

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// newcomers are clients that repeatedly connect, send one request and disconnect, until stop is
// closed.
type newcomers struct {
	stop  chan struct{}
	done  sync.WaitGroup
	asked atomic.Int64
	mu    sync.Mutex
	wrong []error
}

func startNewcomers(network, address string, n int) *newcomers {
	a := &newcomers{stop: make(chan struct{})}
	for i := range n {
		a.done.Add(1)
		go func() {
			defer a.done.Done()
			for {
				select {
				case <-a.stop:
					return
				default:
				}
				if err := askOnce(network, address, i); err != nil {
					a.mu.Lock()
					a.wrong = append(a.wrong, err)
					a.mu.Unlock()
				}
				a.asked.Add(1)
			}
		}()
	}
	return a
}

func askOnce(network, address string, i int) error {
	c, err := net.Dial(network, address)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(c, "set new%d 0 0 1\r\nx\r\n", i)
	if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || line != "STORED\r\n" {
		return fmt.Errorf("%q, %w", line, errors.Join(err, io.ErrUnexpectedEOF))
	}
	return nil
}

func TestTakeOver(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		driver      string
		from, after int // loops
	}{{"epoll", 1, 1}, {"epoll", 2, 3}, {"epoll", 3, 1}, {"portable", 1, 1}} {
		t.Run(fmt.Sprintf("%s %d to %d", c.driver, c.from, c.after), func(t *testing.T) {
			t.Parallel()
			servers := startMemcacheds(t, 2)
			address, path := freeAddress(t, ownHost()), filepath.Join(shortDir(t), "s")
			config := func(loops int) string {
				return fmt.Sprintf("listen: [%s, 'unix:%s']\n%slimits: {drain: 10m}\nengine: {driver: %s, loops: %d}\n", address, path, front(servers), c.driver, loops)
			}
			old, err := tryRingside(t, c.driver, []string{address}, config(c.from))
			if err != nil {
				t.Fatal(err)
			}
			stay := startTraffic(t, address, 8, tolerance{})
			come := []*newcomers{startNewcomers("tcp", address, 4), startNewcomers("unix", path, 2)}
			enough := func(n int64) {
				t.Helper()
				for _, a := range come {
					before := a.asked.Load()
					eventually(t, "newcomers come", func() bool { return a.asked.Load() > before+n })
				}
			}
			enough(100)

			old.write(t, config(c.after))
			next := start(t, old.Cmd.Path, "serve", "--take-over", "-c", old.file)
			old.logged(t, "take-over complete")
			enough(200)
			stay.more(t, 1000)
			if !old.Running() {
				t.Error("it has left its clients alone")
			}
			stay.halt(t) // these clients disconnect, so the old instance can end
			if code := old.wait(t); code != 0 {
				t.Errorf("the old one ends with %d", code)
			}
			enough(200)
			for _, a := range come {
				close(a.stop)
				a.done.Wait()
				if len(a.wrong) > 0 {
					t.Errorf("%d of %d newcomers were not served: %v", len(a.wrong), a.asked.Load(), a.wrong[0])
				}
			}
			old.answers(t, "/readyz") // the new instance replies, at the same address
			next.signal(t, 15)
			if code := next.wait(t); code != 0 {
				t.Errorf("the new one ends with %d", code)
			}
		})
	}
}
