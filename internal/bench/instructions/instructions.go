//go:build linux

// Package instructions counts the instructions that Go benchmarks execute, with valgrind.
//
// A count of instructions hardly depends on the machine or on other processes. Two counts of the
// same program differ by some tenths of a per cent; times differ by tens of per cent. So a count
// shows a small regression between two commits that times would not show. It does not include the
// effects of caches or the work of the kernel.
//
// Each benchmark runs twice with fixed numbers of iterations, in processes with one P and without
// garbage collection. The difference of the two counts is the cost of the additional iterations:
// both runs include the start, the benchmark's preparation and the first growth of pools. Time and
// allocations are measured without valgrind, for orientation.
//
// A benchmark that handles several requests per iteration must report ns/request. Its figures are
// then per request.
package instructions

// This file counts the instructions of benchmarks, and compares counts with earlier ones.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Config says which benchmarks to count.
type Config struct {
	Package string // package path, in the format of `go test`
	Bench   string // regular expression, in the format of -bench
	Repeat  int    // number of counts of each benchmark
}

// Count is the cost of one benchmark, per request.
type Count struct {
	Name         string    `json:"name"`
	Instructions []float64 `json:"instructions"` // instructions per request; one value for each repetition
	Nanoseconds  float64   `json:"ns"`           // time per request, measured once, without valgrind
	Allocs       float64   `json:"allocs"`       // allocations per iteration, not per request
	Sends        float64   `json:"sends"`        // system calls that send, to clients and servers, per request; 0: the benchmark does not report them
}

// Least returns the least of the repeated counts. Disturbances can only make a count larger.
func (c Count) Least() float64 { return slices.Min(c.Instructions) }

// Spread returns the difference between the greatest and the least count, divided by the least
// count.
func (c Count) Spread() float64 { return slices.Max(c.Instructions)/c.Least() - 1 }

// Numbers of iterations. In each repetition, a benchmark runs twice. The longer run has enough iterations for this
// many requests, and at least leastIterations. The shorter run has half as many iterations.
const (
	requests        = 20000
	leastIterations = 40
)

// Run counts the instructions of each benchmark that matches c.Bench.
func Run(ctx context.Context, c Config) ([]Count, error) {
	if _, err := exec.LookPath("valgrind"); err != nil {
		return nil, fmt.Errorf("counting instructions needs valgrind: %w", err)
	}
	dir, err := os.MkdirTemp("", "instructions")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	b := binary{path: filepath.Join(dir, "benchmarks"), bench: c.Bench}
	if out, err := exec.CommandContext(ctx, "go", "test", "-c", "-o", b.path, c.Package).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the benchmarks of %s: %w: %s", c.Package, err, out)
	}
	where, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", c.Package).Output()
	if err != nil {
		return nil, fmt.Errorf("where %s is: %w", c.Package, err)
	}
	b.dir = strings.TrimSpace(string(where))
	all, err := b.list(ctx)
	if err != nil {
		return nil, err
	}
	var counts []Count
	for _, m := range all {
		count := Count{Name: m.name, Nanoseconds: m.perRequest, Allocs: m.allocs, Sends: m.sends}
		each := max(1, m.perIteration/m.perRequest)
		n := max(leastIterations, int(requests/each))
		for range c.Repeat {
			few, err := b.count(ctx, m.name, n/2)
			if err != nil {
				return nil, err
			}
			many, err := b.count(ctx, m.name, n)
			if err != nil {
				return nil, err
			}
			count.Instructions = append(count.Instructions, float64(many-few)/float64(n-n/2)/each)
		}
		counts = append(counts, count)
	}
	return counts, nil
}

// binary is a compiled test binary with the benchmarks to count: its path, the directory in which
// it runs, and the regular expression that selects the benchmarks.
type binary struct{ path, dir, bench string }

func (b binary) command(ctx context.Context, pattern string, iterations string, before ...string) *exec.Cmd {
	args := append(before, b.path, "-test.run", "^$", "-test.bench", pattern, "-test.benchtime", iterations, "-test.benchmem", "-test.cpu", "1")
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = b.dir
	// Without garbage collection and preemption signals, because both happen at times that vary
	// between runs.
	cmd.Env = append(os.Environ(), "GOGC=off", "GODEBUG=asyncpreemptoff=1")
	return cmd
}

// list runs the benchmarks without valgrind. It finds their names, and how many requests one
// iteration of each handles.
func (b binary) list(ctx context.Context) ([]measured, error) {
	out, err := b.command(ctx, b.bench, "200ms").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("run the benchmarks: %w: %s", err, out)
	}
	all := parseBenchmarks(string(out))
	if len(all) == 0 {
		return nil, fmt.Errorf("no benchmark matches %q", b.bench)
	}
	return all, nil
}

// measured is one result of a benchmark run without valgrind.
type measured struct {
	name                     string
	perIteration, perRequest float64 // time in nanoseconds, per iteration and per request
	allocs                   float64
	sends                    float64 // per request
}

func parseBenchmarks(text string) []measured {
	var all []measured
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		m := measured{name: fields[0]}
		for i := 2; i+1 < len(fields); i += 2 {
			value, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				break
			}
			switch fields[i+1] {
			case "ns/op":
				m.perIteration = value
			case "ns/request":
				m.perRequest = value
			case "allocs/op":
				m.allocs = value
			case "sends/request":
				m.sends = value
			}
		}
		if m.perRequest == 0 {
			m.perRequest = m.perIteration
		}
		if m.perIteration > 0 {
			all = append(all, m)
		}
	}
	return all
}

// refs matches the total number of instructions in the output of cachegrind.
var refs = regexp.MustCompile(`I\s+refs:\s+([0-9,]+)`)

// count runs one benchmark for the given number of iterations, and returns the number of
// instructions that the whole process executed.
func (b binary) count(ctx context.Context, name string, iterations int) (int64, error) {
	parts := strings.Split(name, "/")
	for i := range parts {
		parts[i] = "^" + regexp.QuoteMeta(parts[i]) + "$"
	}
	cmd := b.command(ctx, strings.Join(parts, "/"), strconv.Itoa(iterations)+"x", "valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file="+os.DevNull)
	// Valgrind 3.19 does not know RDTSCP, which the Go runtime executes if locks are contended.
	cmd.Env = append(cmd.Environ(), "GODEBUG=cpu.rdtscp=off")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("%s under valgrind: %w: %s", name, err, out)
	}
	found := refs.FindSubmatch(out)
	if found == nil {
		return 0, fmt.Errorf("%s under valgrind: it counted nothing: %s", name, out)
	}
	return strconv.ParseInt(strings.ReplaceAll(string(found[1]), ",", ""), 10, 64)
}

// Compare writes the counts of now as a Markdown table, next to the earlier counts if there are
// any. It returns an error that names the benchmarks whose instructions or sends rose by more than
// limit. A limit of 0.05 is 5 %.
func Compare(w io.Writer, now, earlier []Count, limit float64) error {
	was := make(map[string]Count)
	for _, c := range earlier {
		was[c.Name] = c
	}
	header := "| benchmark | instructions/request | spread | ns/request | allocs/iteration | sends/request |"
	rule := "| --- | --- | --- | --- | --- | --- |"
	if earlier != nil {
		header, rule = header+" earlier | ratio |", rule+" --- | --- |"
	}
	if _, err := fmt.Fprintln(w, header+"\n"+rule); err != nil {
		return err
	}
	var risen []error
	for _, c := range now {
		line := fmt.Sprintf("| %s | %.0f | %.2f%% | %.0f | %.2f | %.3f |", c.Name, c.Least(), 100*c.Spread(), c.Nanoseconds, c.Allocs, c.Sends)
		if before, ok := was[c.Name]; ok {
			ratio := c.Least() / before.Least()
			line += fmt.Sprintf(" %.0f | %.3f |", before.Least(), ratio)
			if ratio > 1+limit {
				risen = append(risen, fmt.Errorf("%s rose by %.1f%%, from %.0f to %.0f instructions", c.Name, 100*(ratio-1), before.Least(), c.Least()))
			}
			if before.Sends > 0 && c.Sends > before.Sends*(1+limit) {
				risen = append(risen, fmt.Errorf("%s sends more often: %.3f times per request, was %.3f; its batches are smaller", c.Name, c.Sends, before.Sends))
			}
		} else if earlier != nil {
			line += " – | – |"
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return errors.Join(risen...)
}
