package remote

// This file implements the command `ringside tag`, which invalidates tags through a running
// instance.

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/spf13/cobra"

	"ringside/internal/cli"
	"ringside/proxy/admin"
)

func newTag() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tag",
		Short: "Invalidate groups of values, through a running instance",
		Long: `Invalidate values by their tags, through the admin interface of a running instance.
This needs admin.control, which is limited to this machine unless the configuration
allows more.`,
		Example: `  ringside tag invalidate user:7 posts`,
		Args:    cobra.ArbitraryArgs,
		RunE:    cli.Group,
	}
	cmd.AddCommand(newTagInvalidate())
	return cmd
}

func newTagInvalidate() *cobra.Command {
	var to cli.Admin
	var what admin.Invalidate
	cmd := &cobra.Command{
		Use:   "invalidate NAME…",
		Short: "Invalidate all values that have one of these tags",
		Long: `Invalidate all values that have one of these tags, as a delete of tag:NAME does, and
show the reply of each server. The exit status is 1 if a server did not do it. The other
servers did; repeat the command.`,
		Example: `  ringside tag invalidate user:7
  ringside tag invalidate user:7 posts --pool pages --json`,
		Args: cli.WantArgs(1, math.MaxInt),
		RunE: to.Ask(func(cmd *cobra.Command, c *admin.Client, args []string) error {
			what.Names = args
			list, err := c.InvalidateTags(cmd.Context(), what)
			if err != nil {
				return cli.AsUsage(err)
			}
			show := showInvalidated
			if cli.AsJSON(cmd) {
				show = cli.PrintEach[admin.Invalidated]
			}
			if err := show(cmd.OutOrStdout(), list); err != nil || !slices.ContainsFunc(list, failed) {
				return err
			}
			return errors.New("not all servers have done it: repeat it until they have")
		}),
	}
	to.Add(cmd)
	cmd.Flags().StringVar(&what.Pool, "pool", "", "only on the servers of this `pool`")
	cli.JSONFlag(cmd, cli.EachJSON)
	return cmd
}

func failed(s admin.Invalidated) bool { return !s.Done && !s.Skipped }

func showInvalidated(out io.Writer, list []admin.Invalidated) error {
	w := cli.Table(out, "POOL\tSERVER\tDONE\tWHY")
	for _, s := range list {
		done := "yes"
		switch {
		case s.Skipped:
			done = "out"
		case !s.Done:
			done = "no"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", s.Pool, s.Server, done, cmp.Or(s.Why, "-"))
	}
	return w.Flush()
}
