//go:build linux

package bench

// This file counts the system calls of a proxy under a load. It uses perf, which hardly slows the
// process down.

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// calls has the system calls of a proxy, per request.
type calls struct {
	rate  float64 // requests per second while system calls were counted
	total float64
	names []string // the calls with their numbers per request, the most frequent first
	loop  string   // numbers of wakeups, reads and writes per request, by Ringside's own counters of its loops; empty: the proxy is not Ringside
}

// rareCall is the number of calls per request below which a system call is not listed. Most calls
// that open and close connections are so rare.
const rareCall = 0.001

// perfCalls are the system calls of proxies and of Go's runtime under load. Each has its own
// tracepoint. The kernel needs some milliseconds per thread to remove a tracepoint, so all other
// system calls share one.
var perfCalls = []string{
	"read", "readv", "recvfrom", "recvmsg", "write", "writev", "sendto", "sendmsg",
	"epoll_wait", "epoll_pwait", "epoll_pwait2", "epoll_ctl", "accept4", "close", "fcntl", "setsockopt", "getsockopt",
	"futex", "nanosleep", "clock_nanosleep", "timerfd_settime", "tgkill", "getpid", "rt_sigreturn", "sched_yield", "madvise",
}

const (
	perfCall = "syscalls:sys_enter_"
	perfAll  = "raw_syscalls:sys_enter"
)

// count runs the scenario's load on a proxy while perf counts the system calls of the proxy. perf
// starts the load, and counts until the load ends. The counts include connects and closes.
func (b *bench) count(ctx context.Context, target *process, s scenario) (*calls, error) {
	counters := []string{"ringside_loop_wakeups_total", "ringside_loop_reads_total", "ringside_loop_writes_total"}
	ours := target.name != nutcracker
	var before, after metrics
	var err error
	if ours {
		if before, err = readMetrics(ctx, target); err != nil {
			return nil, err
		}
	}
	file := filepath.Join(b.dir, "perf.counts")
	got, err := b.load(ctx, target, b.servers, s, b.Window, "perf", "stat", "-x", ";", "-o", file,
		"-p", strconv.Itoa(target.Process.Pid), "-e", perfAll+","+perfCall+strings.Join(perfCalls, ","+perfCall), "--")
	if err != nil {
		return nil, fmt.Errorf("the load that perf stat starts: %w", err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	c, err := parsePerf(string(text), float64(got.Replies))
	if err != nil {
		return nil, err
	}
	c.rate = got.Rate
	if ours {
		if after, err = readMetrics(ctx, target); err != nil {
			return nil, err
		}
		var each []string
		for _, name := range counters {
			each = append(each, fmt.Sprintf("%.3f", (after.sum(name)-before.sum(name))/float64(got.Replies)))
		}
		c.loop = strings.Join(each, ", ")
	}
	return c, nil
}

// parsePerf reads lines such as "1234;;syscalls:sys_enter_read;1000;100.00;;", and divides the
// counts by the number of requests.
func parsePerf(text string, requests float64) (*calls, error) {
	type call struct {
		name string
		each float64
	}
	c, all, others := new(calls), []call(nil), 0.0
	for line := range strings.Lines(text) {
		fields := strings.Split(line, ";")
		if len(fields) < 3 {
			continue // the line is empty or a comment
		}
		n, err := strconv.ParseFloat(fields[0], 64)
		if err != nil {
			return nil, fmt.Errorf("perf did not count %s: %s", fields[2], fields[0])
		}
		if fields[2] == perfAll {
			c.total = n / requests
			others += c.total
			continue
		}
		all = append(all, call{strings.TrimPrefix(fields[2], perfCall), n / requests})
		others -= n / requests
	}
	if c.total == 0 {
		return nil, fmt.Errorf("perf saw no system call: %s", text)
	}
	all = append(all, call{"others", others})
	slices.SortStableFunc(all, func(x, y call) int { return cmp.Compare(y.each, x.each) })
	for _, x := range all {
		if x.each >= rareCall {
			c.names = append(c.names, fmt.Sprintf("%s %.3f", x.name, x.each))
		}
	}
	return c, nil
}
