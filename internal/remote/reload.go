package remote

// This file implements the command `ringside reload`.

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"ringside/internal/cli"
	"ringside/proxy/admin"
)

func newReload() *cobra.Command {
	var to cli.Admin
	var asJSON, accept bool
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Apply a changed configuration to a running instance",
		Long: `Let a running instance reload its configuration file, through its admin interface.
Wait until the file is applied, and print what has changed.

The exit status is 0 if the file was applied. It is 78 if the file was rejected; the
mistakes are printed, and the old configuration stays in use. It is 1 if no instance
replies. This needs admin.control, which is limited to this machine unless the
configuration allows more. -c names the file with the address of the admin interface.
If that address is what has changed, give the old one with --admin. SIGHUP reloads
without reporting the result; watch: on reloads automatically.

The output says if replicated keys move to other servers. A reload during such a move
waits some seconds. A file that moves more keys than max_move of a pool allows is
rejected, also by SIGHUP and watch, unless --accept is given. With --accept, answers of
sources of servers are applied that change more than max_change.`,
		Example: `  ringside reload
  ringside reload -c /etc/ringside/ringside.yaml`,
		Args: cli.NoFile,
		RunE: to.Ask(func(cmd *cobra.Command, c *admin.Client, _ []string) error {
			done, err := c.Reload(cmd.Context(), accept)
			if s := (*admin.StatusError)(nil); errors.As(err, &s) && s.Status == http.StatusUnprocessableEntity {
				return cli.Refused(err)
			}
			if err != nil {
				return cli.AsUsage(err)
			}
			if asJSON {
				return cli.NewEncoder(cmd.OutOrStdout()).Encode(done)
			}
			return printReloaded(cmd.OutOrStdout(), done)
		}),
	}
	to.Add(cmd)
	cli.JSONFlag(cmd, &asJSON, cli.OneJSON)
	cmd.Flags().BoolVar(&accept, "accept", false, "apply the file and the answers of sources even if they exceed max_move or max_change")
	return cmd
}

func printReloaded(out io.Writer, r admin.Reloaded) error {
	fmt.Fprintf(out, "%s is in force (generation %d)\n", r.File, r.Generation)
	if len(r.Changes)+len(r.NextStart) == 0 {
		fmt.Fprintln(out, "  it changes nothing")
	}
	for _, c := range r.Changes {
		fmt.Fprintf(out, "  %s\n", c)
	}
	for _, c := range r.NextStart {
		fmt.Fprintf(out, "  at the next start: %s\n", c)
	}
	for _, what := range r.Resize {
		fmt.Fprintf(out, "  %s\n", what)
	}
	if r.Moves {
		fmt.Fprintln(out, "  replicated keys move to other servers when all instances have this configuration: reload all of them now, and restart none before its log says that the replicated keys have moved")
	}
	return nil
}
