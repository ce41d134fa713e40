//go:build linux

package bench

// This file measures the replies that clients get while one of three servers is down.

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ringside/internal/bench/load"
)

// outageLoad is the load of clients during an outage: each waits for a reply before its next
// request.
var outageLoad = scenario{work: load.Workload{Conns: 14, Depth: 1, Keys: 1, Value: 100, KeySize: 20, Count: 300, Reads: 90, Lossy: true}}

// outageSlack is the time in which the load starts and writes its keys.
const outageSlack = time.Second

// Outages removes one of three servers in each of three ways, with each proxy in turn: Ringside
// with its defaults, and nutcracker with auto_eject_hosts. The request rate of all clients is measured before the outage, and for the same
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
	errors    int64   // SERVER_ERROR replies
}

// outage measures one proxy with three separate servers. After a while, the last server fails in
// the way that how names.
func (b *bench) outage(ctx context.Context, p *peer, how string, each time.Duration) (outage, error) {
	own := *b
	own.Warm = 0
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
	type ended struct {
		load.Result
		error
	}
	done := make(chan ended, 1)
	go func() {
		got, err := own.load(ctx, target, nil, outageLoad, 2*each+outageSlack)
		done <- ended{got, err}
	}()
	time.Sleep(each + outageSlack)
	end, err := vanish(own.servers[serverCount-1], how)
	if err != nil {
		return outage{}, err
	}
	gone := time.Now()
	got := <-done
	if got.error != nil {
		return outage{}, target.blame(errors.Join(got.error, end()))
	}
	o := judge(got.Steps, int(gone.Sub(got.From)/load.Step), int(each/load.Step))
	o.errors = got.Lost.Errors
	return o, end()
}

// judge computes the rates of an outage from the number of replies in each load.Step. The server
// vanished in the step with the index `gone`. Rates are those of n steps before and after it.
func judge(steps []int64, gone, n int) (o outage) {
	gone = max(1, min(gone, len(steps)-1))
	before, during := steps[max(0, gone-n):gone], steps[gone:min(len(steps), gone+n)]
	rate := func(steps []int64) float64 {
		sum := int64(0)
		for _, n := range steps {
			sum += n
		}
		return float64(sum) / (float64(len(steps)) * load.Step.Seconds())
	}
	o.before, o.during, o.worst = rate(before), rate(during), rate(before)
	second := int(time.Second / load.Step)
	low := 0
	for i := range during {
		if i+second <= len(during) {
			o.worst = min(o.worst, rate(during[i:i+second]))
		}
		if low++; rate(during[i:i+1]) >= o.before/2 {
			low = 0
		}
		o.belowHalf = max(o.belowHalf, float64(low)*load.Step.Seconds())
	}
	return o
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
