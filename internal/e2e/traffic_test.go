package e2e

// This file implements traffic that checks every reply while something else happens.

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// traffic is a set of clients, each with its own keys. They set and get them, and know
// what the replies must be.
type traffic struct {
	stop    chan struct{}
	clients sync.WaitGroup
	asked   atomic.Int64
	misses  atomic.Int64 // misses of keys that had been stored

	mu       sync.Mutex
	troubles []string
}

// tolerance is what a client of the traffic accepts.
type tolerance struct {
	closing bool // the connection may be closed between two replies
}

// startTraffic runs n clients until halt. It returns when all of them are running.
func startTraffic(t testing.TB, address string, n int, may tolerance) *traffic {
	t.Helper()
	f := &traffic{stop: make(chan struct{})}
	t.Cleanup(f.end)
	for i := range n {
		c, err := dialError(address)
		if err != nil {
			t.Fatal(err)
		}
		f.clients.Add(1)
		go func() {
			defer f.clients.Done()
			defer c.Close()
			if err := f.client(c, i, may); err != nil {
				f.mu.Lock()
				f.troubles = append(f.troubles, fmt.Sprintf("client %d: %v", i, err))
				f.mu.Unlock()
			}
		}()
	}
	f.more(t, 100*n)
	return f
}

// more waits until the given number of further requests has been answered.
func (f *traffic) more(t testing.TB, requests int) {
	t.Helper()
	goal := f.asked.Load() + int64(requests)
	eventually(t, "traffic goes on", func() bool { return f.asked.Load() >= goal || len(f.trouble()) > 0 })
}

func (f *traffic) trouble() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.troubles
}

func (f *traffic) end() {
	select {
	case <-f.stop:
	default:
		close(f.stop)
	}
	f.clients.Wait()
}

// halt ends the traffic and fails the test for every wrong reply.
func (f *traffic) halt(t testing.TB) {
	t.Helper()
	f.end()
	for _, trouble := range f.trouble() {
		t.Error(trouble)
	}
}

// client sends requests until stop is closed or a reply is wrong.
func (f *traffic) client(c net.Conn, id int, may tolerance) error {
	r := bufio.NewReader(c)
	random := rand.New(rand.NewPCG(1, uint64(id)))
	stored := map[string]string{}
	// line reads one line. It returns io.EOF if the connection was closed before the
	// reply and may.closing is set.
	first := true
	line := func() (string, error) {
		got, err := r.ReadString('\n')
		if err != nil && !(may.closing && first && got == "") {
			return "", fmt.Errorf("after %d requests: cut off at %q: %w", f.asked.Load(), got, err)
		}
		first = false
		if err != nil {
			return "", io.EOF
		}
		return strings.TrimSuffix(got, "\r\n"), nil
	}
	for serial := 0; ; serial++ {
		select {
		case <-f.stop:
			return nil
		default:
		}
		key := fmt.Sprintf("traffic:%d:%d", id, random.IntN(200))
		request := "get " + key + "\r\n"
		value := ""
		if random.IntN(3) == 0 {
			value = strings.Repeat(fmt.Sprintf("%s=%d ", key, serial), 1+random.IntN(50))
			request = fmt.Sprintf("set %s 0 0 %d\r\n%s\r\n", key, len(value), value)
		}
		first = true
		c.SetDeadline(time.Now().Add(patience))
		if _, err := io.WriteString(c, request); err != nil {
			if may.closing {
				return nil
			}
			return err
		}
		answer, err := line()
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case value != "":
			if answer != "STORED" {
				return fmt.Errorf("set %s: %s", key, answer)
			}
			stored[key] = value
		case answer == "END":
			if stored[key] != "" {
				f.misses.Add(1)
			}
		default:
			if want := fmt.Sprintf("VALUE %s 0 %d", key, len(stored[key])); answer != want {
				return fmt.Errorf("get %s: %q, want %q", key, answer, want)
			}
			got := make([]byte, len(stored[key])+len("\r\nEND\r\n"))
			if n, err := io.ReadFull(r, got); err != nil {
				return fmt.Errorf("get %s: cut off after %d bytes of the value: %w", key, n, err)
			}
			if string(got) != stored[key]+"\r\nEND\r\n" {
				return fmt.Errorf("get %s: %s, want %s", key, brief(string(got)), brief(stored[key]))
			}
		}
		f.asked.Add(1)
	}
}
