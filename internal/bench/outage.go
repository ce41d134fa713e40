//go:build linux

package bench

// This file measures the replies that clients get while one of three servers is down. Each client
// waits for a reply before it sends the next request.

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	outageClients = 14
	outageKeys    = 300
	outageStep    = 100 * time.Millisecond // length of the steps in which replies are counted during an outage
)

// Outages removes one of three servers in each of three ways, with each proxy in turn: Ringside
// with its defaults, and nutcracker with auto_eject_hosts. Each client waits for a reply before its
// next request. The request rate of all clients is measured before the outage, and for the same
// time during it.
func Outages(ctx context.Context, c Config, each time.Duration) (*Report, error) {
	if each < 2*time.Second {
		return nil, fmt.Errorf("an outage of %v shows nothing: use at least 2s", each)
	}
	b, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	defer b.close()
	t := &Table{ID: "outages", Title: "Outages", Note: "Closed-loop clients, one request in ten a set, while one of three servers is gone. With \"black hole\", the server is killed, and attempts to connect get no reply.",
		Header: []string{"the server", "peer", "answers/s before", "while it is gone", "in the worst second", "longest below half, s", "errors"}}
	for _, how := range []string{"SIGKILL", "SIGSTOP", "black hole"} {
		for _, p := range b.proxies() {
			o, err := b.outage(ctx, p, how, each)
			if err != nil {
				return nil, errors.Join(ctx.Err(), fmt.Errorf("%s, %s: %w", p.name, how, err))
			}
			t.Rows = append(t.Rows, []string{how, p.name, whole(o.before), whole(o.during), whole(o.worst), fmt.Sprintf("%.1f", o.belowHalf), fmt.Sprint(o.errors)})
			b.Log.Info("outage", "how", how, "peer", p.name, "before", whole(o.before), "worst_second", whole(o.worst), "below_half", o.belowHalf)
		}
	}
	r := b.newReport()
	r.Tables = []*Table{t}
	return r, nil
}

// outage is the result for clients while a server was down.
type outage struct {
	before    float64 // replies per second before the outage
	during    float64 // replies per second during the outage
	worst     float64 // fewest replies in one second of the outage
	belowHalf float64 // longest time for which the reply rate was below half of the rate before the outage, in seconds
	errors    int64   // SERVER_ERROR replies and closed connections
}

// outage measures one proxy with three separate servers. After a while, the last server fails in
// the way that how names.
func (b *bench) outage(ctx context.Context, p *peer, how string, each time.Duration) (outage, error) {
	own := *b
	var err error
	if own.servers, err = b.startServers(ctx, b.LoadCPUs); err != nil {
		return outage{}, err
	}
	defer stop(own.servers)
	target, err := own.startPeer(ctx, p, scenario{}, false)
	if err != nil {
		return outage{}, err
	}
	defer target.stop()
	ctx, cancel := context.WithCancel(ctx)
	var answers, troubles atomic.Int64
	var clients sync.WaitGroup
	for i := range outageClients {
		clients.Go(func() { askOn(ctx, target.addr(), i, &answers, &troubles) })
	}
	defer clients.Wait()
	defer cancel()
	time.Sleep(time.Second) // by then most keys are written
	before := watch(each, &answers)
	end, err := vanish(own.servers[serverCount-1], how)
	if err != nil {
		return outage{}, err
	}
	troubled := troubles.Load()
	o := judge(before, watch(each, &answers))
	o.errors = troubles.Load() - troubled
	return o, end()
}

// watch counts the replies of all clients for the duration `each`. The result has the number of
// replies in each step of outageStep.
func watch(each time.Duration, answers *atomic.Int64) (steps []int64) {
	ticks := time.NewTicker(outageStep)
	defer ticks.Stop()
	last := answers.Load()
	for range int(each / outageStep) {
		<-ticks.C
		now := answers.Load()
		steps = append(steps, now-last)
		last = now
	}
	return steps
}

// judge computes the rates of an outage from the number of replies in each outageStep.
func judge(before, during []int64) (o outage) {
	rate := func(steps []int64) float64 {
		sum := int64(0)
		for _, n := range steps {
			sum += n
		}
		return float64(sum) / (float64(len(steps)) * outageStep.Seconds())
	}
	o.before, o.during, o.worst = rate(before), rate(during), rate(before)
	second := int(time.Second / outageStep)
	low := 0
	for i := range during {
		if i+second <= len(during) {
			o.worst = min(o.worst, rate(during[i:i+second]))
		}
		if low++; rate(during[i:i+1]) >= o.before/2 {
			low = 0
		}
		o.belowHalf = max(o.belowHalf, float64(low)*outageStep.Seconds())
	}
	return o
}

// askOn sends sets and gets one after the other until ctx ends. It reconnects if the connection is
// closed.
func askOn(ctx context.Context, addr string, client int, answers, troubles *atomic.Int64) {
	for ctx.Err() == nil {
		if err := askFrom(ctx, addr, client, answers, troubles); err != nil && ctx.Err() == nil {
			troubles.Add(1)
			time.Sleep(10 * time.Millisecond)
		}
	}
}

func askFrom(ctx context.Context, addr string, client int, answers, troubles *atomic.Int64) error {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	lines := bufio.NewReader(c)
	for n := client; ; n++ {
		key := fmt.Sprintf("outage%d", n%outageKeys)
		request := "get " + key + "\r\n"
		if n%10 == client%10 {
			request = "set " + key + " 0 0 3\r\nyes\r\n"
		}
		if _, err := io.WriteString(c, request); err != nil {
			return err
		}
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return err
			}
			if strings.HasPrefix(line, "SERVER_ERROR") {
				troubles.Add(1)
			} else if line != "END\r\n" && line != "STORED\r\n" {
				continue
			}
			answers.Add(1)
			break
		}
	}
}

// vanish makes a server unavailable until the returned function end is called. how names the way:
// SIGSTOP, SIGKILL, or a port that accepts no connections.
func vanish(server *process, how string) (end func() error, err error) {
	nothing := func() error { return nil }
	switch how {
	case "SIGSTOP":
		return func() error { return server.Process.Signal(syscall.SIGCONT) }, server.Process.Signal(syscall.SIGSTOP)
	case "SIGKILL":
		server.stop()
		return nothing, nil
	}
	server.stop()
	return fillQueue(server.port)
}

// fillQueue listens on a port with a full accept queue, so that attempts to connect get no
// answer.
func fillQueue(port int) (end func() error, err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	at := &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}
	if err := errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1), unix.Bind(fd, at), unix.Listen(fd, 0)); err != nil {
		unix.Close(fd)
		return nil, err
	}
	var queued []net.Conn
	for len(queued) < 10 {
		c, failed := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), 100*time.Millisecond)
		if failed != nil {
			break
		}
		queued = append(queued, c)
	}
	return func() error {
		for _, c := range queued {
			c.Close()
		}
		return unix.Close(fd)
	}, nil
}
