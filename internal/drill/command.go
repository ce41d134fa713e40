package drill

// This file implements the command ringside drill.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"ringside/config"
	"ringside/internal/cli"
	"ringside/proxy/fault"
	"ringside/proxy/live"
)

// drillFlags contains the flags of ringside drill.
type drillFlags struct {
	cli.Admin
	to, through string
	access      cli.Login // TLS and login of to and through
	fault       string
	yes, asJSON bool
	maxFailed   int // longest time with failed requests that is acceptable, in milliseconds
	delay       time.Duration
	percent     int
	moves       bool // true if the keys of an ejected server move to other servers
	Options
	Limits
}

// Default durations of a fault. They are long enough to show all effects of the fault.
const (
	failFastTime = 3 * time.Second
	moveTime     = 8 * time.Second
)

// Command returns the command ringside drill.
func Command() *cobra.Command {
	f := drillFlags{}
	cmd := &cobra.Command{
		Use:   "drill",
		Short: "Break a server on purpose and see what clients see",
		Long: `Send checked traffic through a running instance, let it break its connections to
one of its servers for a while, and report what clients saw. The instance must
have admin.allow_faults: true; ringside demo has. The servers themselves are not
touched: only this instance treats one of them as if it

  refuse     had ended: connections are refused
  hang       had stopped: nothing moves until the fault ends
  delay      replied late, by --delay
  drop       lost --percent of the segments, which TCP then sends again
  reset      broke each connection in the middle of a reply
  partition  were cut off: everything sent to it is lost

With --through each client uses other instances of the same servers too, in turn. This
shows how they treat a server that only the first one cannot reach, and whether one
instance reads what another has written.

A listener with TLS or a login needs --to-ca, --to-cert and --to-login, or -c: then drill
accepts the certificate of the configuration file. The same flags are used for --through.

Some keys are set and deleted, some are counters, some are appended to, and some are
locks. If keys have one replica, locks are lost with their server, and a second client
gets them. With -c drill knows whether the keys that begin with --prefix are
replicated; then a lock held twice is a failure.

Clients of that instance are affected too. The traffic uses only its own keys, which
begin with --prefix, and deletes them at the end.

For each fault it reports:

  - the requests, and how many failed: errors, misses of keys that should exist,
    rejected writes
  - noticed: when a client or the state of the server first showed the fault
  - ejected: when other servers had its keys or, if keys never move, when it was down
  - returned: how long after the end of the fault everything worked again
  - the slowest request, and the longest time with less than half of the replies of
    before (each client waits for a reply before its next request)
  - stale reads (older than the last acknowledged write), wrong values, counters that
    returned a number twice, journals without an acknowledged append or with one twice,
    and locks held twice

A sentence below sums this up. Times are measured from errors and rejected writes, not
from misses. The exit status is 1 if a limit is exceeded. It is always 1 after wrong
values, if clients get no reply, if the server does not return, or if another server
fails at the same time. The drill does not begin while another server of the pool is not
up.`,
		Example: `  ringside drill                              every fault in turn, on ringside demo
  ringside drill --fault hang --for 10s --server cache3 -c ringside.yaml
  ringside drill --through 10.0.0.8:11211,10.0.0.9:11211 --yes -c ringside.yaml
  ringside drill --json --max-errors-ms 4000 --max-return 5s
  ringside drill --fault refuse,hang,partition --rate 20000 --before 2s --max-below-half 1s`,
		Args: cli.WantArgs(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.addFlags(cmd)
	return cmd
}

func (f *drillFlags) addFlags(cmd *cobra.Command) {
	f.Add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.to, "to", "", "the `address` for clients: host:port or unix:/path (default "+cli.DefaultAddress+")")
	flags.StringVar(&f.through, "through", "", "`addresses` of other instances to send through as well, with commas")
	f.access.AddTo(flags)
	flags.StringVar(&f.fault, "fault", "all", "the `kind` of fault, several with commas, or all")
	flags.StringVar(&f.Server, "server", "", "the `name` or address of the server (default: the first one)")
	flags.StringVar(&f.Pool, "pool", "", "the `pool` of the server")
	f.CompletePool(cmd)
	cmd.RegisterFlagCompletionFunc("server", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return f.Complete(cmd, func(s *live.ServerState) string { return s.Server })
	})
	cmd.RegisterFlagCompletionFunc("fault", completeFaults)
	flags.DurationVar(&f.For, "for", 0, "how long each fault lasts (default 3s, or 8s where keys move to other servers)")
	flags.DurationVar(&f.delay, "delay", time.Second, "the delay of replies, for the fault delay")
	flags.IntVar(&f.percent, "percent", 20, "the percentage of lost segments, for the fault drop")
	flags.DurationVar(&f.Before, "before", 500*time.Millisecond, "how long the traffic before each fault lasts; it must not fail")
	flags.DurationVar(&f.Settle, "settle", time.Second, "the time without a failure after which everything works again")
	flags.DurationVar(&f.Options.Return, "wait", 30*time.Second, "how long the server may take to return")
	flags.IntVar(&f.Clients, "clients", 16, "connections")
	flags.IntVar(&f.Rate, "rate", 1000, "requests a second at most, of all clients")
	flags.IntVar(&f.Keys, "keys", 256, "keys")
	flags.StringVar(&f.Prefix, "prefix", "drill:", "the prefix of every key")
	flags.IntVar(&f.Limits.Stale, "max-stale", 0, "limit: stale reads of a fault; -1: none")
	flags.IntVar(&f.Limits.Errors, "max-errors", -1, "limit: errors of a fault")
	flags.IntVar(&f.Limits.Misses, "max-misses", -1, "limit: misses of a fault")
	flags.IntVar(&f.Limits.Refused, "max-refused", -1, "limit: refused writes of a fault")
	flags.IntVar(&f.Limits.Twice, "max-locks-twice", -1, "limit: locks held twice in a fault; -1: none (default 0 if -c says that the keys are replicated)")
	flags.IntVar(&f.maxFailed, "max-errors-ms", 0, "limit: milliseconds from the first to the last failed request; 0: none")
	flags.DurationVar(&f.Limits.BelowHalf, "max-below-half", 0, "limit: how long clients get less than half of the replies of before; 0: none")
	flags.DurationVar(&f.Limits.Notice, "max-notice", 0, "limit: time until the fault is noticed; 0: none")
	flags.DurationVar(&f.Limits.Eject, "max-eject", 0, "limit: time until the server is ejected; 0: none")
	flags.DurationVar(&f.Limits.Return, "max-return", 0, "limit: time from the end of the fault until everything works again; 0: none")
	flags.BoolVar(&f.yes, "yes", false, "run even if that instance serves other hosts")
	flags.BoolVar(&f.asJSON, "json", false, cli.EachJSON)
}

// completeFaults completes the last kind of a list of faults with commas.
func completeFaults(_ *cobra.Command, _ []string, typed string) (words []string, _ cobra.ShellCompDirective) {
	list := typed[:strings.LastIndexByte(typed, ',')+1]
	if list == "" {
		words = append(words, "all")
	}
	for _, k := range fault.Kinds() {
		if !slices.Contains(strings.Split(list, ","), string(k)) {
			words = append(words, list+string(k))
		}
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}

func (f *drillFlags) run(cmd *cobra.Command) error {
	if err := f.check(); err != nil {
		return cli.Usage(err)
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	file, err := f.Load()
	if err != nil {
		return err
	}
	if file != nil && !cmd.Flags().Changed("max-locks-twice") && file.Copied(f.Prefix) {
		f.Limits.Twice = 0
	}
	release, err := f.aim(ctx, file)
	if err != nil {
		return err
	}
	defer release()
	return f.drill(ctx, cmd)
}

// aim determines the instances, the server to break and the duration of the faults. The caller must
// call release to close the connection to the admin interface.
func (f *drillFlags) aim(ctx context.Context, file *config.File) (release func(), err error) {
	o := &f.Options
	network, address, err := f.Endpoint(file)
	if err != nil {
		return nil, err
	}
	if o.Through, err = f.clients(file); err != nil {
		return nil, err
	}
	for _, at := range append([]Address{{Network: network, Address: address}}, o.Through...) {
		if !f.yes && !(config.Address{Network: at.Network, Address: at.Address}).Local() {
			return nil, cli.Usage(fmt.Errorf("%s is not an address of this machine only: a drill there hurts others; say --yes if you mean it", at.Address))
		}
	}
	control, err := f.ClientAt(network, address, file)
	if err != nil {
		return nil, err
	}
	o.Control = control
	if err := f.pick(ctx); err != nil {
		control.Close()
		return nil, cli.AsUsage(err)
	}
	usual := failFastTime
	if f.moves {
		usual = moveTime
	}
	o.For = cmp.Or(o.For, usual)
	return control.Close, nil
}

// drill runs one drill for each fault and prints the results.
func (f *drillFlags) drill(ctx context.Context, cmd *cobra.Command) error {
	errs := cmd.ErrOrStderr()
	done := f.showProgress(errs)
	var results []*Result
	out, exceeded := cmd.OutOrStdout(), 0
	err := Run(ctx, f.Options, func(r *Result) {
		if f.Judge(r) {
			exceeded++
		}
		results = append(results, r)
		done()
		if f.asJSON {
			cli.NewEncoder(out).Encode(r)
		} else {
			fmt.Fprintf(errs, "%s on %s: done\n", r.Fault, r.Server)
		}
	})
	done()
	if !f.asJSON && (len(results) > 0 || err != nil) {
		err = errors.Join(err, Print(out, results, f.Limits, len(f.Faults)))
	}
	switch {
	case errors.Is(err, context.Canceled) && cmd.Context().Err() == nil:
		return errors.New("ended by a signal; the fault is lifted")
	case err != nil:
		return cli.AsUsage(err)
	case exceeded > 0:
		return fmt.Errorf("%d of %d faults exceeded a limit", exceeded, len(results))
	}
	return nil
}

// check validates the flags and copies their values to Options.
func (f *drillFlags) check() error {
	o := &f.Options
	f.Limits.Failed = time.Duration(f.maxFailed) * time.Millisecond
	for _, c := range []struct {
		wrong   bool
		message string
	}{
		{o.Clients < 1 || o.Clients > MaxClients, fmt.Sprintf("--clients is from 1 to %d", MaxClients)},
		{o.Rate < 1 || o.Rate > MaxRate, fmt.Sprintf("--rate is from 1 to %d", MaxRate)},
		{o.Keys < o.Clients || o.Keys > MaxKeys, fmt.Sprintf("--keys is from --clients (%d) to %d", o.Clients, MaxKeys)},
		{o.For < 0 || o.For > MaxFor, fmt.Sprintf("--for is at most %v; 0 lets the pool decide", MaxFor)},
		{o.Before <= 0 || o.Settle <= 0 || o.Return <= 0, "--before, --settle and --wait are more than 0"},
		{f.delay <= 0 || f.delay > fault.MaxDelay, fmt.Sprintf("--delay is more than 0 and at most %v", fault.MaxDelay)},
		{f.percent < 1 || f.percent > 100, "--percent is from 1 to 100"},
		{len(o.Prefix) > 100 || strings.ContainsFunc(o.Prefix, func(r rune) bool { return r <= ' ' || r == 0x7f }), "--prefix has at most 100 bytes, and no spaces"},
	} {
		if c.wrong {
			return errors.New(c.message)
		}
	}
	kinds := fault.Kinds()
	if f.fault != "all" {
		kinds = nil
		for _, k := range strings.Split(f.fault, ",") {
			if err := fault.Kind(k).Check(); err != nil {
				return fmt.Errorf("--fault %s: %w, or all", k, err)
			}
			kinds = append(kinds, fault.Kind(k))
		}
	}
	for _, k := range kinds {
		one := Fault{Kind: k}
		if k == fault.Delay {
			one.Delay = f.delay
		} else if k == fault.Drop {
			one.Percent = f.percent
		}
		o.Faults = append(o.Faults, one)
	}
	return nil
}

// clients returns the addresses to which the clients of the drill connect. file may be nil.
func (f *drillFlags) clients(file *config.File) (all []Address, err error) {
	var own config.Listener // the listener of the first address, if file has it
	at := Address{Network: "tcp", Address: cli.DefaultAddress}
	if file != nil {
		own = file.Listen[0]
		at.Network, at.Address = own.Address.Network, own.Address.Address
	}
	if f.to != "" {
		if at.Network, at.Address, err = cli.SplitAddress("to", f.to); err != nil {
			return nil, err
		}
		if file != nil {
			i := slices.IndexFunc(file.Listen, func(l config.Listener) bool { return l.Address.Address == at.Address })
			if own = (config.Listener{}); i >= 0 {
				own = file.Listen[i]
			}
		}
	}
	all = []Address{at}
	for _, text := range strings.Split(f.through, ",") {
		if f.through == "" {
			break
		}
		network, address, err := cli.SplitAddress("through", text)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(all, func(a Address) bool { return a.Address == address }) {
			return nil, cli.Usage(fmt.Errorf("--through %s: it is asked already; name other instances of the same servers", text))
		}
		all = append(all, Address{Network: network, Address: address})
	}
	for i := range all {
		a := &all[i]
		if a.TLS, a.User, a.Password, err = f.access.Settings(a.Network, a.Address, own.TLS, own.AuthFile, ""); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// showProgress shows the progress of the drill on one line of the terminal. The returned function
// done removes that line.
func (f *drillFlags) showProgress(errs io.Writer) (done func()) {
	if f.asJSON || !cli.OnTerminal(errs) {
		return func() {}
	}
	errs = cli.Terminal(errs) // the progress line needs a terminal on which the cursor can be moved
	var last time.Time
	f.Progress = func(p Progress) {
		if now := time.Now(); now.Sub(last) >= 200*time.Millisecond {
			last = now
			fmt.Fprintf(errs, "\r\x1b[K%s", progressLine(p))
		}
	}
	return func() { fmt.Fprint(errs, "\r\x1b[K") }
}

func progressLine(p Progress) string {
	line := fmt.Sprintf("%s: %s %.1fs of %v, %d requests, %d failed", p.Fault,
		map[string]string{"before": "before it", "during": "since", "after": "over for"}[p.Stage], p.Gone.Seconds(), p.Of, p.Requests, p.Bad)
	if p.Wrong > 0 {
		line += fmt.Sprintf(", %d WRONG", p.Wrong)
	}
	return line
}

// pick chooses the server to break: the one that the user named, or the first one. It also finds
// out whether the pool moves keys of an ejected server.
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
	if len(names) == 0 {
		return cli.NoPool(f.Pool, list)
	}
	return cli.Usage(fmt.Errorf("no server %q; there are %s", f.Server, strings.Join(names, ", ")))
}
