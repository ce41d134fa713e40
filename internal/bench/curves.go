//go:build linux

package bench

// This file lists the curves: which quantity varies, over which range, and what is constant.

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"ringside/internal/bench/load"
)

// curves returns all curves. The function cpus returns the CPUs for a proxy with the given number
// of loops.
func curves(cpus func(loops int) []int) []curve {
	all := []curve{
		{id: "servers", name: "Servers", x: "servers", points: serverPoints(), note: fmt.Sprintf(
			"Scenario a, spread over more and more addresses, which up to %d memcached processes serve on many ports each. A value at the wrong port of the right process is not detected here. Each additional server makes the batches to the others smaller, so the cost must grow; the curve shows how fast.", manyServers)},
		{id: "connections", name: "Connections", x: "connections",
			points: vary([]int{1, 10, 50, 200, 1000, 2500, 5000}, func(w *load.Workload, n int) { w.Conns = n }),
			note:   "Scenario a with more and more clients, all of them busy: latency is connections / throughput."},
		{id: "multi-get", name: "Keys in a multi-get", x: "keys", share: 1,
			points: vary([]int{1, 5, 20, 50, 100, 300, 1000}, func(w *load.Workload, n int) { w.Keys = n })},
		{id: "rate", name: "A steady load", x: "requests a second",
			points: vary([]int{1_000, 2_500, 5_000, 10_000, 20_000, 30_000, 40_000}, func(w *load.Workload, n int) { w.Rate = float64(n) }),
			note:   "50 connections, paced: latency counts from when a request was due. Together with a second Ringside without these settings (-also), this shows their cost at a low load."},
		{id: "loops", name: "Loops", x: "loops", only: "ringside"},
		{id: "keys", name: "Size of keys", x: "bytes",
			points: vary([]int{10, 20, 50, 100, 250}, func(w *load.Workload, n int) { w.KeySize = n })},
		{id: "values", name: "Size of values", x: "bytes", share: 1 << 10,
			points: vary([]int{0, 100, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20}, func(w *load.Workload, n int) {
				w.Value = n
				w.Count = min(w.Count, max(100, 64<<20/max(1, n)))
				w.Conns = min(w.Conns, max(8, 8<<20/max(1, n))) // limits the data in flight to 8 MB, because more would fill the CPU caches with the load alone
			}),
			note: "From 256 KiB on with fewer connections, so that at most 8 MB are in flight."},
		{id: "down", name: "Servers down", x: "% of 10 servers", points: downPoints(1), note: downNote},
		{id: "down-multi-get", name: "Servers down, multi-get of 20", x: "% of 10 servers", points: downPoints(20), only: "ringside",
			note: downNote + " Nutcracker cannot be compared, because it fails the whole multi-get if one key fails."},
	}
	for i := range all {
		if all[i].id == "loops" {
			all[i].points, all[i].note = loopPoints(cpus)
		}
	}
	return all
}

func curveNames() string {
	var names []string
	for _, c := range curves(func(int) []int { return nil }) {
		names = append(names, c.id)
	}
	return strings.Join(names, ", ")
}

// vary returns one point of a curve for each of the values. The function set puts the value into
// the workload of scenario a.
func vary(values []int, set func(*load.Workload, int)) []point {
	var points []point
	for _, n := range values {
		work := text(50, 1)
		set(&work, n)
		points = append(points, point{x: float64(n), label: quantity(n), work: scenario{Work: work}})
	}
	return points
}

// quantity formats n. Multiples of 1024 have the unit Ki or Mi.
func quantity(n int) string {
	switch {
	case n > 0 && n%(1<<20) == 0:
		return fmt.Sprintf("%d Mi", n>>20)
	case n > 0 && n%(1<<10) == 0:
		return fmt.Sprintf("%d Ki", n>>10)
	}
	return strconv.Itoa(n)
}

// manyServers is how many memcached processes represent a large pool. More of them would only
// compete for the load's CPU.
const manyServers = 4

func serverPoints() []point {
	points := vary([]int{1, 2, 5, 10, 20, 50, 100, 200}, func(*load.Workload, int) {})
	for i := range points {
		n := int(points[i].x)
		points[i].prepare = func(ctx context.Context, b *bench, _ *scenario) (Pool, error) {
			processes := min(n, manyServers)
			p, err := b.startPool(ctx, processes, (n+processes-1)/processes, b.LoadCPUs)
			if err == nil {
				p.Addrs = p.Addrs[:n]
			}
			return p, err
		}
	}
	return points
}

// loopPoints returns the points of the curve over the number of loops. It also returns a note with
// the number of CPUs at each point.
func loopPoints(cpus func(loops int) []int) ([]point, string) {
	points := vary([]int{1, 2, 3, 4}, func(w *load.Workload, _ int) { w.Conns = 200 })
	var where []string
	for i := range points {
		n := int(points[i].x)
		points[i].loops = n
		where = append(where, fmt.Sprintf("%d on %d", n, len(cpus(n))))
	}
	return points, "200 connections. Loops on CPUs: " + strings.Join(where, ", ") +
		". Loops that share a CPU show the cost of additional loops, not their gain. One load generator on one CPU cannot saturate several loops."
}

const downNote = "A part of 10 memcached servers is killed before the proxy starts, and refuses connections. Each proxy uses its default rule for dead servers. Every run checks every byte of every hit. It also checks that no more keys miss than the dead servers have, that no more keys hit than the others have, and that no key does both. Failed requests count as requests."

// Numbers of servers and keys of the curves on which servers are down. There are few keys, so that
// each key is read in every run.
const (
	downServers = 10
	downKeys    = 1000
)

func downPoints(keys int) []point {
	points := vary([]int{0, 10, 30, 50, 80, 100}, func(w *load.Workload, _ int) {
		w.Keys, w.Count = keys, downKeys
	})
	for i := range points {
		dead := int(points[i].x) * downServers / 100
		points[i].prepare = func(ctx context.Context, b *bench, s *scenario) (Pool, error) {
			return b.killed(ctx, s, dead)
		}
	}
	return points
}

// killed starts a pool, writes the scenario's keys through the first proxy of b, and kills the
// first `dead` servers. It changes the scenario s, so that s reads these keys and checks which of
// them miss.
func (b *bench) killed(ctx context.Context, s *scenario, dead int) (Pool, error) {
	p, err := b.startPool(ctx, downServers, 1, b.LoadCPUs)
	if err != nil {
		return Pool{}, err
	}
	b.pool = p
	fill := *s
	fill.Work.Keys, fill.Work.Reads = 1, 100
	if _, err := b.once(ctx, b.peers[0], fill, 10*time.Millisecond); err != nil {
		p.Stop()
		return Pool{}, fmt.Errorf("write the keys: %w", err)
	}
	held := 0
	for i, server := range p.Processes {
		items, err := items(server.Addr())
		if err != nil {
			p.Stop()
			return Pool{}, err
		}
		if i < dead {
			held += items
			server.Stop()
		}
	}
	s.filled, s.Work.Lossy = true, true
	s.check = func(r load.Result) error { return checkLost(r, s.Work.Count, held) }
	return p, nil
}

// checkLost checks that no more keys missed than there were on the killed servers. `held` is the
// number of keys on these servers.
func checkLost(r load.Result, count, held int) error {
	l := r.Lost
	switch {
	case l.KeysBoth > 0:
		return fmt.Errorf("%d keys hit at one time and missed at another, with the same servers down all the time", l.KeysBoth)
	case l.KeysMissed > held:
		return fmt.Errorf("%d keys missed, and the servers that are down held only %d", l.KeysMissed, held)
	case l.KeysHit > count-held:
		return fmt.Errorf("%d keys hit, and the servers that are up held only %d", l.KeysHit, count-held)
	case held == 0 && l.Errors > 0:
		return fmt.Errorf("%d errors while every server was up", l.Errors)
	}
	return nil
}

// items asks the memcached at addr for its number of items.
func items(addr string) (int, error) {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return 0, err
	}
	if _, err := c.Write([]byte("stats\r\n")); err != nil {
		return 0, err
	}
	for lines := bufio.NewScanner(c); lines.Scan(); {
		if n, ok := strings.CutPrefix(lines.Text(), "STAT curr_items "); ok {
			return strconv.Atoi(n)
		}
	}
	return 0, errors.New(addr + " does not say how many items it holds")
}
