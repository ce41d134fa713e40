package main

// ringside drill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"ringside/config"
	"ringside/internal/drill"
	"ringside/proxy/admin"
	"ringside/proxy/fault"
)

// drillFlags are those of ringside drill.
type drillFlags struct {
	adminFlags
	to, fault   string
	yes, asJSON bool
	maxFailed   int // milliseconds
	delay       time.Duration
	percent     int
	moves       bool // the server's keys move when it is gone
	drill.Options
	drill.Limits
}

// How long a fault lasts: long enough to see all that happens.
const (
	failFastTime = 3 * time.Second
	moveTime     = 8 * time.Second
)

func newDrill() *cobra.Command {
	var f drillFlags
	cmd := &cobra.Command{
		Use:   "drill",
		Short: "Break a server on purpose and see what clients see",
		Long: `Send checked traffic through a running Ringside, let it break its connections to
one of its servers for a while, and report what clients saw. The Ringside must
have admin.allow_faults: true; ringside demo has. The servers themselves are not
touched: only this Ringside treats one of them as if it

  refuse     had ended: connections are refused
  hang       had stopped: nothing moves, and goes on afterwards
  delay      answered later, by --delay
  drop       lost --percent of the segments, which TCP then sends again
  reset      broke each connection in the middle of an answer
  partition  were cut off: what is sent is lost

Clients of that Ringside suffer too. The traffic's keys begin with --prefix, are
never those of somebody else, and are deleted at the end.

Of each fault it reports the requests, and how many of them failed: errors,
misses of keys that should be there, refused writes; when a client or the
server's state first showed trouble (noticed), when its keys were elsewhere or,
where keys never move, it was held for down (ejected), how long after the end of the fault all was well again (returned),
the slowest request, and stale reads (older than what was acknowledged) and wrong
values. Times count from errors and refused writes, not from misses. It exits 1 when a limit is exceeded; wrong values, clients without any
answer and a server that does not come back always do.`,
		Example: `  ringside drill                              every fault in turn, on ringside demo
  ringside drill --fault hang --for 10s --server cache3 -c ringside.yaml
  ringside drill --json --max-errors-ms 4000 --max-return 5s`,
		Args: wantArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.to, "to", "", "the `address` for clients: host:port or unix:/path (default "+demoAddress+")")
	flags.StringVar(&f.fault, "fault", "all", "the `kind` of fault, several with commas, or all")
	flags.StringVar(&f.Server, "server", "", "the `name` or address of the server (default: the first one)")
	flags.StringVar(&f.Pool, "pool", "", "the `pool` of the server")
	f.completePool(cmd)
	cmd.RegisterFlagCompletionFunc("server", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return f.complete(cmd, func(s *admin.ServerState) string { return s.Server })
	})
	flags.DurationVar(&f.For, "for", 0, "how long each fault lasts (default 3s, or 8s where keys move to other servers)")
	flags.DurationVar(&f.delay, "delay", time.Second, "of the fault delay")
	flags.IntVar(&f.percent, "percent", 20, "of the fault drop")
	flags.DurationVar(&f.Before, "before", 500*time.Millisecond, "traffic before each fault, which must be in order")
	flags.DurationVar(&f.Settle, "settle", time.Second, "time without a failure after which all is well")
	flags.DurationVar(&f.Options.Return, "wait", 30*time.Second, "how long the server may take to come back")
	flags.IntVar(&f.Clients, "clients", 16, "connections")
	flags.IntVar(&f.Rate, "rate", 1000, "requests a second at most, of all clients")
	flags.IntVar(&f.Keys, "keys", 256, "keys")
	flags.StringVar(&f.Prefix, "prefix", "drill:", "what every key begins with")
	flags.IntVar(&f.Limits.Stale, "max-stale", 0, "limit: stale reads of a fault; -1: none")
	flags.IntVar(&f.Limits.Errors, "max-errors", -1, "limit: errors of a fault")
	flags.IntVar(&f.Limits.Misses, "max-misses", -1, "limit: misses of a fault")
	flags.IntVar(&f.Limits.Refused, "max-refused", -1, "limit: refused writes of a fault")
	flags.IntVar(&f.maxFailed, "max-errors-ms", 0, "limit: milliseconds from the first to the last failed request; 0: none")
	flags.DurationVar(&f.Limits.Notice, "max-notice", 0, "limit: until trouble shows; 0: none")
	flags.DurationVar(&f.Limits.Eject, "max-eject", 0, "limit: until the server is taken for down; 0: none")
	flags.DurationVar(&f.Limits.Return, "max-return", 0, "limit: from the end of the fault until all is well; 0: none")
	flags.BoolVar(&f.yes, "yes", false, "do it though that Ringside is not on this machine only")
	flags.BoolVar(&f.asJSON, "json", false, "print one JSON object a line")
	return cmd
}

func (f *drillFlags) run(cmd *cobra.Command) error {
	o := &f.Options
	if err := f.check(); err != nil {
		return &usageError{err}
	}
	file, err := f.load()
	if err != nil {
		return err
	}
	network, address, err := f.endpoint(file)
	if err != nil {
		return err
	}
	if o.Network, o.Address, err = f.clients(file); err != nil {
		return err
	}
	for _, at := range [][2]string{{network, address}, {o.Network, o.Address}} {
		if !f.yes && !onlyHere(at[0], at[1]) {
			return &usageError{fmt.Errorf("%s is not an address of this machine only: a drill there hurts others; say --yes if you mean it", at[1])}
		}
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	o.Control = admin.NewClient(network, address)
	defer o.Control.Close()
	if err := f.pick(ctx); err != nil {
		return blame(err)
	}
	if o.For == 0 {
		if o.For = failFastTime; f.moves {
			o.For = moveTime
		}
	}
	var results []*drill.Result
	out, exceeded := cmd.OutOrStdout(), 0
	err = drill.Run(ctx, *o, func(r *drill.Result) {
		if f.Judge(r) {
			exceeded++
		}
		results = append(results, r)
		if f.asJSON {
			json.NewEncoder(out).Encode(r)
		} else {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s on %s: done\n", r.Fault, r.Server)
		}
	})
	if !f.asJSON && len(results) > 0 {
		err = errors.Join(err, drill.Print(out, results))
	}
	switch {
	case errors.Is(err, context.Canceled) && cmd.Context().Err() == nil:
		return errors.New("ended by a signal; the fault is lifted")
	case err != nil:
		return blame(err)
	case exceeded > 0:
		return fmt.Errorf("%d of %d faults exceeded a limit", exceeded, len(results))
	}
	return nil
}

// check reads and bounds what the flags say.
func (f *drillFlags) check() error {
	o := &f.Options
	f.Limits.Failed = time.Duration(f.maxFailed) * time.Millisecond
	switch {
	case o.Clients < 1 || o.Clients > drill.MaxClients:
		return fmt.Errorf("--clients is from 1 to %d", drill.MaxClients)
	case o.Rate < 1 || o.Rate > drill.MaxRate:
		return fmt.Errorf("--rate is from 1 to %d", drill.MaxRate)
	case o.Keys < o.Clients || o.Keys > drill.MaxKeys:
		return fmt.Errorf("--keys is from --clients (%d) to %d", o.Clients, drill.MaxKeys)
	case o.For < 0 || o.For > drill.MaxFor:
		return fmt.Errorf("--for is at most %v; 0 lets the pool decide", drill.MaxFor)
	case o.Before <= 0 || o.Settle <= 0 || o.Return <= 0:
		return errors.New("--before, --settle and --wait are more than 0")
	case f.delay <= 0 || f.delay > fault.MaxDelay:
		return fmt.Errorf("--delay is more than 0 and at most %v", fault.MaxDelay)
	case f.percent < 1 || f.percent > 100:
		return errors.New("--percent is from 1 to 100")
	case len(o.Prefix) > 100 || strings.ContainsFunc(o.Prefix, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return errors.New("--prefix has at most 100 bytes, and no spaces")
	}
	kinds := fault.Kinds()
	if f.fault != "all" {
		kinds = nil
		for _, k := range strings.Split(f.fault, ",") {
			if !slices.Contains(fault.Kinds(), fault.Kind(k)) {
				return fmt.Errorf("--fault %s: it is one of %v, or all", k, fault.Kinds())
			}
			kinds = append(kinds, fault.Kind(k))
		}
	}
	for _, k := range kinds {
		one := drill.Fault{Kind: k}
		switch k {
		case fault.Delay:
			one.Delay = f.delay
		case fault.Drop:
			one.Percent = f.percent
		}
		o.Faults = append(o.Faults, one)
	}
	return nil
}

// clients is where clients connect; file may be nil.
func (f *drillFlags) clients(file *config.File) (network, address string, err error) {
	switch {
	case f.to != "":
		return splitAddress("to", f.to)
	case file != nil:
		l := file.Listen[0].Address
		return l.Network, l.Address, nil
	}
	return "tcp", demoAddress, nil
}

// pick settles which server is meant.
func (f *drillFlags) pick(ctx context.Context) error {
	list, err := f.Control.Servers(ctx)
	if err != nil {
		return err
	}
	var names []string
	for _, s := range list {
		if f.Pool != "" && s.Pool != f.Pool {
			continue
		}
		if f.Server == "" {
			f.Server, f.Pool = s.Server, s.Pool
		}
		if s.Server == f.Server || s.Address == f.Server {
			f.moves = s.Failover != nil
			return nil
		}
		names = append(names, s.Server)
	}
	return &usageError{fmt.Errorf("no server %q in a pool %q; there are %s", f.Server, f.Pool, strings.Join(names, ", "))}
}

// onlyHere reports whether only this machine can reach an address.
func onlyHere(network, address string) bool {
	if network == "unix" {
		return true
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}
