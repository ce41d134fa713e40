package e2e

// This file tests that clients with large requests do not delay others.

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ringside/internal/testenv"
)

// TestLargeReadsDelayNobody pipelines gets of 100,000 keys. Another client must get its
// replies during these reads, the reads must complete, and no server may be considered down.
func TestLargeReadsDelayNobody(t *testing.T) {
	hogs := 8
	if testenv.Full() {
		hogs = 40
	}
	eachDriver(t, func(t *testing.T, driver string) {
		r := startRingside(t, driver, front(startMemcacheds(t, 2), "get_errors: error", "timeouts: {request: 60s, deadline: 60s}"))
		small := dial(t, r.address)
		small.store("small", "value")
		line := "get" + strings.Repeat(" h:12345", 100_000) + "\r\n"
		var done sync.WaitGroup
		var left atomic.Int32
		left.Store(int32(hogs))
		for range hogs {
			done.Go(func() {
				defer left.Add(-1)
				if err := manyReads(r.address, line, 2, nil); err != nil {
					t.Error(err)
				}
			})
		}
		during := 0
		for left.Load() > 0 {
			small.holds("small", "value")
			during++
		}
		done.Wait()
		if during < 20 {
			t.Errorf("a client got %d answers while others were served %d gets of 100,000 keys", during, 2*hogs)
		}
		r.staysUp(t)
	})
}

// TestBurstOfReads has many clients read 5,000 keys at the same time. All must get all
// values.
func TestBurstOfReads(t *testing.T) {
	clients := 100
	if testenv.Full() {
		clients = 1500
	}
	eachDriver(t, func(t *testing.T, driver string) {
		r := startRingside(t, driver, front(startMemcacheds(t, 2), "get_errors: error", "timeouts: {request: 60s, deadline: 60s}"))
		first := dial(t, r.address)
		var line strings.Builder
		line.WriteString("get")
		for i := range 5000 {
			if i%100 == 0 {
				first.store(fmt.Sprintf("burst:%d", i), "v")
			}
			fmt.Fprintf(&line, " burst:%d", i)
		}
		line.WriteString("\r\n")
		var done sync.WaitGroup
		for range clients {
			done.Go(func() {
				values := 0
				if err := manyReads(r.address, line.String(), 1, &values); err != nil || values != 50 {
					t.Errorf("%d values, %v", values, err)
				}
			})
		}
		done.Wait()
		r.staysUp(t)
	})
}

// manyReads sends line n times and reads that many replies. It counts values if values is
// not nil. It fails if nothing is received within patience.
func manyReads(address, line string, n int, values *int) error {
	c, err := dialError(address)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(4 * patience))   // requests are served in the order of arrival, so the last client waits for all others
	go io.WriteString(c, strings.Repeat(line, n)) // if this fails, the reads below fail too
	in := bufio.NewReader(c)
	for n > 0 {
		got, err := in.ReadString('\n')
		c.SetDeadline(time.Now().Add(patience))
		switch {
		case err != nil:
			return err
		case got == "END\r\n":
			n--
		case strings.HasPrefix(got, "VALUE ") && values != nil:
			*values++
		case strings.Contains(got, "ERROR"):
			return fmt.Errorf("the answer is %q", got)
		}
	}
	return nil
}

// staysUp fails the test if a server was considered down or exceeded a timeout.
func (r *ringside) staysUp(t *testing.T) {
	t.Helper()
	_, metrics := r.page(t, "/metrics")
	for line := range strings.Lines(metrics) {
		for _, name := range []string{"ringside_server_outages_total{", "ringside_server_requests_timed_out_total{"} {
			if strings.HasPrefix(line, name) && !strings.HasSuffix(line, " 0\n") {
				t.Error(line)
			}
		}
	}
}
