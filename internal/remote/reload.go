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
	var accepts admin.Consent
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
sources of servers are applied that change more than max_change.

If no server in use answers, an instance can't know whether it is cut off, and a change
of servers may wait. ringside server list then says so. Only if these servers are dead,
and all instances have the new file, use --servers-dead on each. If other instances still
use the servers, their values are lost.`,
		Example: `  ringside reload
  ringside reload -c /etc/ringside/ringside.yaml`,
		Args: cli.NoFile,
		RunE: to.Ask(func(cmd *cobra.Command, c *admin.Client, _ []string) error {
			done, err := c.Reload(cmd.Context(), accepts)
			if s := (*admin.StatusError)(nil); errors.As(err, &s) && s.Status == http.StatusUnprocessableEntity {
				return cli.Refused(err)
			}
			if err != nil {
				return cli.AsUsage(err)
			}
			if cli.AsJSON(cmd) {
				return cli.NewEncoder(cmd.OutOrStdout()).Encode(done)
			}
			return printReloaded(cmd.OutOrStdout(), done)
		}),
	}
	to.Add(cmd)
	cli.JSONFlag(cmd, cli.OneJSON)
	cmd.Flags().BoolVar(&accepts.Dead, "servers-dead", false, "confirm that the servers in use are dead, where a change of servers waits for that")
	cmd.Flags().BoolVar(&accepts.Moves, "accept", false, "apply the file and the answers of sources even if they exceed max_move or max_change")
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
	for _, pool := range r.Dead {
		fmt.Fprintf(out, "  pool %s: its servers in use count as dead, so the change of servers goes on when they have not answered for a minute\n", pool)
	}
	if r.Moves {
		fmt.Fprintln(out, "  replicated keys move to other servers when all instances have this configuration: reload all of them now, and restart none before its log says that the replicated keys have moved")
	}
	return nil
}
