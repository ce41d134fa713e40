package remote

// This file implements the command `ringside health`.

import (
	"fmt"

	"github.com/spf13/cobra"

	"ringside/internal/cli"
	"ringside/proxy/admin"
)

func newHealth() *cobra.Command {
	var to cli.Admin
	var alive bool
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask a running instance whether it is ready for clients",
		Long: `Ask a running instance whether it is ready for clients, like /readyz of its admin
interface. For probes in images without a shell or curl.

The exit status is 0 if it is ready. It is 1 if it is not, with the reason, or if there
is no reply. With --alive it asks /healthz: do all event loops respond? Use --alive
for probes that restart the process, and not for probes that redirect clients.`,
		Example: `  ringside health
  ringside health --alive -c /etc/ringside/ringside.yaml`,
		Args: cli.NoFile,
		RunE: to.Ask(func(cmd *cobra.Command, c *admin.Client, _ []string) error {
			ask := c.Ready
			if alive {
				ask = c.Alive
			}
			said, err := ask(cmd.Context())
			if err != nil {
				return err
			}
			if cli.AsJSON(cmd) {
				return cli.NewEncoder(cmd.OutOrStdout()).Encode(struct {
					Health string `json:"health"`
				}{said})
			}
			fmt.Fprintln(cmd.OutOrStdout(), said)
			return nil
		}),
	}
	to.Add(cmd)
	cmd.Flags().BoolVar(&alive, "alive", false, "ask whether all event loops respond, instead")
	cli.JSONFlag(cmd, cli.OneJSON)
	return cmd
}
