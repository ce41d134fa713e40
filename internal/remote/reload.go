package remote

// ringside reload

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
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Let a running Ringside read its configuration again",
		Long: `Let a running Ringside read its configuration file again, by its admin
interface, wait until it is in force, and print what it has changed.

It exits 0 when the file is in force; 78 when it was refused, with the reasons,
and the old configuration stays in force as a whole; 1 when no Ringside answers.
It needs admin.control, which is for this machine unless the configuration opens
it. With -c the file says where the admin interface is: when that is what has
changed, name the old address by --admin. SIGHUP does the same without an
answer, and watch: on without being asked.

It says so if keys with several copies go to other servers by it. A reload that
comes while those of the last one are about to go waits some seconds.`,
		Example: `  ringside reload
  ringside reload -c /etc/ringside/ringside.yaml`,
		Args: cli.NoFile,
		RunE: to.Ask(func(cmd *cobra.Command, c *admin.Client, _ []string) error {
			done, err := c.Reload(cmd.Context())
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
	if r.Moves {
		fmt.Fprintln(out, "  keys with copies go to other servers when all Ringsides have this configuration: give it to them now, and let none start anew before their logs say that the keys are where they are to be")
	}
	return nil
}
