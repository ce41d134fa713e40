package drill

// This file implements ringside drill --table: how long clients get errors, by failover
// mode.

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"ringside/internal/cli"
	"ringside/internal/demo"
	"ringside/proxy/admin"
	"ringside/proxy/fault"
	"ringside/proxy/live"
)

// tableMode is one row of the table: a configuration of a pool and its number of servers.
type tableMode struct {
	name, pool string
	servers    int
	copies     bool
}

// tableModes lists the compared configurations: the defaults, and changes of one setting. Pools
// that never move keys are not included, because their errors last as long as the fault. In all
// configurations a failed read is an error, so that it differs from a miss.
var tableModes = []tableMode{
	{"`rehash`, relaxed", "distribution: ketama-points", 3, false},
	{"`rehash`, relaxed, `wait: 500ms`", "distribution: ketama-points, failover: {wait: 500ms}", 3, false},
	{"`rehash`, strict", "distribution: ketama-points, failover: {consistency: strict}", 3, false},
	{"`preset: sessions`, 2 servers", "distribution: ketama", 2, true},
	{"`preset: sessions`, 3 servers", "distribution: ketama", 3, true},
}

// tableFaults are the faults in the columns of the table.
var tableFaults = []struct {
	name string
	kind fault.Kind
}{{"kill", fault.Refuse}, {"hang", fault.Hang}, {"black hole", fault.Partition}}

const (
	tableRingsides = 2
	tableTime      = 10 * time.Second // duration of each fault; longer than any configuration needs to move the keys

	// tableCounts is how long a drill waits after the start of the instances. Instances that have
	// just started do not know how many they are. They do not eject a server before they have
	// counted each other twice, which takes up to the duration of a lease.
	tableCounts = 3 * time.Second
)

// printTable runs a drill for each configuration, with several instances that all apply the fault.
// It prints the time of the last failed read and of the last failed write. The output is a table,
// or a JSON object for each configuration and fault.
func (f *drillFlags) printTable(ctx context.Context, out, errs io.Writer) error {
	o := f.Options
	o.Faults = nil
	for _, c := range tableFaults {
		o.Faults = append(o.Faults, Fault{Kind: c.kind})
	}
	o.For = cmp.Or(o.For, tableTime)
	show := func(line string) {}
	f.Progress = nil
	if done := f.showProgress(errs); f.Progress != nil {
		show = func(line string) { done(); fmt.Fprintln(errs, line) }
		o.Progress = f.Progress
	}
	text := out
	if f.asJSON {
		text, errs = io.Discard, io.Discard
	}
	fmt.Fprintf(text, "Seconds from the fault until the last answer that was an error, reads / writes (%d instances, %d requests a second, one server of three down, or of two):\n\n|", tableRingsides, o.Rate)
	for _, c := range tableFaults {
		fmt.Fprintf(text, " | %s", c.name)
	}
	fmt.Fprintf(text, " |\n|---%s|\n", strings.Repeat("|---", len(tableFaults)))
	bad := 0
	for _, m := range tableModes {
		show(m.name)
		fmt.Fprintf(text, "| %s |", m.name)
		err := f.drillMode(ctx, o, m, func(r *Result) {
			if tableLimits.Judge(r) {
				bad++
				fmt.Fprintf(errs, "%s: %s: %v\n", m.name, r.Words(), r.Exceeded)
			}
			fmt.Fprintf(text, " %s / %s |", seconds(r.LastBadGet, o.For), seconds(r.LastBadSet, o.For))
			if f.asJSON {
				cli.NewEncoder(out).Encode(struct {
					Mode string `json:"mode"`
					*Result
				}{strings.ReplaceAll(m.name, "`", ""), r})
			}
		})
		fmt.Fprintln(text)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	if bad > 0 {
		return fmt.Errorf("%d faults did what must not be", bad)
	}
	return nil
}

// tableLimits allows every result except those that are never acceptable, such as wrong values.
var tableLimits = Limits{Stale: -1, Errors: -1, Misses: -1, Refused: -1, Twice: -1}

// seconds formats the time of a failure for the table. lasts is the duration of the fault.
func seconds(t Time, lasts time.Duration) string {
	switch d := time.Duration(t); {
	case t == Never:
		return "none"
	case d > lasts-500*time.Millisecond:
		return "as long as it lasts"
	default:
		return fmt.Sprintf("%.1f", d.Seconds())
	}
}

// drillMode starts a new cluster with the configuration m and runs the drills on it.
func (f *drillFlags) drillMode(ctx context.Context, o Options, m tableMode, each func(*Result)) error {
	d := &demo.Cluster{}
	defer d.Close()
	list, err := d.StartNodes(m.servers)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("pools: {main: {%s, get_errors: error, servers: [%s]}}", m.pool, list)
	if m.copies {
		text += "\nroutes: [{pool: main, preset: sessions, replicas_on: server}]"
	}
	for range tableRingsides {
		free, err := demo.FreeAddresses("127.0.0.1:0", "127.0.0.1:0")
		if err != nil {
			return err
		}
		listen, adminAddr := free[0], free[1]
		r, err := demo.StartText(listen, adminAddr, text, f.version, slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		defer r.End()
		control := admin.NewClient("tcp", adminAddr)
		defer control.Close()
		o.Through = append(o.Through, Address{Network: "tcp", Address: listen})
		o.Control = append(o.Control, control)
	}
	o.Server, o.Pool = "demo1", "main"
	if err := awaitUp(ctx, o.Control); err != nil {
		return err
	}
	if err := sleep(ctx, tableCounts); err != nil {
		return err
	}
	return Run(ctx, o, each)
}

// awaitUp waits until all instances report every server as up, with a lease if the pool uses
// leases.
func awaitUp(ctx context.Context, all []*admin.Client) error {
	for _, c := range all {
		for up := false; !up; {
			list, err := c.Servers(ctx)
			if err != nil {
				return err
			}
			up = true
			for _, s := range list {
				up = up && s.State == live.Up && (s.Failover == nil || s.Failover.LeaseMS > 0)
			}
			if err := sleep(ctx, 50*time.Millisecond); err != nil {
				return err
			}
		}
	}
	return nil
}
