package remote

// ringside tag: invalidates tags through a running Ringside

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"ringside/internal/cli"
	"ringside/proxy/admin"
)

func newTag() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tag",
		Short: "Invalidate values in groups, through a running Ringside",
		Long: `Invalidate values by their tags, by the admin interface of a running Ringside.
It needs admin.control, which is for this machine unless the configuration opens it.`,
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
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "invalidate NAME…",
		Short: "Drop all values that have one of these tags",
		Long: `Drop all values that have one of these tags, as a delete of tag:NAME does, and
show what each server has answered. Exits 1 if one of them has not done it: the
others have, and it must be repeated.`,
		Example: `  ringside tag invalidate user:7
  ringside tag invalidate user:7 posts --pool pages --json`,
		Args: cli.WantArgs(1, math.MaxInt),
		RunE: to.Ask(func(cmd *cobra.Command, c *admin.Client, args []string) error {
			what.Names = args
			list, err := c.InvalidateTags(cmd.Context(), what)
			if err != nil {
				return cli.AsUsage(err)
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			if !asJSON {
				fmt.Fprintln(w, "POOL\tSERVER\tDONE\tWHY")
			}
			bad := 0
			for _, s := range list {
				done := "yes"
				switch {
				case s.Skipped:
					done = "out"
				case !s.Done:
					done = "no"
					bad++
				}
				if asJSON {
					if err := cli.NewEncoder(cmd.OutOrStdout()).Encode(s); err != nil {
						return err
					}
					continue
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", s.Pool, s.Server, done, cmp.Or(s.Why, "-"))
			}
			if err := w.Flush(); err != nil || bad == 0 {
				return err
			}
			return errors.New("not all servers have done it: repeat it until they have")
		}),
	}
	to.Add(cmd)
	cmd.Flags().StringVar(&what.Pool, "pool", "", "only on the servers of this `pool`")
	cli.JSONFlag(cmd, &asJSON, cli.EachJSON)
	return cmd
}
