package remote

// This file implements the command `ringside server`. Its subcommands list servers and send the
// orders of an operator: drain, down, restore.

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ringside/internal/cli"
	"ringside/internal/top"
	"ringside/proxy/admin"
	"ringside/proxy/health"
	"ringside/proxy/live"
)

func newServer() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "server",
		Short: "List servers of a running instance, drain them, take them down, restore them",
		Long: `Show and change the state of servers through the admin interface of a running
instance.

An order lasts until restore. It survives a reload and, unless the mode is fail_fast, a
restart. Orders need admin.control, which is limited to this machine unless the
configuration allows more.`,
		Example: `  ringside server list
  ringside server drain cache3
  ringside server restore cache3`,
		Args: cobra.ArbitraryArgs,
		RunE: cli.Group,
	}
	cmd.AddCommand(newServerList(),
		newServerOrder("drain", "Stop sending new requests to a server", `Stop sending new requests to a server. Requests in flight finish; then its connections
are closed.

In mode fail_fast, reads of its keys miss (or fail, with get_errors: error), and writes
fail with an error that names the server. The server keeps its data. In the other
modes, other servers take its keys, and it is flushed when it is restored.

Replicated keys are served by the other replicas, and drain prints how many remain. If
other servers are not up or lack replicas, this server may have the last one. Then
drain refuses, unless --force is given.`),
		newServerOrder("down", "Stop using a server at once", `Stop using a server, as drain does, but at once: requests in flight fail, and its
connections are reset. It refuses in the same cases as drain.`),
		newServerOrder("restore", "Use a server again", `Use a server again that was drained or taken down. If keys are replicated, the server
is flushed and filled from the other replicas; restore waits until this is done. If the
server does not reply, restore says what it waits for and ends after half a minute; the
order remains valid.`))
	return cmd
}

func newServerList() *cobra.Command {
	var to cli.Admin
	var pool string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the servers and their states",
		Long: `List the servers of all pools: their state, its cause, and since when. The last line
has the worst state of all pools and what to do. Changes of servers that have not
ended follow, with their progress. The exit status is always 0;
ringside top --once exits 3 if there is a problem.`,
		Example: `  ringside server list
  ringside server list --pool sessions --json -c /etc/ringside/ringside.yaml`,
		Args: cli.WantArgs(0, 0),
		RunE: to.Ask(func(cmd *cobra.Command, c *admin.Client, _ []string) error {
			list, is, err := c.ServersAndHealth(cmd.Context())
			if err != nil {
				return err
			}
			if pool != "" {
				kept := slices.DeleteFunc(slices.Clone(list), func(s live.ServerState) bool { return s.Pool != pool })
				if len(kept) == 0 {
					return cli.NoPool(pool, list)
				}
				list = kept
			}
			if err := showServers(cmd.OutOrStdout(), list, cli.AsJSON(cmd)); err != nil || is == nil || cli.AsJSON(cmd) {
				return err
			}
			return top.PrintOverall(cmd.OutOrStdout(), is, cli.Colours(cmd.OutOrStdout()))
		}),
	}
	to.Add(cmd)
	cmd.Flags().StringVar(&pool, "pool", "", "show only the servers of this `pool`")
	to.CompletePool(cmd)
	cli.JSONFlag(cmd, cli.EachJSON)
	return cmd
}

func newServerOrder(order, short, long string) *cobra.Command {
	var to cli.Admin
	var pool string
	var noWait, force bool
	cmd := &cobra.Command{
		Use:   order + " NAME",
		Short: short,
		Long:  long,
		Example: "  ringside server " + order + " cache3\n" +
			"  ringside server " + order + " 10.0.0.3:11211 --pool sessions --admin 127.0.0.1:9151",
		Args: cli.WantArgs(1, 1),
		RunE: to.Ask(func(cmd *cobra.Command, c *admin.Client, args []string) error {
			if args[0] == "" { // the control API has no URL for a server with an empty name
				return cli.Usage(errors.New("which server?"))
			}
			list, err := c.Order(cmd.Context(), pool, args[0], order, force)
			if err != nil {
				return cli.AsUsage(err)
			}
			if err := showServers(cmd.OutOrStdout(), list, cli.AsJSON(cmd)); err != nil || len(list) != 1 || list[0].Replicas == nil {
				return err
			}
			if order != health.Restore.String() {
				warnOfCopies(cli.RemarksOf(cmd), &list[0])
				return nil
			}
			if noWait {
				return nil
			}
			return waitForCopies(cmd.Context(), c, cli.RemarksOf(cmd), &list[0])
		}),
	}
	to.Add(cmd)
	if order == health.Restore.String() {
		cmd.Flags().BoolVar(&noWait, "no-wait", false, "do not wait until the server has its replicas again")
	} else {
		cmd.Flags().BoolVar(&force, "force", false, "continue although the server may have the only replica of keys")
	}
	cmd.Flags().StringVar(&pool, "pool", "", "the `pool`, if several have a server with this name")
	to.CompletePool(cmd)
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return to.Complete(cmd, func(s *live.ServerState) string {
			if s.Joins || pool != "" && s.Pool != pool {
				return ""
			}
			return s.Server
		})
	}
	cli.JSONFlag(cmd, cli.EachJSON)
	return cmd
}

func showServers(out io.Writer, list []live.ServerState, asJSON bool) error {
	if asJSON {
		return cli.PrintEach(out, list)
	}
	var text strings.Builder
	w := cli.Table(&text, "POOL\tSERVER\tADDRESS\tSTATE\tFOR\tWHY")
	for _, s := range list {
		at := s.Address
		if s.At != "" {
			at += ", now " + s.At
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%v\t%s\n", s.Pool, s.Server, at, s.State,
			max(0, time.Since(s.Since)).Round(time.Second), cmp.Or(s.Reason(), "-"))
	}
	w.Flush()
	for i, line := range strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n") {
		style := top.Bold
		if i > 0 {
			style = top.StyleOf(list[i-1].Tone())
		}
		if _, err := fmt.Fprintln(out, cli.Paint(out, style, line)); err != nil {
			return err
		}
	}
	return nil
}
