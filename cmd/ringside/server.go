package main

// ringside server: what a person orders of the servers of a running Ringside

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"ringside/config"
	"ringside/internal/top"
	"ringside/proxy/admin"
	"ringside/proxy/health"
	"ringside/proxy/live"
)

func newServer() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Drain servers of a running Ringside, take them down, restore them",
		Long: `Look after the servers of a running Ringside, by its admin interface.

Orders last until they are taken back by restore: they live through a reload,
not through a restart. They need admin.control, which is for this machine unless
the configuration opens it.`,
		Example: `  ringside server list
  ringside server drain cache3
  ringside server restore cache3`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(newServerList(),
		newServerOrder("drain", "Send a server no new requests", `Send a server no new requests. Those in flight finish, and then its connections
are closed.

What becomes of its keys is what the pool does when a server is down: reads miss
(or get an error, with get_errors: error), and writes are refused with an error
that names the server. Where keys have several copies the others serve them, and drain
says how many are left. The server keeps its values: what is written or deleted
there meanwhile by other ways is what it has when it is restored.`),
		newServerOrder("down", "Send a server nothing, and fail what is in flight", `Send a server no requests any more, as drain does, but at once: requests in
flight fail and its connections are reset.`),
		newServerOrder("restore", "Let a server have requests again", `Let a server have requests again that was drained or taken down. Where keys have
several copies it comes back empty and is filled from the others: then restore waits
until it is, and says so.`))
	return cmd
}

// adminFlags say which Ringside is meant.
type adminFlags struct{ address, path string }

func (f *adminFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.address, "admin", "", "the `address` of the admin interface: host:port or unix:/path (default "+demoAdmin+")")
	cmd.Flags().StringVarP(&f.path, "config", "c", "", "the configuration `file` of that Ringside, instead of addresses")
	cmd.MarkFlagFilename("config", "yaml", "yml")
}

// load reads the file, if one was named.
func (f *adminFlags) load() (*config.File, error) {
	if f.path == "" {
		return nil, nil
	}
	return loadConfig(f.path)
}

// endpoint is the admin interface that is meant; file may be nil.
func (f *adminFlags) endpoint(file *config.File) (network, address string, err error) {
	switch {
	case f.address != "":
		return splitAddress("admin", f.address)
	case file == nil:
		return "tcp", demoAdmin, nil
	case file.Admin.Address.Network == "":
		return "", "", &usageError{fmt.Errorf("%s has no admin interface: set admin, or say --admin", f.path)}
	}
	return file.Admin.Address.Network, file.Admin.Address.Address, nil
}

// splitAddress reads the value of an address flag.
func splitAddress(flag, text string) (network, address string, err error) {
	if path, ok := strings.CutPrefix(text, "unix:"); ok && path != "" {
		return "unix", path, nil
	}
	_, port, err := net.SplitHostPort(text)
	if n, wrong := strconv.ParseUint(port, 10, 16); err != nil || wrong != nil || n == 0 {
		return "", "", &usageError{fmt.Errorf("--%s %s: want host:port or unix:/path, with a port from 1 to 65535", flag, text)}
	}
	return "tcp", text, nil
}

// client connects to the admin interface that is meant.
func (f *adminFlags) client() (*admin.Client, error) {
	file, err := f.load()
	if err != nil {
		return nil, err
	}
	network, address, err := f.endpoint(file)
	if err != nil {
		return nil, err
	}
	return admin.NewClient(network, address), nil
}

// completePool lets a shell complete the flag --pool.
func (f *adminFlags) completePool(cmd *cobra.Command) {
	cmd.RegisterFlagCompletionFunc("pool", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return f.complete(cmd, func(s *live.ServerState) string { return s.Pool })
	})
}

// complete is what a shell is told that a word may be: what name says of the servers
// of the Ringside that is meant. A shell that gets no answer has nothing to offer.
func (f *adminFlags) complete(cmd *cobra.Command, name func(*live.ServerState) string) (words []string, _ cobra.ShellCompDirective) {
	const offerNoFiles = cobra.ShellCompDirectiveNoFileComp
	c, err := f.client()
	if err != nil {
		return nil, offerNoFiles
	}
	defer c.Close()
	list, err := c.Servers(cmd.Context())
	if err != nil {
		return nil, offerNoFiles
	}
	for i := range list {
		if word := name(&list[i]); word != "" && !slices.Contains(words, word) {
			words = append(words, word)
		}
	}
	return words, offerNoFiles
}

// blame makes a mistake on the command line of an answer that says so.
func blame(err error) error {
	if s := (*admin.StatusError)(nil); errors.As(err, &s) && (s.Status == 400 || s.Status == 404 || s.Status == 409) {
		return &usageError{err}
	}
	return err
}

func newServerList() *cobra.Command {
	var to adminFlags
	var pool string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the servers and how they are",
		Long: `List the servers of every pool: up, down and why, drained by a person, and since
when. Exits 0 whatever they are.`,
		Example: `  ringside server list
  ringside server list --pool sessions --json -c /etc/ringside/ringside.yaml`,
		Args: wantArgs(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := to.client()
			if err != nil {
				return err
			}
			defer c.Close()
			list, err := c.Servers(cmd.Context())
			if err != nil {
				return err
			}
			if pool != "" {
				kept := slices.DeleteFunc(slices.Clone(list), func(s live.ServerState) bool { return s.Pool != pool })
				if len(kept) == 0 {
					return noPool(pool, list)
				}
				list = kept
			}
			return showServers(cmd.OutOrStdout(), list, asJSON)
		},
	}
	to.add(cmd)
	cmd.Flags().StringVar(&pool, "pool", "", "only the servers of this `pool`")
	to.completePool(cmd)
	jsonFlag(cmd, &asJSON, eachJSON)
	return cmd
}

// noPool says which pools there are, of which one was meant.
func noPool(pool string, list []live.ServerState) error {
	var have []string
	for i := range list {
		if name := list[i].Pool; !slices.Contains(have, name) {
			have = append(have, name)
		}
	}
	return &usageError{fmt.Errorf("no pool %q; there are %s", pool, strings.Join(have, ", "))}
}

func newServerOrder(order, short, long string) *cobra.Command {
	var to adminFlags
	var pool string
	var asJSON, noWait bool
	cmd := &cobra.Command{
		Use:   order + " NAME",
		Short: short,
		Long:  long,
		Example: "  ringside server " + order + " cache3\n" +
			"  ringside server " + order + " 10.0.0.3:11211 --pool sessions --admin 127.0.0.1:9151",
		Args: wantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "" { // no address of the control API
				return &usageError{errors.New("which server?")}
			}
			c, err := to.client()
			if err != nil {
				return err
			}
			defer c.Close()
			list, err := c.Order(cmd.Context(), pool, args[0], order)
			if err != nil {
				return blame(err)
			}
			if err := showServers(cmd.OutOrStdout(), list, asJSON); err != nil || len(list) != 1 || list[0].Copies == nil {
				return err
			}
			if order != health.Restore.String() {
				return warnOfCopies(cmd.Context(), c, remarksOf(cmd, asJSON), &list[0])
			}
			if noWait {
				return nil
			}
			return waitForCopies(cmd.Context(), c, remarksOf(cmd, asJSON), &list[0])
		},
	}
	to.add(cmd)
	if order == health.Restore.String() {
		cmd.Flags().BoolVar(&noWait, "no-wait", false, "don't wait until the server has its copies again")
	}
	cmd.Flags().StringVar(&pool, "pool", "", "the `pool`, where several have a server of that name")
	to.completePool(cmd)
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return to.complete(cmd, func(s *live.ServerState) string {
			if pool != "" && s.Pool != pool {
				return ""
			}
			return s.Server
		})
	}
	jsonFlag(cmd, &asJSON, eachJSON)
	return cmd
}

func showServers(out io.Writer, list []live.ServerState, asJSON bool) error {
	if asJSON {
		e := newEncoder(out)
		for _, s := range list {
			if err := e.Encode(s); err != nil {
				return err
			}
		}
		return nil
	}
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "POOL\tSERVER\tADDRESS\tSTATE\tFOR\tWHY")
	for _, s := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%v\t%s\n", s.Pool, s.Server, s.Address, s.State,
			max(0, time.Since(s.Since)).Round(time.Second), cmp.Or(s.Why, filling(&s), "-"))
	}
	w.Flush()
	for i, line := range strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n") {
		style := top.Bold
		if i > 0 {
			style = standsOut(&list[i-1])
		}
		if _, err := fmt.Fprintln(out, paint(out, style, line)); err != nil {
			return err
		}
	}
	return nil
}

// standsOut is how a server is shown.
func standsOut(s *live.ServerState) top.Style {
	switch {
	case s.State == live.Unknown:
		return top.Plain
	case s.State == live.Drained || s.State == live.Up && filling(s) != "":
		return top.Warn
	case s.State == live.Up:
		return top.Good
	}
	return top.Bad
}
